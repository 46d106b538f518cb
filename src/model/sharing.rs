//! Memory that a rank holds because it shares its work with others: gathered shards and DDP's buckets.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{AlikeRanks, BlockView, Category, MemoryModel, NameId, Names, Parallelism};
use vramlab_allocator::units::Bytes;

/// The name of the op that gathers parameter shards.
pub const ALL_GATHER: &str = "all-gather";
/// The prefix of the names of DDP's buckets; in other people's programs, of the op that allocates them.
pub const DDP_BUCKET: &str = "DDP bucket";

/// The name of the op that makes room for what a pipeline's stage receives.
pub const STAGE: &str = "prepare a stage";

/// A rank, and what it holds because of sharing.
#[derive(Clone, Debug, Default)]
pub(super) struct Sharing {
    /// The ranks that do the same work, if several are known to train together.
    pub alike: Option<Arc<AlikeRanks>>,
    /// True once buckets were allocated.
    has_buckets: bool,
    /// The number of steps that have ended since.
    steps: u64,
    /// True if no buckets were allocated in the current step so far, nor since a pass ran: if each micro-batch is
    /// exchanged, the second one makes new buckets.
    before_buckets: bool,
    /// The number of events before new buckets began to be made.
    rebuild: Option<u64>,
    late: Option<LateBucket>,
    /// The number of all-gathers in the current step.
    gathers: u64,
    /// The most bytes of gradients in the current step.
    gradients: Bytes,
    /// Figures of the last whole step.
    last: Option<RankHoldings>,
    /// True if it made room for what a pipeline's stage receives.
    receives: bool,
    /// The names defined so far whose ops matter here: texts are not compared at every op.
    shared_ops: BTreeMap<NameId, SharedOp>,
}

/// An op that exists because ranks share their work.
#[derive(Clone, Copy, Debug)]
enum SharedOp {
    Gather,
    Bucket,
    Stage,
}

impl SharedOp {
    /// The op that has this name.
    fn named(text: &str) -> Option<Self> {
        match text {
            ALL_GATHER => Some(Self::Gather),
            STAGE => Some(Self::Stage),
            _ => text.starts_with(DDP_BUCKET).then_some(Self::Bucket),
        }
    }
}

/// What a rank holds in a step because of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankHoldings {
    /// The number of all-gathers.
    pub gathers: u64,
    /// Bytes of buckets besides the gradients, at the step's end.
    pub buckets: Bytes,
    /// Bytes of parameters at the step's end; if they are sharded, of the shards.
    pub parameters: Bytes,
    /// Late buckets of this step or an earlier one.
    pub late: Option<LateBucket>,
}

/// Buckets of the first step that still existed after the new ones had been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LateBucket {
    /// Their bytes.
    pub bytes: Bytes,
    /// The step that made the new ones.
    pub step: u64,
}

impl Sharing {
    /// Begins anew as one of these ranks. Definitions stay.
    pub fn restart(&mut self, alike: &Arc<AlikeRanks>) {
        let has_buckets = alike.parallelism.is_some_and(Parallelism::has_buckets_beside_gradients);
        let shared_ops = std::mem::take(&mut self.shared_ops);
        *self = Self { alike: Some(Arc::clone(alike)), has_buckets, shared_ops, ..Self::default() };
    }

    /// Notes the text of a name.
    pub fn define(&mut self, id: NameId, text: &str) {
        match SharedOp::named(text) {
            Some(op) => self.shared_ops.insert(id, op),
            None => self.shared_ops.remove(&id),
        };
    }

    /// True for a stage of a pipeline.
    pub fn is_stage(&self) -> bool {
        let way = self.alike.as_ref().and_then(|alike| alike.parallelism);
        self.receives || matches!(way, Some(Parallelism::Pipeline(_)))
    }

    pub const fn last(&self) -> Option<&RankHoldings> {
        self.last.as_ref()
    }

    pub const fn begin_step(&mut self) {
        (self.gathers, self.gradients, self.before_buckets) = (0, Bytes::ZERO, true);
    }

