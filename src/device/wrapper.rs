//! Devices that wrap another device and replace some of its methods.

use std::time::Duration;

use super::collective::{Collective, GroupId, SharedAbort};
use super::contract::{CopyPath, Device, DeviceEvent, DeviceInfo, HostWork, MatrixPrecision, ProgramStart, StreamMark};
use super::error::DeviceError;
use super::kernels::Kernel;
use super::operand::Operand;
use super::pinned::{HostBuffer, PinnedMemory};
use super::sensors::Sensors;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{HostMemorySource, SegmentSource};

/// A device around another one. It defines the methods that it replaces; all others are the wrapped device's.
pub trait Wrapper {
    /// The wrapped device.
    fn wrapped(&self) -> &dyn Device;

    /// The wrapped device.
    fn wrapped_mut(&mut self) -> &mut dyn Device;

    /// See [`Device::info`].
    fn info(&self) -> &DeviceInfo {
        self.wrapped().info()
    }

    /// See [`Device::segments`].
    fn segments(&mut self) -> Box<dyn SegmentSource> {
        self.wrapped_mut().segments()
    }

    /// See [`Device::launch`].
    ///
    /// # Errors
    /// Those of [`Device::launch`].
    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError> {
        self.wrapped_mut().launch(kernel, stream)
    }
}

impl<W: Wrapper> Device for W {
    fn info(&self) -> &DeviceInfo {
        Wrapper::info(self)
    }

    fn segments(&mut self) -> Box<dyn SegmentSource> {
        Wrapper::segments(self)
    }

    fn pinned_memory(&self) -> PinnedMemory {
        self.wrapped().pinned_memory()
    }

    fn pinned_source(&mut self) -> Box<dyn HostMemorySource> {
        self.wrapped_mut().pinned_source()
    }

    fn take_managed(&mut self, bytes: Bytes) -> Result<Address, DeviceError> {
        self.wrapped_mut().take_managed(bytes)
    }

    fn give_managed(&mut self, address: Address) {
        self.wrapped_mut().give_managed(address);
    }

    fn sensors(&self) -> Option<Sensors> {
        self.wrapped().sensors()
    }

    fn check(&mut self) -> Result<(), DeviceError> {
        self.wrapped_mut().check()
    }

    fn set_limit(&mut self, limit: Option<Bytes>) {
        self.wrapped_mut().set_limit(limit);
    }

    fn set_matrix_precision(&mut self, precision: MatrixPrecision) {
        self.wrapped_mut().set_matrix_precision(precision);
    }

    fn follow_start(&mut self, start: ProgramStart) {
        self.wrapped_mut().follow_start(start);
    }

    fn spend_host(&mut self, work: HostWork) {
        self.wrapped_mut().spend_host(work);
    }

    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError> {
        Wrapper::launch(self, kernel, stream)
    }

    fn copy_pageable(&mut self, from: &[u8], to: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.wrapped_mut().copy_pageable(from, to, stream)
    }

    fn copy_pinned(&mut self, from: HostBuffer, to: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.wrapped_mut().copy_pinned(from, to, stream)
    }

    fn delay(&mut self, stream: StreamId, since: DeviceEvent, time: Duration) -> Result<(), DeviceError> {
        self.wrapped_mut().delay(stream, since, time)
    }

    fn spend_exchange(&mut self, bytes: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        self.wrapped_mut().spend_exchange(bytes, stream)
    }

    fn exchanges(&self) -> bool {
        self.wrapped().exchanges()
    }

    fn name_group(&mut self) -> Result<Vec<u8>, DeviceError> {
        self.wrapped_mut().name_group()
    }

    fn join_group(&mut self, name: &[u8], size: usize, rank: usize) -> Result<(GroupId, SharedAbort), DeviceError> {
        self.wrapped_mut().join_group(name, size, rank)
    }

    fn exchange(&mut self, group: GroupId, collective: &Collective, stream: StreamId) -> Result<(), DeviceError> {
        self.wrapped_mut().exchange(group, collective, stream)
    }

    fn spend_copy(&mut self, path: CopyPath, bytes: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        self.wrapped_mut().spend_copy(path, bytes, stream)
    }

    fn copy_to_pinned(&mut self, from: Address, to: HostBuffer, stream: StreamId) -> Result<(), DeviceError> {
        self.wrapped_mut().copy_to_pinned(from, to, stream)
    }

    fn read(&mut self, from: Address, to: &mut [u8], stream: StreamId) -> Result<(), DeviceError> {
        self.wrapped_mut().read(from, to, stream)
    }

    fn record_event(&mut self, stream: StreamId) -> Result<DeviceEvent, DeviceError> {
        self.wrapped_mut().record_event(stream)
    }

    fn query_event(&mut self, event: DeviceEvent) -> bool {
        self.wrapped_mut().query_event(event)
    }

    fn wait_event(&mut self, stream: StreamId, event: DeviceEvent) -> Result<(), DeviceError> {
        self.wrapped_mut().wait_event(stream, event)
    }

    fn notes(&self) -> Vec<String> {
        self.wrapped().notes()
    }

    fn synchronize(&mut self) {
        self.wrapped_mut().synchronize();
    }

    fn open_stream(&mut self) -> Result<StreamId, DeviceError> {
        self.wrapped_mut().open_stream()
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.wrapped().has_stream(stream)
    }

    fn copy_stream(&self) -> StreamId {
        self.wrapped().copy_stream()
    }

    fn take_copy_time(&mut self) -> Duration {
        self.wrapped_mut().take_copy_time()
    }

    fn now(&self) -> Duration {
        self.wrapped().now()
    }

    fn mark(&mut self, stream: StreamId) -> Result<StreamMark, DeviceError> {
        self.wrapped_mut().mark(stream)
    }

    fn between(&mut self, from: StreamMark, to: StreamMark) -> Duration {
        self.wrapped_mut().between(from, to)
    }

    fn lend_workspace(&mut self, workspace: Operand) {
        self.wrapped_mut().lend_workspace(workspace);
    }
}
