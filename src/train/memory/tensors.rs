//! Tensors: how they are made, and how bytes get into them and out of them.

use std::num::NonZero;
use std::rc::Rc;

use crate::error::OpResult;
use crate::shape::Shape;
use crate::storage::Storage;
use crate::tensor::Tensor;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::{CopyPath, DType, DeviceError, HostBuffer, Span};
use vramlab_model::{Category, CopyDirection, EventKind, Micros, NameId};

use super::frames::BlockHandle;
use super::handle::Memory;

/// Bytes that the host makes at a time.
const PIECE: usize = 1024 * 1024;

impl Memory {
    /// A tensor that is not initialised, named `what` within the present module.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`](crate::TrainError::OutOfMemory).
    pub fn tensor(&self, shape: Shape, dtype: DType, category: Category, what: &'static str) -> OpResult<Tensor> {
        self.named_tensor(shape, dtype, category, self.name_here(what), StreamId::DEFAULT)
    }

    /// Scratch of a library or of a reduction, in bytes, which the following kernels may use.
    ///
    /// # Errors
    /// As for [`Memory::tensor`].
    pub(crate) fn scratch(&self, bytes: usize, what: &'static str) -> OpResult<Tensor> {
        let scratch = self.tensor(Shape::new(&[bytes]), DType::U8, Category::Workspace, what)?;
        self.with_device(|device| device.lend_workspace(scratch.operand()));
        Ok(scratch)
    }

    /// A tensor with a name of its own, for `stream`.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`](crate::TrainError::OutOfMemory).
    pub fn named_tensor(
        &self,
        shape: Shape,
        dtype: DType,
        category: Category,
        name: NameId,
        stream: StreamId,
    ) -> OpResult<Tensor> {
        let storage = Rc::new(Storage::new(self, shape.numel(), dtype, category, name, stream)?);
        self.0.frames.took(&(Rc::clone(&storage) as BlockHandle));
        Ok(Tensor::new(storage, shape))
    }

    /// A tensor in host memory that kernels reach, not initialised.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`](crate::TrainError::OutOfMemory) of the host.
    pub(crate) fn host_tensor(&self, shape: Shape, dtype: DType) -> OpResult<Tensor> {
        Ok(Tensor::new(Rc::new(Storage::on_host(self, shape.numel(), dtype)?), shape))
    }

    /// Spends the time of copying a tensor's bytes between device and host on `stream`; where there are bytes, a kernel makes the
    /// copy. The caller waits for a copy of pageable memory.
    ///
    /// # Errors
    /// [`TrainError::Device`](crate::TrainError::Device).
    pub(crate) fn spend_host_copy(&self, path: CopyPath, bytes: Bytes, stream: StreamId) -> OpResult<()> {
        let begun = self.now();
        self.with_device(|device| device.spend_copy(path, bytes, stream))?;
        let direction = if path.to_host { CopyDirection::ToHost } else { CopyDirection::ToDevice };
        let elapsed = Micros(self.now().0.saturating_sub(begun.0));
        let duration = if path.pinned { Micros(0) } else { elapsed };
        self.emit(EventKind::Copy { direction, bytes, pinned: path.pinned, duration });
        Ok(())
    }

    /// A tensor on the meta device: a shape and a type, until it gets another tensor's block.
    #[must_use]
    pub fn meta(&self, shape: Shape, dtype: DType) -> Tensor {
        Tensor::new(Rc::new(Storage::absent(self, dtype, StreamId::DEFAULT)), shape)
    }

    /// Takes a block for a parameter on the meta device.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`](crate::TrainError::OutOfMemory).
    pub fn materialise(&self, tensor: &Tensor, name: &str) -> OpResult<()> {
        Ok(tensor.storage().refill(tensor.numel(), Category::Parameter, self.name(name))?)
    }

