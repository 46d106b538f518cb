//! A simulated GPU: every memory decision, no arithmetic, no bytes.
//!
//! Segments are address arithmetic ([`SimulatedDriver`]), kernels only take time.

use std::time::Duration;

use super::{Device, DeviceError, DeviceEvent, DeviceInfo, HostBuffer, Kernel, PinnedMemory};
use crate::allocator::{EventToken, HostMemorySource, OutOfHostMemory, SegmentSource, SimulatedDriver};
use crate::units::{Address, Bytes, StreamId};

/// The handle of the copy stream, as a PyTorch trace would show a stream of its pool.
const COPY_STREAM: StreamId = StreamId(1);

/// A simulated GPU. See the module's documentation.
pub struct SimDevice {
    info: DeviceInfo,
    clock: Duration,
    pinned: PinnedMemory,
}

impl SimDevice {
    /// An H200.
    #[must_use]
    pub fn h200() -> Self {
        let memory = Bytes(150_109_880_320);
        let info = DeviceInfo { id: "sim:h200".into(), name: "NVIDIA H200".into(), memory, simulated: true };
        Self { info, clock: Duration::ZERO, pinned: PinnedMemory::default() }
    }
}

impl Device for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn segments(&mut self) -> Box<dyn SegmentSource> {
        Box::new(SimulatedDriver::new(self.info.memory, Bytes::mib(527)))
    }

    fn pinned_memory(&self) -> PinnedMemory {
        self.pinned.clone()
    }

    fn pinned_source(&mut self) -> Box<dyn HostMemorySource> {
        Box::new(HostAddresses { next: 1 << 46 })
    }

    fn launch(&mut self, _: &Kernel<'_>, _: StreamId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn copy_pageable(&mut self, _: &[u8], _: Address, _: StreamId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn copy_pinned(&mut self, _: HostBuffer, _: Address, _: StreamId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&mut self, _: Address, to: &mut [u8], _: StreamId) -> Result<(), DeviceError> {
        to.fill(0);
        Ok(())
    }

    fn record_event(&mut self, _: StreamId) -> DeviceEvent {
        DeviceEvent(0)
    }

    fn query_event(&mut self, _: DeviceEvent) -> bool {
        true
    }

    fn wait_event(&mut self, _: StreamId, _: DeviceEvent) {}

    fn synchronize(&mut self) {}

    fn copy_stream(&self) -> StreamId {
        COPY_STREAM
    }

    fn take_copy_time(&mut self) -> Duration {
        Duration::ZERO
    }

    fn now(&self) -> Duration {
        self.clock
    }
}

/// Page-locked memory in name only.
struct HostAddresses {
    next: u64,
}

impl HostMemorySource for HostAddresses {
    fn allocate(&mut self, size: Bytes) -> Result<Address, OutOfHostMemory> {
        let address = Address(self.next);
        self.next += size.get().next_multiple_of(1 << 12);
        Ok(address)
    }

    fn free(&mut self, _: Address, _: Bytes) {}

    fn record_event(&mut self, _: StreamId) -> EventToken {
        EventToken(0)
    }

    fn event_done(&mut self, _: EventToken) -> bool {
        true
    }
}
