//! Parts that are too thin to be drawn by themselves.

use std::ops::Range;

use super::ink::Ink;
use super::row::{CELL, FINE, Side};
use super::scale::Scale;
use vramlab_allocator::units::Bytes;

/// The ink in which each thin part is drawn. A thin part has less than an eighth on average and nowhere as much as two;
/// by itself it would be visible at random, depending on where edges happen to lie. Thin parts on top of each other are
/// drawn as one, in the ink that [`Ink::joint`] gives. If even that is too thin, the part below takes their height, or
/// the part above if they are the lowest.
///
/// The same holds for a floor of several parts of even height when the lowest row also has to show parts above the
/// floor: its cells have two colours, and which of three parts give way would change from column to column.
#[derive(Debug)]
pub(super) struct Faint {
    /// The ink of each thin part, and that in which it is drawn.
    drawn: Vec<(Ink, Option<Ink>)>,
    left: Vec<LeftOut>,
}

/// A part that is left out of some columns.
#[derive(Debug)]
pub(super) struct LeftOut {
    pub ink: Ink,
    pub columns: Range<usize>,
    /// Which of the parts beside it takes its height, if both are there.
    pub heir: Side,
}

impl Faint {
    /// The thin parts of `columns`, whose parts are listed from the bottom up.
    pub fn of<'a>(columns: impl Iterator<Item = &'a [(Bytes, Ink)]> + Clone, scale: Scale) -> Self {
        let parts = Thickness::of(columns.clone());
        let is_thin = |part: &Thickness| {
            !part.ink.stays() && scale.units(part.mean(), 1) < FINE && scale.units(part.most, 1) < 2 * FINE
        };
        let mut faint = Vec::new();
        for group in parts.chunk_by(|lower, upper| is_thin(lower) && is_thin(upper)) {
            let Some(joint) = Thickness::joint(group).filter(|_| is_thin(&group[0])) else { continue };
            let seen = scale.units(group.iter().map(Thickness::mean).sum(), 1) >= FINE;
            faint.extend(group.iter().map(|part| (part.ink, seen.then_some(joint))));
        }
        let floor = floor(&parts, columns, scale);
        faint.retain(|(ink, _)| floor.iter().all(|part| part.ink != *ink));
        faint.extend(floor.iter().map(|part| (part.ink, Thickness::joint(floor))));
        Self { drawn: faint, left: Vec::new() }
    }

    /// Like [`Faint::of`], for cells that show one part. The lowest parts are drawn as one if all of them reach through
    /// all columns, are even and less than a row, one of them has less than half a row, and together they have at least
    /// a third of a row.
    pub fn of_cells<'a>(columns: impl Iterator<Item = &'a [(Bytes, Ink)]> + Clone, scale: Scale) -> Self {
        let parts = Thickness::of(columns.clone());
        let filled = filled(columns);
        let is_less = |part: &Thickness, shares: u64| shares * scale.units(part.most, 1) < CELL;
        let is_low =
            |part: &&Thickness| part.columns == filled && (is_less(part, 2) || is_less(part, 1) && part.is_even());
        let floor = &parts[..parts.iter().take_while(is_low).count()];
        let together = floor.iter().map(Thickness::mean).sum();
        let is_faint = floor.len() > 1 && floor.iter().any(|part| is_less(part, 2));
        let joint = Thickness::joint(floor).filter(|_| is_faint && 3 * scale.units(together, 1) >= CELL);
        let drawn = floor.iter().filter(|_| joint.is_some()).map(|part| (part.ink, joint)).collect();
        Self { drawn, left: Vec::new() }
    }

    /// Leaves a part out of some columns.
    pub fn leave(&mut self, part: LeftOut) {
        self.left.push(part);
    }

    /// Which part takes the height of this one, if it is left out of this column.
    pub fn heir(&self, ink: Ink, column: usize) -> Option<Side> {
        self.left.iter().find(|left| left.ink == ink && left.columns.contains(&column)).map(|left| left.heir)
    }

    /// The ink in which a part is drawn, its own or another; `None` if it is drawn nowhere.
    pub fn drawn(&self, ink: Ink) -> Option<Ink> {
        self.drawn.iter().find(|(faint, _)| *faint == ink).map_or(Some(ink), |(_, drawn)| *drawn)
    }
}