    /// Notes that an op of this name begins after `position` events.
    pub fn op(&mut self, name: NameId, position: u64) {
        match self.shared_ops.get(&name) {
            None => {}
            Some(SharedOp::Gather) => self.gathers += 1,
            Some(SharedOp::Stage) => self.receives = true,
            Some(SharedOp::Bucket) => {
                let anew = self.has_buckets && std::mem::take(&mut self.before_buckets);
                if anew && self.late.is_none() {
                    self.rebuild = Some(position);
                }
                (self.has_buckets, self.before_buckets) = (true, false);
            }
        }
    }

    /// Notes that a block of this category was allocated.
    pub fn took(&mut self, category: Category, memory: &MemoryModel, names: &Names) {
        if category == Category::Gradient {
            self.gradients = self.gradients.max(memory.of_category(category));
        }
        if matches!(category, Category::Activation | Category::Gradient) {
            self.before_buckets = true;
        }
        // All new buckets have been made once a block of another category is allocated.
        if category != Category::Communication
            && let Some(position) = self.rebuild.take()
        {
            let bytes = self.buckets(memory, names, |block| block.born < position);
            self.late = Some(LateBucket { bytes, step: self.steps }).filter(|_| bytes > Bytes::ZERO);
        }
    }

    pub fn end_step(&mut self, memory: &MemoryModel, names: &Names) {
        let parameters = memory.of_category(Category::Parameter);
        // If a program reports buckets as gradients, the gradients are views of them.
        let beside = |block: &BlockView| block.category != Category::Gradient;
        let buckets = Some(self.buckets(memory, names, beside)).filter(|buckets| self.lie_beside_gradients(*buckets));
        let (buckets, late) = (buckets.unwrap_or_default(), self.late);
        self.last = Some(RankHoldings { gathers: self.gathers, buckets, parameters, late });
        self.steps += 1;
    }

    fn buckets(&self, memory: &MemoryModel, names: &Names, wanted: impl Fn(&BlockView) -> bool) -> Bytes {
        let is_bucket = |name| names.get(name).starts_with(DDP_BUCKET);
        let buckets = memory.segments().filter(|_| self.has_buckets).map(|segment| {
            let of = segment.blocks().filter(|block| is_bucket(block.name) || is_bucket(block.op));
            of.filter(|block| wanted(block)).map(|block| block.size).sum::<Bytes>()
        });
        buckets.sum()
    }

