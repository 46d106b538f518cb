//! A history, entry by entry: what the allocator did, including the sizes of blocks, which entries leave out.

use super::beginning::Beginning;
use super::evidence::pool_of_segment;
use super::ranges::NextRequest;
use super::space::{HeldBlock, Home, Space};
use crate::types::{Action, StackId, TraceEntry};
use vramlab_allocator::units::{Address, Bytes};
use vramlab_allocator::{PoolId, Settings, TraceEvent, pool_of, round};

/// A history and a position in it.
#[derive(Debug)]
pub struct Story<'a> {
    trace: &'a [TraceEntry],
    settings: &'a Settings,
    beginning: &'a Beginning,
    space: Space,
    position: usize,
    next_request: NextRequest,
    contradictions: u64,
}

impl<'a> Story<'a> {
    /// The history at its beginning.
    pub fn new(trace: &'a [TraceEntry], settings: &'a Settings, beginning: &'a Beginning) -> Self {
        Self {
            trace,
            settings,
            beginning,
            space: beginning.space.clone(),
            position: 0,
            next_request: NextRequest::default(),
            contradictions: 0,
        }
    }

    /// Memory at the position.
    pub const fn space(&self) -> &Space {
        &self.space
    }

    /// How many entries have been told.
    pub const fn position(&self) -> usize {
        self.position
    }

    /// How many entries so far contradict earlier ones. They were told as far as they can be true.
    pub const fn contradictions(&self) -> u64 {
        self.contradictions
    }

