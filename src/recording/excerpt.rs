//! A part of a timeline that can be read on another thread.

use std::ops::Range;

use super::Frame;
use vramlab_model::{Event, Ranks};

/// Some consecutive events, with the state before them. Shares their bytes with the timeline.
#[derive(Clone, Debug)]
pub struct Excerpt {
    pub(super) range: Range<u64>,
    pub(super) before: Ranks,
    pub(super) frames: Vec<Frame>,
    /// The events of the open frame, each with its index.
    pub(super) open: Vec<(u64, Event)>,
}

impl Excerpt {
    /// The number of events before the first event, and up to the last.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The state before the first event.
    #[must_use]
    pub const fn before(&self) -> &Ranks {
        &self.before
    }

    /// Hands over the events, each with the number of events before it, until `each` returns false.
    pub fn each(&self, mut each: impl FnMut(u64, &Event) -> bool) {
        for frame in &self.frames {
            let mut index = frame.first().max(self.range.start);
            // Stored events have been decoded before, so this can't fail.
            let Ok(unpacked) = frame.unpack() else { return };
            let mut enough = false;
            let _ = unpacked.each(self.range.clone(), |event| {
                enough = enough || !each(index, event);
                index += 1;
            });
            if enough {
                return;
            }
        }
        let _ = self.open.iter().all(|(index, event)| each(*index, event));
    }
}
