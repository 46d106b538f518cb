//! A simulated GPU: every memory decision, no arithmetic, no bytes, and a clock of its own.
//!
//! Segments are address arithmetic, kernels only take time: a roofline ([`crate::device::Work`]) with the rates of a
//! [`Card`]. The host's time is simulated too: eager PyTorch spends microseconds on every op, and where kernels are
//! shorter than that the device waits for it.

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
    PinnedMemory, ProgramStart,
};
use crate::allocator::{HostMemorySource, SegmentSource, SimulatedDriver};
use crate::units::{Address, Bytes, StreamId};
use clock::{Nanos, SharedClock};
use driver::{HostAddresses, SharedDriver, TimedDriver};

pub use card::{Card, Chip, Curve, DriverCosts, Launch, Link, Times};
pub use catalog::{CardCatalog, CardError};
pub use efficiency::{ByKernel, ByPrecision, Efficiency, GemmShape};

/// The handle of the copy stream, as a PyTorch trace would show a stream of its pool.
const COPY_STREAM: StreamId = StreamId(1);

/// A simulated GPU. See the module's documentation.
pub struct SimDevice {
    info: DeviceInfo,
    card: Rc<Card>,
    clock: SharedClock,
    driver: SharedDriver,
    precision: MatrixPrecision,
    copied: Nanos,
    pinned: PinnedMemory,
}

impl SimDevice {
    /// A GPU like `card`.
    #[must_use]
    pub fn new(card: Card) -> Self {
        let info = DeviceInfo {
            id: format!("sim:{}", card.name),
            name: card.title.clone(),
            memory: card.memory,
            simulated: true,
        };
        let driver = Rc::new(RefCell::new(SimulatedDriver::new(card.memory, card.context())));
        Self {
            info,
            driver,
            card: Rc::new(card),
            clock: SharedClock::default(),
            precision: MatrixPrecision::default(),
            copied: 0,
            pinned: PinnedMemory::default(),
        }
    }

    /// An H200.
    ///
    /// # Errors
    /// Never: its file is part of the program.
    pub fn h200() -> Result<Self, CardError> {
        CardCatalog::with_user_cards(None).card("h200").map(Self::new)
    }

    fn copy(&mut self, path: CopyPath, bytes: Bytes, stream: StreamId) {
        let link = &self.card.link;
        let curve = match path {
            CopyPath { to_host: false, pinned: false } => &link.pageable,
            CopyPath { to_host: false, pinned: true } => &link.pinned,
            CopyPath { to_host: true, pinned: false } => link.pageable_to_host.as_ref().unwrap_or(&link.pageable),
            CopyPath { to_host: true, pinned: true } => link.pinned_to_host.as_ref().unwrap_or(&link.pinned),
        };
        // Batches and saved tensors wait too long to stay in a cache, and what is saved goes to memory just asked for.
        let most = match path {
            CopyPath { pinned: true, .. } => None,
            CopyPath { to_host: false, .. } => link.uncached,
            CopyPath { to_host: true, .. } => link.untouched_to_host,
        };
        let rate = curve.at(bytes).min(most.unwrap_or(f64::INFINITY));
        let time = cost::copy_time(bytes, rate);
        self.clock.enqueue(stream, cost::nanos(self.card.launch.op), time);
        if !path.pinned {
            self.clock.wait_until(self.clock.end_of(stream));
        }
        if stream == COPY_STREAM || !path.pinned {
            self.copied += time;
        }
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
        self.clock.enqueue(stream, cost::host_time(&self.card, &work), time);
        Ok(())
    }

    fn copy_pageable(&mut self, from: &[u8], _: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.copy(CopyPath { to_host: false, pinned: false }, Bytes(from.len() as u64), stream);
        Ok(())
    }

    fn copy_pinned(&mut self, from: HostBuffer, _: Address, stream: StreamId) -> Result<(), DeviceError> {
        self.copy(CopyPath { to_host: false, pinned: true }, from.bytes, stream);
        Ok(())
    }

    fn spend_copy(&mut self, path: CopyPath, bytes: Bytes, stream: StreamId) {
        self.copy(path, bytes, stream);
    }

    fn copy_to_pinned(&mut self, _: Address, to: HostBuffer, stream: StreamId) -> Result<(), DeviceError> {
        self.copy(CopyPath { to_host: true, pinned: true }, to.bytes, stream);
        Ok(())
    }

    fn read(&mut self, _: Address, to: &mut [u8], stream: StreamId) -> Result<(), DeviceError> {
        self.clock.host(cost::nanos(self.card.launch.synchronize));
        self.clock.wait_until(self.clock.end_of(stream));
        to.fill(0);
        Ok(())
    }

    fn record_event(&mut self, stream: StreamId) -> DeviceEvent {
        DeviceEvent(self.clock.end_of(stream))
    }

    fn query_event(&mut self, event: DeviceEvent) -> bool {
        self.clock.has_passed(event.0)
    }

    fn wait_event(&mut self, stream: StreamId, event: DeviceEvent) {
        self.clock.hold(stream, event.0);
    }

    fn synchronize(&mut self) {
        self.clock.join();
    }

    fn copy_stream(&self) -> StreamId {
        COPY_STREAM
    }

    fn take_copy_time(&mut self) -> Duration {
        Duration::from_nanos(std::mem::take(&mut self.copied))
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now())
    }
}
