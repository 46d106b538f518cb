//! What tensors are handles to: blocks that give themselves back.

use std::cell::Cell;

use crate::device::DType;
use crate::model::{Category, NameId};
use crate::units::{Address, StreamId};

use super::error::TrainError;
use super::memory::Memory;

/// A block of device memory, and the type of what it holds. Dropping it gives the block back.
pub struct Storage {
    memory: Memory,
    address: Cell<Address>,
    dtype: Cell<DType>,
    /// How many blocks were handed out before it.
    number: u64,
    stream: StreamId,
}

impl Storage {
    /// Room for `elements`, whatever it held.
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
        Ok(Self { memory: memory.clone(), address: Cell::new(address), dtype: Cell::new(dtype), number, stream })
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

    /// Trades memory and type with another one: whoever holds this one sees what that one held.
    pub(crate) fn swap(&self, other: &Self) {
        self.address.swap(&other.address);
        self.dtype.swap(&other.dtype);
    }

    pub(crate) const fn stream(&self) -> StreamId {
        self.stream
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.memory.free(self.address.get());
    }
}
