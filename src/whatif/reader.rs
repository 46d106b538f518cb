//! Extracts a program's requests from the events of its run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::ask::Ask;
use super::block_number::BlockNumber;
use super::driver::Places;
use super::pools::PrivateMemory;
use super::start::StateCollector;
use vramlab_allocator::PoolId;
use vramlab_allocator::units::{Address, Bytes, DeviceIndex, StreamId};
use vramlab_model::{Begins, Event, EventKind, MemoryModel, NameId};

/// vramlab's name for the blocks of its first kernels. When they run decides where the driver places later segments.
const FIRST_KERNELS: &str = "hash";
/// How many of these blocks are allocated before the first kernel runs.
const BEFORE_KERNELS: u32 = 2;

/// Reads a stream event by event.
///
/// A few events are held back until the next one shows their meaning. A block is usable at once if its completion
/// follows its free. Completions that are followed by releases were waited for by the next request, or by a call that
/// left no event.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    device: DeviceIndex,
    places: Places,
    /// The blocks that the run holds, including those freed while another stream uses them.
    live: HashMap<Address, BlockNumber>,
    lent: HashMap<Address, BlockNumber>,
    unused: Vec<BlockNumber>,
    numbers: BlockNumber,
    /// A freed block of which it is not known yet whether it is usable at once.
    given: Option<(Address, BlockNumber)>,
    /// Blocks completed since the last request.
    completed: Vec<BlockNumber>,
    /// True if memory was released to the driver since then.
    released: bool,
    /// True if that was because `empty_cache` was called.
    emptied: bool,
    /// How many blocks of the first kernels are still to come, and the ids of their names.
    kernels: u32,
    kernel_names: HashSet<NameId>,
    /// The run's memory, until the first step begins.
    start: Option<Box<MemoryModel>>,
    /// What existed when a recorded history of PyTorch began, until its first step begins.
    gathering: Option<Box<StateCollector>>,
    private: PrivateMemory,
    /// The pool that blocks are allocated from.
    pool: PoolId,
    position: u64,
}

impl Reader {
    /// Reads the events of `device`; `position` events came before.
    pub fn new(device: DeviceIndex, places: Places, position: u64) -> Self {
        Self {
            device,
            places,
            live: HashMap::new(),
            lent: HashMap::new(),
            unused: Vec::new(),
            numbers: 0,
            given: None,
            completed: Vec::new(),
            released: false,
            emptied: false,
            kernels: BEFORE_KERNELS,
            kernel_names: HashSet::new(),
            start: Some(Box::default()),
            gathering: None,
            private: PrivateMemory::default(),
            pool: PoolId::DEFAULT,
            position,
        }
    }

    /// The number of events read so far, including those of other devices.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The block that the run holds at an address.
    pub fn block_at(&self, address: Address) -> Option<BlockNumber> {
        // The block freed last may be usable at once or not; here it still counts as held.
        let given = self.given.filter(|(given, _)| *given == address).map(|(_, block)| block);
        self.live.get(&address).copied().or(given)
    }

    /// Notes a block that the run already holds.
    pub fn hold(&mut self, address: Address, size: Bytes, stream: StreamId, ask: &mut impl FnMut(Ask)) {
        self.take(address, size, stream, ask);
    }

    /// Skips the program's start, which will not be seen.
    pub fn skip_start(&mut self, ask: &mut impl FnMut(Ask)) {
        self.load_kernels(ask);
        self.start = None;
    }

    /// Reads the next event.
    #[inline]
    pub fn read(&mut self, event: &Event, ask: &mut impl FnMut(Ask)) {
        self.position += 1;
        if event.device != self.device {
            return;
        }
        if let Some(start) = &mut self.start {
            // Contradictions are reported by the model; they are not requests.
            let _ = start.apply(event);
        }
        if self.gathering.is_some() && self.gather(event, ask) {
            return;
        }
        if let Some((address, block)) = self.given.take() {
            if event.kind == (EventKind::FreeCompleted { address }) {
                self.unused.push(block);
                ask(Ask::Give(block));
                return;
            }
            self.lent.insert(address, block);
            ask(Ask::Lend(block));
        }
        match &event.kind {
            EventKind::Alloc { address, requested, stream, name, .. } => {
                let completed_before = !self.released;
                if completed_before {
                    self.complete(ask);
                }
                let pool = self.private.pool_of(*address);
                if pool != self.pool {
                    self.pool = pool;
                    ask(Ask::Pool(pool));
                }
                self.take(*address, *requested, *stream, ask);
                self.complete(ask);
                self.served();
                if self.kernels > 0 && self.kernel_names.contains(name) {
                    self.kernels -= 1;
                    if self.kernels == 0 {
                        ask(Ask::KernelsLoaded);
                    }
                }
            }
            EventKind::FreeRequested { address } => {
                self.settle(ask);
                self.given = self.live.remove(address).map(|block| (*address, block));
            }
            EventKind::FreeCompleted { address } => self.completed.extend(self.lent.remove(address)),
            EventKind::SegmentAlloc { address, size, .. } => {
                self.private.grow(*address, *size);
                if self.places == Places::Recorded {
                    ask(Ask::Offer { address: *address, size: *size });
                }
            }
            EventKind::SegmentFree { address, size } | EventKind::SegmentUnmap { address, size } => {
                match self.private.release(*address, *size) {
                    None => self.released = true,
                    Some(pool) => ask(Ask::ReleasePool(pool)),
                }
            }
            EventKind::Oom(request) => {
                ask(Ask::Try { size: request.requested, stream: request.stream });
                self.complete(ask);
                self.served();
            }
            EventKind::OpBegin { .. }
            | EventKind::OpEnd
            | EventKind::PhaseBegin { .. }
            | EventKind::PhaseEnd { .. } => self.settle(ask),
            _ => self.read_rarely(event, ask),
        }
    }

