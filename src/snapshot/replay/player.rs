//! Makes the history's requests of the replayed allocator.

use super::card::{self, RangeFacts};
use super::conditions::Conditions;
use super::observer::Observer;
use super::retries::{self, AmbiguousRetries};
use super::supply::Supply;
use super::tape::{Driver, Judge, Tape, waiting_stream};
use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::Bytes;
use vramlab_allocator::{AllocError, CachingAllocator, Seed, SeedError, Settings};

/// The replayed allocator.
pub type ReplayedAllocator<'a, 'o, O> = CachingAllocator<Driver<'a>, Judge<'a, 'o, O>>;

/// Other processes, and this process's context, may have this share of the device's memory: an eighth.
const OTHERS: u64 = 8;

/// The total at which accumulated statistics could overflow. No honest history allocates that much.
const IMPOSSIBLE: u64 = 1 << 62;

/// How many blocks may be copied to try readings of a history: for each of its entries, and in addition.
const COPIED_FOR_EACH: usize = 32;
const COPIED: usize = 1 << 18;

/// Plays a history.
pub struct Player<'a, 'o, O> {
    tape: &'a Tape<'a>,
    allocator: ReplayedAllocator<'a, 'o, O>,
    total: Option<Bytes>,
    /// Bytes allocated since the beginning.
    handed_out: u64,
    /// The entry before which the peak statistics are reset.
    reset_peaks: Option<usize>,
    ambiguous: AmbiguousRetries,
    supply: Supply,
    /// How many blocks may still be copied to try a reading.
    patience: usize,
}

/// What caused the completions and releases before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReleaseReading {
    /// The request itself: its event processing, garbage collection or retries.
    Request,
    /// The request itself; its retry waited for the completions at the beginning of the run, and none had happened before.
    Retry,
    /// The program called `empty_cache()`.
    EmptyCache,
}

impl ReleaseReading {
    const ALL: [Self; 3] = [Self::Request, Self::Retry, Self::EmptyCache];
}

/// What a run's releases owe to garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collected {
    /// They do not begin with what a collection would give back.
    Nothing,
    /// These bytes, which go first.
    Some(Bytes),
    /// All of them.
    Everything,
}

/// A run of completions and releases, and the request that follows it.
#[derive(Clone, Copy, Debug)]
struct Spot<'t> {
    /// The entries before memory is taken from the driver. Growth and everything after it always belong to the request.
    head: &'t [TraceEntry],
    /// The entries from the first growth on.
    growth: &'t [TraceEntry],
    request: &'t TraceEntry,
    /// The index of the request.
    at: usize,
}

impl Spot<'_> {
    /// True if the run begins with completions.
    fn waits(&self) -> bool {
        self.head.first().is_some_and(is_completion)
    }

    /// True if memory is taken from the driver, and none is released after that.
    fn grows_last(&self) -> bool {
        !self.growth.is_empty() && !self.growth.iter().any(is_release)
    }
}

impl<'a, 'o, O: Observer> Player<'a, 'o, O> {
    /// Starts from the memory that `seed` says existed when the history began.
    ///
    /// # Errors
    /// [`SeedError`] if that state is impossible.
    pub fn new(
        tape: &'a Tape<'a>,
        seed: &Seed,
        conditions: &Conditions,
        observer: &'o mut O,
    ) -> Result<Self, SeedError> {
        let total = conditions.device_bytes.or_else(|| {
            let ranges = RangeFacts::of(seed, tape.rest())?;
            Some(ranges.device(&conditions.settings))
        });
        let driver = Driver::new(tape, seed, total.unwrap_or(card::UNKNOWN));
        let settings = conditions.settings.clone();
        let mut allocator = CachingAllocator::seeded(driver, settings, Judge { tape, observer }, seed)?;
        // A share of an unknown amount of memory is not a limit.
        if conditions.limit.is_some() || conditions.device_bytes.is_none() {
            allocator.set_limit(conditions.limit);
        }
        let entries = tape.rest();
        Ok(Self {
            tape,
            allocator,
            total: conditions.device_bytes,
            handed_out: 0,
            reset_peaks: None,
            ambiguous: AmbiguousRetries::default(),
            supply: Supply::of(seed, entries, &conditions.settings, conditions.limit),
            patience: entries.len().saturating_mul(COPIED_FOR_EACH).saturating_add(COPIED),
        })
    }

