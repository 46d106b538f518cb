//! The replay of a history from its beginning to its end.
//!
//! If our allocator and a history that does not begin with the first allocation diverge, the replay starts again behind
//! that point, from the memory that the recording shows there. This explains as much of the history as possible.

use super::aside::{DefaultPoolEntries, PrivateSegments};
use super::compare::{self, Comparable};
use super::conditions::{Conditions, Statistics};
use super::mismatch::Mismatch;
use super::observer::Observer;
use super::player::Player;
use super::report::{DeviceReport, HistoryReport};
use super::seed::seed;
use super::tape::Tape;
use crate::Begins;
use crate::history::{Beginning, Story};
use crate::types::{Action, Snapshot, TraceEntry};
use vramlab_allocator::{Seed, TraceEvent};

/// The most times that a replay starts again, and the most segments that are assumed to be private.
const MOST_PIECES: usize = 24;
const MOST_GUESSES: usize = 24;

/// A history to be replayed.
#[derive(Debug)]
pub struct ReplayInput<'a> {
    snapshot: &'a Snapshot,
    device: usize,
    beginning: &'a Beginning,
    conditions: &'a Conditions,
    trace: &'a [TraceEntry],
    private: bool,
}

impl<'a> ReplayInput<'a> {
    pub fn new(snapshot: &'a Snapshot, device: usize, beginning: &'a Beginning, conditions: &'a Conditions) -> Self {
        let trace = snapshot.device_trace(device);
        let private = beginning.has_private_pools(trace);
        Self { snapshot, device, beginning, conditions, trace, private }
    }

    /// Replays the whole history. The `observer` hears of every event that agreed.
    pub fn run(&self, statistics: Option<&Statistics>, observer: &mut impl Observer) -> DeviceReport {
        let guessed = if self.private { self.guess() } else { PrivateSegments::default() };
        let begins = if self.begins_with_the_first(&guessed) { Begins::First } else { self.beginning.begins };
        let ours = self.private.then(|| self.ours(&guessed));
        let entries = ours.as_ref().map_or(self.trace, |ours| &ours.entries);
        let place = |index: usize| ours.as_ref().map_or(index, |ours| ours.place(index));
        let mut report = self.report(entries);
        report.history.begins = begins;
        if self.trace.is_empty() {
            // There were no decisions. An allocator that starts with the recorded state would only be compared with itself.
            report.history.exact_from = Some(0);
            return report;
        }
        if ours.is_some() {
            let left_out = self.trace.len() - entries.len();
            report.history.missing.push(format!(
                "how private pools (CUDA graphs, torch.cuda.use_mem_pool) decided: their {left_out} entries are not replayed"
            ));
        }
        if begins != self.beginning.begins {
            report.history.missing.clear();
        }
        let goes_on = begins != Begins::First || self.private;
        let mut story = Story::new(self.trace, &self.conditions.settings, self.beginning);
        let mut from = 0;
        for _ in 0..MOST_PIECES {
            let seed = match begins {
                Begins::First if from == 0 => Seed::default(),
                _ => seed(self.beginning, story.space(), &guessed.early),
            };
            let tape = Tape::from(entries, from).without_private_pools(self.private);
            let mut placed = WithIndices { observer: &mut *observer, place };
            let allocator = match Player::new(&tape, &seed, self.conditions, &mut placed) {
                Ok(mut player) => {
                    player.play();
                    let ambiguous = player.ambiguous();
                    Some((player.into_allocator(), ambiguous))
                }
                Err(error) => {
                    tape.stop(error.to_string());
                    None
                }
            };
            report.segments.matched += tape.segments();
            report.placements.matched += tape.placements();
            let mismatch = tape.mismatch();
            if let (Some(mismatch), None) = (&mismatch, &report.first_mismatch) {
                report.first_mismatch =
                    Some(Mismatch { device: self.device, entry: place(mismatch.entry), ..mismatch.clone() });
            }
            let next = mismatch.as_ref().map(|mismatch| behind_request(entries, mismatch.entry.max(from)));
            match next {
                Some(next) if goes_on && next < entries.len() => {
                    from = next;
                    while story.position() < place(from) && story.advance(&mut |_: &TraceEvent| {}) {}
                }
                _ => {
                    if mismatch.is_none() {
                        report.history.exact_from = Some(place(from));
                    }
                    if let Some((allocator, ambiguous)) = allocator {
                        let comparable = self.comparable(mismatch.is_none(), &report, &seed);
                        let finished =
                            compare::FinishedReplay { snapshot: self.snapshot, entries, seed: &seed, ambiguous };
                        compare::finish(&mut report, &finished, &allocator, self.conditions, statistics, comparable);
                    }
                    break;
                }
            }
        }
        if report.first_mismatch.is_some() && report.history.exact_from == Some(0) {
            // The mismatch is at the end.
            report.history.exact_from = None;
        }
        report
    }

