//! The interface of every device, and the types of its requests.

use std::time::Duration;

use super::collective::{Collective, GroupId, SharedAbort};
use super::error::DeviceError;
use super::kernels::Kernel;
use super::operand::Operand;
use super::pinned::{HostBuffer, PinnedMemory};
use super::sensors::Sensors;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{HostMemorySource, SegmentSource};

/// A device's description, in the words that the lab's header uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `cpu`, `cuda:0`, `sim:h200`.
    pub id: String,
    /// `AMD EPYC, 2 cores`, `NVIDIA H200`.
    pub name: String,
    /// Total memory available to segments.
    pub memory: Bytes,
    /// True if no arithmetic happens and times are estimates.
    pub simulated: bool,
}

/// A point in a stream's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceEvent(pub u64);

/// A moment on a stream. Its time is only known later, relative to another mark.
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

/// Host work that PyTorch's Python code does besides launching kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWork {
    /// Wrapping a segment whose saved tensors are dropped, and running it again.
    Checkpoint,
    /// Collecting what an optimizer updates.
    OptimizerStep,
}

/// The direction of a copy between host and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPath {
    /// True for device to host, false for host to device.
    pub to_host: bool,
    /// True if the host's memory is page-locked.
    pub pinned: bool,
}

/// An action at a PyTorch program's start that decides where the driver places later segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramStart {
    /// A parameter of this size was moved to the device, and the host's copy was freed.
    ParameterMoved(Bytes),
    /// The first kernels run.
    FirstKernels,
}

/// Where tensors live and kernels run.
pub trait Device {
    /// Describes the device.
    fn info(&self) -> &DeviceInfo;

    /// Its memory, in the form that the allocator uses. Called once, when the allocator is built.
    fn segments(&mut self) -> Box<dyn SegmentSource>;

    /// Its page-locked host memory, as a handle with which the loader's thread fills buffers that the host allocator
    /// handed out. The handle knows the account of all host memory.
    fn pinned_memory(&self) -> PinnedMemory;

    /// Its page-locked host memory, in the form that the caching host allocator uses.
    fn pinned_source(&mut self) -> Box<dyn HostMemorySource>;

    /// Allocates `bytes` of unified memory (`cudaMallocManaged`), not initialised. Kernels and copies reach it like the
    /// device's own memory, the driver moves its pages between host and device, and no allocator knows of it.
    ///
    /// # Errors
    /// [`DeviceError::OutOfHostMemory`] or [`DeviceError::Failed`].
    fn take_managed(&mut self, bytes: Bytes) -> Result<Address, DeviceError>;

    /// Frees unified memory after all work of the device has ended.
    fn give_managed(&mut self, address: Address);

    /// The readings of its sensors, if it has any.
    fn sensors(&self) -> Option<Sensors> {
        None
    }

    /// Tells whether the device still works. Called after a request for memory has failed, because a lost device
    /// refuses memory too.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn check(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Limits the bytes that may be reserved; `None` means all that it has. The allocator enforces the limit itself. A
    /// device whose memory is the host's also bounds what it allocates beside segments.
    fn set_limit(&mut self, limit: Option<Bytes>) {
        let _ = limit;
    }

    /// Sets which products may be rounded from now on. Devices that always compute in f32 ignore it.
    fn set_matrix_precision(&mut self, precision: MatrixPrecision) {
        let _ = precision;
    }

    /// Follows a program's start, because it decides where segments lie.
    fn follow_start(&mut self, start: ProgramStart) {
        let _ = start;
    }

    /// Spends the time of PyTorch's host code that this program does not need to run. Only a device with its own clock
    /// uses it.
    fn spend_host(&mut self, work: HostWork) {
        let _ = work;
    }

    /// Runs `kernel` on `stream`, after everything launched there earlier.
    ///
    /// Operands must lie in live blocks of this device. The processor refuses addresses outside its mappings. A GPU
    /// checks no addresses, so a wrong one corrupts other blocks or loses the device. The caller is responsible:
    /// training checks [`Kernel::reach`] against the live blocks in debug builds and on request, and the selftest
    /// always does.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] names the kernel.
    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError>;

    /// Copies pageable host memory to the device through a staging buffer, and waits.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn copy_pageable(&mut self, from: &[u8], to: Address, stream: StreamId) -> Result<(), DeviceError>;

    /// Copies page-locked host memory to the device without waiting. `from` must not change until an event recorded on
    /// `stream` afterwards has completed.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn copy_pinned(&mut self, from: HostBuffer, to: Address, stream: StreamId) -> Result<(), DeviceError>;

