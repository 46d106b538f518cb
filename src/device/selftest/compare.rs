//! Comparison of one output with the processor's.

use super::bound::{ErrorBound, Limits};
use super::values::rounded;
use crate::DType;

/// The result of comparing an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Nearness {
    /// The worst of the errors described in [`Limits`]; infinite if a value is NaN where it should not be.
    pub error: f64,
    pub tolerance: f64,
    /// The first wrong element.
    pub wrong: Option<Mismatch>,
}

/// A wrong element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mismatch {
    pub index: usize,
    pub found: f64,
    pub expected: f64,
}

impl Nearness {
    pub fn is_close(&self) -> bool {
        self.wrong.is_none()
    }

    /// The share of the permitted error that was used.
    pub fn used(&self) -> f64 {
        if self.is_close() && self.error == 0.0 { 0.0 } else { self.error / self.tolerance.max(f64::MIN_POSITIVE) }
    }
}

/// Compares `found`, of `dtype`, with `expected`. NaN in `expected` requires NaN in `found`, unless the elements are
/// unused.
pub(crate) fn compare(found: &[f64], expected: &[f64], dtype: DType, bound: ErrorBound, tf32: bool) -> Nearness {
    let limits = bound.limits(dtype, tf32);
    match bound {
        ErrorBound::Free => Nearness::default(),
        ErrorBound::Exact => exact(found, &rounded(dtype, expected)),
        ErrorBound::Formula | ErrorBound::Sum(_) | ErrorBound::Cancelling(..) => near(found, expected, limits),
    }
}

fn exact(found: &[f64], expected: &[f64]) -> Nearness {
    let wrong = pairs(found, expected).find(|wrong| !same(wrong.found, wrong.expected));
    Nearness { error: if wrong.is_some() { f64::INFINITY } else { 0.0 }, tolerance: 0.0, wrong }
}

fn same(x: f64, y: f64) -> bool {
    x == y || (x.is_nan() && y.is_nan())
}

fn pairs<'a>(found: &'a [f64], expected: &'a [f64]) -> impl Iterator<Item = Mismatch> + 'a {
    found.iter().zip(expected).enumerate().map(|(index, (&found, &expected))| Mismatch { index, found, expected })
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³")]
fn near(found: &[f64], expected: &[f64], limits: Limits) -> Nearness {
    let (mut squares, mut differences, mut count) = (0.0, 0.0, 0_usize);
    for Mismatch { found, expected, .. } in pairs(found, expected).filter(|pair| pair.expected.is_finite()) {
        let difference = ((found - expected).abs() - limits.step).max(0.0);
        squares += expected * expected;
        differences += difference * difference;
        count += 1;
    }
    let count = count.max(1) as f64;
    let size = (squares / count).sqrt().max(limits.size);
    // NaN stays NaN, and is not a tolerable error.
    let whole = if differences == 0.0 { 0.0 } else { (differences / count).sqrt() / size };
    let mut worst: Option<(f64, Mismatch)> = None;
    let mut first = None;
    for pair in pairs(found, expected) {
        if !pair.expected.is_finite() {
            if !same(pair.found, pair.expected) && first.is_none() {
                first = Some(pair);
            }
            continue;
        }
        let difference = ((pair.found - pair.expected).abs() - limits.step).max(0.0);
        let error = if pair.found.is_nan() {
            f64::INFINITY
        } else if difference == 0.0 {
            0.0
        } else {
            difference / (pair.expected.abs() + limits.spread * size) / limits.patience
        };
        if error > limits.tolerance && first.is_none() {
            first = Some(pair);
        }
        if worst.is_none_or(|(most, _)| error > most) {
            worst = Some((error, pair));
        }
    }
    let spot = worst.map_or(0.0, |(error, _)| error);
    let error = if first.is_some_and(|pair| !pair.found.is_finite() || !pair.expected.is_finite()) {
        f64::INFINITY
    } else {
        whole.max(spot)
    };
    let wrong = first.or_else(|| if whole <= limits.tolerance { None } else { worst.map(|(_, pair)| pair) });
    Nearness { error, tolerance: limits.tolerance, wrong }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(found: &[f64], expected: &[f64], bound: ErrorBound) -> Nearness {
        compare(found, expected, DType::F32, bound, false)
    }

    #[test]
    fn what_is_missing_or_wrong_is_found_where_it_is() {
        let truth = [1.0, -2.0, 3.0];
        assert!(f32s(&truth, &truth, ErrorBound::Exact).is_close());
        assert!(f32s(&[1.000_001, -2.0, 3.0], &truth, ErrorBound::Formula).is_close());
        let far = f32s(&[1.0, -2.001, 3.0], &truth, ErrorBound::Formula);
        assert_eq!(far.wrong.map(|wrong| wrong.index), Some(1));
        for bound in [ErrorBound::Exact, ErrorBound::Formula, ErrorBound::Sum(10)] {
            let missing = f32s(&[1.0, -2.0, f64::NAN], &truth, bound);
            assert_eq!(missing.wrong.map(|wrong| wrong.index), Some(2), "{bound:?}");
            assert_eq!(missing.error, f64::INFINITY);
            let unexpected = f32s(&[1.0, -2.0, 3.0], &[1.0, f64::NAN, 3.0], bound);
            assert_eq!(unexpected.wrong.map(|wrong| wrong.index), Some(1), "{bound:?}");
            assert!(!f32s(&[1.0, f64::INFINITY, 3.0], &truth, bound).is_close());
            let nan = [1.0, f64::NAN, f64::NEG_INFINITY];
            assert!(f32s(&nan, &nan, bound).is_close(), "{bound:?}");
        }
    }

    #[test]
    fn sums_are_judged_by_their_norm_and_by_their_worst_element() {
        let truth: Vec<f64> = (0..1000).map(|i| f64::from(i % 7) - 3.0).collect();
        let everywhere: Vec<f64> = truth.iter().map(|x| x * (1.0 + 3e-5)).collect();
        assert!(!f32s(&everywhere, &truth, ErrorBound::Sum(100)).is_close());
        let mut once = truth.clone();
        once[500] += 4e-4;
        let far = f32s(&once, &truth, ErrorBound::Sum(100));
        assert_eq!(far.wrong.map(|wrong| wrong.index), Some(500));
        once[500] = truth[500] + 1e-5;
        assert!(f32s(&once, &truth, ErrorBound::Sum(100)).is_close());
    }

    #[test]
    fn the_least_numbers_of_a_type_may_be_rounded() {
        let least = 2_f64.powi(-24);
        let near = compare(&[least, 0.0], &[1.4 * least, 0.4 * least], DType::F16, ErrorBound::Sum(4), false);
        assert!(near.is_close(), "{near:?}");
        assert!(!compare(&[0.0], &[0.6 * least], DType::F16, ErrorBound::Sum(4), false).is_close());
    }
}