/// The lowest parts that are drawn as one, if there are any. Each has an even height wherever it is, or is in all
/// columns and never twice as high as elsewhere; together they are less than a row; and in most columns something above
/// shares the row with them.
fn floor<'a, 'b>(
    parts: &'a [Thickness],
    columns: impl Iterator<Item = &'b [(Bytes, Ink)]> + Clone,
    scale: Scale,
) -> &'a [Thickness] {
    let filled = filled(columns.clone());
    let goes_on = |part: &Thickness| part.is_even() || part.columns == filled && part.most < 2 * part.least;
    let mut height = 0u64;
    let even = parts.iter().take_while(|part| {
        height = height.saturating_add(part.most);
        !part.ink.stays() && goes_on(part) && scale.units(height, 1) + FINE <= CELL
    });
    let floor = &parts[..even.count()];
    let is_floor = |ink: &Ink| floor.iter().any(|part| part.ink == *ink);
    let (mut shared, mut all) = (0usize, 0usize);
    for column in columns.filter(|column| !column.is_empty()) {
        all += 1;
        let on_it: u64 = column.iter().filter(|(_, ink)| !is_floor(ink)).map(|(height, _)| height.get()).sum();
        shared += usize::from(scale.units(on_it, 1) >= FINE);
    }
    if floor.len() >= 2 && 2 * shared > all { floor } else { &[] }
}

/// The number of columns that have any part.
fn filled<'a>(columns: impl Iterator<Item = &'a [(Bytes, Ink)]>) -> u128 {
    columns.filter(|column| !column.is_empty()).count() as u128
}

/// How high a part is in the columns that contain it.
#[derive(Clone, Copy)]
struct Thickness {
    ink: Ink,
    sum: u128,
    columns: u128,
    least: u64,
    most: u64,
}

impl Thickness {
    /// The thickness of all parts, in the order in which they lie on each other.
    fn of<'a>(columns: impl Iterator<Item = &'a [(Bytes, Ink)]>) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::with_capacity(16);
        for column in columns {
            let mut next = 0;
            for (height, ink) in column {
                // Most columns have the same parts as the column before.
                let known = match parts.get(next) {
                    Some(part) if part.ink == *ink => Some(next),
                    _ => parts.iter().position(|part| part.ink == *ink),
                };
                let place = known.unwrap_or(next);
                if known.is_none() {
                    parts.insert(place, Self { ink: *ink, sum: 0, columns: 0, least: u64::MAX, most: 0 });
                }
                let part = &mut parts[place];
                (part.sum, part.columns) = (part.sum + u128::from(height.get()), part.columns + 1);
                (part.least, part.most) = (part.least.min(height.get()), part.most.max(height.get()));
                next = place + 1;
            }
        }
        parts
    }

    /// The joint ink of parts on top of each other, not counting parts that are tiny beside the largest; `None` if there are none.
    fn joint(parts: &[Self]) -> Option<Ink> {
        let most = parts.iter().map(|part| part.most).max()?;
        let inks: Vec<Ink> = parts.iter().filter(|part| part.most >= most / 8).map(|part| part.ink).collect();
        parts.iter().max_by_key(|part| part.sum).map(|largest| Ink::joint(&inks, largest.ink))
    }

    /// True if the part is about as high in each column that contains it.
    fn is_even(&self) -> bool {
        self.most.saturating_sub(self.least) <= self.most / 4
    }

    fn mean(&self) -> u64 {
        u64::try_from(self.sum / self.columns.max(1)).unwrap_or(u64::MAX)
    }
}
