//! The batches of epochs: which samples are in each, and how long its rows are.

use std::cmp::Reverse;
use std::sync::Arc;

use serde::Serialize;

use super::super::random::Random;
use super::{LengthPolicy, Lengths};

/// The most batches whose samples `group_by_length` sorts together.
const TOGETHER: usize = 50;

/// One batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct PlannedBatch {
    /// Its rows.
    pub samples: u32,
    /// Positions of each.
    pub length: u32,
    /// The number of its longest sample, from 0 on in the order of the file; `None` where rows are packed.
    pub longest: Option<u32>,
    /// Positions that hold a token of a sample; the rest is padding.
    pub tokens: u64,
}

impl PlannedBatch {
    /// Whether some of its positions hold no token.
    #[must_use]
    pub const fn is_padded(&self) -> bool {
        self.tokens < self.samples as u64 * self.length as u64
    }
}

/// Batches of one epoch after the other.
#[derive(Clone, Debug)]
pub struct Epochs {
    lengths: Lengths,
    /// Samples of a batch.
    samples: usize,
    /// The epoch of `batches`.
    epoch: u64,
    batches: Vec<PlannedBatch>,
    /// The samples of all batches, one batch after the other; empty if rows are packed or batches are given.
    order: Vec<u32>,
}

impl Epochs {
    /// Batches of `samples` each; the last one of an epoch has the remainder.
    #[must_use]
    pub fn new(lengths: &Lengths, samples: usize) -> Self {
        let samples = samples.max(1);
        let order = order(lengths, samples, 0);
        Self { batches: batches(lengths, samples, &order), order, lengths: lengths.clone(), samples, epoch: 0 }
    }

    /// How many batches an epoch has: at least one.
    #[must_use]
    pub fn per_epoch(&self) -> u64 {
        self.batches.len() as u64
    }

    /// Batch number `number`, counted from the first epoch on.
    #[must_use]
    pub fn batch(&mut self, number: u64) -> PlannedBatch {
        let at = self.find(number);
        // Every epoch has the same number of batches.
        self.batches.get(at).copied().unwrap_or(PlannedBatch { samples: 1, length: 1, longest: None, tokens: 1 })
    }

    /// Tokens of each sample of batch number `number`.
    #[must_use]
    pub fn lengths(&mut self, number: u64) -> Arc<[u32]> {
        let batch = self.batch(number);
        let at = self.find(number).saturating_mul(self.samples);
        let of_samples = self.order.get(at..).unwrap_or_default().iter().map(|sample| self.lengths.of(*sample));
        if !self.order.is_empty() {
            return of_samples.take(batch.samples as usize).collect();
        }
        // If only the sum of a batch is known, the last samples are as short as possible.
        let mut left = batch.tokens;
        let rest = (0..batch.samples).rev().map(u64::from);
        let each = rest.map(|behind| {
            let length = left.saturating_sub(behind).clamp(1, u64::from(batch.length.max(1)));
            left = left.saturating_sub(length);
            u32::try_from(length).unwrap_or(batch.length)
        });
        each.collect()
    }

    /// Computes the epoch of a batch; returns the batch's index in it.
    fn find(&mut self, number: u64) -> usize {
        let (epoch, at) = (number / self.per_epoch(), number % self.per_epoch());
        if epoch != self.epoch {
            self.epoch = epoch;
            self.order = order(&self.lengths, self.samples, epoch);
            self.batches = batches(&self.lengths, self.samples, &self.order);
        }
        usize::try_from(at).unwrap_or(usize::MAX)
    }
}

/// The batches of an epoch with its samples in this order: never empty.
fn batches(lengths: &Lengths, samples: usize, order: &[u32]) -> Vec<PlannedBatch> {
    if let Some(planned) = &lengths.planned {
        return planned.to_vec();
    }
    if lengths.policy == LengthPolicy::Pack {
        return packed(lengths, samples);
    }
    let of = |sample: u32| lengths.of(sample);
    let padded = |batch: &[u32]| {
        let longest = batch.iter().copied().max_by_key(|sample| (of(*sample), Reverse(*sample)));
        PlannedBatch {
            samples: narrow(batch.len()),
            length: longest.map_or(1, of),
            longest,
            tokens: batch.iter().map(|sample| u64::from(of(*sample))).sum(),
        }
    };
    order.chunks(samples).map(padded).collect()
}

/// The order in which an epoch takes the samples; empty if batches are not made of whole samples.
fn order(lengths: &Lengths, samples: usize, epoch: u64) -> Vec<u32> {
    if lengths.planned.is_some() || lengths.policy == LengthPolicy::Pack {
        return Vec::new();
    }
    let mut order: Vec<u32> = (0..narrow(lengths.count())).collect();
    let falling = |part: &mut [u32]| {
        part.sort_by_key(|sample| Reverse(lengths.of(*sample)));
    };
    match lengths.policy {
        LengthPolicy::Pad | LengthPolicy::Pack => {}
        LengthPolicy::LongestFirst => falling(&mut order),
        LengthPolicy::Shuffle => shuffle(&mut order, lengths.seed, epoch),
        LengthPolicy::Bucket => {
            shuffle(&mut order, lengths.seed, epoch);
            let together = (order.len() / (samples * 4)).clamp(1, TOGETHER) * samples;
            order.chunks_mut(together).for_each(falling);
            let first = |at: &usize| order.get(*at).map(|sample| lengths.of(*sample));
            // Of equals the first, as in Python's `index`.
            let longest = (0..order.len()).step_by(together).rev().max_by_key(first);
            if let Some(longest) = longest {
                order.swap(0, longest);
            }
        }
    }
    order
}

