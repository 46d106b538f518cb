//! What every device does, and the words in which it is asked.

use std::time::Duration;

use super::collective::{Collective, GroupId, SharedAbort};
use super::error::DeviceError;
use super::kernels::Kernel;
use super::operand::Operand;
use super::pinned::{HostBuffer, PinnedMemory};
use super::sensors::Sensors;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{HostMemorySource, SegmentSource};

/// What a device is, in the words that the header of the lab uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `cpu`, `cuda:0`, `sim:h200`.
    pub id: String,
    /// `AMD EPYC, 2 cores`, `NVIDIA H200`.
    pub name: String,
    /// Memory that segments can take in all.
    pub memory: Bytes,
    /// No arithmetic happens and times are estimates.
    pub simulated: bool,
}

/// A point in a stream's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceEvent(pub u64);

/// A moment of a stream: when it was reached is told later, relative to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamMark(pub u64);

/// Which f32 products may round their factors to TensorFloat-32, as `torch.backends` says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixPrecision {
    /// Matrix products.
    pub products_in_tf32: bool,
    /// Convolutions.
    pub convolutions_in_tf32: bool,
}

/// What PyTorch's Python code does beside launching kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWork {
    /// Wraps a segment whose saved tensors are dropped, and runs it again.
    Checkpoint,
    /// Collects what an optimizer updates.
    OptimizerStep,
}

/// Which way a copy between host and device goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPath {
    /// Device to host, else host to device.
    pub to_host: bool,
    /// The host's memory is page-locked.
    pub pinned: bool,
}

/// What a PyTorch program does at its start that decides where the driver places later segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramStart {
    /// A parameter of this size has been moved to the device; the host's copy went.
    ParameterMoved(Bytes),
    /// The first kernels run.
    FirstKernels,
}

/// Where tensors live and kernels run.
pub trait Device {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Its memory, as the allocator asks for it. Called once, when the allocator is built.
    fn segments(&mut self) -> Box<dyn SegmentSource>;

    /// Its page-locked host memory: a handle for the loader's thread, to fill what the host allocator handed out. It knows
    /// the account of all host memory.
    fn pinned_memory(&self) -> PinnedMemory;

    /// Its page-locked host memory, as the caching host allocator asks for it.
    fn pinned_source(&mut self) -> Box<dyn HostMemorySource>;

    /// Takes `bytes` of unified memory (`cudaMallocManaged`), not initialised: kernels and copies reach it as they do the device's own,
    /// the driver moves its pages between host and device, and no allocator knows of it.
    ///
    /// # Errors
    /// [`DeviceError::OutOfHostMemory`] or [`DeviceError::Failed`].
    fn take_managed(&mut self, bytes: Bytes) -> Result<Address, DeviceError>;

    /// Takes it back, when all work of the device is done.
    fn give_managed(&mut self, address: Address);

    /// Where readings of its sensors arrive, where it has any.
    fn sensors(&self) -> Option<Sensors> {
        None
    }

    /// Whether anything works on it any more: asked when a request for memory has failed, which a device that is gone
    /// refuses too.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn check(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Lets at most `limit` bytes be reserved; `None`: all that it has. The allocator keeps to that: a device whose memory
    /// is the host's bounds what it takes beside.
    fn set_limit(&mut self, limit: Option<Bytes>) {
        let _ = limit;
    }

    /// Which products may be rounded from here on. Devices that always compute in f32 leave it.
    fn set_matrix_precision(&mut self, precision: MatrixPrecision) {
        let _ = precision;
    }

    /// Follows a program's start: where segments lie depends on it.
    fn follow_start(&mut self, start: ProgramStart) {
        let _ = start;
    }

    /// Takes the time of host code that this program has no need of. Only a device with a clock of its own has a use for
    /// it.
    fn spend_host(&mut self, work: HostWork) {
        let _ = work;
    }

    /// Runs `kernel` on `stream`, after everything launched there before.
    ///
    /// Operands must lie in live blocks of this device. The processor refuses what lies in no mapping of its own; a GPU is
    /// given addresses and looks at none of them, so that a wrong one spoils other blocks or loses the device. Whoever
    /// launches answers for that: training holds [`Kernel::reach`] against the live blocks in debug builds and where it is
    /// asked to, the selftest always.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] names the kernel.
    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError>;

    /// Copies pageable host memory to the device and waits: the bytes go through a staging buffer.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn copy_pageable(&mut self, from: &[u8], to: Address, stream: StreamId) -> Result<(), DeviceError>;

    /// Copies page-locked host memory to the device without waiting. `from` must stay as it is until an event
    /// recorded on `stream` afterwards has completed.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn copy_pinned(&mut self, from: HostBuffer, to: Address, stream: StreamId) -> Result<(), DeviceError>;

