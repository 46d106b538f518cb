//! Memory at one moment of a history: segments, and the blocks allocated in them.

use std::collections::BTreeMap;

use super::ranges::RangeIndex;
use super::sizes::{BlockClass, block_size};
use crate::types::StackId;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{BlockSnapshot, BlockState, PoolId, PoolKind, SegmentSnapshot, Settings};

/// A segment, or a contiguous mapped run of an expandable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The address where it ends.
    pub end: Address,
    /// The stream whose requests it serves.
    pub stream: StreamId,
    /// Whether it serves small requests or large ones.
    pub pool: PoolKind,
    /// The private pool that it belongs to, or the default one.
    pub pool_id: PoolId,
    /// The range that it is part of, if it is expandable.
    pub range: Option<RangeIndex>,
}

impl Home {
    /// The properties that decide how blocks are split here.
    pub fn place(&self) -> BlockClass {
        BlockClass { pool: self.pool, expandable: self.range.is_some(), private: self.pool_id != PoolId::DEFAULT }
    }
}

/// An allocated or pending block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBlock {
    /// The address where it ends.
    pub end: Address,
    /// Bytes that the program asked for.
    pub requested: Bytes,
    /// True once its free was requested.
    pub pending: bool,
    /// Who allocated it, if the end of the history tells.
    pub stack: StackId,
}

impl HeldBlock {
    /// True if the block can be what `before` became. A pending block can't become allocated again.
    pub fn goes_on(&self, before: &Self) -> bool {
        (self.end, self.requested) == (before.end, before.requested) && (self.pending || !before.pending)
    }
}

/// Memory at one moment.
#[derive(Clone, Debug, Default)]
pub struct Space {
    homes: BTreeMap<Address, Home>,
    blocks: BTreeMap<Address, HeldBlock>,
}

impl Space {
    /// All segments and mapped runs, by address.
    pub fn homes(&self) -> impl Iterator<Item = (Address, &Home)> {
        self.homes.iter().map(|(address, home)| (*address, home))
    }

    /// The number of segments and mapped runs.
    pub fn home_count(&self) -> usize {
        self.homes.len()
    }

    /// All held blocks, by address.
    pub fn blocks(&self) -> impl Iterator<Item = (Address, &HeldBlock)> {
        self.blocks.iter().map(|(address, held)| (*address, held))
    }

    /// The block held at `address`.
    pub fn block(&self, address: Address) -> Option<&HeldBlock> {
        self.blocks.get(&address)
    }

    /// The segment or run around `address`.
    pub fn home(&self, address: Address) -> Option<(Address, &Home)> {
        let (start, home) = self.homes.range(..=address).next_back()?;
        (address < home.end).then_some((*start, home))
    }

    /// The last segment or run that begins before `end`.
    pub fn homes_below(&self, end: Address) -> Option<(Address, &Home)> {
        self.homes.range(..end).next_back().map(|(address, home)| (*address, home))
    }

    /// True if nothing lies between two addresses.
    pub fn is_vacant(&self, start: Address, end: Address) -> bool {
        start < end && self.homes.range(..end).next_back().is_none_or(|(_, home)| home.end <= start)
    }

    /// Held blocks that overlap an interval, by address.
    pub fn blocks_in(&self, start: Address, end: Address) -> Vec<Address> {
        let before = self.blocks.range(..start).next_back().filter(|(_, held)| held.end > start);
        before.into_iter().chain(self.blocks.range(start..end)).map(|(address, _)| *address).collect()
    }

    /// True if a held block overlaps an interval.
    fn is_held(&self, start: Address, end: Address) -> bool {
        self.blocks.range(..end).next_back().is_some_and(|(address, held)| *address >= start || held.end > start)
    }

    /// Adds a segment. Returns false if something lies there already.
    pub fn add(&mut self, address: Address, home: Home) -> bool {
        let vacant = self.is_vacant(address, home.end);
        if vacant {
            self.homes.insert(address, home);
        }
        vacant
    }

    /// Removes a segment. Returns false if there is no such segment, or a block is held in it.
    pub fn remove(&mut self, address: Address, size: Bytes) -> bool {
        let end = address.offset(size);
        let fits = self.homes.get(&address).is_some_and(|home| home.end == end && home.range.is_none())
            && !self.is_held(address, end);
        if fits {
            self.homes.remove(&address);
        }
        fits
    }

