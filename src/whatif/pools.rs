//! Which addresses of a run belong to private pools.

use std::collections::BTreeMap;

use vramlab_allocator::PoolId;
use vramlab_allocator::units::{Address, Bytes};

/// The run's current segments and pages of private pools.
#[derive(Clone, Debug, Default)]
pub(super) struct PrivateMemory {
    /// The memory that the driver gave last. The next event may tell which pool owns it.
    last: Option<(Address, Address)>,
    /// Ends and owners by the first byte. Empty in most runs.
    pieces: BTreeMap<Address, (Address, PoolId)>,
}

impl PrivateMemory {
    /// Notes that the driver gave memory. It belongs to the default pools unless [`Self::own`] follows.
    pub fn grow(&mut self, address: Address, size: Bytes) {
        if !self.pieces.is_empty() {
            self.release(address, size);
        }
        self.last = address.0.checked_add(size.0).map(|end| (address, Address(end)));
    }

    /// Notes that the last memory belongs to a private pool.
    pub fn own(&mut self, address: Address, pool: PoolId) {
        if let Some((start, end)) = self.last.filter(|(start, _)| *start == address && !pool.is_default()) {
            self.pieces.insert(start, (end, pool));
        }
    }

    /// Notes that memory was released. Returns the private pool that released it.
    pub fn release(&mut self, address: Address, size: Bytes) -> Option<PoolId> {
        if self.pieces.is_empty() {
            return None;
        }
        let end = Address(address.0.saturating_add(size.0));
        let mut pool = None;
        while let Some((&start, &(till, of))) =
            self.pieces.range(..end).next_back().filter(|(_, (till, _))| *till > address)
        {
            pool = Some(of);
            self.pieces.remove(&start);
            if till > end {
                self.pieces.insert(end, (till, of));
            }
            if start < address {
                self.pieces.insert(start, (address, of));
                break;
            }
        }
        pool
    }

    /// The pool that serves a block at `address`.
    #[inline]
    pub fn pool_of(&self, address: Address) -> PoolId {
        if self.pieces.is_empty() { PoolId::DEFAULT } else { self.find(address) }
    }

    #[cold]
    fn find(&self, address: Address) -> PoolId {
        let piece = self.pieces.range(..=address).next_back();
        piece.filter(|(_, (end, _))| address < *end).map_or(PoolId::DEFAULT, |(_, (_, pool))| *pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_the_pool_of_their_segment_while_it_is_there() {
        let mut memory = PrivateMemory::default();
        let (at, size, pool) = (|mib: u64| Address(mib << 20), Bytes::mib(20), PoolId(1, 0));
        memory.grow(at(0), size);
        memory.grow(at(20), size);
        memory.own(at(20), pool);
        memory.own(at(0), pool);
        assert_eq!([0, 19, 20, 39, 40].map(|mib| memory.pool_of(at(mib)) == pool), [false, false, true, true, false]);
        // Pages are released in the middle.
        assert_eq!(memory.release(at(24), Bytes::mib(4)), Some(pool));
        assert_eq!([20, 23, 24, 27, 28].map(|mib| memory.pool_of(at(mib)) == pool), [true, true, false, false, true]);
        assert_eq!(memory.release(at(0), size), None);
        // Other memory lies there now.
        memory.grow(at(20), size);
        assert_eq!(memory.pool_of(at(21)), PoolId::DEFAULT);
    }
}