    /// Takes the time of a copy of bytes that was not made. Only a device without bytes has a use for it.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn spend_copy(&mut self, path: CopyPath, bytes: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        let _ = (path, bytes, stream);
        Ok(())
    }

    /// Spends the time of passing `bytes` on to other devices on `stream`. A device that knows no others spends none.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn spend_exchange(&mut self, bytes: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        let _ = (bytes, stream);
        Ok(())
    }

    /// Later work of `stream` begins `time` behind `since`, or after it: when another simulated device will have passed on what is
    /// waited for. Devices that compute wait for that itself.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn delay(&mut self, stream: StreamId, since: DeviceEvent, time: Duration) -> Result<(), DeviceError> {
        let _ = (stream, since, time);
        Ok(())
    }

    /// Whether it passes bytes on to other devices of its kind by itself, without the host ([`Device::exchange`]).
    fn exchanges(&self) -> bool {
        false
    }

    /// A name for a new group of ranks, which one of them asks for and all get.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where it exchanges nothing, else [`DeviceError::Failed`].
    fn name_group(&mut self) -> Result<Vec<u8>, DeviceError> {
        Err(self.without_exchange())
    }

    /// Joins the group of that name as rank `rank` of `size`, without waiting for the others. The second ends this rank's
    /// part in it, from any thread: what is under way stops.
    ///
    /// # Errors
    /// As [`Device::name_group`].
    fn join_group(&mut self, name: &[u8], size: usize, rank: usize) -> Result<(GroupId, SharedAbort), DeviceError> {
        let _ = (name, size, rank);
        Err(self.without_exchange())
    }

    /// Queues an exchange among the ranks of a group on `stream`. Operands must lie in live blocks until the stream is
    /// through with them.
    ///
    /// # Errors
    /// As [`Device::name_group`], and where the group has ended.
    fn exchange(&mut self, group: GroupId, collective: &Collective, stream: StreamId) -> Result<(), DeviceError> {
        let _ = (group, collective, stream);
        Err(self.without_exchange())
    }

    /// What a device says that exchanges nothing by itself.
    fn without_exchange(&self) -> DeviceError {
        let reason = "what ranks exchange".to_owned();
        DeviceError::Unsupported { operation: "an exchange", device: self.info().id.clone(), reason }
    }

    /// Copies device memory to page-locked host memory, after everything launched on `stream`, without waiting. `to` must
    /// not be looked at before an event recorded on `stream` afterwards has completed.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn copy_to_pinned(&mut self, from: Address, to: HostBuffer, stream: StreamId) -> Result<(), DeviceError>;

    /// Copies device memory to the host, after everything launched on `stream`, and waits.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn read(&mut self, from: Address, to: &mut [u8], stream: StreamId) -> Result<(), DeviceError>;

    /// Marks the present end of `stream`'s work.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn record_event(&mut self, stream: StreamId) -> Result<DeviceEvent, DeviceError>;

    /// True when everything before `event` is done.
    fn query_event(&mut self, event: DeviceEvent) -> bool;

    /// Makes later work of `stream` wait for `event`, without stopping the host where the device can.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn wait_event(&mut self, stream: StreamId, event: DeviceEvent) -> Result<(), DeviceError>;

    /// Which kernels were chosen where there was a choice, and what was left to slower ones: sentences for people.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Waits for all work of all streams.
    fn synchronize(&mut self);

    /// Opens another stream, which runs beside all others until it is told to wait for them (`torch.cuda.Stream()`). It
    /// ends with the device. Kernels that keep something in the device's own scratch memory between their passes are the
    /// compute stream's alone.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn open_stream(&mut self) -> Result<StreamId, DeviceError>;

    /// Whether the device has `stream`: the compute stream ([`StreamId::DEFAULT`]), [`Device::copy_stream`], and what
    /// [`Device::open_stream`] gave. Every other one is refused by all that takes a stream.
    fn has_stream(&self, stream: StreamId) -> bool;

    /// The stream for copies that run beside the compute stream.
    fn copy_stream(&self) -> StreamId;

    /// Time that copies between host and device took since the last call, on whichever stream.
    fn take_copy_time(&mut self) -> Duration;

    /// Time since the device was opened: wall time, or simulated time.
    fn now(&self) -> Duration;

    /// Marks the present end of `stream`'s work, without waiting. The last few dozen marks are kept.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn mark(&mut self, stream: StreamId) -> Result<StreamMark, DeviceError>;

    /// Time of the device between two marks; waits until it has reached both.
    fn between(&mut self, from: StreamMark, to: StreamMark) -> Duration;

    /// The next kernel may use this block, and nothing else will until it has run: the workspace that PyTorch's libraries
    /// would have asked the allocator for. A device whose kernels need none leaves it.
    fn lend_workspace(&mut self, workspace: Operand) {
        let _ = workspace;
    }
}
