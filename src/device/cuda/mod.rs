//! An NVIDIA GPU as a device, through the driver's API. CUDA's libraries are searched for when the device is opened;
//! building needs nothing of CUDA.
//!
//! Kernels run in order on one compute stream. Concurrent copies have a stream of their own, and more streams can be
//! opened. The host only waits for a kernel in order to read its results.

pub(crate) mod blas;
mod cache;
pub(crate) mod choices;
pub(crate) mod convolution;
pub(crate) mod dnn;
pub(crate) mod driver;
mod events;
pub(crate) mod geometry;
pub(crate) mod gpu;
mod grid;
mod libraries;
mod memory;
pub(crate) mod modules;
mod monitor;
mod nccl;
mod pinned;
mod places;
mod probe;
pub(crate) mod queue;
mod refusal;
pub(crate) mod rows;
mod scratch;
pub(crate) mod stopwatch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    Abort as _, Collective, Device, DeviceError, DeviceEvent, DeviceInfo, GroupId, HostBuffer, Kernel, MatrixPrecision,
    Operand, PinnedMemory, ProgramStart, Sensors, SharedAbort, StreamMark, kernels,
};
use blas::Blas;
use convolution::Convolutions;
use dnn::Dnn;
use driver::Context;
use events::{COPY_STREAM, SharedStreams};
use gpu::Gpu;
use libraries::LibraryKind;
use memory::GpuMemory;
use modules::Modules;
use monitor::{Monitor, ReservedBytes};
use pinned::{CopyTimes, CudaPinnedSource};
use places::Places;
use queue::Queue;
use refusal::Refusal;
use scratch::Scratch;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{HostMemorySource, SegmentSource};

pub use nccl::prepare_ranks;
pub use probe::{HOW_TO_GET, Probe, VisibleGpu, probe, usable, visible};

/// An NVIDIA GPU. See the module's documentation.
pub struct CudaDevice {
    // The following fields are dropped in this order, after the streams have ended their work.
    info: DeviceInfo,
    /// NCCL's communicators, indexed by group.
    groups: Vec<Arc<nccl::Communicator>>,
    gpu: Gpu,
    copies: CopyTimes,
    pinned: PinnedMemory,
    places: Places,
    held: ReservedBytes,
    monitor: Monitor,
    /// The context is released with the last holder of the streams, because memory in it may outlive the device.
    streams: SharedStreams,
    opened: Instant,
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        self.streams.lock().synchronize();
        // Whoever holds a communicator to end it when a rank fails may hold it longer than the context exists.
        self.groups.iter().for_each(|communicator| communicator.abort());
    }
}

impl CudaDevice {
    /// Opens GPU number `ordinal` among those that `CUDA_VISIBLE_DEVICES` leaves visible. The first time on a machine,
    /// this compiles the kernels, which takes seconds. The device must be used on the thread that opened it.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] names what is missing and the places that were searched.
    pub fn open(ordinal: u32) -> Result<Self, DeviceError> {
        let id = format!("cuda:{ordinal}");
        let unavailable = |reason: String| DeviceError::Unavailable { device: id.clone(), reason };
        probe::driver_present().map_err(unavailable)?;
        for needed in [LibraryKind::Nvrtc, LibraryKind::CublasLt] {
            libraries::load(needed).map_err(unavailable)?;
        }
        let monitor = Monitor::start(ordinal);
        let refused = |refusal: Refusal| unavailable(format!("{refusal}; see what nvidia-smi says"));
        let context = Context::enter(ordinal).map_err(|failure| refused(failure.into()))?;
        let properties = driver::properties(&context, ordinal).map_err(|failure| refused(failure.into()))?;
        let streams = SharedStreams::new(context).map_err(|failure| refused(failure.into()))?;
        let (_, memory) = driver::memory().map_err(|failure| refused(failure.into()))?;
        let gpu = Gpu {
            modules: Modules::load(kernels::units(), properties.capability).map_err(refused)?,
            scratch: Scratch::default(),
            blas: Blas::new(&properties.name).map_err(refused)?,
            convolutions: Convolutions::default(),
            dnn: Dnn::default(),
            precision: MatrixPrecision::default(),
            properties,
        };
        let held = ReservedBytes::default();
        Ok(Self {
            info: DeviceInfo { id: id.clone(), name: gpu.properties.name.clone(), memory, simulated: false },
            groups: Vec::new(),
            gpu,
            pinned: PinnedMemory::default(),
            copies: CopyTimes::default(),
            places: Places::reserve(memory),
            monitor: monitor.opened(held.clone()),
            held,
            streams,
            opened: Instant::now(),
        })
    }

