//! What a program was doing, according to its requests. Training requests the same sizes in the same order in every
//! step, so parts of its history without stacks can be explained by earlier parts with stacks.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::doing::ProgramPhase;
use vramlab_allocator::units::Bytes;

/// What the program was doing when it requested a size after certain other sizes.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    /// By hashes of runs of sizes. The sizes themselves are not stored.
    by_sizes: HashMap<u64, RhythmEntry>,
    /// The sizes of the last requests, the newest last.
    last: VecDeque<Bytes>,
}

/// What was seen there, and how much more often than anything else.
#[derive(Clone, Copy, Debug)]
struct RhythmEntry {
    doing: ProgramPhase,
    times: u8,
}

impl Rhythm {
    /// How many sizes are compared. The longest known run decides, because short runs occur at several places of a step.
    const LENGTHS: [usize; 4] = [12, 6, 3, 1];
    /// The most runs of sizes that are stored. If steps are never alike there are always new ones, and learning then starts again.
    const MOST: usize = 1 << 18;
    /// Something seen this often is not put in doubt by a single part whose stacks begin or end in the middle.
    const SURE: u8 = 8;

    /// Learns from a request whose stack shows what the program was doing.
    pub fn learn(&mut self, size: Bytes, doing: ProgramPhase) {
        self.follow(size);
        if self.by_sizes.len() >= Self::MOST {
            self.by_sizes.clear();
        }
        for length in Self::LENGTHS {
            let Some(sizes) = self.run(length) else { continue };
            let known = self.by_sizes.entry(sizes).or_insert(RhythmEntry { doing, times: 0 });
            if known.doing == doing {
                known.times = known.times.saturating_add(1).min(Self::SURE);
            } else if known.times > 1 {
                known.times -= 1;
            } else {
                *known = RhythmEntry { doing, times: 1 };
            }
        }
    }

    /// What the program was doing at a request without a stack.
    pub fn doing(&mut self, size: Bytes) -> ProgramPhase {
        self.follow(size);
        let mut known = Self::LENGTHS.iter().filter_map(|length| self.by_sizes.get(&self.run(*length)?));
        known.next().map_or(ProgramPhase::Unknown, |known| known.doing)
    }

    /// True if nothing was learned yet.
    pub fn is_empty(&self) -> bool {
        self.by_sizes.is_empty()
    }

    fn follow(&mut self, size: Bytes) {
        if self.last.len() >= Self::LENGTHS[0] {
            self.last.pop_front();
        }
        self.last.push_back(size);
    }

    /// The last `length` sizes as one number.
    fn run(&self, length: usize) -> Option<u64> {
        let from = self.last.len().checked_sub(length)?;
        let mut hasher = DefaultHasher::new();
        length.hash(&mut hasher);
        self.last.range(from..).for_each(|size| size.hash(&mut hasher));
        Some(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_stacks_is_told_by_those_with_them() {
        let step = [
            (4, ProgramPhase::Forward),
            (4, ProgramPhase::Forward),
            (8, ProgramPhase::Forward),
            (4, ProgramPhase::Backward),
            (8, ProgramPhase::Backward),
            (2, ProgramPhase::Optimizer),
        ];
        let mut rhythm = Rhythm::default();
        for (size, doing) in step.repeat(9) {
            rhythm.learn(Bytes(size), doing);
        }
        // One part in which stacks began late.
        for (size, _) in step {
            rhythm.learn(Bytes(size), ProgramPhase::Backward);
        }
        for (size, doing) in step {
            assert_eq!(rhythm.doing(Bytes(size)), doing, "{size}");
        }
        assert_eq!(rhythm.doing(Bytes(3)), ProgramPhase::Unknown);
        for _ in 0..9 {
            for (size, _) in step {
                rhythm.learn(Bytes(size), ProgramPhase::Recompute);
            }
        }
        assert_eq!(rhythm.doing(Bytes(4)), ProgramPhase::Recompute, "the program does something else by now");
    }
}
