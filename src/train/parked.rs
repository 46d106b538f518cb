//! The values of a parameter that are kept in host memory.

use vramlab_allocator::units::StreamId;

use super::error::OpResult;
use super::memory::{HostBlock, Memory};
use super::tensor::Tensor;

/// A parameter's values in host memory.
pub(crate) struct ParkedValues {
    block: HostBlock,
    pinned: bool,
}

impl ParkedValues {
    /// Copies the values of `parameter` to host memory.
    ///
    /// # Errors
    /// Out of host memory, a failed copy.
    pub fn new(memory: &Memory, parameter: &Tensor, pinned: bool) -> OpResult<Self> {
        let mut parked = Self { block: HostBlock::new(memory, parameter.bytes(), pinned)?, pinned };
        parked.take(parameter)?;
        Ok(parked)
    }

    /// Whether the memory is page-locked.
    pub const fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Copies the changed values of `parameter` here.
    ///
    /// # Errors
    /// A failed copy.
    pub fn take(&mut self, parameter: &Tensor) -> OpResult<()> {
        self.block.take(parameter, StreamId::DEFAULT)
    }

    /// Copies the values to the block of `parameter`.
    ///
    /// # Errors
    /// A failed copy.
    pub fn give(&self, parameter: &Tensor) -> OpResult<()> {
        self.block.give(parameter, StreamId::DEFAULT)
    }
}