    /// Reads events that occur at most a few times per step.
    fn read_rarely(&mut self, event: &Event, ask: &mut impl FnMut(Ask)) {
        match &event.kind {
            EventKind::EmptyCache => {
                self.settle(ask);
                ask(Ask::EmptyCache);
                self.emptied = true;
            }
            EventKind::StepBegin { step } => {
                self.settle(ask);
                self.end_start(ask);
                ask(Ask::StepBegin { step: *step, position: self.position });
            }
            EventKind::StepEnd(report) => {
                self.settle(ask);
                ask(Ask::StepEnd { step: report.step });
            }
            EventKind::Limit { limit } => ask(Ask::Limit(*limit)),
            EventKind::SegmentMap { address, size, .. } => self.private.grow(*address, *size),
            EventKind::PrivatePool { address, pool } => self.private.own(*address, *pool),
            EventKind::Begin(about) => {
                let places = if about.history.is_some() { Places::Recorded } else { Places::Simulated };
                *self = Self::new(self.device, places, self.position);
                if about.history.is_some_and(|begins| begins != Begins::First) {
                    let mut gathering = Box::<StateCollector>::default();
                    gathering.apply(event);
                    self.gathering = Some(gathering);
                    self.start = None;
                }
                ask(Ask::Begin(places));
            }
            EventKind::Define { id, text } if self.kernels > 0 => {
                let last = text.rsplit(' ').next();
                if last == Some(FIRST_KERNELS) {
                    self.kernel_names.insert(*id);
                }
            }
            _ => {}
        }
    }

    /// Collects an event before the first step of a history that does not begin with the first allocation. Returns
    /// false if the event must be read like any other.
    fn gather(&mut self, event: &Event, ask: &mut impl FnMut(Ask)) -> bool {
        match &event.kind {
            EventKind::StepBegin { .. } => {
                self.end_gathering(ask);
                false
            }
            EventKind::Begin(_) | EventKind::Limit { .. } => false,
            kind => {
                if let EventKind::SegmentAlloc { address, size, .. } | EventKind::SegmentMap { address, size, .. } =
                    kind
                {
                    self.private.grow(*address, *size);
                }
                if let EventKind::PrivatePool { address, pool } = kind {
                    self.private.own(*address, *pool);
                }
                if let Some(gathering) = &mut self.gathering {
                    gathering.apply(event);
                }
                true
            }
        }
    }

    /// Ends the collection: everything that existed when the history began has been reported.
    fn end_gathering(&mut self, ask: &mut impl FnMut(Ask)) {
        let Some(start) = self.gathering.take().and_then(|gathering| gathering.finish(&self.private)) else { return };
        for early in &start.blocks {
            if early.pending {
                self.lent.insert(early.address, early.block);
            } else {
                self.live.insert(early.address, early.block);
            }
            self.numbers = early.block + 1;
        }
        ask(Ask::Start(Arc::new(start)));
    }

    /// Notes that no event follows.
    pub fn end(&mut self, ask: &mut impl FnMut(Ask)) {
        self.end_gathering(ask);
        if let Some((_, block)) = self.given.take() {
            ask(Ask::Lend(block));
        }
        self.settle(ask);
    }

    fn take(&mut self, address: Address, size: Bytes, stream: StreamId, ask: &mut impl FnMut(Ask)) {
        let block = self.unused.pop().unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers - 1
        });
        // If a damaged history allocates a block that is already held, the first one is forgotten.
        if let Some(before) = self.live.insert(address, block) {
            self.unused.push(before);
            ask(Ask::Give(before));
        }
        ask(Ask::Take { block, size, stream });
    }

    /// Makes the blocks usable that were completed since the last request.
    fn complete(&mut self, ask: &mut impl FnMut(Ask)) {
        for block in self.completed.drain(..) {
            ask(Ask::Done(block));
            self.unused.push(block);
        }
    }

    /// Notes that what happened since the last request did not belong to a request.
    #[inline]
    fn settle(&mut self, ask: &mut impl FnMut(Ask)) {
        if self.released && !self.emptied {
            ask(Ask::EmptyCache);
        }
        self.complete(ask);
        self.served();
    }

    /// Notes that the first step begins. A program that has built its model empties the cache without recording it and
    /// resets its peaks. The exception is a program that keeps its cache, which can be seen.
    fn end_start(&mut self, ask: &mut impl FnMut(Ask)) {
        if self.start.take().is_some_and(|start| start.ledger().releasable == Bytes::ZERO) {
            ask(Ask::Settled);
        }
    }

    #[inline]
    const fn served(&mut self) {
        (self.released, self.emptied) = (false, false);
    }

    fn load_kernels(&mut self, ask: &mut impl FnMut(Ask)) {
        if self.kernels > 0 {
            self.kernels = 0;
            ask(Ask::KernelsLoaded);
        }
    }
}
