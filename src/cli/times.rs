//! Times of steps, counted instead of kept: a run may have any number of steps.

use std::collections::BTreeMap;

use crate::model::Micros;

/// The distinct times, each with its count.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Counts, by the time in microseconds without its last `dropped` bits.
    counts: BTreeMap<u64, u64>,
    dropped: u32,
    total: u64,
}

impl Times {
    /// The most distinct times that are kept; beyond that, neighbouring times are merged.
    const DIFFERENT: usize = 1 << 16;

    pub fn add(&mut self, time: Micros) {
        *self.counts.entry(time.0 >> self.dropped).or_default() += 1;
        self.total += 1;
        while self.counts.len() > Self::DIFFERENT {
            let mut coarser = BTreeMap::new();
            for (time, count) in &self.counts {
                *coarser.entry(time >> 1).or_default() += count;
            }
            (self.counts, self.dropped) = (coarser, self.dropped + 1);
        }
    }

    /// The median in milliseconds: the mean of the middle two if the number is even, and 0 without any times.
    pub fn median(&self) -> f64 {
        let Some(last) = self.total.checked_sub(1) else { return 0.0 };
        (self.nth(last / 2) + self.nth(last.div_ceil(2))) / 2.0
    }

    /// The `n`th time in ascending order, counted from 0, in milliseconds.
    fn nth(&self, n: u64) -> f64 {
        let mut before = 0;
        let reached = |(_, count): &(&u64, &u64)| {
            before += **count;
            before > n
        };
        self.counts.iter().find(reached).map_or(0.0, |(time, _)| (time << self.dropped) as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(micros: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        micros.into_iter().for_each(|time| times.add(Micros(time)));
        times
    }

    #[test]
    fn the_median_is_the_middle_one_or_the_mean_of_two() {
        assert_eq!(times([]).median(), 0.0);
        assert_eq!(times([7]).median(), 0.007);
        assert_eq!(times([3000, 1000, 2000]).median(), 2.0);
        assert_eq!(times([1000, 9000, 2000, 2500]).median(), 2.25);
        assert_eq!(times([5000, 5000, 5000, 1000]).median(), 5.0);
    }

    #[test]
    fn any_number_of_different_times_takes_bounded_memory_and_moves_the_median_little() {
        let many = times((0..500_000).map(|n| n * 7919 % 500_000));
        assert!(many.counts.len() <= Times::DIFFERENT, "{}", many.counts.len());
        assert_eq!(many.total, 500_000);
        assert!((many.median() - 250.0).abs() < 0.05, "{}", many.median());
    }
}
