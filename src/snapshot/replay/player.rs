//! What the replayed allocator is asked next.

use super::card::{self, Ranges};
use super::conditions::Conditions;
use super::observer::Observer;
use super::retries::{self, AmbiguousRetries};
use super::tape::{Driver, Judge, Tape, waiting_stream};
use crate::allocator::{AllocError, CachingAllocator, Seed, SeedError};
use crate::snapshot::types::{Action, TraceEntry};
use crate::units::Bytes;

/// The replayed allocator.
pub type Replayed<'a, 'o, O> = CachingAllocator<Driver<'a>, Judge<'a, 'o, O>>;

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
    ambiguous: AmbiguousRetries,
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
    /// Plays from what `seed` says was there when the history began.
    ///
    /// # Errors
    /// [`SeedError`] when that can't have been there.
    pub fn new(
        tape: &'a Tape<'a>,
        seed: &Seed,
        conditions: &Conditions,
        observer: &'o mut O,
    ) -> Result<Self, SeedError> {
        let total = conditions.device_bytes.or_else(|| {
            let ranges = Ranges::of(seed, tape.rest())?;
            Some(ranges.device(&conditions.settings))
        });
        let driver = Driver::new(tape, seed, total.unwrap_or(card::UNKNOWN));
        let settings = conditions.settings.clone();
        let mut allocator = CachingAllocator::seeded(driver, settings, Judge { tape, observer }, seed)?;
        // A share of memory that nobody knows is no limit.
        if conditions.limit.is_some() || conditions.device_bytes.is_none() {
            allocator.set_limit(conditions.limit);
        }
        Ok(Self {
            tape,
            allocator,
            total: conditions.device_bytes,
            handed_out: 0,
            reset_peaks: None,
            ambiguous: AmbiguousRetries::default(),
        })
    }

    /// Runs of releases so far that a retry and a call of `empty_cache()` explain alike.
    pub const fn ambiguous(&self) -> AmbiguousRetries {
        self.ambiguous
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
        // A history that was cut off between a free and its completion begins with that; what waited for other streams
        // completes alike.
        if self.tape.current().is_some_and(is_completion) {
            self.allocator.process_events();
        }
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
        let rest = self.tape.rest();
        // Where releases follow, the completion can be that of a synchronisation just as well: it belongs to the run.
        let completed_at_once =
            rest.get(1).is_some_and(|next| next.action == Action::FreeCompleted && next.address == entry.address)
                && !rest.get(2).is_some_and(|after| is_release(after) || after.action == Action::FreeCompleted);
        if !completed_at_once {
            self.allocator.record_stream(entry.address, waiting_stream(entry.address));
        }
        if self.allocator.free(entry.address).is_err() {
            self.tape.stop("a free of a block that is handed out".to_owned());
        }
    }

    fn request(&mut self, entry: &TraceEntry) {
        // Whatever the block's size turns out to be, its segment is no smaller.
        let (_, segment) = self.allocator.sizes(entry.size);
        self.handed_out = self.handed_out.saturating_add(segment.0);
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
        let missed_before_completions = run.first().is_some_and(is_completion) && self.retries_at_once(head, request);
        // What the run begins with is completed by whichever of the two comes first.
        self.allocator.process_events();
        if self.tape.stopped() {
            return;
        }
        match self.owner(head, request) {
            Owner::EmptyCache => {
                let retry_grows = run.len() > head.len() && !run[head.len()..].iter().any(is_release);
                if missed_before_completions && retry_grows {
                    self.ambiguous.read_as_calls += 1;
                }
                self.empty_cache();
            }
            Owner::Request => {
                let retries = self.allocator.statistics().num_alloc_retries;
                let call_is_possible = request.action == Action::Alloc
                    && retries::in_release_order(head)
                    && !run[head.len()..].iter().any(is_release);
                self.request(request);
                if call_is_possible && self.allocator.statistics().num_alloc_retries > retries {
                    self.ambiguous.read_as_retries += 1;
                }
            }
        }
    }

    /// True if the request, as things stand before what the run completes, would go straight to its last retry.
    fn retries_at_once(&self, head: &[TraceEntry], request: &TraceEntry) -> bool {
        let (size, stream) = (request.size, request.stream);
        if request.action != Action::Alloc || self.allocator.peek_free(size, stream) {
            return false;
        }
        // Both would have given memory back before the synchronisation, not after it.
        let collects = !self.allocator.gc_victims(size, stream).is_empty();
        let max_split = self.allocator.settings().max_split_size;
        let releases_oversize = head
            .iter()
            .any(|entry| entry.action == Action::SegmentFree && entry.stream == stream && entry.size >= max_split);
        !collects && !releases_oversize && retries::in_release_order(head) && !self.growth_possible(size, Bytes::ZERO)
    }

    /// True if neither the limit nor the device's memory refuses growth, after `given_back` bytes went back.
    fn growth_possible(&self, size: Bytes, given_back: Bytes) -> bool {
        let (_, segment) = self.allocator.sizes(size);
        let held = self.allocator.reserved().saturating_sub(given_back);
        let fits = self.total.is_none_or(|total| held.0.saturating_add(segment.0) <= total.0);
        fits && self.allocator.growth_allowed(size, given_back)
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
        if self.growth_possible(size, given_back) { Owner::EmptyCache } else { Owner::Request }
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

const fn is_completion(entry: &TraceEntry) -> bool {
    matches!(entry.action, Action::FreeCompleted)
}

const fn is_release(entry: &TraceEntry) -> bool {
    matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap)
}
