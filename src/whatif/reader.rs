//! What a program asked, out of the events of its run.

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

/// What vramlab calls the blocks of its first kernels: where the driver puts later segments depends on when they run.
const FIRST_KERNELS: &str = "hash";
/// So many of them are taken before the first kernel runs.
const BEFORE_KERNELS: u32 = 2;

/// Reads a stream event by event.
///
/// A few events are held back until the next one tells what they meant: a block is usable at once if its completion
/// follows; completions that releases follow were waited for by the next request, or by a call that left no event.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    device: DeviceIndex,
    places: Places,
    /// Blocks that the run holds, and those that it gave back while another stream worked on them.
    live: HashMap<Address, BlockNumber>,
    lent: HashMap<Address, BlockNumber>,
    unused: Vec<BlockNumber>,
    numbers: BlockNumber,
    /// Given back; whether it is usable at once is not known yet.
    given: Option<(Address, BlockNumber)>,
    /// Completed since the last request.
    completed: Vec<BlockNumber>,
    /// Memory went back to the driver since then.
    released: bool,
    /// Because `empty_cache` was called.
    emptied: bool,
    /// Blocks of the first kernels that are still to come, and their names.
    kernels: u32,
    kernel_names: HashSet<NameId>,
    /// What the run's allocator holds, until the first step begins.
    start: Option<Box<MemoryModel>>,
    /// What was there when a history of PyTorch's began, until its first step begins.
    gathering: Option<Box<StateCollector>>,
    private: PrivateMemory,
    /// The pool that blocks are taken from.
    pool: PoolId,
    position: u64,
}

impl Reader {
    /// Reads what concerns `device`; `position` events came before.
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

    /// Events read so far, those of other devices among them.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The block that the run holds at an address.
    pub fn block_at(&self, address: Address) -> Option<BlockNumber> {
        // One that was given back last may be usable at once or not: here it is not given back yet.
        let given = self.given.filter(|(given, _)| *given == address).map(|(_, block)| block);
        self.live.get(&address).copied().or(given)
    }

    /// The run holds a block already.
    pub fn hold(&mut self, address: Address, size: Bytes, stream: StreamId, ask: &mut impl FnMut(Ask)) {
        self.take(address, size, stream, ask);
    }

    /// The program's start is over: nothing of it will be seen.
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
            // What can't be is told by the model beside; what it is about is no request.
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

    /// What happens a few times a step at most.
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

    /// An event before the first step of a history that does not begin with the first allocation; false where it is to be read
    /// as any other.
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

    /// All that was there when the history began has been told.
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

    /// Nothing follows.
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
        // Where a damaged history hands out what is held, the first holder is forgotten with its block.
        if let Some(before) = self.live.insert(address, block) {
            self.unused.push(before);
            ask(Ask::Give(before));
        }
        ask(Ask::Take { block, size, stream });
    }

    /// Those that were completed since the last request are usable.
    fn complete(&mut self, ask: &mut impl FnMut(Ask)) {
        for block in self.completed.drain(..) {
            ask(Ask::Done(block));
            self.unused.push(block);
        }
    }

    /// What happened since the last request was no request's doing.
    #[inline]
    fn settle(&mut self, ask: &mut impl FnMut(Ask)) {
        if self.released && !self.emptied {
            ask(Ask::EmptyCache);
        }
        self.complete(ask);
        self.served();
    }

    /// The first step begins. A program that has made its model empties the cache, does not record that, and resets its peaks:
    /// all but one that keeps its cache, which shows.
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
