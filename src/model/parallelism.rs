//! Ways of training one model on several devices.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How several devices share the work of a step.
///
/// It is serialised as its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Parallelism {
    /// `DistributedDataParallel`: every rank has the whole model and its part of the batch; gradients are averaged in buckets.
    #[default]
    Ddp,
    /// DDP with `gradient_as_bucket_view=True`: gradients are views of the buckets.
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
    /// A parameter server: gradients are reduced to rank 0, which alone has the optimizer and sends the parameters back.
    Server,
}

/// The order in which a pipeline's stages work on micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PipelineSchedule {
    /// `ScheduleGPipe`: all forwards, then all backwards.
    GPipe,
    /// `Schedule1F1B`: each backward as soon as possible.
    OneForwardOneBackward,
}

impl Parallelism {
    /// All ways, in the order of lists.
    pub const ALL: [Self; 9] = [
        Self::Ddp,
        Self::DdpView,
        Self::Zero1,
        Self::Zero2,
        Self::Fsdp,
        Self::Tensor,
        Self::Pipeline(PipelineSchedule::GPipe),
        Self::Pipeline(PipelineSchedule::OneForwardOneBackward),
        Self::Server,
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
            Self::Server => "ps",
        }
    }

    /// True if every rank takes its own part of the batch; otherwise all work on the whole batch.
    #[must_use]
    pub const fn splits_batch(self) -> bool {
        match self {
            Self::Ddp | Self::DdpView | Self::Zero1 | Self::Zero2 | Self::Fsdp | Self::Server => true,
            Self::Tensor | Self::Pipeline(_) => false,
        }
    }

    /// True if buckets take memory in addition to the gradients. If gradients are views of the buckets, they take no
    /// memory of their own.
    #[must_use]
    pub const fn has_buckets_beside_gradients(self) -> bool {
        matches!(self, Self::Ddp | Self::Zero1)
    }

    /// True if a rank has only a shard of every parameter between passes.
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

impl Serialize for Parallelism {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Parallelism {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_its_own() {
        for way in Parallelism::ALL {
            assert_eq!(way.word().parse(), Ok(way));
            let written = serde_json::to_string(&way).unwrap();
            assert_eq!(written, format!("\"{way}\""));
            assert_eq!(serde_json::from_str::<Parallelism>(&written).unwrap(), way);
        }
        assert!("dp".parse::<Parallelism>().unwrap_err().contains("ddp-view"));
    }
}