    /// Maps pages. Returns false if something lies there already.
    pub fn map(&mut self, address: Address, home: Home) -> bool {
        if !self.is_vacant(address, home.end) {
            return false;
        }
        let (mut start, mut end) = (address, home.end);
        let joins = |other: &Home| other.range == home.range && other.stream == home.stream;
        if let Some((before, _)) =
            self.homes.range(..address).next_back().filter(|(_, other)| other.end == address && joins(other))
        {
            start = *before;
        }
        if let Some(after) = self.homes.get(&end).filter(|other| joins(other)).copied() {
            self.homes.remove(&end);
            end = after.end;
        }
        self.homes.insert(start, Home { end, ..home });
        true
    }

    /// Unmaps pages. Returns false if they are not mapped in one piece, or a block is held in them.
    pub fn unmap(&mut self, address: Address, size: Bytes) -> bool {
        let end = address.offset(size);
        let Some((start, home)) = self.home(address).map(|(start, home)| (start, *home)) else { return false };
        if home.range.is_none() || end > home.end || address >= end || self.is_held(address, end) {
            return false;
        }
        self.homes.remove(&start);
        if start < address {
            self.homes.insert(start, Home { end: address, ..home });
        }
        if end < home.end {
            self.homes.insert(end, home);
        }
        true
    }

    /// Bytes from `address` to the next held block, or to the end of the segment; `None` outside segments.
    pub fn room(&self, address: Address) -> Option<(Bytes, &Home)> {
        let (_, home) = self.home(address)?;
        let next = self.blocks.range(address..).find(|(start, _)| **start > address).map(|(start, _)| *start);
        let end = next.map_or(home.end, |next| next.min(home.end));
        Some((end.distance(address), home))
    }

    /// Adds a block that overlaps no other.
    pub fn hold(&mut self, address: Address, held: HeldBlock) {
        self.blocks.insert(address, held);
    }

    /// Changes where a held block ends.
    pub fn resize(&mut self, address: Address, end: Address) {
        if let Some(held) = self.blocks.get_mut(&address) {
            held.end = end;
        }
    }

    /// The size of a block for `requested` bytes at `address`; `None` outside segments.
    pub fn size(&self, address: Address, requested: Bytes, settings: &Settings) -> Option<Bytes> {
        let (room, home) = self.room(address)?;
        Some(block_size(requested, room, home.place(), settings))
    }

    /// Marks a block as pending. Returns false if no allocated block is there.
    pub fn request_free(&mut self, address: Address) -> bool {
        match self.blocks.get_mut(&address) {
            Some(held) if !held.pending => {
                held.pending = true;
                true
            }
            _ => false,
        }
    }

    /// Undoes [`Space::request_free`]: the block at an address is still allocated.
    pub fn take_back(&mut self, address: Address) {
        if let Some(held) = self.blocks.get_mut(&address) {
            held.pending = false;
        }
    }

    /// Removes a pending block. Returns false if none is there.
    pub fn complete_free(&mut self, address: Address) -> bool {
        let waits = self.blocks.get(&address).is_some_and(|held| held.pending);
        if waits {
            self.blocks.remove(&address);
        }
        waits
    }

    /// The `wanted` segments with all their blocks, free ones included, without gaps. The bytes that free blocks were
    /// last asked for are unknown and given as zero.
    pub fn segments(&self, wanted: impl Fn(Address, &Home) -> bool) -> Vec<SegmentSnapshot> {
        let mut blocks = self.blocks.iter().peekable();
        let free = |from: Address, to: Address| BlockSnapshot {
            address: from,
            size: to.distance(from),
            requested: Bytes::ZERO,
            state: BlockState::Inactive,
        };
        let mut segments = Vec::with_capacity(self.homes.len());
        for (&address, home) in self.homes.iter().filter(|(address, home)| wanted(**address, home)) {
            let mut segment = SegmentSnapshot {
                address,
                size: home.end.distance(address),
                stream: home.stream,
                pool: home.pool,
                pool_id: home.pool_id,
                expandable: home.range.is_some(),
                blocks: Vec::new(),
            };
            let mut at = address;
            while blocks.next_if(|(start, _)| **start < address).is_some() {}
            while let Some((&start, held)) = blocks.next_if(|(start, _)| **start < home.end) {
                if start > at {
                    segment.blocks.push(free(at, start));
                }
                let state = if held.pending { BlockState::ActivePendingFree } else { BlockState::ActiveAllocated };
                let size = held.end.distance(start);
                segment.blocks.push(BlockSnapshot { address: start, size, requested: held.requested, state });
                at = held.end;
            }
            if at < home.end {
                segment.blocks.push(free(at, home.end));
            }
            segments.push(segment);
        }
        segments
    }
}
