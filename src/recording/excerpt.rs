//! A part of a timeline that can be read on another thread.

use std::ops::Range;

use super::Frame;
use vramlab_model::{Event, Ranks};

/// Some events in a row, with the state that they found. Shares their bytes with the timeline.
#[derive(Clone, Debug)]
pub struct Excerpt {
    pub(super) range: Range<u64>,
    pub(super) before: Ranks,
    pub(super) frames: Vec<Frame>,
    /// Those of the frame that was open, each with its index.
    pub(super) open: Vec<(u64, Event)>,
}

impl Excerpt {
    /// Events before the first, and up to the last.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The state before the first event.
    #[must_use]
    pub const fn before(&self) -> &Ranks {
        &self.before
    }

    /// Hands over the events, each with the number of events before it, until `each` has seen enough.
    pub fn each(&self, mut each: impl FnMut(u64, &Event) -> bool) {
        for frame in &self.frames {
            let mut index = frame.first().max(self.range.start);
            // What is kept was decoded before: it can't fail.
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
