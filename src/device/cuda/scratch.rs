//! Device memory that kernels need between their passes and that does not appear in PyTorch's curve.

use super::driver::{self, DriverFailure};
use crate::Operand;
use vramlab_allocator::units::{Address, Bytes, MIB};

/// The smallest private area.
const LEAST: u64 = 64 * MIB;

/// One area for all kernels of the compute stream, which run one after another.
#[derive(Default)]
pub(crate) struct Scratch {
    area: Option<(Address, u64)>,
    /// The workspace that the current op requested from the allocator.
    lent: Option<(Address, u64)>,
}

impl Scratch {
    /// Lends a block of the allocator to kernels launched from now on; `None` ends the loan.
    pub fn lend(&mut self, workspace: Option<Operand>) {
        self.lent = workspace.map(|block| (block.address, block.dtype.bytes(block.len).get()));
    }

    /// Frees the private area, because trials needed more of it than normal work.
    pub fn shrink(&mut self) -> Result<(), DriverFailure> {
        self.area.take().map_or(Ok(()), |(address, _)| driver::free(address))
    }

    /// Returns `bytes` that are valid until the next call. A larger private area replaces a smaller one: freeing waits
    /// for the kernels that use it.
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
