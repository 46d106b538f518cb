//! Host memory beside the device's: page-locked blocks from one caching host allocator, and pageable memory.

use crate::error::TrainError;
use vramlab_allocator::HostAllocError;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::{DeviceError, HostBuffer, HostMemoryRefused, HostVec, Plain};
use vramlab_model::EventKind;

use super::handle::Memory;

impl Memory {
    /// Zeroed elements in pageable host memory; empty if the device has no bytes.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] of the host.
    pub fn host_vec<T: Plain>(&self, len: usize, what: &str) -> Result<HostVec<T>, TrainError> {
        let len = if self.holds_bytes() { len } else { 0 };
        self.0.account.vec(len).map_err(|refused| TrainError::of_host(what, refused))
    }

    /// A page-locked block for `bytes`. Unused blocks go back to the system before a request fails.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] of the host.
    pub(crate) fn pin(&self, bytes: Bytes) -> Result<HostBuffer, TrainError> {
        let mut host = self.0.host.borrow_mut();
        let mut served = host.malloc(bytes);
        if matches!(served, Err(HostAllocError::OutOfMemory { .. })) {
            host.empty_cache();
            served = host.malloc(bytes);
        }
        match served {
            Ok(address) => Ok(HostBuffer { address, bytes }),
            Err(HostAllocError::OutOfMemory { size }) => {
                let refused = HostMemoryRefused { requested: size, left: self.0.account.left() };
                Err(TrainError::of_host("a page-locked block", refused))
            }
            Err(other) => Err(TrainError::Allocator(other.to_string())),
        }
    }

    /// Takes a page-locked block back; it is reused once its copies are done.
    pub(crate) fn unpin(&self, buffer: HostBuffer) {
        let freed = self.0.host.borrow_mut().free(buffer.address);
        debug_assert!(freed.is_ok(), "a page-locked block is freed once");
    }

    /// Notes that a copy on `stream` uses a page-locked block: once freed, the block waits for that stream's work.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    pub(crate) fn record_host_stream(&self, buffer: HostBuffer, stream: StreamId) -> Result<(), DeviceError> {
        self.known("a page-locked block", stream)?;
        self.0.host.borrow_mut().record_stream(buffer.address, stream);
        Ok(())
    }

    /// Gives unused page-locked blocks back to the system.
    pub(crate) fn release_pinned(&self) {
        self.0.host.borrow_mut().empty_cache();
        self.tell_host();
    }

    /// Bytes in unified memory, which no allocator counts.
    #[must_use]
    pub fn managed(&self) -> Bytes {
        self.0.managed.get()
    }

    /// Reports host memory to the observer if it has changed since the last report.
    pub(crate) fn tell_host(&self) {
        let pinned = *self.0.host.borrow().statistics();
        let bytes = |counter: i64| Bytes(u64::try_from(counter).unwrap_or(0));
        // For the device's allocator unified memory is host memory, wherever its pages are.
        let pageable = self.0.pageable.get() + self.0.managed.get();
        let now = (bytes(pinned.active_bytes.current) + pageable, bytes(pinned.allocated_bytes.current) + pageable);
        if self.0.told_host.replace(now) != now {
            self.emit(EventKind::HostMemory { allocated: now.0, reserved: now.1 });
        }
    }
}
