//! Unified memory, which the allocator does not count.

use crate::error::TrainError;
use vramlab_allocator::units::{Address, Bytes};
use vramlab_device::{DType, Operand};

use super::handle::Memory;

/// Elements in unified memory, which kernels reach and the allocator does not count. Freed on drop.
pub(crate) struct ManagedBlock {
    memory: Memory,
    operand: Operand,
}

impl ManagedBlock {
    /// Allocates room for `len` elements, not initialised.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] of the host, [`TrainError::Device`].
    pub fn new(memory: &Memory, len: usize, dtype: DType) -> Result<Self, TrainError> {
        let bytes = dtype.bytes(len);
        let address = memory.with_device(|device| device.take_managed(bytes))?;
        if let Some(watch) = &memory.0.watch {
            watch.taken(address, bytes);
        }
        memory.0.managed.set(memory.0.managed.get() + bytes);
        Ok(Self { memory: memory.clone(), operand: Operand { address, dtype, len } })
    }

    /// The elements as a kernel's operand.
    pub const fn operand(&self) -> Operand {
        self.operand
    }

    const fn address(&self) -> Address {
        self.operand.address
    }

    fn bytes(&self) -> Bytes {
        self.operand.dtype.bytes(self.operand.len)
    }
}

impl Drop for ManagedBlock {
    fn drop(&mut self) {
        if let Some(watch) = &self.memory.0.watch {
            watch.given_back(self.address());
        }
        let managed = &self.memory.0.managed;
        managed.set(managed.get().saturating_sub(self.bytes()));
        self.memory.with_device(|device| device.give_managed(self.address()));
    }
}
