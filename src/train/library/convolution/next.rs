//! Workspaces of cuDNN's plans after the first: `next.txt`, whose head explains it, read when a workspace is refused.

use std::sync::LazyLock;

use super::problem::{Arithmetic, Convolution, Pass, as_f64};
use super::table;
use super::{OrderedDistance, bytes, workspace};

const TABLE: &str = include_str!("next.txt");

/// The plans of one shape after the first, by arithmetic, then by pass.
struct Further {
    like: Convolution,
    runs: [[Vec<BatchRun>; 3]; 4],
}

/// Batches whose plans after the first come in the same order.
#[derive(Clone, Debug, Default, PartialEq)]
struct BatchRun {
    first: usize,
    /// Plans that take less than all plans before them.
    lower: Vec<Lower>,
}

/// A plan that takes less than all plans before it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lower {
    /// Its place after the first plan, from 1 on.
    place: usize,
    fixed: f64,
    per_image: f64,
}

/// The workspaces of the plans after the first, which takes `first` bytes, in the order in which PyTorch tries them. The
/// last one takes nothing.
///
/// A shape that was not measured gets the plans of the most similar measured one, with workspaces in proportion to the first
/// plan's.
pub(super) fn further(pass: Pass, convolution: &Convolution, arithmetic: Arithmetic, first: usize) -> Vec<usize> {
    if first == 0 {
        return Vec::new();
    }
    let measured = measured();
    let side = convolution.side();
    let square = convolution.sides == [side, side];
    let exact = measured.iter().find(|plans| square && plans.like.is_alike(convolution));
    let alike = || measured.iter().min_by_key(|plans| OrderedDistance(plans.like.distance(convolution)));
    let (plans, share) = match exact {
        Some(plans) => (Some(plans), 1.0),
        None => {
            let theirs = |plans: &Further| {
                let like = Convolution { batch: convolution.batch, ..plans.like };
                workspace(pass, &like, arithmetic)
            };
            match alike().map(|plans| (plans, theirs(plans))) {
                Some((plans, theirs)) if theirs > 0 => (Some(plans), as_f64(first) / as_f64(theirs)),
                _ => (None, 1.0),
            }
        }
    };
    let runs = plans.map_or(&[][..], |plans| &plans.runs[arithmetic as usize][pass as usize]);
    let run = runs.iter().rev().find(|run| run.first <= convolution.batch).or(runs.first());
    let Some(run) = run else { return vec![0] };
    let mut sizes = Vec::new();
    let mut lowest = first;
    for lower in &run.lower {
        sizes.resize(lower.place.saturating_sub(1).max(sizes.len()), lowest);
        lowest = bytes((lower.fixed + lower.per_image * as_f64(convolution.batch)) * share);
        sizes.push(lowest);
    }
    if lowest > 0 {
        sizes.push(0);
    }
    sizes
}

/// All measured shapes.
fn measured() -> &'static [Further] {
    static MEASURED: LazyLock<Vec<Further>> =
        LazyLock::new(|| TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(shape).collect());
    &MEASURED
}

fn shape(line: &str) -> Option<Further> {
    let (shape, curves) = line.split_once(':')?;
    let like = table::shape(shape)?;
    let mut runs: [[Vec<BatchRun>; 3]; 4] = Default::default();
    let mut kinds = curves.split(';');
    for passes in &mut runs {
        let mut texts = kinds.next()?.split('|');
        for pass in passes {
            *pass = texts.next()?.split_whitespace().map(run).collect::<Option<_>>()?;
        }
    }
    Some(Further { like, runs })
}

fn run(word: &str) -> Option<BatchRun> {
    let (first, plans) = word.split_once('=')?;
    let lower = |text: &str| {
        let (place, line) = text.split_once('*')?;
        let (fixed, per_image) = table::line(line)?;
        Some(Lower { place: place.parse().ok()?, fixed, per_image })
    };
    Some(BatchRun { first: first.parse().ok()?, lower: plans.split(',').map(lower).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPATIAL: Convolution = Convolution {
        batch: 80,
        inputs: 64,
        sides: [56, 56],
        outputs: 64,
        kernel: 3,
        stride: 1,
        padding: 1,
        transposed: false,
    };

    #[test]
    fn every_line_of_the_table_is_read_and_goes_down() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(measured().len(), lines);
        for run in measured().iter().flat_map(|plans| plans.runs.iter().flatten().flatten()) {
            assert!(run.lower.is_sorted_by(|a, b| a.place < b.place), "{run:?}");
            let last = run.lower.last().unwrap();
            assert_eq!((last.fixed, last.per_image), (0.0, 0.0), "{run:?}");
        }
    }

    #[test]
    fn plans_come_in_their_order_and_end_with_one_that_takes_nothing() {
        let f32 = |pass, batch| {
            let convolution = Convolution { batch, ..SPATIAL };
            let first = workspace(pass, &convolution, Arithmetic::F32);
            (first, further(pass, &convolution, Arithmetic::F32, first))
        };
        assert_eq!(f32(Pass::Forward, 80), (0, vec![]), "nothing gives way to nothing");
        assert_eq!(f32(Pass::InputGradient, 80), (106_954_752, vec![0]));
        // The second plan takes more than the first: if the first is refused, so is the second.
        assert_eq!(f32(Pass::WeightGradient, 80), (289_603_584, vec![289_603_584, 0]));
        let wide = Convolution { inputs: 512, sides: [7, 7], outputs: 2048, kernel: 1, padding: 0, ..SPATIAL };
        let first = workspace(Pass::WeightGradient, &wide, Arithmetic::F32);
        assert_eq!(further(Pass::WeightGradient, &wide, Arithmetic::F32, first)[0], 8192);
        let halves = further(Pass::Forward, &SPATIAL, Arithmetic::F16, 128_598_163);
        assert!(halves.len() > 20 && halves.is_sorted_by(|a, b| a >= b), "{halves:?}");
        assert_eq!((halves[0], halves.last()), (128_598_163, Some(&0)));
        assert!(halves.iter().any(|size| (1..halves[0]).contains(size)), "some plan takes less: {halves:?}");
    }

    #[test]
    fn a_shape_that_was_not_measured_gives_way_as_the_most_alike_does() {
        let wider = Convolution { inputs: 72, outputs: 72, ..SPATIAL };
        let first = workspace(Pass::Forward, &wider, Arithmetic::F16);
        let sizes = further(Pass::Forward, &wider, Arithmetic::F16, first);
        let theirs = workspace(Pass::Forward, &SPATIAL, Arithmetic::F16);
        let share = as_f64(first) / as_f64(theirs);
        let scaled = further(Pass::Forward, &SPATIAL, Arithmetic::F16, theirs);
        assert!(first > 0 && share != 1.0, "it takes something else: {first}");
        let scaled: Vec<usize> = scaled.into_iter().map(|size| bytes(as_f64(size) * share)).collect();
        let near = |(a, b): (&usize, &usize)| a.abs_diff(*b) <= 1;
        assert!(sizes.len() == scaled.len() && sizes.iter().zip(&scaled).all(near), "{sizes:?} for {scaled:?}");
    }
}