    /// A report on a history of which nothing has been replayed yet.
    fn report(&self, entries: &[TraceEntry]) -> DeviceReport {
        let mut report = DeviceReport::new(self.device, entries);
        report.events = self.trace.len() as u64;
        report.history = HistoryReport {
            begins: self.beginning.begins,
            exact_from: None,
            missing: self.beginning.missing(self.snapshot, self.device, &self.conditions.settings),
            private: self.private,
        };
        report
    }

    fn comparable(&self, at_end: bool, report: &DeviceReport, seed: &Seed) -> Comparable {
        let whole = report.first_mismatch.is_none() && !self.private;
        let in_observer = self.trace.last().is_some_and(|entry| entry.action == Action::Oom);
        Comparable {
            blocks: at_end,
            // The snapshot was dumped inside an out-of-memory observer, so the statistics are of a later moment.
            statistics: at_end && whole && !in_observer,
            since_the_first: report.history.begins == Begins::First && whole,
            // The last request for a free block may be older than the history.
            stale: seed.segments.is_empty(),
        }
    }

    /// True if a replay from an empty allocator gets further. A damaged entry can make a history look as if it began late.
    fn begins_with_the_first(&self, guessed: &PrivateSegments) -> bool {
        if self.private || matches!(self.beginning.begins, Begins::First | Begins::Nowhere) {
            return false;
        }
        let seed = seed(self.beginning, &self.beginning.space, &guessed.early);
        match self.reach_from(self.trace, &seed) {
            None => false,
            Some(reached) => self.reach_from(self.trace, &Seed::default()).is_none_or(|further| further > reached),
        }
    }

    fn ours(&self, guessed: &PrivateSegments) -> DefaultPoolEntries {
        DefaultPoolEntries::of(self.trace, &self.conditions.settings, self.beginning, guessed)
    }

    /// Finds segments of private pools that are gone at the end, one by one: each must bring the replay further.
    fn guess(&self) -> PrivateSegments {
        let mut guessed = PrivateSegments::default();
        let mut reached = self.reach(&guessed);
        for _ in 0..MOST_GUESSES {
            let Some(place) = reached else { break };
            let mut further = guessed.clone();
            if !further.suspect(self.trace, self.beginning, place) {
                break;
            }
            let next = self.reach(&further);
            if next.is_some_and(|next| next <= place) {
                break;
            }
            (guessed, reached) = (further, next);
        }
        guessed
    }

    /// The entry at which the replay of the default pools stops; `None` if it reaches the end.
    fn reach(&self, guessed: &PrivateSegments) -> Option<usize> {
        let ours = self.ours(guessed);
        let seed = seed(self.beginning, &self.beginning.space, &guessed.early);
        self.reach_from(&ours.entries, &seed).map(|entry| ours.place(entry))
    }

    fn reach_from(&self, entries: &[TraceEntry], seed: &Seed) -> Option<usize> {
        let tape = Tape::new(entries).without_private_pools(self.private);
        let mut nobody = ();
        let Ok(mut player) = Player::new(&tape, seed, self.conditions, &mut nobody) else { return Some(0) };
        player.play();
        tape.mismatch().map(|mismatch| mismatch.entry)
    }
}

/// The first entry after the request that entry `at` belongs to.
fn behind_request(entries: &[TraceEntry], at: usize) -> usize {
    let is_request = |entry: &TraceEntry| matches!(entry.action, Action::Alloc | Action::Oom | Action::FreeRequested);
    let Some(request) = entries.get(at..).and_then(|rest| rest.iter().position(is_request)).map(|ahead| at + ahead)
    else {
        return entries.len();
    };
    let completed = entries[request].action == Action::FreeRequested
        && entries
            .get(request + 1)
            .is_some_and(|next| next.action == Action::FreeCompleted && next.address == entries[request].address);
    request + 1 + usize::from(completed)
}

/// An observer that is given indices in the whole trace.
struct WithIndices<'o, O, F> {
    observer: &'o mut O,
    place: F,
}

impl<O: Observer, F: Fn(usize) -> usize> Observer for WithIndices<'_, O, F> {
    #[inline]
    fn event(&mut self, index: usize, entry: &TraceEntry, event: &TraceEvent) {
        self.observer.event((self.place)(index), entry, event);
    }

    fn empty_cache(&mut self, index: usize, entry: &TraceEntry) {
        self.observer.empty_cache((self.place)(index), entry);
    }
}
