//! A figure over several consecutive steps, separated from noise and from the ramp before it.

use serde::Serialize;

use super::Micros;
use vramlab_allocator::units::Bytes;

/// A figure over several steps: the median and the quartiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Half of the steps have less than this.
    pub median: f64,
    /// A quarter of the steps has less than this.
    pub low: f64,
    /// A quarter of the steps has more than this.
    pub high: f64,
}

/// The fewest steps that form a level, and the fewest rises that form a trend. Fewer can be chance.
const LEVEL: usize = 3;
/// Values that differ by at most this share form one level.
const SAME: f64 = 0.001;
/// The fewest steps that show where a ramp ends.
const SHOWS_RAMP: usize = 6;
/// If the quartiles differ by more than this share, a change must be twice as large to count.
const ROUGH: f64 = 0.25;

impl Figure {
    /// The quartiles of all values.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: usize| values.get((values.len() * share / 4).min(values.len().saturating_sub(1))).copied();
        Some(Self { median: at(2)?, low: at(1)?, high: at(3)? })
    }

    /// A figure in bytes, which a run repeats exactly: the level that the steps reached, or the last value if it still
    /// rises or falls, or else the quartiles.
    pub(super) fn of_bytes(values: &[f64]) -> Option<Self> {
        let last = *values.last()?;
        let level = values.iter().rev().take_while(|value| (*value - last).abs() <= last.abs() * SAME).count();
        if level >= LEVEL.min(values.len()) {
            return Self::of(values[values.len() - level..].iter().copied());
        }
        let changes = || values.windows(2).map(|pair| pair[1] - pair[0]);
        let (rises, falls) = (changes().filter(|by| *by > 0.0).count(), changes().filter(|by| *by < 0.0).count());
        if rises.min(falls) == 0 && rises.max(falls) >= LEVEL {
            return Some(Self::exact(last));
        }
        Self::of(values.iter().copied())
    }

    /// A figure of times, which jitter: the quartiles of the steps after an initial ramp.
    pub(super) fn of_times(values: &[f64]) -> Option<Self> {
        Self::of(values[behind_ramp(values)..].iter().copied())
    }

    /// A value that was seen once and is exact.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { median: value, low: value, high: value }
    }

    /// The median as bytes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.median as u64)
    }

    /// The median as a time.
    #[must_use]
    pub fn micros(&self) -> Micros {
        Micros(self.median as u64)
    }

    /// Half the distance between the quartiles: by how much steps differ from each other anyway.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The indices of the best figures: those that differ from the very best by no more than steps differ from each
    /// other, or by half a per cent. Empty if that would be all of them.
    #[must_use]
    pub fn best_of(all: &[Option<Self>], less_is_good: bool) -> Vec<usize> {
        const NEAR: f64 = 0.005;
        let known: Vec<(usize, Self)> =
            all.iter().enumerate().filter_map(|(at, figure)| Some((at, (*figure)?))).collect();
        let order = |a: f64, b: f64| if less_is_good { a.total_cmp(&b) } else { b.total_cmp(&a) };
        let Some((_, best)) = known.iter().min_by(|(_, a), (_, b)| order(a.median, b.median)) else {
            return Vec::new();
        };
        let near = best.median.abs() * NEAR;
        let is_as_good = |figure: &Self| !best.differs(figure) || (figure.median - best.median).abs() < near;
        let as_good: Vec<usize> = known.iter().filter(|(_, figure)| is_as_good(figure)).map(|(at, _)| *at).collect();
        if as_good.len() == known.len() { Vec::new() } else { as_good }
    }

    /// True if `after` differs by more than steps differ from each other. Figures that never vary differ as soon as
    /// they are not equal. If steps differ a lot, the change must be twice as large.
    #[must_use]
    pub fn differs(&self, after: &Self) -> bool {
        let noise = 2.0 * self.spread().max(after.spread());
        let rough = noise > ROUGH * self.median.abs();
        (after.median - self.median).abs() > if rough { 2.0 * noise } else { noise }
    }
}

