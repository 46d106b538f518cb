//! A ghost of the run: another allocator that follows the timeline, in the keeper's thread while it keeps up and on a thread of
//! its own where it has a long way to go.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tokio::sync::mpsc;

use super::ghost::Ghost;
use super::picture::Cursor;
use crate::model::{Event, History, Lab};
use crate::recording::{Excerpt, Timeline};
use crate::units::DeviceIndex;
use crate::whatif::{Conditions, Follower, Held, Places};

/// Events that are followed at once, in the keeper's thread: some milliseconds.
const NEAR: u64 = 1 << 14;

/// Who follows, and where.
#[derive(Debug)]
pub(super) struct Ghosts {
    wanted: Option<Arc<Conditions>>,
    follower: Option<Follower>,
    job: Option<Job>,
    /// Counts what was wanted: what comes back too late is let go of.
    number: u64,
    finished: (mpsc::UnboundedSender<Caught>, mpsc::UnboundedReceiver<Caught>),
}

/// One that has caught up with what there was.
#[derive(Debug)]
pub(super) struct Caught {
    number: u64,
    follower: Follower,
}

/// One that catches up.
#[derive(Debug)]
struct Job {
    /// Nobody waits for it any more.
    stop: Arc<AtomicBool>,
    /// Events followed so far, of so many.
    read: Arc<AtomicU64>,
    of: u64,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Ghosts {
    pub fn new() -> Self {
        Self { wanted: None, follower: None, job: None, number: 0, finished: mpsc::unbounded_channel() }
    }

    /// Another is wanted, or none any more.
    pub fn want(&mut self, conditions: Option<Arc<Conditions>>) {
        self.wanted = conditions;
        self.number += 1;
        (self.follower, self.job) = (None, None);
    }

    /// Whether one catches up.
    pub const fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// The next that has caught up.
    pub async fn next(&mut self) -> Caught {
        match self.finished.1.recv().await {
            Some(caught) => caught,
            // Never: a sender is kept beside it.
            None => std::future::pending().await,
        }
    }

    /// Takes it back.
    pub fn take(&mut self, caught: Caught) {
        if caught.number == self.number {
            self.job = None;
            self.follower = Some(caught.follower);
        }
    }

    /// The event with this index has just happened.
    pub fn see(&mut self, index: u64, event: &Event) {
        if let Some(follower) = self.follower.as_mut().filter(|follower| follower.position() == index) {
            follower.apply(event);
        }
    }

    /// Follows what was not seen.
    pub fn catch_up(&mut self, timeline: &mut Timeline, device: DeviceIndex) {
        let Some(conditions) = self.wanted.as_ref().filter(|_| self.job.is_none()) else { return };
        let (first, end) = (timeline.first(), timeline.end());
        let follower = self.follower.take().filter(|follower| follower.position() >= first);
        let from = follower.as_ref().map_or(first, Follower::position);
        // From a state that was not empty it begins where that can be read.
        // Whose addresses a run has, its first event tells.
        let new = || Follower::new(conditions, Places::default(), device);
        match follower.or_else(|| (first == 0).then(new)) {
            Some(mut follower) if end - from <= NEAR => {
                timeline.events(from..end, |_, event| follower.apply(event));
                self.follower = Some(follower);
            }
            follower => {
                if let Some(excerpt) = timeline.excerpt(from..end) {
                    self.start(excerpt, follower, device);
                }
            }
        }
    }

    fn start(&mut self, excerpt: Excerpt, follower: Option<Follower>, device: DeviceIndex) {
        let Some(conditions) = self.wanted.clone() else { return };
        let (stop, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let Range { start, end } = excerpt.range();
        let job = Job { stop: Arc::clone(&stop), read: Arc::clone(&read), of: end - start };
        let (finished, number) = (self.finished.0.clone(), self.number);
        let catch_up = move || {
            let mut follower = follower.unwrap_or_else(|| begin(&conditions, &excerpt, device));
            excerpt.each(|position, event| {
                follower.apply(event);
                if position.is_multiple_of(NEAR) {
                    read.fetch_add(NEAR, Ordering::Relaxed);
                }
                !stop.load(Ordering::Relaxed)
            });
            if !stop.load(Ordering::Relaxed) {
                // Whoever waited may have gone.
                drop(finished.send(Caught { number, follower }));
            }
        };
        // Without a thread there is no ghost; the screen says that it is still to come.
        self.job = thread::Builder::new().name("ghost".to_owned()).spawn(catch_up).ok().map(|_| job);
    }

    /// As it is at the cursor, beside the run's own history.
    pub fn picture(&self, cursor: Cursor, own: &History) -> Option<Arc<Ghost>> {
        let conditions = Arc::clone(self.wanted.as_ref()?);
        let catching_up = self.job.as_ref().map(|job| job.read.load(Ordering::Relaxed) as f64 / job.of.max(1) as f64);
        let Some(follower) = &self.follower else {
            let catching_up = catching_up.or(Some(0.0));
            return Some(Arc::new(Ghost {
                conditions,
                since: 0,
                figures: None,
                step: None,
                ended: false,
                history: Arc::default(),
                catching_up,
            }));
        };
        let history = follower.history();
        let at = |history: &History| match cursor {
            Cursor::Now => history.latest(),
            Cursor::At(position) => history.around(position),
        };
        let step = at(history).zip(at(own)).filter(|(ghost, own)| ghost.position == own.position);
        Some(Arc::new(Ghost {
            conditions,
            since: follower.since(),
            figures: Some(follower.figures()),
            ended: step.is_some_and(|(step, _)| !history.is_under_way(&step)),
            step,
            history: Arc::new(history.clone()),
            catching_up,
        }))
    }
}

/// One that begins with what the run holds before the first event of `excerpt`.
fn begin(conditions: &Conditions, excerpt: &Excerpt, device: DeviceIndex) -> Follower {
    let position = excerpt.range().start;
    let nothing = Lab::new();
    let lab = excerpt.before().lab(device).unwrap_or(&nothing);
    let memory = lab.memory();
    // A history of PyTorch's shows where its driver put segments.
    let places = if lab.about().history.is_some() { Places::Recorded } else { Places::Simulated };
    let mut held: Vec<(u64, Held)> = Vec::new();
    for segment in memory.segments() {
        let (address, stream) = (segment.address(), segment.stream());
        let blocks = segment.blocks().filter(|block| !block.pending);
        held.extend(blocks.map(|block| {
            (block.born, Held { address: address.offset(block.offset), requested: block.requested, stream })
        }));
    }
    held.sort_by_key(|(born, _)| *born);
    let held = held.into_iter().map(|(_, held)| held);
    let done = (lab.finished(), lab.history().columns());
    Follower::begin(conditions, places, (device, position), held, memory.limit(), done)
}
