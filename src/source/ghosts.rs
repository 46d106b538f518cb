//! The ghost of a run: another allocator that follows the timeline. It runs in the keeper's thread while it keeps up,
//! and on its own thread if it has far to go. A second one follows to where the cursor looks back.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::ghost::Ghost;
use super::ghost_start::{GhostStart, LookedBack, NEAR};
use super::picture::Cursor;
use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{Event, EventKind, History, Occupancy, SegmentView};
use vramlab_recording::{Excerpt, Timeline};
use vramlab_whatif::{Conditions, Follower};

/// How often a copy is kept when a step begins.
const TRAIL: Duration = Duration::from_millis(250);
/// The most events before a mark that are followed once more.
const LONG: u64 = 1 << 17;

/// The ghosts and their positions.
#[derive(Debug)]
pub(super) struct Ghosts {
    wanted: Option<Arc<Conditions>>,
    /// How the ghost began.
    beginning: GhostStart,
    /// The ghost as it was when it began.
    origin: Option<Follower>,
    follower: Option<Follower>,
    job: Option<GhostJob>,
    /// The ghost at the cursor that looks back, and one that is on the way there.
    back: Option<LookedBack>,
    seeking: Option<GhostJob>,
    /// Counts requests, so that a result that comes too late is dropped.
    number: u64,
    /// Copies of the ghost at the beginnings of recent steps: a mark in the last step is not far from there.
    trail: VecDeque<Follower>,
    trailed: Instant,
    /// The memory that was last drawn: of which ghost, and after how many events.
    stood: Option<((u64, u64), Arc<Occupancy>)>,
    finished: (mpsc::UnboundedSender<CaughtUpGhost>, mpsc::UnboundedReceiver<CaughtUpGhost>),
}

/// A ghost that has caught up with the events so far.
#[derive(Debug)]
pub(super) struct CaughtUpGhost {
    number: u64,
    came: CatchUpResult,
}

/// Where the ghost is now.
#[derive(Debug)]
enum CatchUpResult {
    /// At the end, with a copy of it as it was when it began.
    End { origin: Box<Follower>, follower: Box<Follower> },
    /// Where the cursor looked back.
    Back(Box<LookedBack>),
}

/// A ghost that is catching up.
#[derive(Debug)]
struct GhostJob {
    /// Set once the result is no longer needed.
    stop: Arc<AtomicBool>,
    /// The number of events followed so far, and the number in total.
    read: Arc<AtomicU64>,
    of: u64,
}

impl GhostJob {
    fn share(&self) -> f64 {
        self.read.load(Ordering::Relaxed) as f64 / self.of.max(1) as f64
    }
}

impl Drop for GhostJob {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Ghosts {
    pub fn new() -> Self {
        Self {
            wanted: None,
            beginning: GhostStart::default(),
            origin: None,
            follower: None,
            job: None,
            back: None,
            seeking: None,
            number: 0,
            trail: VecDeque::new(),
            trailed: Instant::now(),
            stood: None,
            finished: mpsc::unbounded_channel(),
        }
    }

    /// Requests another ghost, or none.
    pub fn want(&mut self, conditions: Option<Arc<Conditions>>) {
        self.wanted = conditions;
        self.begin_anew();
    }

    /// Drops all ghosts, because they belong to another device or more is known now.
    pub fn begin_anew(&mut self) {
        self.number += 1;
        (self.origin, self.follower, self.job) = (None, None, None);
        (self.back, self.seeking, self.stood) = (None, None, None);
        self.trail.clear();
    }

    /// True while a ghost is catching up.
    pub const fn is_busy(&self) -> bool {
        self.job.is_some() || self.seeking.is_some()
    }

    /// The next ghost that has caught up.
    pub async fn next(&mut self) -> CaughtUpGhost {
        match self.finished.1.recv().await {
            Some(caught) => caught,
            // Can't happen: a sender is kept here.
            None => std::future::pending().await,
        }
    }

    /// Takes back a ghost that has caught up.
    pub fn take(&mut self, caught: CaughtUpGhost) {
        if caught.number != self.number {
            return;
        }
        match caught.came {
            CatchUpResult::End { origin, follower } => {
                self.job = None;
                (self.origin, self.follower) = (Some(*origin), Some(*follower));
            }
            CatchUpResult::Back(back) => {
                self.seeking = None;
                self.back = Some(*back);
            }
        }
    }

    /// Takes in the event with this index, which has just happened.
    pub fn see(&mut self, index: u64, event: &Event) {
        if let Some(follower) = self.follower.as_mut().filter(|follower| follower.position() == index) {
            if matches!(event.kind, EventKind::StepBegin { .. }) && self.trailed.elapsed() >= TRAIL {
                self.trail.truncate(1);
                self.trail.push_front(follower.clone());
                self.trailed = Instant::now();
            }
            follower.apply(event);
        }
    }

    /// The ghost's memory at the mark of a run that goes on, with the run's segments there; `None` if it has not
    /// followed so closely.
    pub fn at_mark(&self, timeline: &Timeline, mark: u64, segments: &[SegmentView]) -> Option<Arc<Occupancy>> {
        let near = |follower: &&Follower| (follower.position()..follower.position() + LONG).contains(&mark);
        let mut here = self.follower.iter().chain(&self.trail).find(near)?.clone();
        timeline.events(here.position()..mark, |_, event| here.apply(event));
        (here.position() == mark).then(|| Arc::new(here.occupancy(segments)))
    }