    /// Notes that `stream` uses the tensor's block: once freed, the block waits for that stream's work.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    pub fn record_stream(&self, tensor: &Tensor, stream: StreamId) -> Result<(), DeviceError> {
        self.known("a block", stream)?;
        self.0.allocator.borrow_mut().record_stream(tensor.storage().address(), stream);
        Ok(())
    }

    /// Changes the category and the name of a live block.
    pub fn relabel(&self, tensor: &Tensor, category: Category, name: NameId) {
        self.emit(EventKind::Relabel { address: tensor.storage().address(), category, name });
    }

    /// The same check for a copy of a tensor's first `bytes`.
    fn check_copy(&self, tensor: &Tensor, bytes: usize) -> Result<(), DeviceError> {
        self.check("a copy", Span { start: tensor.address(), bytes: Bytes(bytes as u64) })
    }

    /// Writes host bytes to a tensor's block and waits, without an event: for weights and resident batches.
    ///
    /// # Errors
    /// [`TrainError::Device`](crate::TrainError::Device).
    pub fn write(&self, tensor: &Tensor, bytes: &[u8]) -> OpResult<()> {
        self.check_copy(tensor, bytes.len())?;
        Ok(self.0.device.borrow_mut().copy_pageable(bytes, tensor.address(), tensor.stream())?)
    }

    /// Writes what `make` produces to a tensor's block, as [`Memory::write`] does, in pieces: `make` gets the number
    /// of a piece's first element, and the piece's bytes. A device without bytes spends the time and makes nothing.
    ///
    /// # Errors
    /// [`TrainError::Device`](crate::TrainError::Device).
    pub fn fill(&self, tensor: &Tensor, mut make: impl FnMut(usize, &mut [u8])) -> OpResult<()> {
        let (size, whole) = (tensor.dtype().size(), tensor.bytes().get());
        if !self.holds_bytes() {
            let path = CopyPath { to_host: false, pinned: false };
            self.with_device(|device| device.spend_copy(path, tensor.bytes(), tensor.stream()))?;
            return Ok(());
        }
        let mut piece = Vec::new();
        for start in (0..whole).step_by(PIECE) {
            piece.resize((whole - start).min(PIECE as u64) as usize, 0);
            make((start / size) as usize, &mut piece);
            let address = tensor.address().offset(Bytes(start));
            self.0.device.borrow_mut().copy_pageable(&piece, address, tensor.stream())?;
        }
        Ok(())
    }

    /// Fills on all cores: the value of an element depends on its number alone.
    ///
    /// # Errors
    /// A failed copy.
    pub fn fill_by_cores(&self, tensor: &Tensor, make: impl Fn(usize, &mut [u8]) + Sync) -> OpResult<()> {
        let (size, whole) = (tensor.dtype().size() as usize, tensor.bytes().get());
        if whole <= PIECE as u64 || !self.holds_bytes() {
            return self.fill(tensor, make);
        }
        // Large tensors only: the system reads the number of cores from files.
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        if cores == 1 {
            return self.fill(tensor, make);
        }
        let run = cores * PIECE;
        let mut pieces = Vec::new();
        for start in (0..whole).step_by(run) {
            pieces.resize((whole - start).min(run as u64) as usize, 0);
            std::thread::scope(|scope| {
                for (place, piece) in pieces.chunks_mut(PIECE).enumerate() {
                    let (first, make) = ((start as usize + place * PIECE) / size, &make);
                    scope.spawn(move || make(first, piece));
                }
            });
            let address = tensor.address().offset(Bytes(start));
            self.0.device.borrow_mut().copy_pageable(&pieces, address, tensor.stream())?;
        }
        Ok(())
    }

    /// Copies a pageable batch to the device and waits.
    ///
    /// # Errors
    /// [`TrainError::Device`](crate::TrainError::Device).
    pub fn copy_pageable(&self, tensor: &Tensor, bytes: &[u8]) -> OpResult<()> {
        let begun = self.now();
        self.write(tensor, bytes)?;
        let duration = Micros(self.now().0.saturating_sub(begun.0));
        self.emit(EventKind::Copy {
            direction: CopyDirection::ToDevice,
            bytes: Bytes(bytes.len() as u64),
            pinned: false,
            duration,
        });
        Ok(())
    }

    /// The same on a device without bytes: only the time passes.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    pub fn spend_copy_pageable(&self, tensor: &Tensor) -> Result<(), DeviceError> {
        let begun = self.now();
        let path = CopyPath { to_host: false, pinned: false };
        self.with_device(|device| device.spend_copy(path, tensor.bytes(), tensor.stream()))?;
        let duration = Micros(self.now().0.saturating_sub(begun.0));
        let (direction, bytes) = (CopyDirection::ToDevice, tensor.bytes());
        self.emit(EventKind::Copy { direction, bytes, pinned: false, duration });
        Ok(())
    }

    /// Starts the copy of a page-locked batch on the copy stream.
    ///
    /// # Errors
    /// [`TrainError::Device`](crate::TrainError::Device).
    pub fn copy_pinned(&self, tensor: &Tensor, from: HostBuffer) -> Result<(), DeviceError> {
        self.check("a copy", Span { start: tensor.address(), bytes: from.bytes })?;
        self.0.device.borrow_mut().copy_pinned(from, tensor.address(), tensor.stream())
    }

    /// Waits and reads a tensor's bytes.
    ///
    /// # Errors
    /// [`TrainError::Device`](crate::TrainError::Device).
    pub fn read(&self, tensor: &Tensor, to: &mut [u8]) -> OpResult<()> {
        self.check_copy(tensor, to.len())?;
        Ok(self.0.device.borrow_mut().read(tensor.address(), to, StreamId::DEFAULT)?)
    }

    /// Reads one f32.
    ///
    /// # Errors
    /// [`TrainError::Device`](crate::TrainError::Device).
    pub fn read_f32(&self, tensor: &Tensor) -> OpResult<f32> {
        let mut bytes = [0; 4];
        self.read(tensor, &mut bytes)?;
        Ok(f32::from_le_bytes(bytes))
    }
}
