//! The processor as a device: real arithmetic on all cores, memory in an arena of anonymous mappings, and copies from
//! page-locked memory on a separate thread.
//!
//! The compute stream is the calling thread: a kernel has ended when its launch returns. The copy stream
//! ([`Device::copy_stream`]) is a second thread that performs its copies in order; an event on it is a position in that
//! order. Further streams also run on the calling thread, so their work has ended when the call returns.

pub(crate) mod arena;
pub(crate) mod channels;
mod copies;
pub(crate) mod cores;
pub(crate) mod dispatch;
pub(crate) mod map;
pub(crate) mod operand;
pub(crate) mod partial;
pub(crate) mod planes;
pub(crate) mod processor;
pub(crate) mod real;
pub(crate) mod rows;
mod streams;
pub(crate) mod tasks;
pub(crate) mod tile;
pub(crate) mod windows;

use std::collections::VecDeque;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{
    CopyPath, Device, DeviceError, DeviceEvent, DeviceInfo, HostAccount, HostBuffer, Kernel, PinnedMemory, StreamMark,
};
use arena::{Arena, ArenaSource, SharedArena};
use copies::{CopyState, CopyThread};
use cores::Cores;
use operand::KernelRefusal;
use processor::Processor;
use streams::{COPY_STREAM, StreamHandles};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{EventToken, HostMemorySource, OutOfHostMemory, SegmentSource};

/// The size of the staging buffer for copies from pageable memory, in bytes.
const STAGED: usize = 256 * 1024;
/// The host memory that a limited device may hold beside segments: for all cores together, and per core. The process
/// itself, its stacks and gemm's packed operands use the rest of the margin that the guide states: 64 MiB, and 3 MiB
/// per core.
const BESIDE_LIMIT: (Bytes, Bytes) = (Bytes::mib(192), Bytes::mib(1));

/// How to open a [`CpuDevice`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Total memory available to segments; by default half of what the system has available.
    pub memory: Option<Bytes>,
    /// Worker threads for large kernels; by default one per core.
    pub threads: Option<usize>,
}

/// The processor. See the module's documentation.
pub struct CpuDevice {
    info: DeviceInfo,
    cores: Cores,
    arena: SharedArena,
    copies: Arc<CopyState>,
    copy_thread: CopyThread,
    streams: StreamHandles,
    /// Marks on the copy stream.
    marks: CopyMarks,
    pinned: PinnedMemory,
    /// Holds pageable memory until it is copied, like a driver's staging buffer.
    staging: Box<[u8]>,
    opened: Instant,
}

/// The device's share of the machine's memory. The other half is for everything outside the device.
fn share_of(account: &HostAccount) -> Bytes {
    Bytes(account.total().get() / 2)
}

/// The default memory of the processor device.
#[must_use]
pub fn memory() -> Bytes {
    share_of(&HostAccount::default())
}

impl CpuDevice {
    /// Starts the worker threads and the copy thread, but allocates no memory yet.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] when threads can't be started.
    pub fn open(options: CpuOptions) -> Result<Self, DeviceError> {
        let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let account = HostAccount::default();
        let memory = options.memory.unwrap_or_else(|| share_of(&account));
        let copies = Arc::new(CopyState::default());
        let cores = Cores::new(threads, account.clone())?;
        let plural = if cores.threads() == 1 { "" } else { "s" };
        Ok(Self {
            info: DeviceInfo {
                id: "cpu".into(),
                name: format!("{}, {} core{plural}", processor(), cores.threads()),
                memory,
                simulated: false,
            },
            cores,
            arena: Arc::new(Mutex::new(Arena::new(memory, Arc::clone(&copies), account.clone()))),
            copy_thread: CopyThread::start(Arc::clone(&copies))?,
            copies,
            streams: StreamHandles::new(),
            marks: CopyMarks::default(),
            pinned: PinnedMemory::of(account),
            staging: vec![0; STAGED].into(),
            opened: Instant::now(),
        })
    }

    fn failed(&self, operation: &'static str, reason: impl ToString) -> DeviceError {
        DeviceError::Failed { operation, device: self.info.id.clone(), reason: reason.to_string() }
    }

    fn known(&self, operation: &'static str, stream: StreamId) -> Result<(), DeviceError> {
        if self.streams.has(stream) {
            return Ok(());
        }
        Err(DeviceError::UnknownStream { operation, device: self.info.id.clone(), stream })
    }