/// The index at which the steps after a ramp begin: split there, two medians leave less than half of the deviation that
/// one median leaves. 0 if there is no ramp.
fn behind_ramp(values: &[f64]) -> usize {
    if values.len() < SHOWS_RAMP {
        return 0;
    }
    let around = |part: &[f64]| -> f64 {
        let median = Figure::of(part.iter().copied()).map_or(0.0, |figure| figure.median);
        part.iter().map(|value| (value - median).abs()).sum()
    };
    let split = |at: usize| around(&values[..at]) + around(&values[at..]);
    let splits = (1..=values.len() - LEVEL).map(|at| (split(at), at));
    let best = splits.min_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(left, _)| left * 2.0 < around(values)).map_or(0, |(_, at)| at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values between −1 and 1 that look random and are always the same.
    fn jitter(seed: u64) -> impl Iterator<Item = f64> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        })
    }

    proptest! {
        #[test]
        fn bytes_that_settle_are_the_level_that_they_settled_at(
            ramp in proptest::collection::vec(1_u32..1000, 0..7),
            level in 1001_u32..5000,
            steps in 3_usize..10,
        ) {
            let values: Vec<f64> = ramp.into_iter().chain(vec![level; steps]).map(f64::from).collect();
            prop_assert_eq!(Figure::of_bytes(&values), Some(Figure::exact(f64::from(level))));
        }

        #[test]
        fn bytes_that_still_rise_are_as_high_as_they_have_come(from in 1_u32..1000, by in proptest::collection::vec(1_u32..900, 4..10)) {
            let rising: Vec<f64> = by.iter().scan(from, |at, by| { *at += by; Some(f64::from(*at)) }).collect();
            let last = *rising.last().unwrap();
            if rising.windows(2).all(|pair| pair[1] > pair[0] * 1.01) {
                prop_assert_eq!(Figure::of_bytes(&rising), Some(Figure::exact(last)));
                let falling: Vec<f64> = rising.iter().rev().copied().collect();
                prop_assert_eq!(Figure::of_bytes(&falling), Some(Figure::exact(rising[0])));
            }
        }

        #[test]
        fn a_level_reached_by_a_ramp_is_no_noise_to_what_was_before(
            before in 100_u32..1000, steps in 4_usize..8, rise in 2_u32..50,
        ) {
            // The cache grows for some steps, then stays. Double the value is a change, never noise.
            let flat = vec![f64::from(before); 10];
            let grown = f64::from(before * 2);
            let ramp = (1..=10 - steps).map(|step| f64::from(before) + f64::from(rise) * step as f64);
            let after: Vec<f64> = ramp.chain(vec![grown; steps]).collect();
            let (a, b) = (Figure::of_bytes(&flat).unwrap(), Figure::of_bytes(&after).unwrap());
            prop_assert!(a.differs(&b));
            prop_assert_eq!((a.median, b.median, b.spread()), (f64::from(before), grown, 0.0));
        }

        #[test]
        fn times_behind_a_ramp_are_those_of_the_level(seed in 1_u64..5000, high in 2_u32..20, ramp in 1_usize..5) {
            // The first steps take several times as long; the rest jitters by two per cent.
            let level: Vec<f64> = jitter(seed).take(10 - ramp).map(|by| 100.0 + 2.0 * by).collect();
            let values: Vec<f64> = vec![100.0 * f64::from(high); ramp].into_iter().chain(level).collect();
            let figure = Figure::of_times(&values).unwrap();
            prop_assert!((figure.median - 100.0).abs() <= 2.0, "{:?} of {:?}", figure, values);
            prop_assert!(figure.spread() <= 2.0);
            // Half the time must be recognised without the noise of the ramp.
            let half = Figure::exact(50.0);
            prop_assert!(figure.differs(&half));
        }

        #[test]
        fn what_is_called_a_change_stands_out_of_the_noise_beside_it(
            a in proptest::collection::vec(1_u32..1000, 1..12), b in proptest::collection::vec(1_u32..1000, 1..12),
        ) {
            let of = |values: &[u32]| Figure::of_times(&values.iter().copied().map(f64::from).collect::<Vec<_>>()).unwrap();
            let (a, b) = (of(&a), of(&b));
            if a.differs(&b) {
                let noise = 2.0 * a.spread().max(b.spread()) / a.median;
                let change = (b.median - a.median).abs() / a.median;
                prop_assert!(change > noise);
                prop_assert!(noise <= ROUGH || change > 2.0 * noise, "{change} ±{noise}");
            }
        }
    }

    #[test]
    fn steps_of_one_kind_are_seldom_taken_for_two() {
        let window = |seed: u64| -> Figure {
            Figure::of_times(&jitter(seed).skip(3).take(10).map(|by| 100.0 + 10.0 * by).collect::<Vec<_>>()).unwrap()
        };
        let different = (1..2000_u64).filter(|seed| window(2 * seed).differs(&window(2 * seed + 1))).count();
        assert!(different < 200, "{different} of 2000 pairs of windows of the same jitter");
    }

    #[test]
    fn a_ramp_that_was_called_noise_is_none() {
        // Reserved memory while a leak grew, and after the leak was released: what is cached stays.
        let climbing: Vec<f64> = (0..10).map(|step| 61.8 + 8.2 * f64::from(step)).collect();
        let before = Figure::of_bytes(&climbing).unwrap();
        assert!((before.median - 135.6).abs() < 1e-9, "{before:?}");
        assert!(!before.differs(&Figure::of_bytes(&[135.6; 10]).unwrap()), "the same, not 98.7 → 135.6");
    }
}
