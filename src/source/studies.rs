//! Studies of parts of a run, made on another thread while the keeper goes on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::picture::Cursor;
use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{Event, EventKind, Grouping, Lab, RunState, Study};
use vramlab_recording::{Direction, Excerpt, Timeline};

/// How often a live run is studied.
const AGAIN: Duration = Duration::from_millis(1000);
/// After a study, a run that goes on is left alone for this many times the study's duration.
const REST: u32 = 8;
/// How often a long study reports progress.
pub(super) const PROGRESS: Duration = Duration::from_millis(100);
/// How many events ahead the end of a step is searched for.
const LONGEST_STEP: u64 = 4_000_000;

/// The study that a front end wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StudyRequest {
    /// The events to study.
    pub window: Window,
    /// The property by which memory is grouped.
    pub grouping: Grouping,
}

/// The events to study.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// The step around the cursor; for a live lab the last whole step.
    #[default]
    Step,
    /// Everything that is kept.
    Run,
    /// The events between two positions.
    Range(u64, u64),
}

/// The study for a front end, and what is known so far.
#[derive(Debug)]
pub(super) struct Studies {
    wanted: Option<StudyRequest>,
    /// The events and the grouping of the last study, or of the current one.
    of: Option<(Range<u64>, Grouping)>,
    began: Instant,
    /// How long the last study took.
    took: Duration,
    job: Option<StudyJob>,
    done: Option<Arc<Study>>,
    finished: (mpsc::UnboundedSender<Study>, mpsc::UnboundedReceiver<Study>),
}

/// A study in progress.
#[derive(Debug)]
struct StudyJob {
    /// Set once the result is no longer needed.
    stop: Arc<AtomicBool>,
    /// The number of events read so far, and the total; each is read twice.
    read: Arc<AtomicU64>,
    of: u64,
}

impl Drop for StudyJob {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Studies {
    pub fn new() -> Self {
        Self {
            wanted: None,
            of: None,
            began: Instant::now(),
            took: Duration::ZERO,
            job: None,
            done: None,
            finished: mpsc::unbounded_channel(),
        }
    }

    /// True while a study is in progress.
    pub const fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// The last study.
    pub fn last(&self) -> Option<Arc<Study>> {
        self.done.clone()
    }

    /// The progress of the current study, from 0 to 1; `None` if there is none.
    pub fn progress(&self) -> Option<f64> {
        let job = self.job.as_ref()?;
        Some(job.read.load(Ordering::Relaxed) as f64 / job.of.max(1) as f64)
    }

    /// The next finished study.
    pub async fn next(&mut self) -> Study {
        match self.finished.1.recv().await {
            Some(study) => study,
            // Can't happen: a sender is kept here.
            None => std::future::pending().await,
        }
    }

    /// Stores a study.
    pub fn take(&mut self, study: Study) {
        let expected = self.of.as_ref().is_some_and(|(range, grouping)| {
            (range.start, range.end, *grouping) == (study.begin, study.end, study.grouping)
        });
        if expected {
            self.job = None;
            self.took = self.began.elapsed();
            self.done = Some(Arc::new(study));
        }
    }

    /// Requests another study, or none.
    pub fn want(&mut self, wanted: Option<StudyRequest>) {
        if self.wanted != wanted {
            self.wanted = wanted;
            (self.job, self.of) = (None, None);
        }
        if wanted.is_none() {
            self.done = None;
        }
    }

    /// Drops the last study, because it is not about what is shown now.
    pub fn begin_anew(&mut self) {
        (self.of, self.job, self.done) = (None, None, None);
    }

    /// True if the wanted study of the step around a position is there, or no study is wanted.
    pub fn has(&self, position: u64) -> bool {
        let of_step = self.wanted.is_some_and(|wanted| wanted.window == Window::Step);
        let found =
            |(range, _): &(Range<u64>, Grouping)| self.job.is_none() && (range.start..=range.end).contains(&position);
        !of_step || self.of.as_ref().is_none_or(found)
    }

    /// Begins the wanted study around a cursor, unless it is there or in progress. The cursor `goes_on` with the run or
    /// was moved there.
    pub fn begin(&mut self, timeline: &mut Timeline, device: DeviceIndex, cursor: Cursor, goes_on: bool) {
        let Some(wanted) = self.wanted else { return };
        // In a run that goes on new studies are made only from time to time; in one that stands, at once.
        let running = timeline.now().lab(device).is_some_and(|lab| *lab.run() == RunState::Running);
        if goes_on
            && running
            && self.of.is_some()
            && (self.job.is_some() || self.began.elapsed() < AGAIN.max(self.took * REST))
        {
            return;
        }
        let range = match (cursor, wanted.window) {
            (_, Window::Range(begin, end)) => begin..end,
            (_, Window::Run) => timeline.first()..timeline.end(),
            (Cursor::Now, Window::Step) => {
                let range = step_now(timeline, device);
                up_to_failure(timeline, device, range, 0)
            }
            (Cursor::At(position), Window::Step) => {
                let range = self.step_around(timeline, device, position);
                up_to_failure(timeline, device, range, position)
            }
        };
        let key = (range.start.max(timeline.first())..range.end.min(timeline.end()), wanted.grouping);
        if self.of.as_ref() == Some(&key) {
            return;
        }
        self.began = Instant::now();
        let Some(excerpt) = timeline.excerpt(key.0.clone()) else {
            (self.of, self.job, self.done) = (None, None, None);
            return;
        };
        self.of = Some(key);
        self.job = self.start(excerpt, device, wanted.grouping);
    }