    /// Runs of releases so far that a retry and a call of `empty_cache()` explain alike.
    pub const fn ambiguous(&self) -> AmbiguousRetries {
        self.ambiguous
    }

    pub fn into_allocator(self) -> ReplayedAllocator<'a, 'o, O> {
        self.allocator
    }

    /// Resets the peak statistics before the `entry`-th entry, or the request that it belongs to, is played.
    pub const fn reset_peaks_before(&mut self, entry: usize) {
        self.reset_peaks = Some(entry);
    }

    fn reset_peaks_if_due(&mut self) {
        if self.reset_peaks.is_some_and(|entry| self.tape.position() >= entry) {
            self.reset_peaks = None;
            self.allocator.reset_peak_statistics();
        }
    }

    /// Plays to the end, or to the first event that does not match.
    pub fn play(&mut self) {
        // A history that was cut off between a free and its completion begins with the completion. Blocks that waited
        // for other streams complete in the same way.
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

    /// Frees a block. If it is not reusable at once, other streams still use it. No entry says which ones, so each such
    /// block waits for a stream of its own.
    fn free(&mut self, entry: &TraceEntry) {
        let rest = self.tape.rest();
        // If releases or a failure follow, the completion can just as well come from a synchronisation. It then belongs
        // to the entries before the request.
        let synchronises =
            |after: &TraceEntry| is_release(after) || is_completion(after) || after.action == Action::Oom;
        let completed_at_once =
            rest.get(1).is_some_and(|next| next.action == Action::FreeCompleted && next.address == entry.address)
                && !rest.get(2).is_some_and(synchronises);
        if !completed_at_once {
            self.allocator.record_stream(entry.address, waiting_stream(entry.address));
        }
        if self.allocator.free(entry.address).is_err() {
            self.tape.stop("a free of a block that is handed out".to_owned());
        }
    }

    fn request(&mut self, entry: &TraceEntry) {
        // The block's size is not known yet, but it is at most its segment's.
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

    /// Plays the entries before the next request, and decides what caused them.
    fn run(&mut self) {
        let rest = self.tape.rest();
        let len = rest.iter().position(is_request).unwrap_or(rest.len());
        let run = &rest[..len];
        let Some(request) = rest.get(len).filter(|entry| entry.action != Action::FreeRequested) else {
            // Requests of private pools are left out, but not the completions that they found.
            if self.tape.has_gaps() {
                self.allocator.process_events();
            }
            if !self.tape.has_gaps() || run.iter().any(is_release) {
                self.empty_cache();
            }
            return;
        };
        let (head, growth) = run.split_at(run.iter().position(is_growth).unwrap_or(len));
        let spot = Spot { head, growth, request, at: self.tape.position() + len };
        let releases = head.iter().any(is_release);
        let doubtful = releases || spot.waits() && request.action == Action::Oom;
        if !doubtful {
            self.request(request);
            return;
        }
        // Every reading but a retry begins with the completions, so nothing has to be tried before them.
        if releases && spot.waits() && request.action == Action::Alloc && !self.may_wait(&spot) {
            let before = self.tape.position();
            self.allocator.process_events();
            if self.tape.stopped() {
                return;
            }
            if self.tape.position() > before {
                return self.run();
            }
        }
        let reading = self.reading(&spot);
        let either = releases && spot.request.action == Action::Alloc && spot.grows_last();
        match reading {
            ReleaseReading::EmptyCache if either => self.weigh_call(&spot),
            // A retry was the likelier reading, but a call explains the run too.
            ReleaseReading::Retry if either && self.attempt(ReleaseReading::EmptyCache, &spot).is_some() => {
                self.ambiguous.read_as_retries += 1;
            }
            _ => {}
        }
        let may_have_waited = reading == ReleaseReading::Request
            && either
            && spot.waits()
            && self.attempt(ReleaseReading::Retry, &spot) == Some(true);
        let retries = self.allocator.statistics().num_alloc_retries;
        self.follow(reading, request);
        let retried = self.allocator.statistics().num_alloc_retries > retries;
        if reading == ReleaseReading::Request && either && retried && retries::in_release_order(head) {
            self.ambiguous.read_as_retries += 1;
        } else if may_have_waited && !retried {
            self.ambiguous.read_as_searches += 1;
        }
    }

    /// The likeliest reading under which our allocator does what the history records, up to the request.
    fn reading(&mut self, spot: &Spot<'_>) -> ReleaseReading {
        if self.releases_in_order(spot) {
            return self.owner(spot);
        }
        // A call that released the same would leave the same to the request, so there is nothing to try.
        if !spot.waits() && self.collects(spot) == Collected::Everything {
            return ReleaseReading::Request;
        }
        // Whatever finds a free block releases nothing.
        if self.finds_free(spot) {
            return ReleaseReading::EmptyCache;
        }
        let likeliest = if spot.waits() {
            let tape = self.tape.fork();
            let mut nobody = ();
            let Some(mut trial) = self.fork(&tape, &mut nobody) else {
                self.allocator.process_events();
                return self.owner(spot);
            };
            trial.allocator.process_events();
            match trial.owner(spot) {
                // The request had to retry, given the state before the completions.
                ReleaseReading::EmptyCache if spot.request.action == Action::Oom => ReleaseReading::Retry,
                ReleaseReading::EmptyCache if self.would_retry(spot) && self.is_refused(spot.request.size) => {
                    ReleaseReading::Retry
                }
                owner => owner,
            }
        } else {
            self.owner(spot)
        };
        let others = ReleaseReading::ALL
            .into_iter()
            .filter(|reading| *reading != likeliest && (*reading != ReleaseReading::Retry || spot.waits()));
        std::iter::once(likeliest)
            .chain(others)
            .find(|reading| self.attempt(*reading, spot).is_some())
            .unwrap_or(likeliest)
    }

    /// True if all readings release the same memory in the same order.
    fn releases_in_order(&self, spot: &Spot<'_>) -> bool {
        let settings = self.allocator.settings();
        !spot.waits() && settings.max_split_size == Settings::UNLIMITED && settings.garbage_collection_threshold <= 0.0
    }

    /// True if the request could come to its retry, which waits for all blocks, without doing anything else before.
    fn may_wait(&self, spot: &Spot<'_>) -> bool {
        let (size, stream) = (spot.request.size, spot.request.stream);
        !self.allocator.peek_free(size, stream) && self.allocator.gc_victims(size, stream).is_empty()
    }

    /// True if the request is served by a block that is free now, whether it waits for pending blocks or not.
    fn finds_free(&self, spot: &Spot<'_>) -> bool {
        !spot.waits()
            && self.allocator.pending().next().is_none()
            && self.allocator.peek_free(spot.request.size, spot.request.stream)
    }

    /// Makes the calls of a reading, up to the request.
    fn follow(&mut self, reading: ReleaseReading, request: &TraceEntry) {
        match reading {
            ReleaseReading::Request => self.request(request),
            ReleaseReading::Retry => {
                self.tape.wait_for_completions(true);
                self.request(request);
                self.tape.wait_for_completions(false);
            }
            ReleaseReading::EmptyCache => {
                // Completions at the beginning of the run happen in the call or in the request, whichever comes first.
                self.allocator.process_events();
                if !self.tape.stopped() {
                    self.empty_cache();
                }
            }
        }
    }

    /// Tries a reading. Returns whether the request was retried, or `None` if our allocator then differs from the
    /// history before the request ends, or if the attempt costs too much.
    fn attempt(&mut self, reading: ReleaseReading, spot: &Spot<'_>) -> Option<bool> {
        let tape = self.tape.fork();
        let mut nobody = ();
        let mut trial = self.fork(&tape, &mut nobody)?;
        let retries = trial.allocator.statistics().num_alloc_retries;
        trial.follow(reading, spot.request);
        if reading == ReleaseReading::EmptyCache && !tape.stopped() {
            trial.request(spot.request);
        }
        let retried = trial.allocator.statistics().num_alloc_retries > retries;
        (!tape.stopped() && tape.position() > spot.at).then_some(retried)
    }

    /// A copy that plays on another tape, to try something; no observer hears of it. `None` once attempts have cost too much.
    fn fork<'t, 'n>(&mut self, tape: &'t Tape<'t>, nobody: &'n mut ()) -> Option<Player<'t, 'n, ()>> {
        self.patience = self.patience.checked_sub(self.allocator.block_count().max(1))?;
        let driver = self.allocator.source().fork(tape);
        Some(Player {
            tape,
            allocator: self.allocator.fork(driver, Judge { tape, observer: nobody }),
            total: self.total,
            handed_out: self.handed_out,
            reset_peaks: None,
            ambiguous: AmbiguousRetries::default(),
            supply: self.supply,
            patience: 0,
        })
    }

    /// Counts a run that was read as a call, if the request, refused memory, would have done the same.
    fn weigh_call(&mut self, spot: &Spot<'_>) {
        let retries = if self.finds_free(spot) {
            false
        } else if self.releases_in_order(spot) {
            self.would_retry(spot)
        } else {
            [ReleaseReading::Request, ReleaseReading::Retry]
                .into_iter()
                .any(|reading| self.attempt(reading, spot) == Some(true))
        };
        if !retries {
            return;
        }
        let needed = self.needed(spot.request.size, Bytes::ZERO);
        if self.is_refused(spot.request.size) || self.total.is_none() && !self.supply.tells_of(needed) {
            self.ambiguous.read_as_calls += 1;
        } else if self.supply.refuses() || self.total.is_some_and(|total| needed.0 > total.0 - total.0 / OTHERS) {
            self.ambiguous.calls_unless_refused += 1;
        }
    }

    /// True if the request, in the state before the completions and releases, would go straight to its last retry and
    /// do exactly what the run shows, if neither limit nor driver let it have more.
    fn would_retry(&self, spot: &Spot<'_>) -> bool {
        let (size, stream) = (spot.request.size, spot.request.stream);
        if spot.request.action != Action::Alloc || self.allocator.peek_free(size, stream) {
            return false;
        }
        // Garbage collection and oversize releases would have come before the synchronisation, not after it.
        let collects = !self.allocator.gc_victims(size, stream).is_empty();
        let max_split = self.allocator.settings().max_split_size;
        let releases_oversize = spot
            .head
            .iter()
            .any(|entry| entry.action == Action::SegmentFree && entry.stream == stream && entry.size >= max_split);
        // The synchronisation waits for all pending blocks.
        let waited = spot.head.iter().filter(|entry| is_completion(entry)).count();
        !collects
            && !releases_oversize
            && waited == self.allocator.pending().count()
            && retries::in_release_order(spot.head)
    }

    /// Bytes that would be held if a request of `size` bytes grew the cache after `given_back` bytes were released.
    fn needed(&self, size: Bytes, given_back: Bytes) -> Bytes {
        let (_, segment) = self.allocator.sizes(size);
        Bytes(self.allocator.reserved().saturating_sub(given_back).0.saturating_add(segment.0))
    }

    /// True if, as far as is known, neither the limit nor the driver refuses growth after `given_back` bytes were released.
    fn growth_possible(&self, size: Bytes, given_back: Bytes) -> bool {
        let needed = self.needed(size, given_back);
        self.total.is_none_or(|total| needed <= total)
            && !self.supply.lacks(needed)
            && self.allocator.growth_allowed(size, given_back)
    }

    /// True if growth is known to be refused now.
    fn is_refused(&self, size: Bytes) -> bool {
        !self.growth_possible(size, Bytes::ZERO)
    }

    fn owner(&self, spot: &Spot<'_>) -> ReleaseReading {
        let (size, stream) = (spot.request.size, spot.request.stream);
        // A synchronisation would have waited for the pending blocks.
        if self.allocator.pending().next().is_some() {
            return ReleaseReading::Request;
        }
        if self.allocator.peek_free(size, stream) {
            return ReleaseReading::EmptyCache;
        }
        let given_back = match self.collects(spot) {
            Collected::Everything => return ReleaseReading::Request,
            Collected::Some(bytes) => bytes,
            Collected::Nothing => Bytes::ZERO,
        };
        let is_call = spot.request.action != Action::Oom && self.growth_possible(size, given_back);
        if is_call { ReleaseReading::EmptyCache } else { ReleaseReading::Request }
    }

    /// What of the run's releases the request's garbage collection explains. Nothing while blocks are pending, or if the
    /// request finds a free block.
    fn collects(&self, spot: &Spot<'_>) -> Collected {
        let (size, stream) = (spot.request.size, spot.request.stream);
        if self.allocator.pending().next().is_some() || self.allocator.peek_free(size, stream) {
            return Collected::Nothing;
        }
        let victims = self.allocator.gc_victims(size, stream);
        let mut released = spot.head.iter().filter(|entry| is_release(entry));
        let begins_with_victims = victims.iter().all(|(address, size)| {
            released.next().is_some_and(|entry| (entry.address, entry.size) == (*address, *size))
        });
        match (!victims.is_empty() && begins_with_victims, released.next()) {
            (false, _) => Collected::Nothing,
            (true, None) => Collected::Everything,
            (true, Some(_)) => Collected::Some(victims.iter().map(|(_, size)| *size).sum()),
        }
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
