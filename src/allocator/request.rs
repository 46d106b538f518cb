//! What a request asks for, before anything is looked up.

use crate::allocator::block::PoolKind;
use crate::allocator::rounding;
use crate::allocator::settings::Settings;
use crate::units::{Bytes, StreamId};

/// A request on its way through the allocator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub requested: Bytes,
    pub rounded: Bytes,
    pub segment: Bytes,
    pub stream: StreamId,
    pub pool: PoolKind,
    /// Expandable segments are on: decides how blocks are split, whatever they are.
    pub expandable: bool,
}

impl Request {
    pub fn new(requested: Bytes, stream: StreamId, settings: &Settings) -> Self {
        let rounded = rounding::round(requested, &settings.roundup_power2_divisions);
        Self {
            requested,
            rounded,
            segment: rounding::segment_size(rounded, settings.large_segment_size),
            stream,
            pool: rounding::pool_of(rounded),
            expandable: settings.expandable_segments,
        }
    }
}
