//! The lengths of samples, and how batches are made of them.

mod plan;
mod read;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use plan::{Epochs, PlannedBatch};
pub use read::{LengthsError, read_lengths};

/// How samples of different lengths become batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LengthPolicy {
    /// In the order of the file, padded to the longest sample of each batch.
    #[default]
    Pad,
    /// In random order, padded to the longest sample of each batch.
    Shuffle,
    /// Samples of similar length together, as transformers' `group_by_length`: of every 50 batches in random order
    /// the longest samples first, and the longest of all in the first batch.
    Bucket,
    /// The longest sample first, then in falling order.
    LongestFirst,
    /// One after the other in rows of the same length.
    Pack,
}

impl LengthPolicy {
    /// All, in the order of a list.
    pub const ALL: [Self; 5] = [Self::Pad, Self::Shuffle, Self::Bucket, Self::LongestFirst, Self::Pack];

    /// Its word on the command line.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pad => "pad",
            Self::Shuffle => "shuffle",
            Self::Bucket => "bucket",
            Self::LongestFirst => "longest-first",
            Self::Pack => "pack",
        }
    }
}

/// The lengths of the samples that a model trains on, in tokens, in the order of their file. Copies share them.
#[derive(Clone, Debug, PartialEq)]
pub struct Lengths {
    samples: Arc<[u32]>,
    /// Longer samples are cut to this length, unless they are packed.
    most: u32,
    /// How batches are made of them.
    pub policy: LengthPolicy,
    /// The seed of the random order.
    pub seed: u64,
    /// The length of a packed row.
    row: u32,
    /// The batches themselves, if they are given.
    planned: Option<Arc<[PlannedBatch]>>,
}

impl Lengths {
    /// Lengths of samples in the order of the file; longer ones than `most` are cut. `None` where there is no sample.
    #[must_use]
    pub fn new(samples: Vec<u32>, most: Option<u32>, seed: u64) -> Option<Self> {
        let row = samples.iter().copied().max()?.max(1);
        let most = most.unwrap_or(u32::MAX).max(1);
        Some(Self { samples: samples.into(), most, policy: LengthPolicy::Pad, seed, row, planned: None })
    }

    /// Exactly these batches, whatever the policy and the batch size.
    #[must_use]
    pub fn in_batches(&self, planned: Arc<[PlannedBatch]>) -> Self {
        Self { planned: Some(planned), ..self.clone() }
    }

    /// The same with another policy.
    #[must_use]
    pub fn under(&self, policy: LengthPolicy) -> Self {
        Self { policy, ..self.clone() }
    }

    /// The same with packed rows of `row` tokens.
    #[must_use]
    pub fn in_rows_of(self, row: u32) -> Self {
        Self { row: row.max(1), ..self }
    }

    /// How many samples there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.samples.len()
    }

    /// The length of every sample, cut if it is too long.
    pub fn each(&self) -> impl Iterator<Item = u32> {
        self.samples.iter().map(|length| self.cut(*length))
    }

    /// The length of sample number `sample`.
    #[must_use]
    pub fn of(&self, sample: u32) -> u32 {
        self.cut(self.samples.get(sample as usize).copied().unwrap_or(1))
    }

    fn cut(&self, length: u32) -> u32 {
        let most = if self.policy == LengthPolicy::Pack { u32::MAX } else { self.most };
        length.clamp(1, most)
    }

    /// How many samples are cut.
    #[must_use]
    pub fn cut_samples(&self) -> usize {
        self.samples.iter().filter(|length| self.cut(**length) < **length).count()
    }

    /// The shortest and the longest row that a batch can have.
    #[must_use]
    pub fn rows(&self) -> [u32; 2] {
        if self.policy == LengthPolicy::Pack {
            return [self.row; 2];
        }
        [self.each().min(), self.each().max()].map(|end| end.unwrap_or(1))
    }

    /// Tokens of all samples.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.each().map(u64::from).sum()
    }
}
