//! The table of allocated blocks, by address.

use crate::block::BlockId;
use crate::units::Address;

/// Slots of an empty table.
const FEWEST: usize = 64;
/// 2^64 / golden ratio: spreads addresses, which are multiples of 512, over the high bits. Addresses come from no adversary.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A hash table with linear probing. Every request and every free goes through it once, so it supports nothing else: no
/// iteration, no replacement, and no tombstones.
#[derive(Clone, Debug)]
pub(super) struct LiveBlocks {
    /// The number of slots is a power of two; less than three quarters are in use.
    slots: Vec<LiveSlot>,
    used: usize,
    /// How far a hash is shifted right to leave the bits of a slot's number.
    shift: u32,
}

#[derive(Clone, Copy, Debug)]
struct LiveSlot {
    address: Address,
    id: Option<BlockId>,
}

const EMPTY: LiveSlot = LiveSlot { address: Address(0), id: None };

impl Default for LiveBlocks {
    fn default() -> Self {
        Self { slots: vec![EMPTY; FEWEST], used: 0, shift: u64::BITS - FEWEST.ilog2() }
    }
}

impl LiveBlocks {
    /// The slot where the search for `address` begins.
    #[expect(clippy::cast_possible_truncation, reason = "at most as many bits are left as a slot's number has")]
    #[inline]
    const fn home(&self, address: Address) -> usize {
        (address.0.wrapping_mul(SPREAD) >> self.shift) as usize
    }

    #[inline]
    const fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// The slot of `address`, or the empty slot where it belongs.
    #[inline]
    fn find(&self, address: Address) -> usize {
        let mut at = self.home(address);
        while self.slots[at].id.is_some() && self.slots[at].address != address {
            at = self.after(at);
        }
        at
    }

    #[inline]
    pub fn get(&self, address: Address) -> Option<BlockId> {
        self.slots[self.find(address)].id
    }

    #[inline]
    pub fn insert(&mut self, address: Address, id: BlockId) {
        let at = self.find(address);
        self.used += usize::from(self.slots[at].id.is_none());
        self.slots[at] = LiveSlot { address, id: Some(id) };
        if self.used >= self.slots.len() / 4 * 3 {
            self.grow();
        }
    }

    #[inline]
    pub fn remove(&mut self, address: Address) -> Option<BlockId> {
        let mut hole = self.find(address);
        let id = self.slots[hole].id?;
        self.used -= 1;
        self.slots[hole] = EMPTY;
        // An entry that was pushed past the hole moves back into it.
        let mask = self.slots.len() - 1;
        let mut at = self.after(hole);
        while self.slots[at].id.is_some() {
            let home = self.home(self.slots[at].address);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots.swap(at, hole);
                hole = at;
            }
            at = self.after(at);
        }
        Some(id)
    }

    pub const fn len(&self) -> usize {
        self.used
    }

    #[cold]
    fn grow(&mut self) {
        let doubled = vec![EMPTY; self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, doubled);
        self.shift -= 1;
        for slot in old.into_iter().filter(|slot| slot.id.is_some()) {
            let at = self.find(slot.address);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, Blocks, PoolKind};
    use crate::units::{Bytes, StreamId};

    #[test]
    fn answers_as_a_map_does() {
        let mut blocks = Blocks::new(crate::TorchVersion::V2_11);
        let block = Block::new(Address(0), Bytes(512), StreamId(0), PoolKind::Small, None);
        let ids: Vec<_> = (0..400).map(|_| blocks.insert(block)).collect();
        let mut table = LiveBlocks::default();
        let mut model = std::collections::BTreeMap::new();
        let mut state = 1_u64;
        for step in 0..30_000_usize {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = state >> 33;
            // Few addresses, among them null and the highest; the table grows, then shrinks.
            let address = Address(0_u64.wrapping_sub(n % 400 * 512));
            if n / 400 % 4 < if step < 15_000 { 3 } else { 1 } {
                let id = ids[step % ids.len()];
                table.insert(address, id);
                model.insert(address, id);
            } else {
                assert_eq!(table.remove(address), model.remove(&address));
            }
            assert_eq!(table.get(address), model.get(&address).copied());
            assert_eq!(table.len(), model.len());
            if step % 1000 == 0 {
                assert!(model.iter().all(|(&address, &id)| table.get(address) == Some(id)));
            }
        }
    }
}
