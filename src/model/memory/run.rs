//! One run of spans: a cudaMalloc segment, or a contiguous mapped part of an expandable range.

use super::spans::{NONE, Span, SpanId};
use vramlab_allocator::PoolKind;
use vramlab_allocator::units::StreamId;

/// A segment, or a contiguous mapped run of an expandable range.
#[derive(Clone, Debug)]
pub(super) struct MappedRun {
    pub start: u64,
    pub size: u64,
    pub pool: PoolKind,
    pub stream: StreamId,
    /// The range's first byte and page size, if the run is part of an expandable range.
    pub pages: Option<(u64, u64)>,
    pub first: SpanId,
    pub last: SpanId,
    /// The number of allocated blocks.
    pub held: u32,
    /// Their bytes.
    pub used: u64,
    /// Position of the last event that changed something here.
    pub changed: u64,
}

impl MappedRun {
    pub(super) const fn segment(start: u64, size: u64, pool: PoolKind, stream: StreamId) -> Self {
        Self { start, size, pool, stream, pages: None, first: NONE, last: NONE, held: 0, used: 0, changed: 0 }
    }

    pub(super) const fn pages(start: u64, size: u64, pool: PoolKind, stream: StreamId, range: u64, page: u64) -> Self {
        Self { pages: Some((range, page)), ..Self::segment(start, size, pool, stream) }
    }

    pub(super) const fn end(&self) -> u64 {
        self.start + self.size
    }

    pub(super) const fn is_expandable(&self) -> bool {
        self.pages.is_some()
    }

    /// How many bytes of a free span in this run `empty_cache` would release: a whole segment, or whole pages.
    pub(super) fn releasable(&self, start: u64, size: u64) -> u64 {
        match self.pages {
            None if size == self.size => size,
            None => 0,
            Some((range, page)) => {
                let first = (start - range).div_ceil(page);
                let end = (start - range + size) / page;
                end.saturating_sub(first) * page
            }
        }
    }

    pub(super) fn holding(self, held: HeldBlocks) -> Self {
        Self { held: held.blocks, used: held.bytes, ..self }
    }

    /// True if `other`'s pages can belong to the same run.
    pub(super) fn continues(&self, other: &Self) -> bool {
        self.pages.is_some() && self.pages == other.pages && self.pool == other.pool && self.stream == other.stream
    }
}

/// The number of allocated blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeldBlocks {
    pub blocks: u32,
    pub bytes: u64,
}

impl HeldBlocks {
    pub fn count(&mut self, span: &Span) {
        if !span.is_free() {
            self.blocks += 1;
            self.bytes += span.size;
        }
    }

    pub const fn less(self, other: Self) -> Self {
        Self { blocks: self.blocks - other.blocks, bytes: self.bytes - other.bytes }
    }
}
