//! Why memory was released to the driver: a request that emptied the cache and retried leaves no event of its own.

use vramlab_allocator::Settings;
use vramlab_allocator::units::{Bytes, StreamId};

/// Releases between two requests. What follows them shows their cause.
#[derive(Clone, Debug, Default)]
pub(super) enum Releases {
    /// There were no releases.
    #[default]
    Nobodys,
    /// A call of `empty_cache()`.
    Call,
    /// A request: garbage collection, oversize segments, or all cached memory before it is retried.
    Request {
        /// Bytes held before the releases.
        reserved: Bytes,
        /// True if something happened that only a retry does: memory of the small pool or pages were released, or
        /// streams were waited for.
        last_resort: bool,
        /// Segments that were released, and the streams that they served.
        freed: Vec<(Bytes, StreamId)>,
    },
}

/// More memory is taken from the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentGrowth<'a> {
    /// At least this many bytes.
    pub size: Bytes,
    /// The stream that needs it.
    pub stream: StreamId,
    /// Bytes held before.
    pub reserved: Bytes,
    /// The settings in force.
    pub settings: &'a Settings,
    /// The most that may be held; `None` if there is no limit.
    pub limit: Option<Bytes>,
}

impl Releases {
    /// Notes that memory is released. `reserved` bytes were held before.
    pub fn release(&mut self, reserved: Bytes, of_last_resort: bool, segment: (Bytes, StreamId)) {
        if matches!(self, Self::Nobodys) {
            *self = Self::Request { reserved, last_resort: false, freed: Vec::new() };
        }
        if let Self::Request { last_resort, freed, .. } = self {
            *last_resort |= of_last_resort;
            freed.push(segment);
        }
    }

    /// Notes that the free of a block which other streams had used is complete. After the first release only a retry
    /// waits for such blocks.
    pub const fn waited(&mut self) {
        if let Self::Request { last_resort, .. } = self {
            *last_resort = true;
        }
    }

    /// Notes that no more memory is taken. Returns true if the releases came from a call that left no event.
    pub fn end(&mut self) -> bool {
        matches!(std::mem::take(self), Self::Request { .. })
    }

    /// Decides, when more memory is taken, whether the releases just before were a retry's. `can_release` tells if
    /// something could still be released.
    pub fn settle(&mut self, growth: SegmentGrowth<'_>, can_release: impl FnOnce() -> bool) -> bool {
        let Self::Request { reserved, last_resort, freed } = std::mem::take(self) else { return false };
        match collection_threshold(&growth).filter(|(_, threshold)| reserved > *threshold) {
            _ if last_resort => true,
            None => !is_search_for_room(&freed, &growth),
            // A retry releases everything that can be released. Garbage collection stops at the threshold, or when
            // nothing is left; then the request must have had room.
            Some((limit, threshold)) => {
                growth.reserved < threshold && threshold.0.saturating_add(growth.size.0) > limit.0 && !can_release()
            }
        }
    }
}

/// True if the segments are those that are released under a `max_split_size` before everything is: oversize segments of
/// the request's stream, either the smallest that is large enough or the largest ones until their sum is large enough.
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
