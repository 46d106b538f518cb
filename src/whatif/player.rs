//! Plays a program's requests on another allocator.

use std::collections::BTreeSet;

use super::ask::Ask;
use super::block_number::BlockNumber;
use super::conditions::Conditions;
use super::driver::{Driver, Places, waiting_stream};
use super::figures::{Figures, StepPeaks};
use super::start::{Early, Start, StartRequest, StartState};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{
    CachingAllocator, Diversion, PoolId, SegmentSnapshot, SegmentSource, TorchVersion, page_size, round,
};
use vramlab_model::{Column, History, Micros};

/// The number of driver calls so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DriverCalls {
    taken: i64,
    given_back: i64,
}

impl DriverCalls {
    pub const fn gave_back_nothing_since(self, before: Self) -> bool {
        self.given_back == before.given_back
    }
}

/// Another allocator, and the results of the requests so far.
#[derive(Clone, Debug)]
pub(super) struct Player {
    conditions: Conditions,
    places: Places,
    allocator: CachingAllocator<Driver>,
    /// The address of each block; `None` if the allocator could not serve it.
    blocks: Vec<Option<Address>>,
    history: History,
    finished: u64,
    served: u64,
    /// The pool that blocks are allocated from, and the private pools seen so far.
    pool: PoolId,
    pools: BTreeSet<PoolId>,
    /// What it took to reach the state in which the history begins: driver allocations, driver frees, retries, failures.
    before: [i64; 4],
    starting: StartState,
}

impl Player {
    pub fn new(conditions: &Conditions, places: Places) -> Self {
        Self {
            allocator: Self::allocator(conditions, places),
            conditions: conditions.clone(),
            places,
            blocks: Vec::new(),
            history: History::default(),
            finished: 0,
            served: 0,
            pool: PoolId::DEFAULT,
            pools: BTreeSet::new(),
            before: [0; 4],
            starting: StartState::Empty,
        }
    }

    fn allocator(conditions: &Conditions, places: Places) -> CachingAllocator<Driver> {
        let driver = Driver::new(conditions.memory(), places);
        let mut allocator = CachingAllocator::new(driver, conditions.settings.clone(), ());
        if conditions.limit.is_some() {
            allocator.set_limit(conditions.limit);
        }
        allocator
    }

    /// Puts a configuration string in force from here on. Returns false if PyTorch would refuse it.
    pub fn change(&mut self, settings: &str) -> bool {
        self.allocator.apply_settings(settings).is_ok()
    }

    /// Notes how many steps were finished, and how many columns the history had, before the player began.
    pub fn begin_after(&mut self, finished: u64, columns: u64) {
        self.finished = finished;
        for _ in 0..columns {
            self.history.begin(Column::default());
            self.history.end(Bytes::ZERO);
        }
    }

    /// The peaks and stranded bytes of every step, column by column like the run's own history.
    pub const fn history(&self) -> &History {
        &self.history
    }

    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// The number of steps that have ended, including those before the player began.
    pub const fn finished(&self) -> u64 {
        self.finished
    }

    /// Bytes held from the driver now.
    pub fn reserved(&self) -> Bytes {
        self.allocator.reserved()
    }

    #[inline]
    pub fn play(&mut self, ask: &Ask) {
        match *ask {
            Ask::Take { block, size, stream } => self.take(block, size, stream),
            Ask::Give(block) => {
                if let Some(address) = self.given(block) {
                    // This allocator allocated the address, so freeing it can't fail.
                    let _ = self.allocator.free(address);
                }
            }
            Ask::Lend(block) => {
                if let Some(address) = self.given(block) {
                    self.allocator.record_stream(address, waiting_stream(block));
                    let _ = self.allocator.free(address);
                }
            }
            Ask::Done(block) => {
                self.allocator.source_mut().done(Some(block));
                self.allocator.process_events();
                self.allocator.source_mut().done(None);
            }
            Ask::Offer { address, size } => self.allocator.source_mut().offer(Some((address, size))),
            ref ask => self.play_rarely(ask),
        }
    }

