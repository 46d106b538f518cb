//! Memory at a moment of a history: what came from the driver, and which blocks are held in it.

use std::collections::BTreeMap;

use super::ranges::RangeIndex;
use super::sizes::{BlockClass, block_size};
use crate::types::StackId;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{BlockSnapshot, BlockState, PoolId, PoolKind, SegmentSnapshot, Settings};

/// A segment, or a contiguous mapped run of an expandable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Where it ends.
    pub end: Address,
    /// The stream whose requests it serves.
    pub stream: StreamId,
    /// Whether it serves small requests or large ones.
    pub pool: PoolKind,
    /// The private pool that it is of, or the default one.
    pub pool_id: PoolId,
    /// The range that it is a part of, if it is expandable.
    pub range: Option<RangeIndex>,
}

impl Home {
    /// What decides how blocks are cut in it.
    pub fn place(&self) -> BlockClass {
        BlockClass { pool: self.pool, expandable: self.range.is_some(), private: self.pool_id != PoolId::DEFAULT }
    }
}

/// A block that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBlock {
    /// Where it ends.
    pub end: Address,
    /// What the program asked for.
    pub requested: Bytes,
    /// Its free was requested.
    pub pending: bool,
    /// Who took it, where the end of the history tells.
    pub stack: StackId,
}

impl HeldBlock {
    /// Whether it can be what `before` became: a block that waits does not come back to life.
    pub fn goes_on(&self, before: &Self) -> bool {
        (self.end, self.requested) == (before.end, before.requested) && (self.pending || !before.pending)
    }
}

/// Memory at a moment.
#[derive(Clone, Debug, Default)]
pub struct Space {
    homes: BTreeMap<Address, Home>,
    blocks: BTreeMap<Address, HeldBlock>,
}

impl Space {
    /// All segments and runs, by address.
    pub fn homes(&self) -> impl Iterator<Item = (Address, &Home)> {
        self.homes.iter().map(|(address, home)| (*address, home))
    }

    /// Segments and runs.
    pub fn home_count(&self) -> usize {
        self.homes.len()
    }

    /// All held blocks, by address.
    pub fn blocks(&self) -> impl Iterator<Item = (Address, &HeldBlock)> {
        self.blocks.iter().map(|(address, held)| (*address, held))
    }

    /// The block that is held at `address`.
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

    /// True if nothing is there between two addresses.
    pub fn is_vacant(&self, start: Address, end: Address) -> bool {
        start < end && self.homes.range(..end).next_back().is_none_or(|(_, home)| home.end <= start)
    }

    /// Held blocks that reach into a stretch, by address.
    pub fn blocks_in(&self, start: Address, end: Address) -> Vec<Address> {
        let before = self.blocks.range(..start).next_back().filter(|(_, held)| held.end > start);
        before.into_iter().chain(self.blocks.range(start..end)).map(|(address, _)| *address).collect()
    }

    /// True if a held block reaches into a stretch.
    fn is_held(&self, start: Address, end: Address) -> bool {
        self.blocks.range(..end).next_back().is_some_and(|(address, held)| *address >= start || held.end > start)
    }

    /// A segment comes from the driver; false if something is there already.
    pub fn add(&mut self, address: Address, home: Home) -> bool {
        let vacant = self.is_vacant(address, home.end);
        if vacant {
            self.homes.insert(address, home);
        }
        vacant
    }

    /// A segment goes back; false if there is none like it, or a block is held in it.
    pub fn remove(&mut self, address: Address, size: Bytes) -> bool {
        let end = address.offset(size);
        let fits = self.homes.get(&address).is_some_and(|home| home.end == end && home.range.is_none())
            && !self.is_held(address, end);
        if fits {
            self.homes.remove(&address);
        }
        fits
    }

    /// Pages are mapped; false if something is there already.
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

    /// Pages go back; false if they are not mapped in one piece, or a block is held in them.
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

    /// Holds a block that nothing overlaps.
    pub fn hold(&mut self, address: Address, held: HeldBlock) {
        self.blocks.insert(address, held);
    }

    /// A held block turns out to end elsewhere.
    pub fn resize(&mut self, address: Address, end: Address) {
        if let Some(held) = self.blocks.get_mut(&address) {
            held.end = end;
        }
    }

    /// The size of the block that `requested` bytes at `address` are; `None` outside segments.
    pub fn size(&self, address: Address, requested: Bytes, settings: &Settings) -> Option<Bytes> {
        let (room, home) = self.room(address)?;
        Some(block_size(requested, room, home.place(), settings))
    }

    /// The program gives a block back; false if it holds none there.
    pub fn request_free(&mut self, address: Address) -> bool {
        match self.blocks.get_mut(&address) {
            Some(held) if !held.pending => {
                held.pending = true;
                true
            }
            _ => false,
        }
    }

    /// The block at an address was not given back yet after all.
    pub fn take_back(&mut self, address: Address) {
        if let Some(held) = self.blocks.get_mut(&address) {
            held.pending = false;
        }
    }

    /// A block can be used again; false if none waited there.
    pub fn complete_free(&mut self, address: Address) -> bool {
        let waits = self.blocks.get(&address).is_some_and(|held| held.pending);
        if waits {
            self.blocks.remove(&address);
        }
        waits
    }

    /// All segments that are `wanted`, with all their blocks, free ones too, which cover them. What free blocks were asked for last is not
    /// known, and told as zero.
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
