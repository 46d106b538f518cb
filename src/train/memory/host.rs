//! Host memory beside the device's: page-locked blocks of one caching host allocator, and pageable memory.

use crate::allocator::HostAllocError;
use crate::device::{CopyPath, HostBuffer, HostMemoryRefused, HostVec, Plain, Span};
use crate::model::{CopyDirection, EventKind, Micros};
use crate::units::{Bytes, StreamId};

use super::Memory;
use crate::train::error::{OpResult, TrainError};
use crate::train::tensor::Tensor;

/// Bytes of one tensor in host memory. Dropping it gives them back.
pub(crate) struct HostBlock {
    memory: Memory,
    bytes: Bytes,
    place: Place,
}

enum Place {
    /// Ordinary memory; nothing on a device without bytes.
    Pageable(HostVec<u8>),
    /// A block of the caching host allocator.
    Pinned(HostBuffer),
}

impl HostBlock {
    /// Room for `bytes`.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] of the host.
    pub fn new(memory: &Memory, bytes: Bytes, pinned: bool) -> Result<Self, TrainError> {
        let place = if pinned {
            Place::Pinned(memory.pin(bytes)?)
        } else {
            let held =
                memory.host_vec(usize::try_from(bytes.get()).unwrap_or(usize::MAX), "a tensor in host memory")?;
            memory.0.pageable.set(memory.0.pageable.get() + bytes);
            Place::Pageable(held)
        };
        Ok(Self { memory: memory.clone(), bytes, place })
    }

    /// Copies the bytes of `tensor`, which lie together, here; on the compute stream the caller waits for them.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn take(&mut self, tensor: &Tensor, stream: StreamId) -> OpResult<()> {
        let begun = self.memory.now();
        self.check(tensor)?;
        match &mut self.place {
            Place::Pageable(bytes) if bytes.is_empty() => {
                let path = CopyPath { to_host: true, pinned: false };
                self.memory.with_device(|device| device.spend_copy(path, self.bytes, stream));
            }
            Place::Pageable(bytes) => {
                self.memory.with_device(|device| device.read(tensor.address(), bytes, stream))?;
            }
            Place::Pinned(buffer) => {
                self.memory.with_device(|device| device.copy_to_pinned(tensor.address(), *buffer, stream))?;
                if stream == StreamId::DEFAULT {
                    self.memory.with_device(|device| device.synchronize());
                } else {
                    self.memory.record_host_stream(*buffer, stream);
                }
            }
        }
        self.tell(CopyDirection::ToHost, begun, stream);
        Ok(())
    }

    /// Copies the bytes to `tensor`: from pageable memory the caller waits, from page-locked memory the stream does.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn give(&self, tensor: &Tensor, stream: StreamId) -> OpResult<()> {
        let begun = self.memory.now();
        self.check(tensor)?;
        match &self.place {
            Place::Pageable(bytes) if bytes.is_empty() => {
                let path = CopyPath { to_host: false, pinned: false };
                self.memory.with_device(|device| device.spend_copy(path, self.bytes, stream));
            }
            Place::Pageable(bytes) => {
                self.memory.with_device(|device| device.copy_pageable(bytes, tensor.address(), stream))?;
            }
            Place::Pinned(buffer) => {
                self.memory.with_device(|device| device.copy_pinned(*buffer, tensor.address(), stream))?;
                self.memory.record_host_stream(*buffer, stream);
            }
        }
        self.tell(CopyDirection::ToDevice, begun, stream);
        Ok(())
    }

    fn check(&self, tensor: &Tensor) -> OpResult<()> {
        Ok(self.memory.check("a copy", Span { start: tensor.address(), bytes: self.bytes })?)
    }

    /// A copy beside the computation takes none of its time here: its duration is that of the submission.
    fn tell(&self, direction: CopyDirection, begun: Micros, stream: StreamId) {
        let pinned = matches!(self.place, Place::Pinned(_));
        let elapsed = Micros(self.memory.now().0.saturating_sub(begun.0));
        let duration = if stream == StreamId::DEFAULT { elapsed } else { Micros(0) };
        self.memory.emit(EventKind::Copy { direction, bytes: self.bytes, pinned, duration });
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        match self.place {
            Place::Pageable(_) => {
                let pageable = &self.memory.0.pageable;
                pageable.set(pageable.get().saturating_sub(self.bytes));
            }
            Place::Pinned(buffer) => self.memory.unpin(buffer),
        }
    }
}

impl Memory {
    /// Zeroed elements in pageable host memory; none where the device has no bytes.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] of the host.
    pub(crate) fn host_vec<T: Plain>(&self, len: usize, what: &str) -> Result<HostVec<T>, TrainError> {
        let len = if self.holds_bytes() { len } else { 0 };
        self.0.account.vec(len).map_err(|refused| TrainError::of_host(what, refused))
    }

    /// A page-locked block for `bytes`. Blocks that nobody uses go back to the system before one is refused.
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

    /// Takes a page-locked block back; it is used again when copies of it are done.
    pub(crate) fn unpin(&self, buffer: HostBuffer) {
        let freed = self.0.host.borrow_mut().free(buffer.address);
        debug_assert!(freed.is_ok(), "a page-locked block is freed once");
    }

    /// Notes that a copy on `stream` uses a page-locked block: given back, it waits for that stream's work.
    pub(crate) fn record_host_stream(&self, buffer: HostBuffer, stream: StreamId) {
        self.0.host.borrow_mut().record_stream(buffer.address, stream);
    }

    /// Gives page-locked blocks that nobody uses back to the system.
    pub(crate) fn release_pinned(&self) {
        self.0.host.borrow_mut().empty_cache();
        self.tell_host();
    }

    /// Tells the observer of host memory where it has changed since the last time.
    pub(crate) fn tell_host(&self) {
        let pinned = *self.0.host.borrow().statistics();
        let bytes = |counter: i64| Bytes(u64::try_from(counter).unwrap_or(0));
        let pageable = self.0.pageable.get();
        let now = (bytes(pinned.active_bytes.current) + pageable, bytes(pinned.allocated_bytes.current) + pageable);
        if self.0.told_host.replace(now) != now {
            self.emit(EventKind::HostMemory { allocated: now.0, reserved: now.1 });
        }
    }
}