    /// Orders copy-stream work that runs on this thread after the earlier copies there.
    fn enter(&self, operation: &'static str, stream: StreamId) -> Result<(), DeviceError> {
        self.known(operation, stream)?;
        if stream == COPY_STREAM {
            self.copies.wait(self.copies.submitted());
        }
        Ok(())
    }

    /// Calls `body` with a range of device memory as bytes.
    fn with_memory(
        &self,
        operation: &'static str,
        address: Address,
        len: usize,
        body: impl FnOnce(&mut [u8]),
    ) -> Result<(), DeviceError> {
        let arena = arena::lock(&self.arena);
        let bytes = super::Operand { address, dtype: super::DType::U8, len };
        let mut access = operand::Access::new(&arena, operand::Sharing::Never);
        let view = access.write(&bytes).map_err(|refused| self.failed(operation, refused))?;
        body(view.slice_mut::<u8>(0, len));
        Ok(())
    }
}

/// The processor's name as the operating system's kernel reports it.
fn processor() -> String {
    let name = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "processor".into())
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn segments(&mut self) -> Box<dyn SegmentSource> {
        Box::new(ArenaSource {
            arena: Arc::clone(&self.arena),
            copies: Arc::clone(&self.copies),
            streams: self.streams.clone(),
        })
    }

    fn pinned_memory(&self) -> PinnedMemory {
        self.pinned.clone()
    }

    fn pinned_source(&mut self) -> Box<dyn HostMemorySource> {
        Box::new(CpuPinnedSource {
            memory: self.pinned.clone(),
            copies: Arc::clone(&self.copies),
            streams: self.streams.clone(),
        })
    }

    fn take_managed(&mut self, bytes: Bytes) -> Result<Address, DeviceError> {
        let (operation, device) = ("unified memory", self.info.id.clone());
        let taken = arena::lock(&self.arena).take_managed(bytes);
        taken.map_err(|refused| DeviceError::OutOfHostMemory { operation, device, refused })
    }

    fn give_managed(&mut self, address: Address) {
        arena::lock(&self.arena).give_managed(address);
    }

    /// Bounds everything that the device and the training on it hold, because segments take from the same host memory.
    fn set_limit(&mut self, limit: Option<Bytes>) {
        let (at_least, each) = BESIDE_LIMIT;
        let beside = at_least + Bytes(each.get() * self.cores.threads() as u64);
        self.pinned.account().set_limit(limit.map(|limit| limit + beside));
    }

    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError> {
        self.enter(kernel.name(), stream)?;
        let arena = arena::lock(&self.arena);
        let on = Processor { cores: &self.cores, arena: &arena };
        kernel.on_cpu(&on).and(self.cores.finish()).map_err(|refused| match refused {
            KernelRefusal::Memory(refused) => {
                let device = self.info.id.clone();
                DeviceError::OutOfHostMemory { operation: kernel.name(), device, refused }
            }
            KernelRefusal::Operands(why) => self.failed(kernel.name(), why),
        })
    }

    fn copy_pageable(&mut self, from: &[u8], to: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.enter("pageable copy", stream)?;
        let started = Instant::now();
        let mut staging = std::mem::take(&mut self.staging);
        let copied = self.with_memory("pageable copy", to, from.len(), |bytes| {
            for (from, to) in from.chunks(STAGED).zip(bytes.chunks_mut(STAGED)) {
                let staged = &mut staging[..from.len()];
                staged.copy_from_slice(from);
                to.copy_from_slice(staged);
            }
        });
        self.staging = staging;
        self.copies.add_time(started.elapsed());
        copied
    }

    fn copy_pinned(&mut self, from: HostBuffer, to: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.known("pinned copy", stream)?;
        let from = self.pinned.part(from)?;
        let len = from.len();
        if stream != COPY_STREAM {
            // In stream order on the calling thread: equivalent to an asynchronous copy that the next kernel needs.
            let started = Instant::now();
            let copied =
                self.with_memory("pinned copy", to, len, |bytes| from.with(|from| bytes.copy_from_slice(from)));
            self.copies.add_time(started.elapsed());
            return copied;
        }
        // Locked until the copy is queued: memory freed later waits for the copy.
        let arena = arena::lock(&self.arena);
        let pointer = arena
            .backed(to, len as u64)
            .map_err(|why| self.failed("pinned copy", format!("{len} bytes at {to}: the target {}", why.0)))?;
        self.copy_thread.submit(from, pointer, to).map_err(|why| self.failed("pinned copy", why))
    }

    fn copy_to_pinned(&mut self, from: Address, to: HostBuffer, stream: StreamId) -> Result<(), DeviceError> {
        self.enter("copy to page-locked memory", stream)?;
        let to = self.pinned.part(to)?;
        let started = Instant::now();
        let place = "copy to page-locked memory";
        let copied = self.with_memory(place, from, to.len(), |bytes| to.with(|to| to.copy_from_slice(bytes)));
        self.copies.add_time(started.elapsed());
        copied
    }

    fn read(&mut self, from: Address, to: &mut [u8], stream: StreamId) -> Result<(), DeviceError> {
        self.enter("read", stream)?;
        self.with_memory("read", from, to.len(), |bytes| to.copy_from_slice(bytes))
    }

    fn spend_copy(&mut self, _: CopyPath, _: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        self.known("a copy", stream)
    }

    fn record_event(&mut self, stream: StreamId) -> Result<DeviceEvent, DeviceError> {
        self.known("an event", stream)?;
        Ok(DeviceEvent(if stream == COPY_STREAM { self.copies.submitted() } else { 0 }))
    }

    fn query_event(&mut self, event: DeviceEvent) -> bool {
        self.copies.is_done(event.0)
    }

    fn wait_event(&mut self, stream: StreamId, event: DeviceEvent) -> Result<(), DeviceError> {
        self.known("a wait", stream)?;
        // The copy stream runs in order and waits for no other stream; the compute stream is this thread.
        if stream != COPY_STREAM {
            self.copies.wait(event.0);
        }
        Ok(())
    }

    fn open_stream(&mut self) -> Result<StreamId, DeviceError> {
        Ok(self.streams.open())
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.streams.has(stream)
    }

    fn synchronize(&mut self) {
        self.copies.wait(self.copies.submitted());
    }

    fn copy_stream(&self) -> StreamId {
        COPY_STREAM
    }

    fn take_copy_time(&mut self) -> Duration {
        self.copies.take_time()
    }

    fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    fn mark(&mut self, stream: StreamId) -> Result<StreamMark, DeviceError> {
        self.known("a mark", stream)?;
        let now = self.opened.elapsed();
        Ok(match stream {
            COPY_STREAM => self.marks.add(now, self.copies.submitted()),
            _ => StreamMark(nanos(now)),
        })
    }

    fn between(&mut self, from: StreamMark, to: StreamMark) -> Duration {
        let reached = |mark| match self.marks.get(mark) {
            // The copies before the mark may have ended long before it was set, or may still be in progress.
            Some((set, event)) => {
                let end = self.copies.end_of(event).map(|end| end.saturating_duration_since(self.opened));
                set.max(end.unwrap_or_default())
            }
            None => Duration::from_nanos(mark.0),
        };
        reached(to).saturating_sub(reached(from))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The last marks of the copy stream: when each was set, and the number of copies before it.
#[derive(Default)]
struct CopyMarks {
    kept: VecDeque<(Duration, u64)>,
    /// The number of older marks that are no longer kept.
    gone: u64,
}

impl CopyMarks {
    /// Set in the number of a copy-stream mark. A mark of any other stream is a time, which reaches this bit only after
    /// 292 years.
    const BIT: u64 = 1 << 63;
    const KEPT: usize = 512;

    fn add(&mut self, now: Duration, copies: u64) -> StreamMark {
        if self.kept.len() == Self::KEPT {
            self.kept.pop_front();
            self.gone += 1;
        }
        self.kept.push_back((now, copies));
        StreamMark(Self::BIT | (self.gone + self.kept.len() as u64 - 1))
    }

    /// `None` if it is not a mark of the copy stream. For marks that are no longer kept, the oldest kept one.
    fn get(&self, mark: StreamMark) -> Option<(Duration, u64)> {
        let number = (mark.0 & Self::BIT != 0).then_some(mark.0 & !Self::BIT)?;
        let index = usize::try_from(number.saturating_sub(self.gone)).ok()?;
        self.kept.get(index).copied()
    }
}

/// Page-locked memory as the caching host allocator's source, and the copy stream's events.
struct CpuPinnedSource {
    memory: PinnedMemory,
    copies: Arc<CopyState>,
    streams: StreamHandles,
}

impl HostMemorySource for CpuPinnedSource {
    fn allocate(&mut self, size: Bytes) -> Result<Address, OutOfHostMemory> {
        self.memory.allocate(size).map(|buffer| buffer.address).map_err(|_| OutOfHostMemory)
    }

    fn free(&mut self, address: Address, _size: Bytes) {
        self.memory.free(address);
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        self.streams.token(stream, &self.copies)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        self.copies.is_done(event.0)
    }
}
