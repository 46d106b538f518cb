//! Memory that went back to the driver, and why: a request that emptied the cache and tried again leaves no event of its own.

use vramlab_allocator::Settings;
use vramlab_allocator::units::{Bytes, StreamId};

/// Releases between two requests. What comes behind them tells whose they were.
#[derive(Clone, Debug, Default)]
pub(super) enum Releases {
    /// None were seen.
    #[default]
    Nobodys,
    /// `empty_cache()`.
    Call,
    /// A request's: garbage collection, oversize segments, or all that is cached before it is tried again.
    Request {
        /// Bytes held before.
        reserved: Bytes,
        /// Something happened that only the last resort does: memory of the small pool or pages went back, or streams
        /// were waited for.
        last_resort: bool,
        /// Segments that went back, and the streams that they served.
        freed: Vec<(Bytes, StreamId)>,
    },
}

/// More memory is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentGrowth<'a> {
    /// So many bytes at least.
    pub size: Bytes,
    /// For this stream.
    pub stream: StreamId,
    /// Bytes held before.
    pub reserved: Bytes,
    /// The settings in force.
    pub settings: &'a Settings,
    /// The most that may be held.
    pub limit: Option<Bytes>,
}

impl Releases {
    /// Memory goes back; `reserved` were held before.
    pub fn release(&mut self, reserved: Bytes, of_last_resort: bool, segment: (Bytes, StreamId)) {
        if matches!(self, Self::Nobodys) {
            *self = Self::Request { reserved, last_resort: false, freed: Vec::new() };
        }
        if let Self::Request { last_resort, freed, .. } = self {
            *last_resort |= of_last_resort;
            freed.push(segment);
        }
    }

    /// A free block that other streams had used is free for all. Behind the first release nothing but the last resort waits
    /// for them.
    pub const fn waited(&mut self) {
        if let Self::Request { last_resort, .. } = self {
            *last_resort = true;
        }
    }

    /// No more memory is taken. True where what went back did so at a call that left no event of its own.
    pub fn end(&mut self) -> bool {
        matches!(std::mem::take(self), Self::Request { .. })
    }

    /// More memory is taken: were the releases just before a retry? `can_release`: something could still go back.
    pub fn settle(&mut self, growth: SegmentGrowth<'_>, can_release: impl FnOnce() -> bool) -> bool {
        let Self::Request { reserved, last_resort, freed } = std::mem::take(self) else { return false };
        match collection_threshold(&growth).filter(|(_, threshold)| reserved > *threshold) {
            _ if last_resort => true,
            None => !is_search_for_room(&freed, &growth),
            // A retry gives all back that can go back. Collected is until the threshold is reached, or nothing is left: then
            // the request had to have room.
            Some((limit, threshold)) => {
                growth.reserved < threshold && threshold.0.saturating_add(growth.size.0) > limit.0 && !can_release()
            }
        }
    }
}

/// Whether the segments are what is given back under a `max_split_size` before all is: oversize ones of the request's
/// stream, the smallest that is large enough, or the largest ones until they are together.
fn is_search_for_room(freed: &[(Bytes, StreamId)], growth: &SegmentGrowth<'_>) -> bool {
    let max_split = growth.settings.max_split_size;
    if max_split == Settings::UNLIMITED {
        return false;
    }
    let wanted = growth.size.max(max_split);
    let total: Bytes = freed.iter().map(|(size, _)| *size).sum();
    let before_last = total.saturating_sub(freed.last().map_or(Bytes::ZERO, |(size, _)| *size));
    freed.iter().all(|(size, of)| *size >= max_split && *of == growth.stream)
        && freed.is_sorted_by(|one, next| one.0 >= next.0)
        && before_last < wanted
        && wanted <= total
}

/// The limit, and how much of it may be held before garbage is collected.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "PyTorch's arithmetic"
)]
fn collection_threshold(growth: &SegmentGrowth<'_>) -> Option<(Bytes, Bytes)> {
    let share = growth.settings.garbage_collection_threshold;
    let limit = growth.limit.filter(|_| share > 0.0)?;
    Some((limit, Bytes((share * limit.0 as f64) as u64)))
}
