//! What a rank holds because it shares its work with others: what a step gathers, and DDP's buckets.

use std::sync::Arc;

use super::{AlikeRanks, Category, MemoryModel, Names, Parallelism};
use vramlab_allocator::units::Bytes;

/// What the op that gathers the shards of parameters is called.
pub const ALL_GATHER: &str = "all-gather";
/// What the names of DDP's buckets begin with; of other people's programs that of the op that takes them.
pub const DDP_BUCKET: &str = "DDP bucket";

/// A rank, and what it holds because of sharing.
#[derive(Clone, Debug, Default)]
pub(super) struct Sharing {
    /// The ranks that do the same, where several are known to train together.
    pub alike: Option<Arc<AlikeRanks>>,
    /// Buckets were taken.
    has_buckets: bool,
    /// All-gathers of the step under way.
    gathers: u64,
    /// The most bytes of gradients in the step under way.
    gradients: Bytes,
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
    pub fn of(alike: &Arc<AlikeRanks>) -> Self {
        let has_buckets = alike.parallelism.is_some_and(Parallelism::has_buckets_beside_gradients);
        Self { alike: Some(Arc::clone(alike)), has_buckets, ..Self::default() }
    }

    pub const fn last(&self) -> Option<&Shared> {
        self.last.as_ref()
    }

    pub const fn begin_step(&mut self) {
        (self.gathers, self.gradients) = (0, Bytes::ZERO);
    }

    /// An op of this name begins.
    pub fn op(&mut self, name: &str) {
        self.gathers += u64::from(name == ALL_GATHER);
        self.has_buckets |= name.starts_with(DDP_BUCKET);
    }

    /// A block was taken for this.
    pub fn took(&mut self, category: Category, memory: &MemoryModel) {
        if category == Category::Gradient {
            self.gradients = self.gradients.max(memory.by_category()[Category::Gradient as usize]);
        }
    }

    pub fn end_step(&mut self, memory: &MemoryModel, names: &Names) {
        let parameters = memory.by_category()[Category::Parameter as usize];
        let buckets = Some(self.buckets(memory, names)).filter(|buckets| self.lie_beside_gradients(*buckets));
        self.last = Some(Shared { gathers: self.gathers, buckets: buckets.unwrap_or_default(), parameters });
    }

    fn buckets(&self, memory: &MemoryModel, names: &Names) -> Bytes {
        let is_bucket = |name| names.get(name).starts_with(DDP_BUCKET);
        let buckets = memory.segments().filter(|_| self.has_buckets).map(|segment| {
            let of = segment.blocks().filter(|block| is_bucket(block.name) || is_bucket(block.op));
            of.map(|block| block.size).sum::<Bytes>()
        });
        buckets.sum()
    }

    /// Whether buckets take memory beside the gradients. A program that doesn't say so has gradients of its own then; where they are
    /// views of the buckets there are none.
    fn lie_beside_gradients(&self, buckets: Bytes) -> bool {
        match self.alike.as_ref().and_then(|alike| alike.parallelism) {
            Some(way) => way.has_buckets_beside_gradients(),
            None => self.gradients.get() > buckets.get() / 2,
        }
    }
}
