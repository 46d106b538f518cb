//! A snapshot that is still being read: the progress, and what is known of its history meanwhile.

use std::sync::Arc;

use vramlab_allocator::units::Bytes;
use vramlab_snapshot::{Action, Block, TraceEntry};

/// How far a file is whose history is not all known yet. Meanwhile the picture is that of the end, which a file has first.
#[derive(Clone, Debug, PartialEq)]
pub struct FileProgress {
    /// What is being done.
    pub doing: ReadingStage,
    /// How much of that is done, from 0 to 1, where that is known.
    pub part: Option<f64>,
    /// Bytes that were allocated at least, at moments of the history as far as it was read: of equally many entries each, the
    /// fullest. What was there when it began shows only when it is given back.
    pub least: Arc<[Bytes]>,
}

/// What is done with a file, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingStage {
    /// Its bytes are read.
    Reading,
    /// Its history is replayed, to judge it.
    Replaying,
    /// Its history is turned into events.
    Telling,
    /// Nothing more: it is damaged, and what was read is all there is.
    Failed,
}

impl ReadingStage {
    /// A word for it, in small letters.
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
    /// What is being done, and the progress: `reading 31 %`.
    #[must_use]
    pub fn words(&self) -> String {
        match self.part {
            // What is nearly done is not done.
            Some(part) => format!("{} {:.0} %", self.doing.word(), (100.0 * part).floor().clamp(0.0, 99.0)),
            None if self.doing == ReadingStage::Failed => self.doing.word().to_owned(),
            None => format!("{} …", self.doing.word()),
        }
    }
}

/// Blocks are at least multiples of this.
const SMALLEST: u64 = 512;

/// A lower bound of what was allocated, entry by entry, of a history whose beginning is not known: no level is below zero, so
/// that all that is given back beyond what was taken was there before.
#[derive(Clone, Debug, Default)]
pub(super) struct LowerBound {
    /// Highest levels of `stride` entries each, against that before the first.
    levels: Vec<i64>,
    stride: u64,
    entries: u64,
    level: i64,
    lowest: i64,
}

impl LowerBound {
    /// Levels that are kept: beyond that, two become one.
    const MOST: usize = 512;

    /// An entry more.
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

    /// The history is over, and these blocks were held then.
    pub fn end<'a>(&mut self, held: impl Iterator<Item = &'a Block>) {
        let end = held.fold(0_i64, |sum, block| sum.saturating_add(taken(block.requested.unwrap_or(block.size))));
        self.lowest = self.lowest.min(self.level.saturating_sub(end));
    }

    /// What was allocated at least.
    pub fn least(&self) -> Arc<[Bytes]> {
        let least = |level: &i64| Bytes(level.saturating_sub(self.lowest).unsigned_abs());
        self.levels.iter().map(least).collect()
    }
}

/// Bytes that a request takes at least.
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
