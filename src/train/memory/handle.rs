//! Allocator, device and observer behind one handle.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Interrupt, MemoryKind, OpResult, TrainError};
use crate::observer::{Answer, Observer, SafePoint};
use vramlab_allocator::units::{Address, Bytes, DeviceIndex, StreamId};
use vramlab_allocator::{
    AllocError, CachingAllocator, CachingHostAllocator, HostMemorySource, SegmentSource, Settings, SettingsError,
    Statistics,
};
use vramlab_device::{Device, DeviceError, DeviceInfo, HostAccount, Kernel, Span, StreamMark};
use vramlab_model::{Category, Event, EventKind, Micros, NameId, Phase};

use super::frames::{BlockHandle, Frames};
use super::names::NameTable;
use super::trace::Journal;
use super::watch::Watch;

/// A mark on a stream, and how long training had been held by then.
#[derive(Clone, Copy, Debug)]
pub struct HeldMark {
    mark: StreamMark,
    held: Micros,
}

pub(super) struct MemoryInner {
    /// The device's index among those of the run: every event carries it.
    index: DeviceIndex,
    pub(super) allocator: RefCell<CachingAllocator<Box<dyn SegmentSource>, Journal>>,
    pub(super) journal: Journal,
    pub(super) device: RefCell<Box<dyn Device>>,
    pub(super) observer: RefCell<Box<dyn Observer>>,
    pub(super) names: RefCell<NameTable>,
    pub(super) scope: Cell<NameId>,
    /// Number of blocks allocated so far.
    pub(super) blocks: Cell<u64>,
    /// Page-locked host memory.
    pub(super) host: RefCell<CachingHostAllocator<Box<dyn HostMemorySource>>>,
    /// Bytes of tensors in pageable host memory.
    pub(super) pageable: Cell<Bytes>,
    /// Bytes in unified memory.
    pub(super) managed: Cell<Bytes>,
    /// All host memory, of every kind.
    pub(super) account: HostAccount,
    /// Exchanges with other ranks since the step began: their begins and ends.
    pub(super) exchanges: RefCell<Vec<(HeldMark, HeldMark)>>,
    /// The host memory that was last reported to the observer.
    pub(super) told_host: Cell<(Bytes, Bytes)>,
    /// Time that safe points spent waiting for the user.
    pub(super) held: Cell<Micros>,
    /// The blocks that the frames of an exception would hold.
    pub(super) frames: Frames,
    /// Checks, if asked to, that kernels and copies stay within live blocks.
    pub(super) watch: Option<Watch>,
}

/// A handle on allocator, device and observer; clones share them. It lives on one thread.
#[derive(Clone)]
pub struct Memory(pub(super) Rc<MemoryInner>);

impl Memory {
    /// Takes over a device: its memory is cut into blocks by PyTorch's caching allocator.
    #[must_use]
    pub fn new(device: Box<dyn Device>, settings: Settings, observer: Box<dyn Observer>) -> Self {
        Self::of_rank(DeviceIndex::FIRST, device, settings, observer, cfg!(debug_assertions))
    }

    /// The same for the device number `index` of several, whose events carry that number. If `watched`, kernels and copies
    /// that reach beyond live blocks are refused, as they always are in debug builds.
    pub(crate) fn of_rank(
        index: DeviceIndex,
        mut device: Box<dyn Device>,
        settings: Settings,
        observer: Box<dyn Observer>,
        watched: bool,
    ) -> Self {
        let journal = Journal::default();
        let allocator = CachingAllocator::new(device.segments(), settings, journal.clone());
        let host = CachingHostAllocator::new(device.pinned_source());
        let account = device.pinned_memory().account().clone();
        Self(Rc::new(MemoryInner {
            index,
            allocator: RefCell::new(allocator),
            journal,
            device: RefCell::new(device),
            observer: RefCell::new(observer),
            names: RefCell::default(),
            scope: Cell::new(NameId::NONE),
            blocks: Cell::default(),
            host: RefCell::new(host),
            pageable: Cell::default(),
            managed: Cell::default(),
            account,
            told_host: Cell::default(),
            held: Cell::default(),
            exchanges: RefCell::default(),
            frames: Frames::default(),
            watch: watched.then(Watch::default),
        }))
    }