    /// True if buckets take memory in addition to the gradients. If the program does not say so, it is concluded from
    /// the gradients: views of buckets leave no gradients of their own.
    fn lie_beside_gradients(&self, buckets: Bytes) -> bool {
        match self.alike.as_ref().and_then(|alike| alike.parallelism) {
            Some(way) => way.has_buckets_beside_gradients(),
            None => self.gradients.get() > buckets.get() / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use vramlab_allocator::units::{Address, StreamId};
    use vramlab_allocator::{PoolKind, TraceEvent};

    use super::*;
    use crate::{Event, EventKind, Evidence, Lab, Micros, NameId};

    const BUCKETS: NameId = NameId(1);
    /// Addresses of blocks, 4 MiB each: the first buckets, the new ones, activations, gradients.
    const PLACES: [u64; 4] = [0, 4, 8, 12];

    struct LabBuilder(Lab);

    impl LabBuilder {
        fn with_a_segment() -> Self {
            let mut told = Self(Lab::new());
            told.tell(EventKind::Define { id: BUCKETS, text: "DDP buckets".into() });
            let segment = TraceEvent::SegmentAlloc {
                address: Address(Bytes::mib(64).get()),
                size: Bytes::mib(16),
                stream: StreamId::DEFAULT,
                pool: PoolKind::Large,
            };
            told.tell(EventKind::of_trace(&segment, Category::Other, NameId::NONE));
            told
        }

        fn tell(&mut self, kind: EventKind) {
            self.0.apply(&Event::new(Micros(0), kind));
        }

        fn take(&mut self, place: usize, category: Category) {
            let (requested, stream) = (Bytes::mib(4), StreamId::DEFAULT);
            let address = Address(Bytes::mib(64 + PLACES[place]).get());
            let pool = PoolKind::Large;
            let taken = TraceEvent::Alloc { address, requested, size: requested, stream, pool };
            self.tell(EventKind::of_trace(&taken, category, NameId::NONE));
        }

        fn take_buckets(&mut self, place: usize) {
            self.tell(EventKind::OpBegin { name: BUCKETS });
            self.take(place, Category::Communication);
            self.tell(EventKind::OpEnd);
        }

        fn free(&mut self, place: usize) {
            let (address, requested) = (Address(Bytes::mib(64 + PLACES[place]).get()), Bytes::mib(4));
            let stream = StreamId::DEFAULT;
            for event in [
                TraceEvent::FreeRequested { address, requested, stream },
                TraceEvent::FreeCompleted { address, requested, stream },
            ] {
                self.tell(EventKind::of_trace(&event, Category::Other, NameId::NONE));
            }
        }

        fn step(&mut self, step: u64, during: impl FnOnce(&mut Self)) {
            self.tell(EventKind::StepBegin { step });
            during(self);
            let phases = [Micros(0); crate::Phase::ALL.len()];
            let (total, copy, exchange) = (Micros(1), Micros(0), Micros(0));
            let report =
                crate::StepReport { step, loss: None, total, phases, copy, exchange, items: 0, optimizer_ran: true };
            self.tell(EventKind::StepEnd(report));
        }
    }

    /// The findings if the second step makes new buckets and the first ones are freed before or after the rest of it.
    fn found(late: bool, of_gradients: Category) -> Vec<Evidence> {
        let mut told = LabBuilder::with_a_segment();
        told.step(0, |told| {
            told.take_buckets(0);
            told.take(2, Category::Activation);
            told.free(2);
        });
        told.step(1, |told| {
            if !late {
                told.free(0);
            }
            told.take_buckets(1);
            told.take(2, Category::Activation);
            told.take(3, of_gradients);
            told.free(2);
            if late {
                told.free(0);
            }
        });
        let view = told.0.view();
        let shared = |evidence: &Evidence| matches!(evidence, Evidence::Buckets { .. } | Evidence::LateBuckets { .. });
        view.findings.iter().map(|finding| finding.evidence.clone()).filter(shared).collect()
    }

    #[test]
    fn buckets_that_outlive_their_rebuild_are_found() {
        let [Evidence::Buckets { bytes, .. }, Evidence::LateBuckets { bytes: late, step: 1 }] =
            found(true, Category::Gradient)[..]
        else {
            panic!("{:?}", found(true, Category::Gradient))
        };
        assert_eq!((bytes, late), (Bytes::mib(4), Bytes::mib(4)));
        let early = found(false, Category::Gradient);
        assert!(matches!(early[..], [Evidence::Buckets { .. }]), "{early:?}");
    }

    /// Every micro-batch is exchanged: the second makes new buckets, in the step in which a program wrapped its model.
    #[test]
    fn buckets_that_outlive_their_rebuild_within_a_step_are_found() {
        let mut told = LabBuilder::with_a_segment();
        told.step(0, |told| {
            told.take_buckets(0);
            // A second model that is wrapped: its buckets don't replace the first one's.
            told.take_buckets(1);
            told.take(2, Category::Activation);
            told.free(2);
            told.free(1);
            told.take_buckets(1);
            told.take(2, Category::Activation);
            told.free(2);
            told.free(0);
        });
        let late = told.0.view().findings.iter().find_map(|finding| match finding.evidence {
            Evidence::LateBuckets { bytes, step } => Some((bytes, step)),
            _ => None,
        });
        assert_eq!(late, Some((Bytes::mib(4), 0)));
    }

    #[test]
    fn buckets_that_gradients_are_views_of_do_not_lie_beside_them() {
        let found = found(false, Category::Temporary);
        assert!(found.is_empty(), "{found:?}");
    }
}
