//! Device memory that kernels need between their passes and that PyTorch's curve does not have.

use super::driver::{self, DriverFailure};
use crate::Operand;
use vramlab_allocator::units::{Address, Bytes, MIB};

/// The smallest private area.
const LEAST: u64 = 64 * MIB;

/// One area for all kernels of the compute stream: they run one after the other.
#[derive(Default)]
pub(crate) struct Scratch {
    area: Option<(Address, u64)>,
    /// The workspace that the op now running asked the allocator for.
    lent: Option<(Address, u64)>,
}

impl Scratch {
    /// Kernels launched from here on may use this block of the allocator; `None` takes it back.
    pub fn lend(&mut self, workspace: Option<Operand>) {
        self.lent = workspace.map(|block| (block.address, block.dtype.bytes(block.len).get()));
    }

    /// Frees the private area: trials needed more of it than work will.
    pub fn shrink(&mut self) -> Result<(), DriverFailure> {
        self.area.take().map_or(Ok(()), |(address, _)| driver::free(address))
    }

    /// `bytes` that are valid until the next call. A larger private area replaces a smaller one: freeing waits for the
    /// kernels that use it.
    pub fn take(&mut self, bytes: usize) -> Result<Address, DriverFailure> {
        let bytes = bytes as u64;
        for (address, size) in self.lent.iter().chain(&self.area) {
            if *size >= bytes && address.0.is_multiple_of(256) {
                return Ok(*address);
            }
        }
        if let Some((address, _)) = self.area.take() {
            driver::free(address)?;
        }
        let size = bytes.next_power_of_two().max(LEAST);
        let address = driver::allocate(Bytes(size))?;
        self.area = Some((address, size));
        Ok(address)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some((address, _)) = self.area.take() {
            let _ = driver::free(address);
        }
    }
}
