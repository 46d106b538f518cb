//! The last events of a stream, with the memory at any of them.

use std::collections::VecDeque;

use super::{Event, MemoryModel};

/// A bounded log of events with checkpoints between them: time travel.
///
/// When it is full the oldest events go, a chunk at a time; a checkpoint stands before the oldest one kept. Chunks
/// grow with the memory they start from, so that checkpoints take about as much room as events.
#[derive(Clone, Debug)]
pub struct EventLog {
    chunks: VecDeque<Chunk>,
    limit: usize,
    retained: usize,
}

#[derive(Clone, Debug)]
struct Chunk {
    /// Memory before the first event.
    before: MemoryModel,
    events: Vec<Event>,
    /// Events that make it full.
    capacity: usize,
}

impl EventLog {
    /// Events between two checkpoints, at least.
    const CHUNK: usize = 4096;

    /// Keeps at least the last `limit` events, and at most a chunk more.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { chunks: VecDeque::new(), limit, retained: 0 }
    }

    /// Adds the next event; `before` is the memory that it will change.
    pub fn push(&mut self, before: &MemoryModel, event: Event) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.events.len() < chunk.capacity => chunk.events.push(event),
            _ => {
                let capacity = Self::CHUNK.max(before.pieces() / 2);
                self.chunks.push_back(Chunk { before: before.clone(), events: vec![event], capacity });
            }
        }
        self.retained += 1;
        while let Some(oldest) = self.chunks.front() {
            if self.retained - oldest.events.len() < self.limit.max(1) {
                break;
            }
            self.retained -= oldest.events.len();
            self.chunks.pop_front();
        }
    }

    /// Index of the oldest event kept.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.chunks.front().map_or(0, |chunk| chunk.before.position())
    }

    /// Index behind the newest event.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first() + self.retained as u64
    }

    /// The event with this index, while it is kept.
    #[must_use]
    pub fn event(&self, index: u64) -> Option<&Event> {
        let chunk = self.chunk(index)?;
        chunk.events.get(usize::try_from(index - chunk.before.position()).ok()?)
    }

    /// Memory after `index` events, for `first() <= index <= end()`. Replays less than a chunk. Events that contradict
    /// those before them are left out, as they were the first time.
    #[must_use]
    pub fn state_at(&self, index: u64) -> Option<MemoryModel> {
        if index > self.end() {
            return None;
        }
        let chunk = self.chunk(index)?;
        let mut memory = chunk.before.clone();
        let count = usize::try_from(index - memory.position()).ok()?;
        for event in &chunk.events[..count.min(chunk.events.len())] {
            // What is wrong with it was reported when it was applied first.
            let _ = memory.apply(event);
        }
        Some(memory)
    }

    /// The chunk that holds the event with this index, or ends before it.
    fn chunk(&self, index: u64) -> Option<&Chunk> {
        let behind = self.chunks.partition_point(|chunk| chunk.before.position() <= index);
        self.chunks.get(behind.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests;
