//! Page-locked host memory, in which batches wait for an asynchronous copy.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::DeviceError;
use super::host::{Charge, HostAccount, HostMemoryRefused};
use super::mapping::Mapping;
use vramlab_allocator::units::{Address, Bytes, KIB};

/// One block of page-locked host memory, handed out by the caching host allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBuffer {
    /// Its address in host memory.
    pub address: Address,
    /// The number of bytes in use.
    pub bytes: Bytes,
}

/// The size of memory pages, in bytes. Blocks may be far smaller.
const PAGE: u64 = 4 * KIB;

/// One block: a mapping that one thread at a time may access.
type PinnedBlock = Mutex<PinnedArea>;

struct PinnedArea {
    mapping: Mapping,
    /// Released together with the mapping, which a copy may keep alive.
    _charge: Charge,
}

/// Bytes of one block.
pub(super) struct PinnedPart {
    block: Arc<PinnedBlock>,
    range: Range<usize>,
}

impl PinnedPart {
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    pub(super) fn with<T>(&self, body: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        body(&mut block.mapping.bytes()[self.range.clone()])
    }
}

/// Host memory of a device: blocks for the caching host allocator, filled by the loader, read by copies.
///
/// This is a handle: clones share the same blocks, so that the loader's thread can have its own handle.
#[derive(Clone, Default)]
pub struct PinnedMemory(Arc<Inner>);

#[derive(Default)]
struct Inner {
    account: HostAccount,
    blocks: Mutex<BTreeMap<u64, Arc<PinnedBlock>>>,
    unlocked: AtomicBool,
}

impl PinnedMemory {
    /// Creates an empty set of blocks that are charged to `account`.
    #[must_use]
    pub fn of(account: HostAccount) -> Self {
        Self(Arc::new(Inner { account, blocks: Mutex::default(), unlocked: AtomicBool::default() }))
    }

    /// The account to which its blocks, and all other host memory, are charged.
    #[must_use]
    pub fn account(&self) -> &HostAccount {
        &self.0.account
    }

    fn blocks(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<PinnedBlock>>> {
        self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of `buffer`: a whole block, or a part of one.
    pub(super) fn part(&self, buffer: HostBuffer) -> Result<PinnedPart, DeviceError> {
        let found = self.blocks().range(..=buffer.address.0).next_back().map(|(start, block)| (*start, block.clone()));
        found
            .and_then(|(start, block)| {
                let size = block.lock().unwrap_or_else(PoisonError::into_inner).mapping.len();
                let begin = usize::try_from(buffer.address.0 - start).ok()?;
                let end = begin.checked_add(usize::try_from(buffer.bytes.get()).ok()?)?;
                (end <= size).then_some(PinnedPart { block, range: begin..end })
            })
            .ok_or_else(|| DeviceError::Failed {
                operation: "host memory",
                device: "host".into(),
                reason: format!("no block holds {} at {}; allocate it first", buffer.bytes, buffer.address),
            })
    }

    /// Allocates a block of `bytes`, page-locked if the system's limit permits it ([`PinnedMemory::is_page_locked`]).
    ///
    /// # Errors
    /// [`HostMemoryRefused`].
    pub fn allocate(&self, bytes: Bytes) -> Result<HostBuffer, HostMemoryRefused> {
        self.allocate_mapping(bytes, Mapping::lock)
    }

    /// The same for a driver that locks the pages: `lock` returns whether it could.
    pub(super) fn allocate_locked_by(
        &self,
        bytes: Bytes,
        lock: impl FnOnce(Address, Bytes) -> bool,
    ) -> Result<HostBuffer, HostMemoryRefused> {
        self.allocate_mapping(bytes, |mapping| lock(Address(mapping.address() as u64), bytes))
    }

    fn allocate_mapping(
        &self,
        bytes: Bytes,
        lock: impl FnOnce(&Mapping) -> bool,
    ) -> Result<HostBuffer, HostMemoryRefused> {
        let charge = self.0.account.take(Bytes(bytes.get().next_multiple_of(PAGE)))?;
        let refused = HostMemoryRefused { requested: bytes, left: Bytes::ZERO };
        let mapping = Mapping::new(bytes, true).ok_or(refused)?;
        if !lock(&mapping) {
            self.0.unlocked.store(true, Ordering::Relaxed);
        }
        let address = Address(mapping.address() as u64);
        self.blocks().insert(address.0, Arc::new(Mutex::new(PinnedArea { mapping, _charge: charge })));
        Ok(HostBuffer { address, bytes })
    }

    /// Frees the block at `address`. Copies from it that were submitted still finish.
    pub fn free(&self, address: Address) {
        self.blocks().remove(&address.0);
    }

    /// False if the system refused to lock a block (`ulimit -l`): the block is then ordinary memory that the system may
    /// page out. Copies from it work all the same.
    #[must_use]
    pub fn is_page_locked(&self) -> bool {
        !self.0.unlocked.load(Ordering::Relaxed)
    }

    /// Calls `body` with the bytes of `buffer`, to fill them. Waits for a running copy from it. A copy that is still
    /// queued would read the new bytes, so wait for its event first.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] when there is no such block.
    pub fn with_bytes<T>(&self, buffer: HostBuffer, body: impl FnOnce(&mut [u8]) -> T) -> Result<T, DeviceError> {
        Ok(self.part(buffer)?.with(body))
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
        let end = HostBuffer { address: buffer.address.offset(Bytes::kib(7)), bytes: Bytes::kib(1) };
        host.with_bytes(end, |bytes| bytes.fill(9)).unwrap();
        assert_eq!(host.with_bytes(buffer, |bytes| bytes[7167..7169].to_vec()).unwrap(), [7, 9]);
        let beyond = HostBuffer { address: buffer.address.offset(Bytes(1)), ..buffer };
        assert!(host.with_bytes(beyond, |_| ()).is_err());
        host.free(buffer.address);
        assert!(host.with_bytes(buffer, |_| ()).is_err());
    }

    #[test]
    fn blocks_are_taken_from_the_account_in_pages_and_stay_with_it_while_a_copy_reads_them() {
        let host = PinnedMemory::default();
        let taken = || host.account().taken();
        let small = host.allocate(Bytes(512)).unwrap();
        let large = host.allocate(Bytes::mib(2)).unwrap();
        assert_eq!(taken(), Bytes::kib(4) + Bytes::mib(2));
        host.free(small.address);
        let copying = host.part(large).unwrap();
        host.free(large.address);
        assert_eq!(taken(), Bytes::mib(2));
        drop(copying);
        assert_eq!(taken(), Bytes::ZERO);
        host.account().set_limit(Some(Bytes::mib(1)));
        assert!(host.allocate(Bytes::mib(2)).is_err());
        assert_eq!(taken(), Bytes::ZERO);
    }
}