    /// The next entry.
    pub fn next(&self) -> Option<&'a TraceEntry> {
        self.trace.get(self.position)
    }

    /// The private pool of the segment around `address`, if it belongs to one.
    pub fn private_pool(&self, address: Address) -> Option<PoolId> {
        self.space.home(address).map(|(_, home)| home.pool_id).filter(|pool| !pool.is_default())
    }

    /// Tells the events that bring an empty allocator to the state at the beginning, in address order. Pages come in as
    /// many pieces as they are mapped.
    pub fn prelude(&self, mut tell: impl FnMut(&TraceEvent, StackId)) {
        let mut blocks = self.space.blocks().peekable();
        for (address, home) in self.space.homes() {
            tell(&self.growth(address, home), StackId::EMPTY);
            while let Some((address, held)) = blocks.next_if(|(address, _)| *address < home.end) {
                let (size, requested) = (held.end.distance(address), held.requested);
                let (stream, pool) = (home.stream, home.pool);
                tell(&TraceEvent::Alloc { address, requested, size, stream, pool }, held.stack);
                if held.pending {
                    tell(&TraceEvent::FreeRequested { address, requested, stream }, StackId::EMPTY);
                }
            }
        }
    }

    /// Tells what the next entry did. Returns false at the end.
    pub fn advance(&mut self, tell: &mut impl FnMut(&TraceEvent)) -> bool {
        let Some(entry) = self.trace.get(self.position) else { return false };
        let index = self.position;
        self.position += 1;
        let TraceEntry { address, size, stream, .. } = *entry;
        let fits = match entry.action {
            Action::Alloc => self.alloc(index, entry, tell),
            Action::FreeRequested => {
                let requested = self.space.request_free(address);
                if requested {
                    tell(&TraceEvent::FreeRequested { address, requested: size, stream });
                }
                requested
            }
            Action::FreeCompleted => {
                // The free was not recorded.
                if self.space.request_free(address) {
                    self.contradictions += 1;
                    tell(&TraceEvent::FreeRequested { address, requested: size, stream });
                }
                let completed = self.space.complete_free(address);
                if completed {
                    tell(&TraceEvent::FreeCompleted { address, requested: size, stream });
                }
                completed
            }
            Action::SegmentAlloc => {
                let pool = self.next_request.pool(self.trace, self.position, self.settings);
                let pool = pool.unwrap_or_else(|| pool_of_segment(size));
                let pool_id = self.beginning.pool_id(entry);
                self.clear(address, address.offset(size), tell);
                let added = size > Bytes::ZERO
                    && self.space.add(address, Home { end: address.offset(size), stream, pool, pool_id, range: None });
                if added {
                    tell(&TraceEvent::SegmentAlloc { address, size, stream, pool });
                }
                added
            }
            Action::SegmentFree => {
                self.evict(address, address.offset(size), tell);
                let removed = self.space.remove(address, size);
                if removed {
                    tell(&TraceEvent::SegmentFree { address, size, stream });
                }
                removed
            }
            Action::SegmentMap => self.map(index, entry, tell),
            Action::SegmentUnmap => {
                let whole = self.are_whole_pages(address, size);
                if whole {
                    self.evict(address, address.offset(size), tell);
                }
                let unmapped = whole && self.space.unmap(address, size);
                if unmapped {
                    tell(&TraceEvent::SegmentUnmap { address, size, stream });
                }
                unmapped
            }
            Action::Oom => {
                let device_free = entry.device_free().unwrap_or_default();
                tell(&TraceEvent::Oom { device_free, rounded: size, stream });
                true
            }
            Action::Snapshot | Action::Other(_) => true,
        };
        self.contradictions += u64::from(!fits);
        true
    }

    fn alloc(&mut self, index: usize, entry: &TraceEntry, tell: &mut impl FnMut(&TraceEvent)) -> bool {
        let TraceEntry { address, size: requested, stream, .. } = *entry;
        let rounded = round(requested, &self.settings.roundup_power2_divisions);
        let mut fits = self.evict(address, address.offset(rounded), tell) == 0;
        if self.space.home(address).is_none() {
            // Nothing tells of the segment, so as much of it is added as the block shows.
            fits = false;
            let home = Home {
                end: address.offset(rounded),
                stream,
                pool: pool_of(rounded),
                pool_id: self.beginning.pool_id(entry),
                range: None,
            };
            if !self.space.add(address, home) {
                return false;
            }
            tell(&self.growth(address, &home));
        }
        let Some((room, home)) = self.space.room(address).map(|(room, home)| (room, *home)) else { return false };
        // The end of the history records the block's size.
        let known = self.beginning.sizes.get(&index).copied().filter(|size| *size >= requested && *size <= room);
        let size = known.or_else(|| self.space.size(address, requested, self.settings));
        let Some(size) = size.filter(|size| *size >= requested && *size > Bytes::ZERO) else { return false };
        let held = HeldBlock { end: address.offset(size), requested, pending: false, stack: entry.stack };
        self.space.hold(address, held);
        tell(&TraceEvent::Alloc { address, requested, size, stream, pool: home.pool });
        fits
    }

    fn map(&mut self, index: usize, entry: &TraceEntry, tell: &mut impl FnMut(&TraceEvent)) -> bool {
        let TraceEntry { address, size, .. } = *entry;
        let end = address.offset(size);
        self.clear(address, end, tell);
        let Some((range_index, range)) = self.beginning.ranges.of_entry(index) else { return false };
        let (stream, pool, pool_id) = (range.stream, range.pool, range.pool_id);
        let home = Home { end, stream, pool, pool_id, range: Some(range_index) };
        let mapped = self.space.map(address, home);
        if mapped {
            tell(&self.growth(address, &home));
        }
        mapped
    }

    /// True if an interval begins and ends with pages of one expandable segment.
    fn are_whole_pages(&self, address: Address, size: Bytes) -> bool {
        let range = self.space.home(address).and_then(|(_, home)| self.beginning.ranges.get(home.range?));
        range.is_some_and(|range| {
            address.distance(range.base).0.is_multiple_of(range.page.0) && size.0.is_multiple_of(range.page.0)
        })
    }

    /// The event that creates a segment or run.
    fn growth(&self, address: Address, home: &Home) -> TraceEvent {
        let Home { end, stream, pool, .. } = *home;
        let size = end.distance(address);
        match home.range.and_then(|index| self.beginning.ranges.get(index)) {
            Some(range) => TraceEvent::SegmentMap { address, size, stream, pool, range: range.base, page: range.page },
            None => TraceEvent::SegmentAlloc { address, size, stream, pool },
        }
    }

    /// Frees the blocks that can't exist according to the history. Returns how many.
    fn evict(&mut self, start: Address, end: Address, tell: &mut impl FnMut(&TraceEvent)) -> usize {
        let blocks = self.space.blocks_in(start, end);
        for &address in &blocks {
            let Some(held) = self.space.block(address).copied() else { continue };
            let stream = self.space.home(address).map(|(_, home)| home.stream).unwrap_or_default();
            let requested = held.requested;
            if self.space.request_free(address) {
                tell(&TraceEvent::FreeRequested { address, requested, stream });
            }
            self.space.complete_free(address);
            tell(&TraceEvent::FreeCompleted { address, requested, stream });
            self.contradictions += 1;
        }
        blocks.len()
    }

    /// Releases all segments and pages that overlap an interval in which the history has something new.
    fn clear(&mut self, start: Address, end: Address, tell: &mut impl FnMut(&TraceEvent)) {
        while !self.space.is_vacant(start, end) && start < end {
            let Some((address, home)) = self
                .space
                .homes_below(end)
                .filter(|(_, home)| home.end > start)
                .map(|(address, home)| (address, *home))
            else {
                return;
            };
            self.evict(address, home.end, tell);
            let size = home.end.distance(address);
            let stream = home.stream;
            let gone = match home.range {
                Some(_) => {
                    tell(&TraceEvent::SegmentUnmap { address, size, stream });
                    self.space.unmap(address, size)
                }
                None => {
                    tell(&TraceEvent::SegmentFree { address, size, stream });
                    self.space.remove(address, size)
                }
            };
            self.contradictions += 1;
            if !gone {
                return;
            }
        }
    }
}
