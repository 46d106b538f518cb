//! Plays what a program asked on another allocator.

use super::ask::{Ask, BlockNumber};
use super::conditions::Conditions;
use super::driver::{Driver, Places, waiting_stream};
use super::figures::Figures;
use crate::allocator::CachingAllocator;
use crate::model::{Column, History, Micros};
use crate::units::{Address, Bytes, StreamId};

/// Another allocator, and what it made of what was asked so far.
#[derive(Debug)]
pub(super) struct Player {
    conditions: Conditions,
    places: Places,
    allocator: CachingAllocator<Driver>,
    /// Where it put each block; `None` where it could not serve it.
    blocks: Vec<Option<Address>>,
    history: History,
    finished: u64,
    served: u64,
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

    /// So many steps were finished, and columns of history begun, before this began.
    pub fn begin_after(&mut self, finished: u64, columns: u64) {
        self.finished = finished;
        for _ in 0..columns {
            self.history.begin(Column::default());
            self.history.end(Bytes::ZERO);
        }
    }

    /// Peaks and stranded memory of every step, column by column beside the run's own.
    pub const fn history(&self) -> &History {
        &self.history
    }

    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Steps that it has seen the end of, and those before it began.
    pub const fn finished(&self) -> u64 {
        self.finished
    }

    /// Held from the driver now.
    pub fn reserved(&self) -> Bytes {
        self.allocator.reserved()
    }

    #[inline]
    pub fn play(&mut self, ask: Ask) {
        match ask {
            Ask::Take { block, size, stream } => self.take(block, size, stream),
            Ask::Give(block) => {
                if let Some(address) = self.given(block) {
                    // It was handed out by this allocator.
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
            ask => self.play_rarely(ask),
        }
    }

    fn play_rarely(&mut self, ask: Ask) {
        match ask {
            Ask::Try { size, stream } => {
                if let Ok(allocation) = self.allocator.malloc(size, stream) {
                    self.served += 1;
                    let _ = self.allocator.free(allocation.address);
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
            Ask::Begin => *self = Self::new(&self.conditions, self.places),
            Ask::Take { .. } | Ask::Give(_) | Ask::Lend(_) | Ask::Done(_) | Ask::Offer { .. } => {}
        }
    }

    fn take(&mut self, block: BlockNumber, size: Bytes, stream: StreamId) {
        let taken = self.allocator.malloc(size, stream).ok().map(|allocation| allocation.address);
        if self.places == Places::Recorded {
            self.allocator.source_mut().offer(None);
        }
        let index = block as usize;
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, None);
        }
        self.blocks[index] = taken;
        let (reserved, allocated) = (self.allocator.reserved(), self.allocated());
        if let Some(column) = self.history.open_mut() {
            column.reserved = column.reserved.max(reserved);
            column.peak = column.peak.max(allocated);
        }
    }

    /// Where the block lies that is given back, if it was ever served.
    fn given(&mut self, block: BlockNumber) -> Option<Address> {
        self.blocks.get_mut(block as usize)?.take()
    }

    fn allocated(&self) -> Bytes {
        bytes(self.allocator.statistics().allocated_bytes.all.current)
    }

    /// Costs a look at every free block.
    pub fn figures(&self) -> Figures {
        let statistics = self.allocator.statistics();
        Figures {
            reserved: self.allocator.reserved(),
            allocated: self.allocated(),
            peak_reserved: bytes(statistics.reserved_bytes.all.peak),
            peak_allocated: bytes(statistics.allocated_bytes.all.peak),
            stranded: self.allocator.stranded(),
            segments: self.allocator.segment_count(),
            segments_allocated: count(statistics.num_device_alloc),
            segments_freed: count(statistics.num_device_free),
            retries: count(statistics.num_alloc_retries),
            ooms: count(statistics.num_ooms),
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