    /// The properties that PyTorch's libraries depend on: compute capability (90 on an H200) and multiprocessors.
    #[must_use]
    pub fn capability(&self) -> (u32, u32) {
        (self.gpu.properties.capability, self.gpu.properties.multiprocessors)
    }

    /// The driver's stream for `operation`.
    fn stream(&self, operation: &'static str, stream: StreamId) -> Result<driver::Stream, DeviceError> {
        self.streams.lock().stream(stream).ok_or_else(|| self.unknown(operation, stream))
    }

    fn unknown(&self, operation: &'static str, stream: StreamId) -> DeviceError {
        DeviceError::UnknownStream { operation, device: self.info.id.clone(), stream }
    }

    fn refused(&self, operation: &'static str, refusal: impl Into<Refusal>) -> DeviceError {
        refusal.into().of(operation, &self.info.id)
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn segments(&mut self) -> Box<dyn SegmentSource> {
        let (streams, places) = (self.streams.clone(), self.places.clone());
        Box::new(GpuMemory::new(self.gpu.properties.ordinal, streams, places, self.held.clone()))
    }

    fn pinned_memory(&self) -> PinnedMemory {
        self.pinned.clone()
    }

    fn pinned_source(&mut self) -> Box<dyn HostMemorySource> {
        Box::new(CudaPinnedSource::new(self.pinned.clone(), self.streams.clone()))
    }

    fn take_managed(&mut self, bytes: Bytes) -> Result<Address, DeviceError> {
        driver::take_managed(bytes).map_err(|failure| self.refused("unified memory", failure))
    }

    fn give_managed(&mut self, address: Address) {
        self.streams.lock().synchronize();
        let _ = driver::give_managed(address);
    }

    fn sensors(&self) -> Option<Sensors> {
        Some(self.monitor.sensors())
    }

    fn check(&mut self) -> Result<(), DeviceError> {
        match self.streams.lock().check() {
            Err(failure) if failure.lost() => Err(self.refused("check", failure)),
            _ => Ok(()),
        }
    }

    fn follow_start(&mut self, start: ProgramStart) {
        self.places.follow(start);
    }

    fn set_matrix_precision(&mut self, precision: MatrixPrecision) {
        self.gpu.precision = precision;
    }

    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError> {
        let stream = self.stream(kernel.name(), stream)?;
        let mut queue = Queue { gpu: &mut self.gpu, stream };
        let launched = kernel.on_cuda(&mut queue);
        self.gpu.scratch.lend(None);
        launched.map_err(|refusal| refusal.of(kernel.name(), &self.info.id))
    }

    fn lend_workspace(&mut self, workspace: Operand) {
        self.gpu.scratch.lend(Some(workspace));
    }

    fn mark(&mut self, stream: StreamId) -> Result<StreamMark, DeviceError> {
        self.streams.lock().mark(stream).map(StreamMark).ok_or_else(|| self.unknown("a mark", stream))
    }

    fn between(&mut self, from: StreamMark, to: StreamMark) -> Duration {
        self.streams.lock().between(from.0, to.0)
    }

    fn copy_pageable(&mut self, from: &[u8], to: Address, stream: StreamId) -> Result<(), DeviceError> {
        let started = Instant::now();
        let stream = self.stream("pageable copy", stream)?;
        let copied = driver::upload(from, to, stream).and_then(|()| stream.synchronize());
        self.copies.add(started.elapsed());
        copied.map_err(|failure| self.refused("pageable copy", failure))
    }

    fn copy_pinned(&mut self, from: HostBuffer, to: Address, stream: StreamId) -> Result<(), DeviceError> {
        let from = self.pinned.part(from)?;
        let queue = self.stream("pinned copy", stream)?;
        let copied = self.copies.measure(queue, || from.with(|bytes| driver::upload(bytes, to, queue)));
        copied.map_err(|failure| self.refused("pinned copy", failure))
    }

    fn copy_to_pinned(&mut self, from: Address, to: HostBuffer, stream: StreamId) -> Result<(), DeviceError> {
        let to = self.pinned.part(to)?;
        let queue = self.stream("copy to page-locked memory", stream)?;
        let copied = self.copies.measure(queue, || to.with(|bytes| driver::download(from, bytes, queue)));
        copied.map_err(|failure| self.refused("copy to page-locked memory", failure))
    }

    fn read(&mut self, from: Address, to: &mut [u8], stream: StreamId) -> Result<(), DeviceError> {
        let stream = self.stream("read", stream)?;
        let read = driver::download(from, to, stream).and_then(|()| stream.synchronize());
        read.map_err(|failure| self.refused("read", failure))
    }

    fn record_event(&mut self, stream: StreamId) -> Result<DeviceEvent, DeviceError> {
        self.streams.lock().record(stream).map(DeviceEvent).ok_or_else(|| self.unknown("an event", stream))
    }

    fn query_event(&mut self, event: DeviceEvent) -> bool {
        self.streams.lock().is_done(event.0)
    }

    fn wait_event(&mut self, stream: StreamId, event: DeviceEvent) -> Result<(), DeviceError> {
        self.streams.lock().wait(stream, event.0).ok_or_else(|| self.unknown("a wait", stream))
    }

    fn exchanges(&self) -> bool {
        true
    }

    fn name_group(&mut self) -> Result<Vec<u8>, DeviceError> {
        nccl::name().map_err(|refusal| self.refused("a group of ranks", refusal))
    }

    fn join_group(&mut self, name: &[u8], size: usize, rank: usize) -> Result<(GroupId, SharedAbort), DeviceError> {
        let joined = nccl::Communicator::join(name, size, rank);
        let communicator = joined.map_err(|refusal| self.refused("a group of ranks", refusal))?;
        self.groups.push(Arc::clone(&communicator));
        Ok((GroupId(self.groups.len() - 1), communicator))
    }

    fn exchange(&mut self, group: GroupId, collective: &Collective, stream: StreamId) -> Result<(), DeviceError> {
        let queue = self.stream(collective.name(), stream)?;
        let Some(communicator) = self.groups.get(group.0) else {
            let reason = format!("{} in a group that it has not joined", collective.name());
            return Err(self.refused(collective.name(), Refusal::Unsupported(reason)));
        };
        communicator.run(collective, queue).map_err(|refusal| self.refused(collective.name(), refusal))
    }

    fn notes(&self) -> Vec<String> {
        self.gpu.dnn.notes().into_iter().chain(self.gpu.convolutions.notes()).collect()
    }

    fn synchronize(&mut self) {
        self.streams.lock().synchronize();
    }

    fn open_stream(&mut self) -> Result<StreamId, DeviceError> {
        let opened = self.streams.lock().open();
        opened.map_err(|failure| self.refused("another stream", failure))
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.streams.lock().has(stream)
    }

    fn copy_stream(&self) -> StreamId {
        COPY_STREAM
    }

    fn take_copy_time(&mut self) -> Duration {
        self.copies.take()
    }

    fn now(&self) -> Duration {
        self.opened.elapsed()
    }
}
