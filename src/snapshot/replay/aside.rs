//! Leaves out entries of private pools, which are not decisions of the default pools.
//!
//! CUDA graphs and `torch.cuda.use_mem_pool` direct requests to private pools. These share nothing with the default
//! pools but the driver, so the default pools are replayed as if private ones did not exist. The end of the history,
//! and entries of PyTorch 2.12 and later, say which pool a segment belongs to. For a segment that is gone by then, the
//! replay decides: if the default pools go on as recorded without the segment, it was not theirs.

use std::collections::HashSet;

use crate::history::{Beginning, Home, Story};
use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::Address;
use vramlab_allocator::{PoolId, Settings, TraceEvent};

/// Segments that are gone at the end, and are assumed to be private.
#[derive(Clone, Debug, Default)]
pub struct PrivateSegments {
    /// The index of the entry that allocates each segment.
    pub taken: HashSet<usize>,
    /// The first byte of each segment that existed when the history began.
    pub early: HashSet<Address>,
}

/// The entries of the default pools, and their indices in the trace.
#[derive(Debug)]
pub struct DefaultPoolEntries {
    pub entries: Vec<TraceEntry>,
    /// The index of each entry in the whole trace.
    places: Vec<usize>,
}

impl DefaultPoolEntries {
    /// Leaves out the entries in private segments, and in segments assumed to be private.
    pub fn of(trace: &[TraceEntry], settings: &Settings, beginning: &Beginning, guessed: &PrivateSegments) -> Self {
        let mut story = Story::new(trace, settings, beginning);
        let mut ours = Self { entries: Vec::new(), places: Vec::new() };
        // Existing segments that are assumed to be private.
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

    /// The index of an entry in the whole trace.
    pub fn place(&self, index: usize) -> usize {
        self.places.get(index).copied().unwrap_or_else(|| self.places.last().map_or(0, |last| last + 1))
    }
}

impl PrivateSegments {
    /// Assumes that the segment of an entry that did not match is private. Returns false if it can't be.
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
        // A segment at the end names its own pool, unless another segment lay there before.
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
