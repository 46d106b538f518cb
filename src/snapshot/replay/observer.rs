//! Observers of a replay.

use crate::types::TraceEntry;
use vramlab_allocator::TraceEvent;

/// An observer hears of every event of our allocator that agreed with the history, together with its entry.
pub trait Observer {
    /// `event` agreed with `entry`, which has this index in the device's trace.
    fn event(&mut self, index: usize, entry: &TraceEntry, event: &TraceEvent);

    /// The replay concluded that the program called `empty_cache()` before entry `index`.
    fn empty_cache(&mut self, index: usize, entry: &TraceEntry) {
        let _ = (index, entry);
    }
}

/// An observer that ignores everything.
impl Observer for () {
    #[inline]
    fn event(&mut self, _: usize, _: &TraceEntry, _: &TraceEvent) {}
}
