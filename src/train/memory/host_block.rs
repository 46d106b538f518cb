//! A tensor's bytes in host memory.

use crate::error::{OpResult, TrainError};
use crate::tensor::Tensor;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::{CopyPath, HostBuffer, HostVec, Span};
use vramlab_model::{CopyDirection, EventKind, Micros};

use super::handle::Memory;

/// Bytes of one tensor in host memory, freed on drop.
pub(crate) struct HostBlock {
    memory: Memory,
    bytes: Bytes,
    place: HostPlace,
}

enum HostPlace {
    /// Ordinary memory; nothing on a device without bytes.
    Pageable(HostVec<u8>),
    /// A block of the caching host allocator.
    Pinned(HostBuffer),
}

impl HostBlock {
    /// Allocates room for `bytes`.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] of the host.
    pub fn new(memory: &Memory, bytes: Bytes, pinned: bool) -> Result<Self, TrainError> {
        let place = if pinned {
            HostPlace::Pinned(memory.pin(bytes)?)
        } else {
            let held =
                memory.host_vec(usize::try_from(bytes.get()).unwrap_or(usize::MAX), "a tensor in host memory")?;
            memory.0.pageable.set(memory.0.pageable.get() + bytes);
            HostPlace::Pageable(held)
        };
        Ok(Self { memory: memory.clone(), bytes, place })
    }

    /// Copies the contiguous bytes of `tensor` here; if `stream` is the compute stream, the caller waits for them.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn take(&mut self, tensor: &Tensor, stream: StreamId) -> OpResult<()> {
        let begun = self.memory.now();
        self.check(tensor)?;
        match &mut self.place {
            HostPlace::Pageable(bytes) if bytes.is_empty() => {
                let path = CopyPath { to_host: true, pinned: false };
                self.memory.with_device(|device| device.spend_copy(path, self.bytes, stream))?;
            }
            HostPlace::Pageable(bytes) => {
                self.memory.with_device(|device| device.read(tensor.address(), bytes, stream))?;
            }
            HostPlace::Pinned(buffer) => {
                self.memory.with_device(|device| device.copy_to_pinned(tensor.address(), *buffer, stream))?;
                if stream == StreamId::DEFAULT {
                    self.memory.with_device(|device| device.synchronize());
                } else {
                    self.memory.record_host_stream(*buffer, stream)?;
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
            HostPlace::Pageable(bytes) if bytes.is_empty() => {
                let path = CopyPath { to_host: false, pinned: false };
                self.memory.with_device(|device| device.spend_copy(path, self.bytes, stream))?;
            }
            HostPlace::Pageable(bytes) => {
                self.memory.with_device(|device| device.copy_pageable(bytes, tensor.address(), stream))?;
            }
            HostPlace::Pinned(buffer) => {
                self.memory.with_device(|device| device.copy_pinned(*buffer, tensor.address(), stream))?;
                self.memory.record_host_stream(*buffer, stream)?;
            }
        }
        self.tell(CopyDirection::ToDevice, begun, stream);
        Ok(())
    }

    fn check(&self, tensor: &Tensor) -> OpResult<()> {
        Ok(self.memory.check("a copy", Span { start: tensor.address(), bytes: self.bytes })?)
    }

    /// Reports a copy. A copy beside the computation takes none of its time: its duration is that of the submission.
    fn tell(&self, direction: CopyDirection, begun: Micros, stream: StreamId) {
        let pinned = matches!(self.place, HostPlace::Pinned(_));
        let elapsed = Micros(self.memory.now().0.saturating_sub(begun.0));
        let duration = if stream == StreamId::DEFAULT { elapsed } else { Micros(0) };
        self.memory.emit(EventKind::Copy { direction, bytes: self.bytes, pinned, duration });
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        match self.place {
            HostPlace::Pageable(_) => {
                let pageable = &self.memory.0.pageable;
                pageable.set(pageable.get().saturating_sub(self.bytes));
            }
            HostPlace::Pinned(buffer) => self.memory.unpin(buffer),
        }
    }
}