    fn play_rarely(&mut self, ask: &Ask) {
        match *ask {
            Ask::Try { size, stream } => {
                if let Some(address) = self.malloc(size, stream) {
                    self.served += 1;
                    let _ = self.allocator.free(address);
                }
                self.allocator.source_mut().offer(None);
            }
            Ask::EmptyCache => self.allocator.empty_cache(),
            Ask::Settled => {
                self.allocator.empty_cache();
                self.allocator.reset_peak_statistics();
            }
            Ask::KernelsLoaded => self.allocator.source_mut().load_kernels(),
            Ask::Limit(limit) => {
                if !self.conditions.bounds_memory() {
                    self.allocator.set_limit(limit);
                }
            }
            Ask::StepBegin { step, position } => {
                let reserved = self.allocator.reserved();
                let allocated = self.allocated();
                self.history.begin(Column {
                    floor: allocated,
                    peak: allocated,
                    reserved,
                    stranded: Bytes::ZERO,
                    limit: self.allocator.limit(),
                    step,
                    position,
                    time: Micros(0),
                    failed: false,
                });
            }
            Ask::StepEnd { step } => {
                self.finished = step + 1;
                self.history.end(self.allocator.stranded());
                if self.conditions.empty_cache_every.is_some_and(|every| self.finished.is_multiple_of(every)) {
                    self.allocator.empty_cache();
                }
            }
            Ask::Begin(places) => *self = Self::new(&self.conditions, places),
            Ask::Start(ref start) => self.begin(start),
            Ask::Pool(pool) => self.pool = pool,
            Ask::ReleasePool(pool) => self.release_pool(pool),
            Ask::Take { .. } | Ask::Give(_) | Ask::Lend(_) | Ask::Done(_) | Ask::Offer { .. } => {}
        }
    }

    fn take(&mut self, block: BlockNumber, size: Bytes, stream: StreamId) {
        let taken = self.malloc(size, stream);
        if self.places == Places::Recorded {
            self.allocator.source_mut().offer(None);
        }
        self.keep(block, taken);
        let (reserved, allocated) = (self.allocator.reserved(), self.allocated());
        if let Some(column) = self.history.open_mut() {
            column.reserved = column.reserved.max(reserved);
            column.peak = column.peak.max(allocated);
        }
    }

