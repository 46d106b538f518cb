//! Page-locked host memory: where batches wait for an asynchronous copy.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mapping::Mapping;
use super::{DeviceError, HostBuffer};
use crate::units::{Address, Bytes};

/// One block: a mapping that one thread at a time may look into.
pub(super) struct PinnedBlock(Mutex<Mapping>);

impl PinnedBlock {
    pub(super) fn with<T>(&self, body: impl FnOnce(&mut [u8]) -> T) -> T {
        body(self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes())
    }
}

/// Host memory of a device: blocks for the caching host allocator, filled by the loader, read by copies.
///
/// A handle: clones share the same blocks, so that the loader's thread has its own.
#[derive(Clone, Default)]
pub struct PinnedMemory(Arc<Inner>);

#[derive(Default)]
struct Inner {
    blocks: Mutex<BTreeMap<u64, Arc<PinnedBlock>>>,
    unlocked: AtomicBool,
}

impl PinnedMemory {
    fn blocks(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<PinnedBlock>>> {
        self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The block that `buffer` lies at the start of, and how many bytes of it are meant.
    pub(super) fn block(&self, buffer: HostBuffer) -> Result<(Arc<PinnedBlock>, usize), DeviceError> {
        let refused = || DeviceError::Failed {
            operation: "host memory",
            device: "host".into(),
            reason: format!("no block of {} starts at {}; allocate it first", buffer.bytes, buffer.address),
        };
        let block = self.blocks().get(&buffer.address.0).cloned().ok_or_else(refused)?;
        let len = usize::try_from(buffer.bytes.get()).map_err(|_| refused())?;
        if len > block.with(|bytes| bytes.len()) {
            return Err(refused());
        }
        Ok((block, len))
    }

    /// A new block of `bytes`, page-locked where the system's limit permits ([`PinnedMemory::is_page_locked`]).
    ///
    /// # Errors
    /// [`DeviceError::Failed`] when the system has no memory.
    pub fn allocate(&self, bytes: Bytes) -> Result<HostBuffer, DeviceError> {
        let mapping = Mapping::new(bytes, true).ok_or_else(|| DeviceError::Failed {
            operation: "page-locked allocation",
            device: "host".into(),
            reason: format!("the system has no {bytes} of memory left; use a smaller batch"),
        })?;
        if !mapping.lock() {
            self.0.unlocked.store(true, Ordering::Relaxed);
        }
        let address = Address(mapping.address() as u64);
        self.blocks().insert(address.0, Arc::new(PinnedBlock(Mutex::new(mapping))));
        Ok(HostBuffer { address, bytes })
    }

    /// Gives the block at `address` back; copies from it that were submitted still finish.
    pub fn free(&self, address: Address) {
        self.blocks().remove(&address.0);
    }

    /// False when the system refused to lock a block (`ulimit -l`): it is then ordinary memory that the system may
    /// page out, and copies from it work all the same.
    #[must_use]
    pub fn is_page_locked(&self) -> bool {
        !self.0.unlocked.load(Ordering::Relaxed)
    }

    /// Looks into `buffer`, to fill it. Waits for a copy from it that is running; one still queued would see what
    /// is written, so wait for its event before.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] when there is no such block.
    pub fn with_bytes<T>(&self, buffer: HostBuffer, body: impl FnOnce(&mut [u8]) -> T) -> Result<T, DeviceError> {
        let (block, len) = self.block(buffer)?;
        Ok(block.with(|bytes| body(&mut bytes[..len])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_what_was_written_and_wild_ones_are_refused() {
        let host = PinnedMemory::default();
        let buffer = host.allocate(Bytes::kib(8)).unwrap();
        host.with_bytes(buffer, |bytes| bytes.fill(7)).unwrap();
        let part = HostBuffer { bytes: Bytes(100), ..buffer };
        assert_eq!(host.with_bytes(part, |bytes| bytes.to_vec()).unwrap(), vec![7; 100]);
        let longer = HostBuffer { bytes: Bytes::kib(9), ..buffer };
        assert!(host.with_bytes(longer, |_| ()).is_err());
        let elsewhere = HostBuffer { address: buffer.address.offset(Bytes(1)), ..buffer };
        assert!(host.with_bytes(elsewhere, |_| ()).is_err());
        host.free(buffer.address);
        assert!(host.with_bytes(buffer, |_| ()).is_err());
    }
}
