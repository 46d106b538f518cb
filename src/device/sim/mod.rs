//! A simulated GPU: it makes every memory decision, but has no arithmetic and no bytes, and it has its own clock.
//!
//! Segments are address arithmetic, and kernels only take time: a roofline ([`crate::Work`]) with the rates of a
//! [`Card`]. The host's time is simulated too: eager PyTorch spends microseconds on every op, and if kernels are
//! shorter than that, the device waits for the host.

mod card;
mod catalog;
mod clock;
mod cost;
mod driver;
mod efficiency;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::{
    CopyPath, Device, DeviceError, DeviceEvent, DeviceInfo, HostBuffer, HostWork, Kernel, MatrixPrecision,
    PinnedMemory, ProgramStart, StreamMark,
};
use clock::{Nanos, SharedClock};
use driver::{HostAddresses, SharedDriver, TimedDriver};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{HostMemorySource, SegmentSource, SimulatedDriver};

pub use card::{Card, Chip, Curve, DriverCosts, LaunchCost, Link, Times};
pub use catalog::{CardCatalog, CardError};
pub use efficiency::{ByKernel, ByPrecision, Efficiency, GemmShape};

/// A simulated GPU. See the module's documentation.
pub struct SimDevice {
    info: DeviceInfo,
    card: Rc<Card>,
    clock: SharedClock,
    copy_stream: StreamId,
    driver: SharedDriver,
    precision: MatrixPrecision,
    copied: Nanos,
    pinned: PinnedMemory,
    /// The address of the next unified memory, which has no bytes.
    managed: Address,
}

impl SimDevice {
    /// A GPU with the properties of `card`.
    #[must_use]
    pub fn new(card: Card) -> Self {
        let info = DeviceInfo {
            id: format!("sim:{}", card.name),
            name: card.title.clone(),
            memory: card.memory,
            simulated: true,
        };
        let driver = Rc::new(RefCell::new(SimulatedDriver::new(card.memory, card.context())));
        let clock = SharedClock::default();
        let copy_stream = clock.open();
        Self {
            info,
            driver,
            card: Rc::new(card),
            clock,
            copy_stream,
            precision: MatrixPrecision::default(),
            copied: 0,
            pinned: PinnedMemory::default(),
            managed: Address(1 << 45),
        }
    }

    /// An H200.
    ///
    /// # Errors
    /// Never: its file is part of the program.
    pub fn h200() -> Result<Self, CardError> {
        CardCatalog::with_user_cards(None).card("h200").map(Self::new)
    }

    fn unknown(&self, operation: &'static str, stream: StreamId) -> DeviceError {
        DeviceError::UnknownStream { operation, device: self.info.id.clone(), stream }
    }

    fn end_of(&self, operation: &'static str, stream: StreamId) -> Result<Nanos, DeviceError> {
        self.clock.end_of(stream).ok_or_else(|| self.unknown(operation, stream))
    }

    fn copy(&mut self, path: CopyPath, bytes: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        let link = &self.card.link;
        let curve = match path {
            CopyPath { to_host: false, pinned: false } => &link.pageable,
            CopyPath { to_host: false, pinned: true } => &link.pinned,
            CopyPath { to_host: true, pinned: false } => link.pageable_to_host.as_ref().unwrap_or(&link.pageable),
            CopyPath { to_host: true, pinned: true } => link.pinned_to_host.as_ref().unwrap_or(&link.pinned),
        };
        // Batches and saved tensors are no longer in the caches by then, and saved tensors go to newly allocated
        // memory.
        let most = match path {
            CopyPath { pinned: true, .. } => None,
            CopyPath { to_host: false, .. } => link.uncached,
            CopyPath { to_host: true, .. } => link.untouched_to_host,
        };
        let rate = curve.at(bytes).min(most.unwrap_or(f64::INFINITY));
        let time = cost::copy_time(bytes, rate);
        let queued = self.clock.enqueue(stream, cost::nanos(self.card.launch.op), time);
        queued.ok_or_else(|| self.unknown("a copy", stream))?;
        if !path.pinned {
            self.clock.wait_until(self.end_of("a copy", stream)?);
        }
        self.copied += time;
        Ok(())
    }
}

