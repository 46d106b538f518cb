//! Storages: blocks that are freed on drop, which tensors are handles to.

use std::cell::Cell;

use vramlab_allocator::units::{Address, StreamId};
use vramlab_device::DType;
use vramlab_model::{Category, NameId};

use super::error::TrainError;
use super::memory::{ManagedBlock, Memory};

/// A block of device memory and the type of its elements. Dropping it frees the block.
pub struct Storage {
    memory: Memory,
    address: Cell<Address>,
    /// Whether there is a block; without one, nothing may be read or written through handles.
    present: Cell<bool>,
    dtype: Cell<DType>,
    /// How many blocks were allocated before it.
    number: u64,
    stream: StreamId,
    /// Host memory in place of a block: kernels reach it, and the allocator does not count it.
    host: Option<ManagedBlock>,
}

impl Storage {
    /// Allocates room for `elements`, not initialised.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`].
    pub(super) fn new(
        memory: &Memory,
        elements: usize,
        dtype: DType,
        category: Category,
        name: NameId,
        stream: StreamId,
    ) -> Result<Self, TrainError> {
        let (address, number) = memory.take(dtype.bytes(elements), category, name, stream)?;
        let (address, dtype, present) = (Cell::new(address), Cell::new(dtype), Cell::new(true));
        Ok(Self { memory: memory.clone(), address, present, dtype, number, stream, host: None })
    }

    /// A storage without a block, on the meta device.
    pub(super) fn absent(memory: &Memory, dtype: DType, stream: StreamId) -> Self {
        let (address, dtype, present) = (Cell::new(Address(0)), Cell::new(dtype), Cell::new(false));
        Self { memory: memory.clone(), address, present, dtype, number: 0, stream, host: None }
    }

    /// Allocates room for `elements` in host memory, not initialised.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] of the host.
    pub(super) fn on_host(memory: &Memory, elements: usize, dtype: DType) -> Result<Self, TrainError> {
        let block = ManagedBlock::new(memory, elements.max(1), dtype)?;
        let (address, dtype, present) = (Cell::new(block.operand().address), Cell::new(dtype), Cell::new(true));
        let (number, stream) = (0, StreamId::DEFAULT);
        Ok(Self { memory: memory.clone(), address, present, dtype, number, stream, host: Some(block) })
    }

    pub(crate) const fn is_on_host(&self) -> bool {
        self.host.is_some()
    }

    pub(crate) const fn address(&self) -> Address {
        self.address.get()
    }

    pub(crate) const fn dtype(&self) -> DType {
        self.dtype.get()
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Swaps memory and type with another storage: all handles of this one see what the other held.
    pub(crate) fn swap(&self, other: &Self) {
        self.address.swap(&other.address);
        self.dtype.swap(&other.dtype);
        self.present.swap(&other.present);
    }

    pub(crate) const fn is_present(&self) -> bool {
        self.present.get()
    }

    /// Frees the block (`untyped_storage().resize_(0)`); handles stay.
    pub(crate) fn empty(&self) {
        // Host memory is freed with the last handle.
        if self.host.is_none() && self.present.replace(false) {
            self.memory.free(self.address.get());
        }
    }

    /// Allocates a block for `elements` again, not initialised; every handle sees it.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`].
    pub(crate) fn refill(&self, elements: usize, category: Category, name: NameId) -> Result<(), TrainError> {
        self.refill_as(self.dtype(), elements, category, name)
    }

    /// The same with another type.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`].
    pub(crate) fn refill_as(
        &self,
        dtype: DType,
        elements: usize,
        category: Category,
        name: NameId,
    ) -> Result<(), TrainError> {
        self.empty();
        self.dtype.set(dtype);
        let (address, _) = self.memory.take(self.dtype().bytes(elements), category, name, self.stream)?;
        self.address.set(address);
        self.present.set(true);
        Ok(())
    }

    pub(crate) const fn stream(&self) -> StreamId {
        self.stream
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.empty();
    }
}