    /// Follows the events that were not seen yet. If the timeline `grows`, more may come.
    pub fn catch_up(&mut self, timeline: &mut Timeline, device: DeviceIndex, grows: bool) {
        let beginning = GhostStart::of(timeline, device, grows);
        if self.follower.is_some() || self.job.is_some() {
            if !beginning.is_better_than(self.beginning) {
                return self.go_on(timeline, device);
            }
            self.begin_anew();
        }
        self.beginning = beginning;
        self.go_on(timeline, device);
    }

    fn go_on(&mut self, timeline: &mut Timeline, device: DeviceIndex) {
        let Some(conditions) = self.wanted.as_ref().filter(|_| self.job.is_none()) else { return };
        let (first, end) = (timeline.first(), timeline.end());
        let follower = self.follower.take().filter(|follower| follower.position() >= first);
        if follower.is_none() {
            self.origin = None;
        }
        let from = follower.as_ref().map_or(first, Follower::position);
        let follower = follower.or_else(|| {
            let new = self.beginning.at_once(conditions, first, device)?;
            self.origin = Some(new.clone());
            Some(new)
        });
        match follower {
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
        let (beginning, origin) = (self.beginning, self.origin.clone());
        let passes = if follower.is_some() { 1 } else { beginning.passes() };
        self.job = self.follow(excerpt, passes, move |excerpt, count| {
            let mut follower = follower.or_else(|| beginning.read(&conditions, excerpt, device, count))?;
            let origin = origin.unwrap_or_else(|| follower.clone());
            excerpt.each(|_, event| {
                follower.apply(event);
                count()
            });
            Some(CatchUpResult::End { origin: Box::new(origin), follower: Box::new(follower) })
        });
    }

    /// Follows to the cursor if it looks back.
    pub fn look_back(&mut self, timeline: &mut Timeline, cursor: Cursor) {
        let Cursor::At(position) = cursor else {
            (self.back, self.seeking) = (None, None);
            return;
        };
        if self.wanted.is_none() || self.job.is_some() || self.seeking.is_some() {
            return;
        }
        if let Some(back) = &mut self.back
            && back.go(timeline, position)
        {
            return;
        }
        let known = |origin: &&Follower| (timeline.first()..=position).contains(&origin.position());
        let Some(origin) = self.origin.as_ref().filter(known).cloned() else {
            self.back = None;
            return;
        };
        if let Some(excerpt) = timeline.excerpt(origin.position()..position) {
            self.seeking = self.follow(excerpt, 1, move |excerpt, count| {
                Some(CatchUpResult::Back(Box::new(LookedBack::from(origin, excerpt, count))))
            });
        }
    }

    /// Follows events on a thread of its own. Without a thread there is no ghost; the screen says that it is still to come.
    fn follow(
        &self,
        excerpt: Excerpt,
        passes: u64,
        come: impl FnOnce(&Excerpt, &mut dyn FnMut() -> bool) -> Option<CatchUpResult> + Send + 'static,
    ) -> Option<GhostJob> {
        let (stop, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let Range { start, end } = excerpt.range();
        let job = GhostJob { stop: Arc::clone(&stop), read: Arc::clone(&read), of: passes * (end - start) };
        let (finished, number) = (self.finished.0.clone(), self.number);
        let follow = move || {
            let mut unread = 0;
            let mut count = || {
                unread += 1;
                if unread == NEAR {
                    read.fetch_add(std::mem::take(&mut unread), Ordering::Relaxed);
                }
                !stop.load(Ordering::Relaxed)
            };
            let came = come(&excerpt, &mut count);
            if let Some(came) = came.filter(|_| !stop.load(Ordering::Relaxed)) {
                // The receiver may be gone.
                drop(finished.send(CaughtUpGhost { number, came }));
            }
        };
        thread::Builder::new().name("ghost".to_owned()).spawn(follow).ok().map(|_| job)
    }

    /// The ghost's picture at the cursor, with the run's own history and its segments after `position` events.
    pub fn picture(
        &mut self,
        cursor: Cursor,
        own: &History,
        segments: &[SegmentView],
        position: u64,
    ) -> Option<Arc<Ghost>> {
        let conditions = Arc::clone(self.wanted.as_ref()?);
        let (catching_up, seeking) =
            (self.job.as_ref().map(GhostJob::share), self.seeking.as_ref().map(GhostJob::share));
        let Some(follower) = &self.follower else {
            return Some(Arc::new(Ghost {
                conditions,
                since: 0,
                starting: Default::default(),
                figures: None,
                step: None,
                ended: false,
                occupancy: None,
                history: Arc::default(),
                catching_up: catching_up.or(Some(0.0)),
                seeking,
            }));
        };
        let (here, at) = match cursor {
            Cursor::Now => (Some(follower), position),
            Cursor::At(at) => (self.back.as_ref().map(LookedBack::follower), at),
        };
        let here = here.filter(|follower| follower.position() == at);
        let occupancy = here.map(|follower| match &self.stood {
            Some((of, stood)) if *of == (self.number, at) => Arc::clone(stood),
            _ => Arc::new(follower.occupancy(segments)),
        });
        let history = follower.history();
        let around = |history: &History| match cursor {
            Cursor::Now => history.latest(),
            Cursor::At(position) => history.around(position),
        };
        let step = around(history).zip(around(own)).filter(|(ghost, own)| ghost.position == own.position);
        let ghost = Ghost {
            conditions,
            since: follower.since(),
            starting: follower.starting(),
            figures: Some(follower.figures()),
            ended: step.is_some_and(|(step, _)| !history.is_under_way(&step)),
            step,
            occupancy: occupancy.clone(),
            history: Arc::new(history.clone()),
            catching_up,
            seeking,
        };
        self.stood = occupancy.map(|occupancy| ((self.number, at), occupancy));
        Some(Arc::new(ghost))
    }
}