    #[inline]
    fn keep(&mut self, block: BlockNumber, address: Option<Address>) {
        let index = block as usize;
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, None);
        }
        self.blocks[index] = address;
    }

    #[inline]
    fn malloc(&mut self, size: Bytes, stream: StreamId) -> Option<Address> {
        if !self.pool.is_default() {
            return self.malloc_private(size, stream);
        }
        self.allocator.malloc(size, stream).ok().map(|allocation| allocation.address)
    }

    /// Allocates from a private pool. The pool has one user until the run's own pool releases memory.
    #[cold]
    fn malloc_private(&mut self, size: Bytes, stream: StreamId) -> Option<Address> {
        let pool = self.pool;
        if self.pools.insert(pool) {
            self.allocator.create_pool(pool);
        }
        // The pools of captured graphs have a non-zero first number.
        self.allocator.begin_diversion(Diversion { pool, stream: None, capture: pool.0 != 0 });
        let taken = self.allocator.malloc(size, stream).ok().map(|allocation| allocation.address);
        self.allocator.end_diversion(pool);
        self.allocator.release_pool(pool);
        taken
    }

    fn release_pool(&mut self, pool: PoolId) {
        if self.pools.remove(&pool) {
            self.allocator.release_pool(pool);
        }
        self.allocator.empty_pool(pool);
    }

    /// Begins a step and its peaks.
    pub fn begin_step(&mut self) {
        self.allocator.reset_peak_statistics();
    }

    /// Ends a step and returns its peaks.
    pub fn end_step(&mut self) -> StepPeaks {
        self.finished += 1;
        let statistics = self.allocator.statistics();
        let peaks = StepPeaks {
            allocated: bytes(statistics.allocated_bytes.all.peak),
            reserved: bytes(statistics.reserved_bytes.all.peak),
        };
        if self.conditions.empty_cache_every.is_some_and(|every| self.finished.is_multiple_of(every)) {
            self.allocator.empty_cache();
        }
        peaks
    }

    /// The number of requests that failed.
    pub fn failures(&self) -> u64 {
        count(self.allocator.statistics().num_ooms)
    }

    /// The number of calls that took memory from the driver and returned it.
    pub const fn driver_calls(&self) -> DriverCalls {
        let statistics = self.allocator.statistics();
        DriverCalls { taken: statistics.num_device_alloc, given_back: statistics.num_device_free }
    }

    /// True if small and large requests don't affect each other as long as none fails, and a pool whose blocks were all
    /// freed is as before. Garbage collection (by the ages of blocks) and the order of free blocks in PyTorch 2.12
    /// depend on earlier use.
    pub fn pools_are_apart(&self) -> bool {
        let settings = self.allocator.settings();
        settings.garbage_collection_threshold <= 0.0
            && !settings.throw_on_cudamalloc_oom
            && settings.expandable_segments_reserve.is_none()
            && settings.torch() != TorchVersion::V2_12
    }

    /// Bytes that the driver can certainly still give.
    pub fn room(&self) -> Bytes {
        let free = self.allocator.source().memory().free;
        let allowed = self.allocator.limit().map(|limit| limit.saturating_sub(self.allocator.reserved()));
        allowed.map_or(free, |allowed| allowed.min(free))
    }

    /// The size of a small block for `size` bytes.
    pub fn rounded(&self, size: Bytes) -> Bytes {
        if size == Bytes::ZERO { size } else { round(size, &self.allocator.settings().roundup_power2_divisions) }
    }

    /// Changes the number of a block.
    pub fn rename(&mut self, from: BlockNumber, to: BlockNumber) {
        let address = self.given(from);
        self.keep(to, address);
    }

    /// The origin of the blocks that existed when the player began.
    pub const fn starting(&self) -> StartState {
        self.starting
    }

    /// Notes that the blocks from before were requested again.
    pub const fn begin_anew(&mut self) {
        self.starting = StartState::Anew;
    }

    /// Begins with what the run held when its history began.
    fn begin(&mut self, start: &Start) {
        if start.could_be_under(&self.conditions.settings) && self.hold(start) {
            self.starting = StartState::Recorded;
        } else {
            self.make(start);
            self.begin_anew();
        }
    }

    /// Holds exactly that, at the history's addresses. Returns false if the device has less memory.
    fn hold(&mut self, start: &Start) -> bool {
        let memory = self.conditions.memory();
        let seed = start.seed(memory.total);
        let Some(driver) = Driver::holding(memory, &seed) else { return false };
        let settings = self.conditions.settings.clone();
        let Ok(mut allocator) = CachingAllocator::seeded(driver, settings, (), &seed) else { return false };
        allocator.set_limit(self.allocator.limit());
        self.allocator = allocator;
        for early in &start.blocks {
            self.keep(early.block, (!early.pending).then_some(early.address));
            if !early.pool.is_default() {
                self.pools.insert(early.pool);
            }
        }
        true
    }

    /// Requests the held blocks again, as if these and the assumed past had been all.
    pub fn make(&mut self, start: &Start) {
        let (mut gone, mut full, mut failed) = (Vec::new(), false, 0);
        for made in start.made() {
            match made {
                StartRequest::Held(Early { block, requested, stream, pool, pending, .. }) => {
                    self.pool = pool;
                    self.take(block, requested, stream);
                    if self.blocks[block as usize].is_none() {
                        // The device can't hold all of it, so it did not exist at the same time.
                        full = true;
                        gone.drain(..).for_each(|address| self.give(address));
                        self.take(block, requested, stream);
                        failed += i64::from(self.blocks[block as usize].is_none());
                    }
                    if pending {
                        self.play(&Ask::Lend(block));
                    }
                }
                StartRequest::Gone { size, stream, pool } if !full => {
                    self.pool = pool;
                    let taken = self.malloc(size, stream);
                    full = taken.is_none();
                    gone.extend(taken);
                }
                StartRequest::Gone { .. } => {}
            }
        }
        gone.into_iter().for_each(|address| self.give(address));
        self.pool = PoolId::DEFAULT;
        self.allocator.reset_peak_statistics();
        let statistics = self.allocator.statistics();
        self.before = [
            statistics.num_device_alloc,
            statistics.num_device_free,
            statistics.num_alloc_retries,
            statistics.num_ooms - failed,
        ];
    }

    fn give(&mut self, address: Address) {
        // This allocator allocated the address, so freeing it can't fail.
        let _ = self.allocator.free(address);
    }

    /// The address of a block; `None` if the allocator could not serve it.
    pub fn place_of(&self, block: BlockNumber) -> Option<Address> {
        *self.blocks.get(block as usize)?
    }

    /// All segments with their blocks; for expandable ranges, also the page size.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentSnapshot, Option<Bytes>)> {
        let page = |segment: &SegmentSnapshot| page_size(segment.pool, self.allocator.settings());
        self.allocator.segments().into_iter().map(move |segment| {
            let page = segment.expandable.then(|| page(&segment));
            (segment, page)
        })
    }

    /// The address of a block that is freed, if it was ever served.
    fn given(&mut self, block: BlockNumber) -> Option<Address> {
        self.blocks.get_mut(block as usize)?.take()
    }

    /// Bytes of allocated blocks.
    pub fn allocated(&self) -> Bytes {
        bytes(self.allocator.statistics().allocated_bytes.all.current)
    }

    /// The figures. Visits every free block.
    pub fn figures(&self) -> Figures {
        let statistics = self.allocator.statistics();
        Figures {
            reserved: self.allocator.reserved(),
            allocated: self.allocated(),
            peak_reserved: bytes(statistics.reserved_bytes.all.peak),
            peak_allocated: bytes(statistics.allocated_bytes.all.peak),
            stranded: self.allocator.stranded(),
            segments: self.allocator.segment_count(),
            segments_allocated: count(statistics.num_device_alloc - self.before[0]),
            segments_freed: count(statistics.num_device_free - self.before[1]),
            retries: count(statistics.num_alloc_retries - self.before[2]),
            ooms: count(statistics.num_ooms - self.before[3]),
            served: self.served,
        }
    }
}

fn count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn bytes(n: i64) -> Bytes {
    Bytes(count(n))
}
