//! Summarises a figure over many steps.

use serde::Serialize;

use crate::units::Bytes;

/// Statistics of one figure over all steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// The mean, rounded down to a byte.
    pub mean: Bytes,
    /// Half of the steps stay at or below it.
    pub p50: Bytes,
    /// 99 of a hundred steps stay at or below it.
    pub p99: Bytes,
    /// The highest.
    pub max: Bytes,
}

impl Quantiles {
    /// The statistics of `figures`, by nearest rank; `None` if there are none.
    #[must_use]
    pub fn of(figures: impl Iterator<Item = Bytes>) -> Option<Self> {
        let mut sorted: Vec<Bytes> = figures.collect();
        sorted.sort_unstable();
        let max = *sorted.last()?;
        let rank = |percent: usize| {
            let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(at).copied().unwrap_or(max)
        };
        let sum: u128 = sorted.iter().map(|bytes| u128::from(bytes.get())).sum();
        let mean = Bytes(u64::try_from(sum / sorted.len() as u128).unwrap_or(u64::MAX));
        Some(Self { mean, p50: rank(50), p99: rank(99), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest() {
        let of = |figures: &[u64]| Quantiles::of(figures.iter().copied().map(Bytes));
        assert_eq!(of(&[]), None);
        let one = Bytes(7);
        assert_eq!(of(&[7]), Some(Quantiles { mean: one, p50: one, p99: one, max: one }));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        let expected = Quantiles { mean: Bytes(50), p50: Bytes(50), p99: Bytes(99), max: Bytes(100) };
        assert_eq!(of(&hundred), Some(expected));
    }
}
