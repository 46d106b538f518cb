//! A snapshot that is still being read: its progress, and what is known of its history meanwhile.

use std::sync::Arc;

use vramlab_allocator::units::Bytes;
use vramlab_snapshot::{Action, Block, TraceEntry};

/// The progress of a file whose history is incomplete. Meanwhile the picture shows the end, which comes first in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileProgress {
    /// The current stage.
    pub doing: ReadingStage,
    /// How much of the stage is done, from 0 to 1, if known.
    pub part: Option<f64>,
    /// Lower bounds of the allocated bytes in the part of the history that has been read: the fullest moment of every
    /// so many entries. What existed when the history began shows only when it is freed.
    pub least: Arc<[Bytes]>,
}

/// The stages of reading a file, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingStage {
    /// Reading its bytes.
    Reading,
    /// Replaying its history, to judge it.
    Replaying,
    /// Turning its history into events.
    Telling,
    /// Failed: the file is damaged, and what was read is all there is.
    Failed,
}

impl ReadingStage {
    /// The stage in lower case.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Replaying => "replaying",
            Self::Telling => "arranging",
            Self::Failed => "damaged",
        }
    }
}

impl FileProgress {
    /// The stage with its progress: `reading 31 %`.
    #[must_use]
    pub fn words(&self) -> String {
        match self.part {
            // Progress that rounds to 100 % is not complete.
            Some(part) => format!("{} {:.0} %", self.doing.word(), (100.0 * part).floor().clamp(0.0, 99.0)),
            None if self.doing == ReadingStage::Failed => self.doing.word().to_owned(),
            None => format!("{} …", self.doing.word()),
        }
    }
}

/// Block sizes are multiples of this.
const SMALLEST: u64 = 512;

/// A lower bound of the allocated bytes, entry by entry, in a history whose beginning is unknown. No level can be below
/// zero, so everything freed beyond what was allocated existed before.
#[derive(Clone, Debug, Default)]
pub(super) struct LowerBound {
    /// The highest levels of `stride` entries each, relative to the level before the first entry.
    levels: Vec<i64>,
    stride: u64,
    entries: u64,
    level: i64,
    lowest: i64,
}

impl LowerBound {
    /// The most levels that are kept. Beyond that, pairs are combined.
    const MOST: usize = 512;

    /// Adds an entry.
    pub fn push(&mut self, entry: &TraceEntry) {
        self.level = match entry.action {
            Action::Alloc => self.level.saturating_add(taken(entry.size)),
            Action::FreeRequested => self.level.saturating_sub(taken(entry.size)),
            _ => self.level,
        };
        self.lowest = self.lowest.min(self.level);
        if let Some(last) = self.levels.last_mut().filter(|_| !self.entries.is_multiple_of(self.stride.max(1))) {
            *last = self.level.max(*last);
        } else {
            if self.levels.len() == Self::MOST {
                self.levels = self.levels.chunks(2).filter_map(|pair| pair.iter().copied().max()).collect();
                self.stride = self.stride.max(1) * 2;
            }
            self.levels.push(self.level);
        }
        self.entries += 1;
    }

    /// Ends the history, at whose end these blocks were held.
    pub fn end<'a>(&mut self, held: impl Iterator<Item = &'a Block>) {
        let end = held.fold(0_i64, |sum, block| sum.saturating_add(taken(block.requested.unwrap_or(block.size))));
        self.lowest = self.lowest.min(self.level.saturating_sub(end));
    }

    /// The lower bounds.
    pub fn least(&self) -> Arc<[Bytes]> {
        let least = |level: &i64| Bytes(level.saturating_sub(self.lowest).unsigned_abs());
        self.levels.iter().map(least).collect()
    }
}

/// The fewest bytes that a request takes.
fn taken(requested: Bytes) -> i64 {
    i64::try_from(requested.0.next_multiple_of(SMALLEST)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_allocator::units::{Address, StreamId};
    use vramlab_model::Micros;
    use vramlab_snapshot::{StackId, TextId};

    fn entry(action: Action, size: u64) -> TraceEntry {
        TraceEntry {
            action,
            address: Address(0),
            size: Bytes(size),
            stream: StreamId::DEFAULT,
            time: Micros(0),
            stack: StackId::EMPTY,
            metadata: TextId::default(),
            pool: None,
        }
    }

    fn least(curve: &LowerBound) -> Vec<u64> {
        curve.least().iter().map(|bytes| bytes.0).collect()
    }

    #[test]
    fn what_is_given_back_without_having_been_taken_lifts_the_whole_curve() {
        let mut curve = LowerBound::default();
        curve.push(&entry(Action::Alloc, 1));
        curve.push(&entry(Action::Alloc, 1024));
        assert_eq!(least(&curve), [512, 1536]);
        for size in [1024, 2000] {
            curve.push(&entry(Action::FreeRequested, size));
            curve.push(&entry(Action::FreeCompleted, size));
        }
        assert_eq!(least(&curve), [2048, 3072, 2048, 2048, 0, 0]);
    }

    #[test]
    fn what_is_held_at_the_end_beyond_what_was_taken_lifts_it_too() {
        let mut curve = LowerBound::default();
        curve.push(&entry(Action::Alloc, 512));
        let block = Block {
            address: Address(0),
            size: Bytes(4096),
            requested: Some(Bytes(4000)),
            state: vramlab_allocator::BlockState::ActiveAllocated,
            stack: StackId::EMPTY,
        };
        curve.end([block].iter());
        assert_eq!(least(&curve), [4096]);
    }

    #[test]
    fn a_long_history_keeps_its_fullest_moments() {
        let mut curve = LowerBound::default();
        for at in 0..5000_u64 {
            let size = if at == 3333 { 1 << 20 } else { 512 };
            curve.push(&entry(Action::Alloc, size));
            curve.push(&entry(Action::FreeRequested, size));
        }
        let least = least(&curve);
        assert!(least.len() <= LowerBound::MOST && least.len() > LowerBound::MOST / 2);
        assert_eq!(least.iter().position(|level| *level == 1 << 20), Some(6666 / 32));
        assert_eq!(least.iter().filter(|level| **level == 512).count(), least.len() - 1);
    }

    #[test]
    fn words_never_say_that_what_goes_on_is_done() {
        let reading = |part| FileProgress { doing: ReadingStage::Reading, part, least: Arc::default() }.words();
        assert_eq!(
            [reading(Some(0.314)), reading(Some(1.0)), reading(None)],
            ["reading 31 %", "reading 99 %", "reading …"]
        );
    }
}