/// Fisher and Yates.
fn shuffle(order: &mut [u32], seed: u64, epoch: u64) {
    let mut random = Random::new(seed.wrapping_add(epoch.wrapping_mul(0x2545_F491_4F6C_DD1D)));
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last + 1));
    }
}

/// All samples one after the other, cut into rows; an incomplete last row is left out, unless it is the only one.
fn packed(lengths: &Lengths, samples: usize) -> Vec<PlannedBatch> {
    let (row, tokens) = (u64::from(lengths.row), lengths.tokens());
    let rows = (tokens / row).max(1);
    let batch = |rows: u64| PlannedBatch {
        samples: u32::try_from(rows).unwrap_or(u32::MAX),
        length: lengths.row,
        longest: None,
        tokens: (rows * row).min(tokens),
    };
    let (whole, rest) = (rows / samples as u64, rows % samples as u64);
    let whole = (0..whole).map(|_| batch(samples as u64));
    whole.chain((rest > 0).then(|| batch(rest))).collect()
}

/// The count fits: there are fewer samples than that.
fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(samples: &[u32], policy: LengthPolicy) -> Lengths {
        Lengths::new(samples.to_vec(), None, 1).unwrap().under(policy)
    }

    fn planned(lengths: &Lengths, samples: usize) -> Vec<PlannedBatch> {
        batches(lengths, samples, &order(lengths, samples, 0))
    }

    fn shapes(lengths: &Lengths, samples: usize) -> Vec<[u32; 2]> {
        planned(lengths, samples).iter().map(|batch| [batch.samples, batch.length]).collect()
    }

    #[test]
    fn batches_are_padded_to_their_longest_sample_and_the_last_has_what_is_left() {
        let lengths = lengths(&[3, 9, 2, 2, 7], LengthPolicy::Pad);
        assert_eq!(shapes(&lengths, 2), [[2, 9], [2, 2], [1, 7]]);
        let first = planned(&lengths, 2)[0];
        assert_eq!((first.longest, first.tokens), (Some(1), 12));
        assert_eq!(shapes(&lengths.under(LengthPolicy::LongestFirst), 2), [[2, 9], [2, 3], [1, 2]]);
    }

    #[test]
    fn every_sample_of_a_batch_has_its_length() {
        let pad = lengths(&[3, 9, 2, 2, 7], LengthPolicy::Pad);
        let mut epochs = Epochs::new(&pad, 2);
        assert_eq!(
            [0, 1, 2, 3].map(|number| epochs.lengths(number).to_vec()),
            [vec![3, 9], vec![2, 2], vec![7], vec![3, 9]]
        );
        assert_eq!([0, 1, 2].map(|number| epochs.batch(number).is_padded()), [true, false, false]);
        // Of a batch that is given by its sizes the sum is right.
        let given = PlannedBatch { samples: 3, length: 5, longest: None, tokens: 8 };
        let mut planned = Epochs::new(&pad.in_batches([given].into()), 4);
        assert_eq!(planned.lengths(0).to_vec(), [5, 2, 1]);
        assert_eq!(planned.lengths(1).to_vec(), [5, 2, 1]);
    }

    #[test]
    fn packed_rows_are_full() {
        let packed = lengths(&[3, 9, 2, 2, 7], LengthPolicy::Pack).in_rows_of(5);
        assert_eq!(shapes(&packed, 2), [[2, 5], [2, 5]], "23 tokens fill four rows");
        assert_eq!(shapes(&packed.in_rows_of(100), 2), [[1, 100]], "one row at least");
    }

    #[test]
    fn every_policy_has_each_sample_once_in_each_epoch() {
        let samples: Vec<u32> = (0..1003).map(|n| n * 7919 % 997 + 1).collect();
        for policy in LengthPolicy::ALL.into_iter().filter(|policy| *policy != LengthPolicy::Pack) {
            let lengths = lengths(&samples, policy);
            for epoch in 0..3 {
                let mut order = order(&lengths, 4, epoch);
                order.sort_unstable();
                assert!(order.into_iter().eq(0..1003), "{policy:?} in epoch {epoch}");
            }
        }
    }

    #[test]
    fn buckets_pad_less_and_begin_with_the_longest_sample() {
        let samples: Vec<u32> = (0..4000).map(|n| n * 7919 % 3989 + 1).collect();
        let padding = |policy| {
            let planned = planned(&lengths(&samples, policy), 4);
            planned.iter().map(|batch| u64::from(batch.samples * batch.length) - batch.tokens).sum::<u64>()
        };
        assert!(padding(LengthPolicy::Bucket) * 20 < padding(LengthPolicy::Shuffle));
        let first = planned(&lengths(&samples, LengthPolicy::Bucket), 4)[0];
        assert_eq!(first.length, *samples.iter().max().unwrap());
    }

    #[test]
    fn an_epoch_follows_the_other_in_another_random_order() {
        let samples: Vec<u32> = (1..=100).collect();
        let mut epochs = Epochs::new(&lengths(&samples, LengthPolicy::Shuffle), 1);
        let mut epoch = |number: u64| -> Vec<u32> { (0..100).map(|n| epochs.batch(number * 100 + n).length).collect() };
        let (first, second) = (epoch(0), epoch(1));
        assert_ne!(first, second);
        assert_eq!(first, epoch(0), "and the same each time");
    }
}
