//! What a rank holds because it shares its work with others: what a step gathers, and DDP's buckets.

use std::sync::Arc;

use super::{AlikeRanks, Category, MemoryModel, Names, Parallelism};
use vramlab_allocator::units::Bytes;

/// What the op that gathers the shards of parameters is called.
pub const ALL_GATHER: &str = "all-gather";
/// What the names of DDP's buckets begin with.
pub const DDP_BUCKET: &str = "DDP bucket";

/// A rank, and what it holds because of sharing.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    /// The ranks that do the same.
    pub alike: Arc<AlikeRanks>,
    /// All-gathers of the step under way.
    gathers: u64,
    /// Of the last whole step.
    last: Option<Shared>,
}

/// What a rank holds in a step because of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// All-gathers.
    pub gathers: u64,
    /// Buckets beside the gradients, at its end.
    pub buckets: Bytes,
    /// Parameters at its end: where they are sharded, the shards.
    pub parameters: Bytes,
}

impl Sharing {
    pub fn new(alike: &Arc<AlikeRanks>) -> Self {
        Self { alike: Arc::clone(alike), gathers: 0, last: None }
    }

    pub const fn last(&self) -> Option<&Shared> {
        self.last.as_ref()
    }

    pub const fn begin_step(&mut self) {
        self.gathers = 0;
    }

    /// An op of this name begins.
    pub fn op(&mut self, name: &str) {
        self.gathers += u64::from(name == ALL_GATHER);
    }

    pub fn end_step(&mut self, memory: &MemoryModel, names: &Names) {
        let beside = self.alike.parallelism.is_some_and(Parallelism::has_buckets_beside_gradients);
        let buckets = memory.segments().filter(|_| beside).map(|segment| {
            let of = segment.blocks().filter(|block| names.get(block.name).starts_with(DDP_BUCKET));
            of.map(|block| block.size).sum::<Bytes>()
        });
        let (buckets, parameters) = (buckets.sum(), memory.by_category()[Category::Parameter as usize]);
        self.last = Some(Shared { gathers: self.gathers, buckets, parameters });
    }
}
