//! Who takes part, and how the work is shared.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use thiserror::Error;

/// How several devices share the work of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Parallelism {
    /// `DistributedDataParallel`: every rank has the whole model and its part of the batch; gradients are averaged in buckets.
    Ddp,
    /// The same with `gradient_as_bucket_view=True`: gradients are views of the buckets.
    DdpView,
    /// DDP with `ZeroRedundancyOptimizer`: each rank has the optimizer state of its share of the parameters.
    Zero1,
    /// `fully_shard` (FSDP2) with `reshard_after_forward=False`: parameters are gathered once a step.
    Zero2,
    /// `fully_shard` (FSDP2) on every block and the root: each rank has a shard of every parameter, gathered around its use.
    Fsdp,
    /// Megatron's tensor parallelism: every rank has some heads and some columns of each block, and works on the whole batch.
    Tensor,
    /// `torch.distributed.pipelining`: every rank has some blocks, and micro-batches pass from rank to rank.
    Pipeline(PipelineSchedule),
}

/// The order in which a pipeline's stages work on micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PipelineSchedule {
    /// `ScheduleGPipe`: all forwards, then all backwards.
    GPipe,
    /// `Schedule1F1B`: a backward as soon as it can be.
    OneForwardOneBackward,
}

impl Parallelism {
    /// All of them, as they are listed.
    pub const ALL: [Self; 8] = [
        Self::Ddp,
        Self::DdpView,
        Self::Zero1,
        Self::Zero2,
        Self::Fsdp,
        Self::Tensor,
        Self::Pipeline(PipelineSchedule::GPipe),
        Self::Pipeline(PipelineSchedule::OneForwardOneBackward),
    ];

    /// Its word on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ddp => "ddp",
            Self::DdpView => "ddp-view",
            Self::Zero1 => "zero1",
            Self::Zero2 => "zero2",
            Self::Fsdp => "fsdp",
            Self::Tensor => "tp",
            Self::Pipeline(PipelineSchedule::GPipe) => "pp-gpipe",
            Self::Pipeline(PipelineSchedule::OneForwardOneBackward) => "pp-1f1b",
        }
    }

    /// Every rank takes its own part of the batch; else all work on the whole batch.
    #[must_use]
    pub const fn splits_batch(self) -> bool {
        match self {
            Self::Ddp | Self::DdpView | Self::Zero1 | Self::Zero2 | Self::Fsdp => true,
            Self::Tensor | Self::Pipeline(_) => false,
        }
    }

    /// Between passes a rank has a shard of every parameter.
    #[must_use]
    pub const fn shards_parameters(self) -> bool {
        matches!(self, Self::Zero2 | Self::Fsdp)
    }
}

impl fmt::Display for Parallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Parallelism {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|way| way.word() == text).ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|way| way.word()).collect();
            format!("there is no way of parallelism '{text}'; choose {}", words.join(", "))
        })
    }
}

/// One rank's place among all: its rank is below the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    size: NonZeroUsize,
    rank: usize,
}

impl World {
    /// Rank `rank` of `size`; `None` where there is no such rank.
    #[must_use]
    pub const fn new(size: usize, rank: usize) -> Option<Self> {
        match NonZeroUsize::new(size) {
            Some(size) if rank < size.get() => Some(Self { size, rank }),
            _ => None,
        }
    }

    /// How many ranks there are.
    #[must_use]
    pub const fn size(self) -> usize {
        self.size.get()
    }

    /// Which one this is, from 0 on.
    #[must_use]
    pub const fn rank(self) -> usize {
        self.rank
    }

    /// How many of `items` are this rank's, where each rank gets as many as the first, and the last ones what is left
    /// (`torch.chunk`).
    #[must_use]
    pub const fn chunk(self, items: usize) -> usize {
        let each = items.div_ceil(self.size());
        let before = each.saturating_mul(self.rank);
        let left = items.saturating_sub(before);
        if left < each { left } else { each }
    }
}

/// A rank, and how it shares the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// How the work is shared.
    pub parallelism: Parallelism,
    /// The rank's place.
    pub world: World,
}

/// The ranks can't have equal parts of something.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{count} {what} can't be split over {ranks} ranks; {remedy}")]
pub struct UnevenSplit {
    /// How many there are.
    pub count: usize,
    /// Of what.
    pub what: &'static str,
    /// The size of the world.
    pub ranks: usize,
    /// What to do.
    pub remedy: String,
}

impl Member {
    /// Samples of a batch of `batch` that this rank works on.
    ///
    /// # Errors
    /// [`UnevenSplit`].
    pub fn samples(&self, batch: usize) -> Result<usize, UnevenSplit> {
        let ranks = self.world.size();
        if !self.parallelism.splits_batch() {
            return Ok(batch);
        }
        if !batch.is_multiple_of(ranks) {
            let remedy = format!("give --batch {} or another multiple", batch.next_multiple_of(ranks));
            return Err(UnevenSplit { count: batch, what: "samples", ranks, remedy });
        }
        Ok(batch / ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_torchs() {
        let chunks = |items, size| -> Vec<usize> {
            (0..size).map(|rank| World::new(size, rank).unwrap().chunk(items)).collect()
        };
        assert_eq!(chunks(50_257, 2), [25_129, 25_128]);
        assert_eq!(chunks(5, 4), [2, 2, 1, 0]);
        assert_eq!(chunks(1, 3), [1, 0, 0]);
        assert_eq!(World::new(2, 2), None);
        assert_eq!(World::new(0, 0), None);
    }

    #[test]
    fn every_word_is_its_own() {
        for way in Parallelism::ALL {
            assert_eq!(way.word().parse(), Ok(way));
        }
        assert!("dp".parse::<Parallelism>().unwrap_err().contains("ddp-view"));
    }
}