    /// Spends the time of a copy that was not made. Only a device without bytes uses it.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn spend_copy(&mut self, path: CopyPath, bytes: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        let _ = (path, bytes, stream);
        Ok(())
    }

    /// Spends the time of transferring `bytes` to other devices on `stream`. A device that knows no others spends none.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn spend_exchange(&mut self, bytes: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        let _ = (bytes, stream);
        Ok(())
    }

    /// Delays later work of `stream` until at least `time` after `since`, when another simulated device will have sent
    /// the awaited data. Devices that compute wait for the data themselves.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn delay(&mut self, stream: StreamId, since: DeviceEvent, time: Duration) -> Result<(), DeviceError> {
        let _ = (stream, since, time);
        Ok(())
    }

    /// True if it sends bytes to other devices of its kind without the host ([`Device::exchange`]).
    fn exchanges(&self) -> bool {
        false
    }

    /// Creates a name for a new group of ranks. One rank creates it and sends it to all others.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if the device exchanges nothing, otherwise [`DeviceError::Failed`].
    fn name_group(&mut self) -> Result<Vec<u8>, DeviceError> {
        Err(self.without_exchange())
    }

    /// Joins the named group as rank `rank` of `size`, without waiting for the others. The returned [`SharedAbort`]
    /// ends this rank's membership from any thread and stops exchanges in progress.
    ///
    /// # Errors
    /// As [`Device::name_group`].
    fn join_group(&mut self, name: &[u8], size: usize, rank: usize) -> Result<(GroupId, SharedAbort), DeviceError> {
        let _ = (name, size, rank);
        Err(self.without_exchange())
    }

    /// Queues an exchange among the ranks of a group on `stream`. Operands must lie in live blocks until the stream has
    /// finished it.
    ///
    /// # Errors
    /// As [`Device::name_group`], or if the group has ended.
    fn exchange(&mut self, group: GroupId, collective: &Collective, stream: StreamId) -> Result<(), DeviceError> {
        let _ = (group, collective, stream);
        Err(self.without_exchange())
    }

    /// The error of a device that exchanges nothing.
    fn without_exchange(&self) -> DeviceError {
        let reason = "what ranks exchange".to_owned();
        DeviceError::Unsupported { operation: "an exchange", device: self.info().id.clone(), reason }
    }

    /// Copies device memory to page-locked host memory, after everything launched on `stream`, without waiting. `to`
    /// must not be read before an event recorded on `stream` afterwards has completed.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn copy_to_pinned(&mut self, from: Address, to: HostBuffer, stream: StreamId) -> Result<(), DeviceError>;

    /// Copies device memory to the host, after everything launched on `stream`, and waits.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn read(&mut self, from: Address, to: &mut [u8], stream: StreamId) -> Result<(), DeviceError>;

    /// Records an event at the current end of `stream`'s work.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn record_event(&mut self, stream: StreamId) -> Result<DeviceEvent, DeviceError>;

    /// True when all work before `event` is done.
    fn query_event(&mut self, event: DeviceEvent) -> bool;

    /// Makes later work of `stream` wait for `event`, without blocking the host if the device supports that.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn wait_event(&mut self, stream: StreamId, event: DeviceEvent) -> Result<(), DeviceError>;

    /// Sentences for people about which kernels were chosen from alternatives, and what runs on slower ones.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Waits for all work of all streams.
    fn synchronize(&mut self);

    /// Opens another stream, which runs concurrently with all others until it is told to wait for them
    /// (`torch.cuda.Stream()`). It ends with the device. Kernels that keep data in the device's own scratch memory
    /// between their passes may only run on the compute stream.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn open_stream(&mut self) -> Result<StreamId, DeviceError>;

    /// True for the compute stream ([`StreamId::DEFAULT`]), [`Device::copy_stream`], and streams from
    /// [`Device::open_stream`]. Every method that takes a stream refuses all others.
    fn has_stream(&self, stream: StreamId) -> bool;

    /// The stream for copies that run concurrently with the compute stream.
    fn copy_stream(&self) -> StreamId;

    /// Time that copies between host and device took since the last call, on all streams.
    fn take_copy_time(&mut self) -> Duration;

    /// Time since the device was opened: wall time, or simulated time.
    fn now(&self) -> Duration;

    /// Marks the current end of `stream`'s work, without waiting. The last few dozen marks are kept.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn mark(&mut self, stream: StreamId) -> Result<StreamMark, DeviceError>;

    /// Time of the device between two marks. Waits until it has reached both.
    fn between(&mut self, from: StreamMark, to: StreamMark) -> Duration;

    /// Lends a block to the next kernel, which has it to itself until it has run: the workspace that PyTorch's
    /// libraries would have requested from the allocator. A device whose kernels need no workspace ignores it.
    fn lend_workspace(&mut self, workspace: Operand) {
        let _ = workspace;
    }
}
