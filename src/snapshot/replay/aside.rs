//! Entries of private pools, which are no decisions of the default ones.
//!
//! CUDA graphs and `torch.cuda.use_mem_pool` direct requests to pools of their own. They share nothing with the default
//! pools but the driver, so that these are replayed as if the others were not there. Which pool a segment belongs to stands
//! at the end of the history, and in entries of PyTorch 2.12 and later; of a segment that is gone by then the replay of the
//! default pools tells: where they go on as recorded without it, it was none of theirs.

use std::collections::HashSet;

use crate::history::{Beginning, Home, Story};
use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::Address;
use vramlab_allocator::{PoolId, Settings, TraceEvent};

/// Segments that are gone at the end, and taken for private ones.
#[derive(Clone, Debug, Default)]
pub struct PrivateSegments {
    /// By the entry that takes them.
    pub taken: HashSet<usize>,
    /// By their first byte, if they were there when the history began.
    pub early: HashSet<Address>,
}

/// The entries of the default pools, and where they stand.
#[derive(Debug)]
pub struct DefaultPoolEntries {
    pub entries: Vec<TraceEntry>,
    /// The index of each in the whole trace.
    places: Vec<usize>,
}

impl DefaultPoolEntries {
    /// Leaves out what lies in private segments, and in those taken for such.
    pub fn of(trace: &[TraceEntry], settings: &Settings, beginning: &Beginning, guessed: &PrivateSegments) -> Self {
        let mut story = Story::new(trace, settings, beginning);
        let mut ours = Self { entries: Vec::new(), places: Vec::new() };
        // Segments that are taken for private ones, while they are there.
        let mut aside = guessed.early.clone();
        let mut last_request_aside = false;
        for (index, entry) in trace.iter().enumerate() {
            let is_private = |found: Option<(Address, &Home)>, aside: &HashSet<Address>| {
                found.is_some_and(|(start, home)| home.pool_id != PoolId::DEFAULT || aside.contains(&start))
            };
            let before = is_private(story.space().home(entry.address), &aside);
            story.advance(&mut |_: &TraceEvent| {});
            let leave_out = match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    if guessed.taken.contains(&index) {
                        aside.insert(entry.address);
                    }
                    is_private(story.space().home(entry.address), &aside)
                }
                Action::SegmentFree => {
                    aside.remove(&entry.address);
                    before
                }
                Action::Oom => entry.pool.map_or(last_request_aside, |id| !id.is_default()),
                Action::Snapshot | Action::Other(_) => false,
                _ => before,
            };
            if entry.action == Action::Alloc {
                last_request_aside = leave_out;
            }
            if !leave_out {
                ours.entries.push(*entry);
                ours.places.push(index);
            }
        }
        ours
    }

    /// Where an entry stands in the whole trace.
    pub fn place(&self, index: usize) -> usize {
        self.places.get(index).copied().unwrap_or_else(|| self.places.last().map_or(0, |last| last + 1))
    }
}

impl PrivateSegments {
    /// Takes the segment for a private one that an entry which did not fit is about; false if it can't be one.
    pub fn suspect(&mut self, trace: &[TraceEntry], beginning: &Beginning, place: usize) -> bool {
        let Some(entry) = trace.get(place) else { return false };
        let around = |other: &TraceEntry| {
            other.action == Action::SegmentAlloc
                && other.address <= entry.address
                && entry.address < other.address.offset(other.size)
        };
        let taken = trace[..=place].iter().rposition(around);
        let address = match taken {
            Some(taken) => trace[taken].address,
            None => match beginning.space.home(entry.address) {
                Some((address, _)) => address,
                None => return false,
            },
        };
        let names_it = taken.is_some_and(|taken| trace[taken].pool.is_some());
        // A segment at the end says itself what it is, unless another one lay there before.
        let freed_since = trace[taken.unwrap_or(0)..]
            .iter()
            .any(|other| other.action == Action::SegmentFree && other.address == address);
        if names_it || !freed_since {
            return false;
        }
        match taken {
            Some(taken) => self.taken.insert(taken),
            None => self.early.insert(address),
        }
    }
}