    /// Frees all memory and returns the device; `None` if there is another handle.
    pub(crate) fn into_device(self) -> Option<Box<dyn Device>> {
        Rc::into_inner(self.0).map(|shared| shared.device.into_inner())
    }

    /// What the device is.
    #[must_use]
    pub fn device_info(&self) -> DeviceInfo {
        self.0.device.borrow().info().clone()
    }

    /// False on a simulated device: its tensors have addresses but no memory behind them.
    #[must_use]
    pub fn holds_bytes(&self) -> bool {
        !self.0.device.borrow().info().simulated
    }

    /// Waits for all work of the device.
    pub fn synchronize(&self) {
        self.0.device.borrow_mut().synchronize();
    }

    /// Whether the device itself transfers bytes to those of other ranks.
    #[must_use]
    pub fn exchanges(&self) -> bool {
        self.0.device.borrow().exchanges()
    }

    /// Time since the device was opened, without the time that the user held training at safe points.
    #[must_use]
    pub fn now(&self) -> Micros {
        let now = micros(self.0.device.borrow().now());
        Micros(now.0.saturating_sub(self.0.held.get().0))
    }

    /// Marks the current end of `stream`'s work: [`Memory::between`] tells later when the device got there.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    pub fn mark(&self, stream: StreamId) -> Result<HeldMark, DeviceError> {
        Ok(HeldMark { mark: self.0.device.borrow_mut().mark(stream)?, held: self.0.held.get() })
    }

    /// The device's index among those of the run.
    #[must_use]
    pub fn index(&self) -> DeviceIndex {
        self.0.index
    }

    /// Checks that the device has `stream`, for operations of the allocator, which accepts any stream.
    pub(super) fn known(&self, operation: &'static str, stream: StreamId) -> Result<(), DeviceError> {
        let device = self.0.device.borrow();
        if stream == StreamId::DEFAULT || device.has_stream(stream) {
            return Ok(());
        }
        Err(DeviceError::UnknownStream { operation, device: device.info().id.clone(), stream })
    }

    /// An event of this device with the current time.
    fn event(&self, kind: EventKind) -> Event {
        self.event_at(self.now(), kind)
    }

    fn event_at(&self, time: Micros, kind: EventKind) -> Event {
        Event { time, device: self.0.index, kind }
    }

    /// Device time between two marks, without the time that the user held training; waits until the device has reached
    /// both.
    #[must_use]
    pub fn between(&self, from: HeldMark, to: HeldMark) -> Micros {
        let elapsed = micros(self.0.device.borrow_mut().between(from.mark, to.mark));
        Micros(elapsed.0.saturating_sub(to.held.0.saturating_sub(from.held.0)))
    }

    /// Notes an exchange with other ranks.
    pub(crate) fn note_exchange(&self, begun: HeldMark, ended: HeldMark) {
        self.0.exchanges.borrow_mut().push((begun, ended));
    }

    /// How long the exchanges since the last call took.
    pub(crate) fn take_exchange_time(&self) -> Micros {
        let exchanges = std::mem::take(&mut *self.0.exchanges.borrow_mut());
        Micros(exchanges.into_iter().map(|(begun, ended)| self.between(begun, ended).0).sum())
    }

    /// Reports an event to the observer.
    pub fn emit(&self, kind: EventKind) {
        let event = self.event(kind);
        self.0.observer.borrow_mut().event(event);
    }

    /// The identifier of `text`, defined to the observer at its first use.
    #[must_use]
    pub fn name(&self, text: &str) -> NameId {
        if let Some(id) = self.0.names.borrow().get(text) {
            return id;
        }
        let text: Arc<str> = text.into();
        let id = self.0.names.borrow_mut().define(&text);
        self.emit(EventKind::Define { id, text });
        id
    }

    /// The text of `name`.
    #[must_use]
    pub fn text(&self, name: NameId) -> Arc<str> {
        self.0.names.borrow().text(name).map_or_else(|| "a block".into(), Arc::clone)
    }

    /// The module whose ops run now; names of blocks begin with it.
    #[must_use]
    pub fn scope(&self) -> NameId {
        self.0.scope.get()
    }

    /// Enters a module; returns the one before.
    pub fn set_scope(&self, scope: NameId) -> NameId {
        self.0.scope.replace(scope)
    }

    /// The name of `what` within the current module: `blocks.0.fc output`.
    #[must_use]
    pub fn name_here(&self, what: &'static str) -> NameId {
        let scope = self.scope();
        if let Some(id) = self.0.names.borrow().within(scope, what) {
            return id;
        }
        let id =
            if scope == NameId::NONE { self.name(what) } else { self.name(&format!("{} {what}", self.text(scope))) };
        self.0.names.borrow_mut().keep_within(scope, what, id);
        id
    }

    /// Allocates `bytes` for `stream`: returns the address and how many blocks were allocated before.
    pub(crate) fn take(
        &self,
        bytes: Bytes,
        category: Category,
        name: NameId,
        stream: StreamId,
    ) -> Result<(Address, u64), TrainError> {
        self.known("a block", stream)?;
        let result = self.0.allocator.borrow_mut().malloc(bytes, stream);
        match &result {
            Err(AllocError::OutOfMemory(error)) => {
                let time = self.now();
                let mut observer = self.0.observer.borrow_mut();
                self.0.journal.take_failure(error, name, |kind| observer.event(self.event_at(time, kind)));
                self.0.frames.fail();
            }
            _ => self.forward_trace(category, name),
        }
        match result {
            Ok(allocation) => {
                let number = self.0.blocks.get();
                self.0.blocks.set(number + 1);
                if let Some(watch) = &self.0.watch {
                    watch.taken(allocation.address, bytes);
                }
                Ok((allocation.address, number))
            }
            Err(AllocError::OutOfMemory(_) | AllocError::TooLarge { .. }) => {
                let left = self.0.allocator.borrow().left();
                Err(TrainError::OutOfMemory { kind: MemoryKind::Device, requested: bytes, left, what: self.text(name) })
            }
            Err(other) => Err(TrainError::Allocator(other.to_string())),
        }
    }

    /// Begins a step; `held`: the program keeps its frames if it fails.
    pub(crate) fn begin_frames(&self, held: bool) {
        self.0.frames.begin(held);
    }

    /// Notes that a variable of the program holds a block, whenever that was allocated.
    pub(crate) fn in_frame(&self, block: &BlockHandle) {
        self.0.frames.took(block);
    }

    /// Begins the backward of another node.
    pub(crate) fn begin_node(&self) {
        self.0.frames.begin_node();
    }

    /// Notes that the node that runs backward reads a saved block.
    pub(crate) fn unpacked(&self, block: &BlockHandle) {
        self.0.frames.unpacked(block);
    }

    /// Whether the frames of a failed step would be held, and have not been caught yet.
    pub(crate) fn watches_frames(&self) -> bool {
        self.0.frames.are_watched()
    }

    /// The blocks that the frames of a failed step hold.
    pub(crate) fn catch_frames(&self) -> Vec<BlockHandle> {
        self.0.frames.catch()
    }

    /// Frees the block at `address`.
    pub(crate) fn free(&self, address: Address) {
        let result = self.0.allocator.borrow_mut().free(address);
        debug_assert!(result.is_ok(), "a block is freed once");
        if let Some(watch) = &self.0.watch {
            watch.given_back(address);
        }
        self.forward_trace(Category::Other, NameId::NONE);
    }

    /// Turns what the allocator noted since the last call into events.
    pub(super) fn forward_trace(&self, category: Category, name: NameId) {
        if self.0.journal.is_empty() {
            return;
        }
        let time = self.now();
        let mut observer = self.0.observer.borrow_mut();
        self.0.journal.take(category, name, |kind| observer.event(self.event_at(time, kind)));
    }

    /// Runs a kernel on the compute stream.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn launch<'k>(&self, kernel: impl Into<Kernel<'k>>) -> OpResult<()> {
        self.start(&kernel.into())
    }

    fn start(&self, kernel: &Kernel<'_>) -> OpResult<()> {
        let mut reached = Ok(());
        if self.0.watch.is_some() {
            kernel.reach(|span| {
                if reached.is_ok() {
                    reached = self.check(kernel.name(), span);
                }
            });
        }
        reached?;
        Ok(self.0.device.borrow_mut().launch(kernel, StreamId::DEFAULT)?)
    }

    /// Checks that all of `span` lies within a live block, if blocks are watched.
    pub(super) fn check(&self, operation: &'static str, span: Span) -> Result<(), DeviceError> {
        let Some(watch) = &self.0.watch else { return Ok(()) };
        watch.check(operation, &self.0.device.borrow().info().id, span)
    }

    /// Calls `work` with the device.
    pub fn with_device<T>(&self, work: impl FnOnce(&mut dyn Device) -> T) -> T {
        work(&mut **self.0.device.borrow_mut())
    }

    /// Marks the beginning of an op of the current module.
    pub fn begin_op(&self, name: &'static str) {
        self.emit(EventKind::OpBegin { name: self.name_here(name) });
    }

    /// Marks the end of the op and lets the observer in.
    ///
    /// # Errors
    /// [`TrainError::Stopped`].
    pub fn end_op(&self) -> OpResult<()> {
        self.emit(EventKind::OpEnd);
        self.safe_point(SafePoint::Op)
    }

    /// Marks the beginning of a phase.
    pub fn begin_phase(&self, phase: Phase) {
        self.emit(EventKind::PhaseBegin { phase });
    }

    /// Marks the end of a phase and lets the observer in.
    ///
    /// # Errors
    /// [`TrainError::Stopped`].
    pub fn end_phase(&self, phase: Phase) -> OpResult<()> {
        self.emit(EventKind::PhaseEnd { phase });
        self.safe_point(SafePoint::Phase)
    }

    /// Does what the observer asks until it answers to continue.
    ///
    /// # Errors
    /// [`TrainError::Stopped`].
    pub fn safe_point(&self, point: SafePoint) -> OpResult<()> {
        loop {
            let (answer, held) = {
                let mut observer = self.0.observer.borrow_mut();
                (observer.safe_point(point), observer.take_held())
            };
            // A simulated clock stands still during the wait.
            if self.holds_bytes() {
                self.0.held.set(Micros(self.0.held.get().0 + micros(held).0));
            }
            match answer {
                Answer::Continue => return Ok(()),
                Answer::EmptyCache => self.empty_cache(),
                Answer::ResetPeaks => self.reset_peak_memory_stats(),
                Answer::Stop => return Err(Interrupt::Failed(TrainError::Stopped)),
            }
        }
    }

    /// Gives free segments back to the driver, because the user asked.
    pub fn empty_cache(&self) {
        self.emit(EventKind::EmptyCache);
        self.release_cached();
    }

    /// Gives free segments back while the trainer is made: without an event of the user's and without a measurement.
    pub fn release_cached(&self) {
        self.0.device.borrow_mut().synchronize();
        self.0.allocator.borrow_mut().empty_cache();
        self.forward_trace(Category::Other, NameId::NONE);
    }

    /// Lets at most `limit` bytes be reserved; `None`: all that the device has.
    pub fn set_limit(&self, limit: Option<Bytes>) {
        self.0.allocator.borrow_mut().set_limit(limit);
        self.0.device.borrow_mut().set_limit(limit);
        self.emit(EventKind::Limit { limit });
    }

    /// Applies a configuration string (`PYTORCH_ALLOC_CONF`).
    ///
    /// # Errors
    /// [`SettingsError`]: what PyTorch would refuse.
    pub fn apply_settings(&self, text: &str) -> Result<(), SettingsError> {
        self.0.allocator.borrow_mut().apply_settings(text)
    }

    /// `torch.cuda.reset_peak_memory_stats()`, because the user asked.
    pub fn reset_peak_memory_stats(&self) {
        self.reset_peaks();
        self.emit(EventKind::ResetPeaks);
    }

    /// Resets the peaks while the trainer is made.
    pub fn reset_peaks(&self) {
        self.0.allocator.borrow_mut().reset_peak_statistics();
    }

    /// The allocator's statistics.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.0.allocator.borrow().statistics().clone()
    }

    /// Bytes held from the driver now (`torch.cuda.memory_reserved`).
    #[must_use]
    pub fn reserved(&self) -> Bytes {
        self.0.allocator.borrow().reserved()
    }

    /// Bytes that requests may still take in all: what the driver would give under the limit, plus what is cached.
    #[must_use]
    pub fn headroom(&self) -> Bytes {
        let left = self.0.allocator.borrow().left();
        left + self.reserved().saturating_sub(self.allocated())
    }

    /// Bytes of live blocks now (`torch.cuda.memory_allocated`).
    #[must_use]
    pub fn allocated(&self) -> Bytes {
        Bytes(u64::try_from(self.0.allocator.borrow().statistics().allocated_bytes.all.current).unwrap_or(0))
    }
}

