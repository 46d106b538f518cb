//! What the replayed allocator is asked next.

use super::tape::{Driver, Judge, Tape, waiting_stream};
use super::{Conditions, Observer};
use crate::allocator::{AllocError, CachingAllocator};
use crate::snapshot::{Action, TraceEntry};
use crate::units::{Bytes, GIB};

/// The replayed allocator.
pub type Replayed<'a, 'o, O> = CachingAllocator<Driver<'a>, Judge<'a, 'o, O>>;

/// Device memory where nobody knows it: more than any device has. Only the length of expandable ranges follows from it.
const UNKNOWN_TOTAL: Bytes = Bytes(1024 * GIB);
/// Where accumulated statistics could overflow: no honest history hands out that much.
const IMPOSSIBLE: u64 = 1 << 62;

/// Plays a history.
pub struct Player<'a, 'o, O> {
    tape: &'a Tape<'a>,
    allocator: Replayed<'a, 'o, O>,
    total: Option<Bytes>,
    /// Bytes handed out since the beginning.
    handed_out: u64,
    /// Reset the peak statistics before this entry.
    reset_peaks: Option<usize>,
}

/// Whose a run of releases is that stands before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The program called `empty_cache()`.
    EmptyCache,
    /// The request itself: its event processing, garbage collection or retries.
    Request,
}

impl<'a, 'o, O: Observer> Player<'a, 'o, O> {
    pub fn new(tape: &'a Tape<'a>, conditions: &Conditions, observer: &'o mut O) -> Self {
        let driver = Driver::new(tape, conditions.device_bytes.unwrap_or(UNKNOWN_TOTAL));
        let mut allocator = CachingAllocator::new(driver, conditions.settings.clone(), Judge { tape, observer });
        if conditions.limit.is_some() {
            allocator.set_limit(conditions.limit);
        }
        Self { tape, allocator, total: conditions.device_bytes, handed_out: 0, reset_peaks: None }
    }

    pub fn into_allocator(self) -> Replayed<'a, 'o, O> {
        self.allocator
    }

    /// Resets the peak statistics before the `entry`-th entry (or the request that it belongs to) is played.
    pub const fn reset_peaks_before(&mut self, entry: usize) {
        self.reset_peaks = Some(entry);
    }

    fn reset_peaks_if_due(&mut self) {
        if self.reset_peaks.is_some_and(|entry| self.tape.position() >= entry) {
            self.reset_peaks = None;
            self.allocator.reset_peak_statistics();
        }
    }

    /// Plays to the end, or to the first event that does not fit.
    pub fn play(&mut self) {
        while let Some(entry) = self.tape.current() {
            let before = self.tape.position();
            self.reset_peaks_if_due();
            match entry.action {
                Action::FreeRequested => self.free(entry),
                Action::Alloc | Action::Oom => self.request(entry),
                _ => self.run(),
            }
            if self.tape.stopped() {
                return;
            }
            if self.tape.position() == before {
                self.tape.stop("something that follows from the requests before".to_owned());
                return;
            }
        }
        self.reset_peaks_if_due();
    }

    /// The program gives a block back. If it is not usable at once, other streams still work on it; which ones leaves
    /// no entry, so each such block waits for a stream of its own.
    fn free(&mut self, entry: &TraceEntry) {
        let completed_at_once = self
            .tape
            .rest()
            .get(1)
            .is_some_and(|next| next.action == Action::FreeCompleted && next.address == entry.address);
        if !completed_at_once {
            self.allocator.record_stream(entry.address, waiting_stream(entry.address));
        }
        if self.allocator.free(entry.address).is_err() {
            self.tape.stop("a free of a block that is handed out".to_owned());
        }
    }

    fn request(&mut self, entry: &TraceEntry) {
        self.handed_out = self.handed_out.saturating_add(entry.size.0);
        if self.handed_out > IMPOSSIBLE && entry.action == Action::Alloc {
            self.tape.stop("a size that a device can have".to_owned());
            return;
        }
        match self.allocator.malloc(entry.size, entry.stream) {
            Ok(_) | Err(AllocError::OutOfMemory(_)) => {}
            Err(error) => self.tape.stop(error.to_string()),
        }
    }

    /// Entries that stand before the next request: whose are they?
    fn run(&mut self) {
        let rest = self.tape.rest();
        let len = rest.iter().position(is_request).unwrap_or(rest.len());
        let run = &rest[..len];
        let Some(request) = rest.get(len).filter(|entry| entry.action != Action::FreeRequested) else {
            self.empty_cache();
            return;
        };
        // Growth is always the request's own, and so is what follows it.
        let head = run.iter().position(is_growth).map_or(run, |at| &run[..at]);
        if !head.iter().any(is_release) {
            self.request(request);
            return;
        }
        // What the run begins with is completed by whichever of the two comes first.
        self.allocator.process_events();
        if self.tape.stopped() {
            return;
        }
        match self.owner(head, request) {
            Owner::EmptyCache => self.empty_cache(),
            Owner::Request => self.request(request),
        }
    }

    fn owner(&self, head: &[TraceEntry], request: &TraceEntry) -> Owner {
        let (size, stream) = (request.size, request.stream);
        // A synchronisation would have waited for them.
        if self.allocator.pending().next().is_some() {
            return Owner::Request;
        }
        if self.allocator.peek_free(size, stream) {
            return Owner::EmptyCache;
        }
        let victims = self.allocator.gc_victims(size, stream);
        let mut released = head.iter().filter(|entry| is_release(entry));
        let begins_with_victims = victims.iter().all(|(address, size)| {
            released.next().is_some_and(|entry| (entry.address, entry.size) == (*address, *size))
        });
        let collected = !victims.is_empty() && begins_with_victims;
        if collected && released.next().is_none() {
            return Owner::Request;
        }
        if request.action == Action::Oom {
            return Owner::Request;
        }
        let given_back = if collected { victims.iter().map(|(_, size)| *size).sum() } else { Bytes::ZERO };
        let (_, segment) = self.allocator.sizes(size);
        let held = self.allocator.reserved().saturating_sub(given_back);
        let fits = self.total.is_none_or(|total| held + segment <= total);
        if fits && self.allocator.growth_allowed(size, given_back) { Owner::EmptyCache } else { Owner::Request }
    }

    fn empty_cache(&mut self) {
        if let Some(entry) = self.tape.current() {
            let index = self.tape.position();
            self.allocator.sink_mut().observer.empty_cache(index, entry);
        }
        self.allocator.empty_cache();
    }
}

const fn is_request(entry: &TraceEntry) -> bool {
    matches!(entry.action, Action::Alloc | Action::Oom | Action::FreeRequested)
}

const fn is_growth(entry: &TraceEntry) -> bool {
    matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap)
}

const fn is_release(entry: &TraceEntry) -> bool {
    matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap)
}
