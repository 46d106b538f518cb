//! Thin parts that are drawn unsteadily.
//!
//! A cell shows two parts. Where three meet in the cells at which columns end, a thin part is hidden in one column and
//! drawn too high in the next, depending on where the edge below it lies. In a run of such columns it is left out.

use super::ink::Ink;
use super::row::{Column, FINE, Side, StackCell};
use super::thin::LeftOut;

/// The height of a thin part in a column and on average, in fine units.
const THIN: u64 = 5 * FINE / 2;
const THIN_MEAN: u64 = 2 * FINE;
/// A part that is nowhere higher may be left out even if the parts beside it are even.
const FAINT: u64 = 2 * FINE;
/// The fewest columns from which a part is left out.
const RUN: usize = 8;
/// By how much a thin part may be drawn higher than it is.
const SWOLLEN: u64 = FINE;
/// A part is unsteady if it is wrong in 1/[`SHARE`] or more of the columns that show it.
const SHARE: usize = 4;

/// The part that is wrong most often in runs of columns in which it is thin, left out of them. It is wrong where a
/// crowded cell hides it, and where it is drawn higher than it is because the cell hides another part.
pub(super) fn unsteady(drawn: &[(Column, Vec<StackCell>)]) -> Vec<LeftOut> {
    let mut inks: Vec<Ink> = Vec::new();
    for ink in drawn.iter().flat_map(|(column, cells)| column.hidden(cells)) {
        if !ink.stays() && !inks.contains(&ink) {
            inks.push(ink);
        }
    }
    let runs = inks.into_iter().map(|ink| thin_runs(drawn, ink));
    let left = runs.max_by_key(|(wrong, _)| *wrong).filter(|(wrong, _)| *wrong > 0);
    left.map(|(_, left)| left).unwrap_or_default()
}

/// The runs of columns in which a part is thin and drawn unsteadily, and in how many columns it is wrong.
fn thin_runs(drawn: &[(Column, Vec<StackCell>)], ink: Ink) -> (usize, Vec<LeftOut>) {
    let heights: Vec<u64> = drawn.iter().map(|(column, _)| column.height_of(ink)).collect();
    let is_faint = heights.iter().all(|height| *height <= FAINT);
    let shown = |x: usize| -> u64 { drawn[x].1.iter().filter(|cell| cell.shows(ink)).map(|cell| cell.of(ink)).sum() };
    let (mut all, mut left) = (0, Vec::new());
    let mut begin = 0;
    for run in heights.chunk_by(|one, other| (*one <= THIN) == (*other <= THIN)) {
        let columns = begin..begin + run.len();
        begin = columns.end;
        let held: Vec<usize> = columns.clone().filter(|x| heights[*x] >= FINE / 2).collect();
        let mean = held.iter().map(|x| heights[*x]).sum::<u64>() / held.len().max(1) as u64;
        if run[0] > THIN || mean > THIN_MEAN || run.len() < RUN {
            continue;
        }
        let seen = held.iter().filter(|x| shown(**x) > 0).count();
        let wrong = held.iter().filter(|x| shown(**x) == 0 || shown(**x) > heights[**x] + SWOLLEN).count();
        if seen == 0 || SHARE * wrong < seen || grows(&held.iter().map(|x| heights[*x]).collect::<Vec<_>>()) {
            continue;
        }
        // An even part must not grow.
        let takes = |side: &Side| varies(held.iter().map(|x| drawn[*x].0.beside(ink, *side)));
        if let Some(heir) = Side::BOTH.into_iter().find(takes).or_else(|| is_faint.then_some(Side::Below)) {
            all += wrong;
            left.push(LeftOut { ink, columns, heir });
        }
    }
    (all, left)
}

/// True if the heights rise or fall all along: the last third is twice as high as the first, or half as high. Such a part
/// would begin as a block where it is no longer thin.
fn grows(heights: &[u64]) -> bool {
    let third = heights.len() / 3;
    let (first, last): (u64, u64) = (heights[..third].iter().sum(), heights[heights.len() - third..].iter().sum());
    first >= 2 * last || last >= 2 * first
}

/// True if these heights of a part differ by more than a quarter, or it is not always the same part.
fn varies(mut heights: impl Iterator<Item = Option<(Ink, u64)>>) -> bool {
    let Some(Some((ink, first))) = heights.next() else { return false };
    let (mut least, mut most) = (first, first);
    for part in heights {
        match part {
            Some((other, height)) if other == ink => (least, most) = (least.min(height), most.max(height)),
            _ => return true,
        }
    }
    most - least > most / 4
}