/// Whole microseconds of a duration.
pub(crate) fn micros(duration: Duration) -> Micros {
    Micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use vramlab_device::sim::SimDevice;

    fn on_a_card(index: DeviceIndex, events: &Rc<RefCell<Vec<Event>>>) -> Memory {
        let device = Box::new(SimDevice::h200().unwrap());
        Memory::of_rank(index, device, Settings::default(), Box::new(Rc::clone(events)), true)
    }

    #[test]
    fn every_event_says_whose_it_is() {
        let events = Rc::new(RefCell::new(Vec::new()));
        let memory = on_a_card(DeviceIndex(3), &events);
        let name = memory.name("weight");
        let (address, _) = memory.take(Bytes::mib(1), Category::Parameter, name, StreamId::DEFAULT).unwrap();
        memory.free(address);
        memory.empty_cache();
        memory.set_limit(Some(Bytes::mib(4)));
        assert!(memory.take(Bytes::mib(8), Category::Parameter, name, StreamId::DEFAULT).is_err());
        let events = events.borrow();
        assert!(events.iter().any(|event| matches!(event.kind, EventKind::Oom(_))));
        assert!(events.iter().any(|event| matches!(event.kind, EventKind::Alloc { .. })));
        assert!(events.iter().all(|event| event.device == DeviceIndex(3)), "{events:?}");
    }

    #[test]
    fn a_stream_that_the_device_has_not_is_refused_and_nothing_happens() {
        let events = Rc::default();
        let memory = on_a_card(DeviceIndex::FIRST, &events);
        let name = memory.name("batch");
        let told = events.borrow().len();
        let refused = memory.take(Bytes::mib(1), Category::Input, name, StreamId(9));
        let sentence = refused.map_err(|error| error.to_string()).unwrap_err();
        assert_eq!(sentence, "a block on sim:h200: it has no stream 9, which is a bug of vramlab");
        assert!(memory.mark(StreamId(9)).is_err());
        assert_eq!((events.borrow().len(), memory.reserved()), (told, Bytes::ZERO));
        let opened = memory.with_device(|device| device.open_stream()).unwrap();
        assert!(memory.take(Bytes::mib(1), Category::Input, name, opened).is_ok());
    }
}