impl Device for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn segments(&mut self) -> Box<dyn SegmentSource> {
        Box::new(TimedDriver::new(&self.card, &self.clock, &self.driver))
    }

    fn pinned_memory(&self) -> PinnedMemory {
        self.pinned.clone()
    }

    fn pinned_source(&mut self) -> Box<dyn HostMemorySource> {
        Box::new(HostAddresses::new(&self.clock))
    }

    /// Its pages take no other memory: the driver evicts them when the memory is needed.
    fn take_managed(&mut self, bytes: Bytes) -> Result<Address, DeviceError> {
        let address = self.managed;
        self.managed = address.offset(Bytes(bytes.get().next_multiple_of(1 << 12)));
        Ok(address)
    }

    fn give_managed(&mut self, _: Address) {}

    fn set_matrix_precision(&mut self, precision: MatrixPrecision) {
        self.precision = precision;
    }

    fn follow_start(&mut self, start: ProgramStart) {
        match start {
            ProgramStart::ParameterMoved(bytes) => self.driver.borrow_mut().release_host(bytes),
            ProgramStart::FirstKernels => self.driver.borrow_mut().load_kernels(),
        }
    }

    fn spend_host(&mut self, work: HostWork) {
        self.clock.host(cost::python_time(&self.card, work));
    }

    fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError> {
        let work = kernel.work();
        let time = cost::device_time(&self.card, &work, self.precision);
        let queued = self.clock.enqueue(stream, cost::host_time(&self.card, &work), time);
        queued.ok_or_else(|| self.unknown(kernel.name(), stream))
    }

    fn copy_pageable(&mut self, from: &[u8], _: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.copy(CopyPath { to_host: false, pinned: false }, Bytes(from.len() as u64), stream)
    }

    fn copy_pinned(&mut self, from: HostBuffer, _: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.copy(CopyPath { to_host: false, pinned: true }, from.bytes, stream)
    }

    fn spend_exchange(&mut self, bytes: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        let link = &self.card.link;
        let time = cost::copy_time(bytes, link.peers.unwrap_or_else(|| link.pinned.at(bytes)));
        let queued = self.clock.enqueue(stream, cost::nanos(self.card.launch.op), time);
        queued.map(|_| ()).ok_or_else(|| self.unknown("a collective", stream))
    }

    fn delay(&mut self, stream: StreamId, since: DeviceEvent, time: Duration) -> Result<(), DeviceError> {
        let end = since.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.clock.hold(stream, end).ok_or_else(|| self.unknown("a wait", stream))
    }

    fn spend_copy(&mut self, path: CopyPath, bytes: Bytes, stream: StreamId) -> Result<(), DeviceError> {
        self.copy(path, bytes, stream)
    }

    fn copy_to_pinned(&mut self, _: Address, to: HostBuffer, stream: StreamId) -> Result<(), DeviceError> {
        self.copy(CopyPath { to_host: true, pinned: true }, to.bytes, stream)
    }

    fn read(&mut self, _: Address, to: &mut [u8], stream: StreamId) -> Result<(), DeviceError> {
        let end = self.end_of("read", stream)?;
        self.clock.host(cost::nanos(self.card.launch.synchronize));
        self.clock.wait_until(end);
        to.fill(0);
        Ok(())
    }

    fn record_event(&mut self, stream: StreamId) -> Result<DeviceEvent, DeviceError> {
        self.end_of("an event", stream).map(DeviceEvent)
    }

    fn query_event(&mut self, event: DeviceEvent) -> bool {
        self.clock.has_passed(event.0)
    }

    fn wait_event(&mut self, stream: StreamId, event: DeviceEvent) -> Result<(), DeviceError> {
        self.clock.hold(stream, event.0).ok_or_else(|| self.unknown("a wait", stream))
    }

    fn synchronize(&mut self) {
        self.clock.join();
    }

    fn open_stream(&mut self) -> Result<StreamId, DeviceError> {
        Ok(self.clock.open())
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.clock.has(stream)
    }

    fn copy_stream(&self) -> StreamId {
        self.copy_stream
    }

    fn take_copy_time(&mut self) -> Duration {
        Duration::from_nanos(std::mem::take(&mut self.copied))
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now())
    }

    fn mark(&mut self, stream: StreamId) -> Result<StreamMark, DeviceError> {
        self.end_of("a mark", stream).map(StreamMark)
    }

    fn between(&mut self, from: StreamMark, to: StreamMark) -> Duration {
        Duration::from_nanos(to.0.saturating_sub(from.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Elementwise;
    use crate::{DType, Operand};

    #[test]
    fn work_of_an_opened_stream_takes_its_time_there_and_an_unknown_one_is_an_error() {
        let mut device = SimDevice::h200().unwrap();
        let dst = Operand { address: Address(0), dtype: DType::F32, len: 1 << 28 };
        let fill = Elementwise::Fill { dst, value: 0.0 }.into();
        let side = device.open_stream().unwrap();
        assert!(side != device.copy_stream() && device.has_stream(side));
        let (begun, compute) = (device.mark(side).unwrap(), device.mark(StreamId::DEFAULT).unwrap());
        device.launch(&fill, side).unwrap();
        let (ended, idle) = (device.mark(side).unwrap(), device.mark(StreamId::DEFAULT).unwrap());
        assert!(device.between(begun, ended) > device.between(compute, idle), "the compute stream goes on");
        let event = device.record_event(side).unwrap();
        device.wait_event(StreamId::DEFAULT, event).unwrap();
        let waited = device.mark(StreamId::DEFAULT).unwrap();
        assert_eq!(device.between(begun, waited), device.between(begun, ended));
        let unknown = StreamId(9);
        assert!(!device.has_stream(unknown) && device.mark(unknown).is_err());
        assert!(device.launch(&fill, unknown).is_err() && device.record_event(unknown).is_err());
        assert!(device.wait_event(unknown, event).is_err());
        let path = CopyPath { to_host: false, pinned: true };
        assert!(device.spend_copy(path, Bytes::mib(1), unknown).is_err());
    }
}
