//! A request, before any lookup.

use crate::block::PoolKind;
use crate::home::{Home, OwnerId};
use crate::rounding;
use crate::settings::Settings;
use crate::units::{Bytes, StreamId};

/// A request while the allocator serves it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub requested: Bytes,
    pub rounded: Bytes,
    pub segment: Bytes,
    pub stream: StreamId,
    pub pool: PoolKind,
    /// The private pool that serves the request.
    pub owner: Option<OwnerId>,
    /// True if expandable segments are on. Decides how all blocks are split.
    pub expandable: bool,
}

impl Request {
    #[inline]
    pub const fn home(&self) -> Home {
        Home { owner: self.owner, kind: self.pool }
    }

    pub fn new(requested: Bytes, stream: StreamId, settings: &Settings) -> Self {
        let rounded = rounding::round(requested, &settings.roundup_power2_divisions);
        Self {
            requested,
            rounded,
            segment: rounding::segment_size(rounded, settings.large_segment_size),
            stream,
            pool: rounding::pool_of(rounded),
            owner: None,
            expandable: settings.expandable_segments,
        }
    }
}