    /// The step around a position, taken from the last study if it contains the position.
    fn step_around(&self, timeline: &mut Timeline, device: DeviceIndex, position: u64) -> Range<u64> {
        if let (Some((range, _)), Some(done)) = (&self.of, &self.done)
            && range.contains(&position.saturating_sub(1))
            && done.steps.len() == 1
            && range.end < timeline.end()
        {
            return range.clone();
        }
        step_around(timeline, device, position)
    }

    fn start(&self, excerpt: Excerpt, device: DeviceIndex, grouping: Grouping) -> Option<StudyJob> {
        let (stop, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let range = excerpt.range();
        let job = StudyJob { stop: Arc::clone(&stop), read: Arc::clone(&read), of: 2 * (range.end - range.start) };
        let finished = self.finished.0.clone();
        let study = move || {
            let nothing = Lab::new();
            let before = excerpt.before().lab(device).unwrap_or(&nothing);
            let study = Study::of(range.clone(), before.memory(), before.names(), grouping, |each| {
                let mut count = 0_u64;
                excerpt.each(|position, event| {
                    if event.device == device {
                        each(position, event);
                    }
                    count += 1;
                    if count.is_multiple_of(4096) {
                        read.fetch_add(4096, Ordering::Relaxed);
                    }
                    !stop.load(Ordering::Relaxed)
                });
            });
            if !stop.load(Ordering::Relaxed) {
                // The receiver may be gone.
                drop(finished.send(study));
            }
        };
        // Without a thread there is no study; the screen says that it has none.
        thread::Builder::new().name("study".to_owned()).spawn(study).ok().map(|_| job)
    }
}

/// The last whole step of a running lab; the current step of a lab that stands, or before the first step has ended.
fn step_now(timeline: &mut Timeline, device: DeviceIndex) -> Range<u64> {
    let end = timeline.end();
    let Some(lab) = timeline.now().lab(device) else { return 0..0 };
    let under_way = lab.profile_under_way().filter(|profile| profile.events > 0).map(|profile| profile.position);
    let last = lab.last_profile().map(|profile| profile.position);
    match (under_way, last) {
        (Some(begin), _) if *lab.run() != RunState::Running || last.is_none() => begin.saturating_sub(1)..end,
        (_, Some(begin)) => begin.saturating_sub(1)..step_end(timeline, device, begin),
        (_, None) => end..end,
    }
}

/// The step around a position, its begin and its end.
pub(super) fn step_around(timeline: &mut Timeline, device: DeviceIndex, position: u64) -> Range<u64> {
    let begins = |event: &Event| event.device == device && matches!(event.kind, EventKind::StepBegin { .. });
    let begin = timeline.find(position, Direction::Backward, begins).unwrap_or_else(|| timeline.first());
    begin..step_end(timeline, device, begin + 1)
}

/// A step that a failed request stopped ends with the failure; after it only cleanup follows. But a `position` that is
/// looked at is always included.
fn up_to_failure(timeline: &mut Timeline, device: DeviceIndex, range: Range<u64>, position: u64) -> Range<u64> {
    if range.end < timeline.end() || timeline.now().lab(device).is_none_or(|lab| lab.autopsy().is_none()) {
        return range;
    }
    let fails = |event: &Event| event.device == device && matches!(event.kind, EventKind::Oom(_));
    let failed = timeline.find(range.end, Direction::Backward, fails).map(|index| index + 1);
    match failed.filter(|end| range.contains(end) && position <= *end) {
        Some(end) => range.start..end,
        None => range,
    }
}

/// The position after the end of the step that began before `from`.
fn step_end(timeline: &mut Timeline, device: DeviceIndex, from: u64) -> u64 {
    let mut looked = 0;
    let ends = |event: &Event| {
        looked += 1;
        looked > LONGEST_STEP
            || event.device == device && matches!(event.kind, EventKind::StepEnd(_) | EventKind::StepBegin { .. })
    };
    timeline.find(from, Direction::Forward, ends).map_or_else(|| timeline.end(), |index| index + 1)
}
