//! What is wrong with a run, found by reading it again on another thread: lines that leak, and remedies with a gain.
//! Each remedy is tried before it is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::sync::mpsc;

use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_model::{
    Diagnosis, Gain, LeakFinder, MarkKind, MemoryModel, Names, Remedy, RemedyTrial, RhythmFinder, Trial,
};
use vramlab_recording::{Excerpt, Timeline};
use vramlab_whatif::{Effort, Places, RecordedRun, RecordedWriter, Tuning, smallest_limit};

/// How many steps must follow a flip before a diagnosis begins.
const STEPS: u64 = 6;
/// How many events a history without steps needs before a diagnosis begins.
const EVENTS: u64 = 1 << 12;
/// Longer runs get no trials of settings, because their requests would take too much memory.
const TRIED: u64 = 1 << 21;
/// The same for a run that goes on.
const TRIED_LIVE: u64 = 1 << 20;

/// An unrecorded limit that refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntoldLimit {
    /// The lowest value that it can have been.
    pub least: Bytes,
    /// A change that would have served the failed requests, and the smallest limit under which it does. Only set if
    /// nothing helps at the lowest possible limit.
    pub fits_from: Option<(Remedy, Bytes)>,
}

/// The diagnosis so far, and the part of the run that it is about.
#[derive(Debug)]
pub(super) struct Diagnoses {
    last: Option<Arc<Diagnosis>>,
    untold_limit: Option<Arc<UntoldLimit>>,
    of: Option<DiagnosedPart>,
    stop: Option<Stop>,
    finished: (mpsc::UnboundedSender<PartDiagnosis>, mpsc::UnboundedReceiver<PartDiagnosis>),
}

/// The part of a run that was examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DiagnosedPart {
    device: DeviceIndex,
    /// The number of events before the last flip: only what has been wrong since then is still wrong.
    since: u64,
    end: u64,
    /// True if nothing more will come.
    whole: bool,
}

/// The diagnosis of a part.
#[derive(Debug)]
pub(super) struct PartDiagnosis {
    of: DiagnosedPart,
    diagnosis: Diagnosis,
    untold_limit: Option<UntoldLimit>,
}

/// Stops the search when it is dropped.
#[derive(Debug)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Diagnoses {
    pub fn new() -> Self {
        Self { last: None, untold_limit: None, of: None, stop: None, finished: mpsc::unbounded_channel() }
    }

    /// The last diagnosis, if it still applies.
    pub fn last(&self) -> Option<Arc<Diagnosis>> {
        self.last.clone()
    }

    /// What is known of an unrecorded limit that refused a request.
    pub fn untold_limit(&self) -> Option<Arc<UntoldLimit>> {
        self.untold_limit.clone()
    }

    /// The next diagnosis.
    pub async fn next(&mut self) -> PartDiagnosis {
        match self.finished.1.recv().await {
            Some(found) => found,
            // Can't happen: a sender is kept here.
            None => std::future::pending().await,
        }
    }

    /// Stores a diagnosis.
    pub fn take(&mut self, found: PartDiagnosis) {
        if self.of == Some(found.of) {
            self.stop = None;
            self.last = Some(Arc::new(found.diagnosis));
            self.untold_limit = found.untold_limit.map(Arc::new);
        }
    }

    /// Begins a diagnosis if enough is new: a run that goes on is examined whenever it has doubled in length since the
    /// last flip, a run that has ended once.
    pub fn begin(&mut self, timeline: &mut Timeline, device: DeviceIndex, grows: bool) {
        let (first, end) = (timeline.first(), timeline.end());
        let Some(lab) = timeline.now().lab(device) else { return };
        let flipped = lab.history().marks().rev().find(|mark| matches!(mark.kind, MarkKind::Flip { .. }));
        let (since, step) = flipped.map_or((first, 0), |mark| (mark.position.max(first), mark.step));
        let finished = lab.finished();
        let of = DiagnosedPart { device, since, end, whole: !grows };
        if self.of.is_some_and(|known| (known.device, known.since) != (device, since)) {
            (self.last, self.untold_limit, self.of, self.stop) = (None, None, None, None);
        }
        let enough = if finished == 0 { end - first >= EVENTS } else { finished >= step + STEPS };
        let due = match self.of {
            None => enough || !grows,
            Some(known) if grows => self.stop.is_none() && end - since >= 2 * (known.end - since),
            Some(known) => known != of,
        };
        if !due {
            return;
        }
        let run = ExaminedRun {
            of,
            names: lab.names().clone(),
            // The first whole step under the current switches, after the one that fills the cache for them.
            fork: grows.then(|| finished.saturating_sub(3).max(step + 1)),
            failed: lab.memory().traffic().ooms > 0,
            tries: first == 0 && end <= if grows { TRIED_LIVE } else { TRIED },
        };
        if let Some(excerpt) = timeline.excerpt(first..end) {
            self.start(excerpt, run);
        }
    }

    /// Starts the thread. Without a thread nothing is diagnosed or advised.
    fn start(&mut self, excerpt: Excerpt, run: ExaminedRun) {
        let stopped = Arc::new(AtomicBool::new(false));
        let (stop, finished, of) = (Arc::clone(&stopped), self.finished.0.clone(), run.of);
        let look = move || {
            if let Some((diagnosis, untold_limit)) = run.diagnose(&excerpt, &stop) {
                // The receiver may be gone.
                drop(finished.send(PartDiagnosis { of, diagnosis, untold_limit }));
            }
        };
        if thread::Builder::new().name("diagnosis".to_owned()).spawn(look).is_ok() {
            (self.of, self.stop) = (Some(of), Some(Stop(stopped)));
        }
    }
}

/// A run to examine.
struct ExaminedRun {
    of: DiagnosedPart,
    names: Names,
    /// The step from which remedies are tried in a run that goes on, because they would be put in force now and not at
    /// the beginning.
    fork: Option<u64>,
    /// True if requests failed.
    failed: bool,
    /// True if all requests of the run are known, and are few enough for trials of settings.
    tries: bool,
}

impl ExaminedRun {
    /// Examines the run; `None` if it was stopped.
    fn diagnose(&self, excerpt: &Excerpt, stop: &AtomicBool) -> Option<(Diagnosis, Option<UntoldLimit>)> {
        let goes_on = || !stop.load(Ordering::Relaxed);
        let (device, since) = (self.of.device, self.of.since);
        let before = excerpt.before().lab(device);
        let mut memory = before.map_or_else(MemoryModel::new, |lab| lab.memory().clone());
        let mut rhythm = RhythmFinder::default();
        let mut writer = self.tries.then(|| RecordedWriter::new(device, Places::default()));
        excerpt.each(|index, event| {
            if let Some(writer) = &mut writer {
                writer.push(event);
            }
            if event.device == device {
                if index >= since {
                    rhythm.observe(event, memory.allocated());
                }
                // Contradictions are reported where the events are drawn.
                let _ = memory.apply(event);
            }
            goes_on()
        });
        let (mut diagnosis, mut untold_limit) = (Diagnosis::default(), None);
        if let Some(rhythm) = rhythm.finish() {
            let mut finder = LeakFinder::new(rhythm);
            excerpt.each(|index, event| {
                if event.device == device && index >= since {
                    finder.observe(event, index, &self.names);
                }
                goes_on()
            });
            diagnosis.looked = finder.looked();
            diagnosis.leaks = finder.finish();
        }
        if let Some(recorded) = writer.filter(|_| goes_on()).and_then(|writer| writer.finish(None, None).ok()) {
            diagnosis.tried = self.try_settings(&recorded);
            diagnosis.remedied = self.try_for_failures(&recorded);
            if diagnosis.remedied.is_none() {
                untold_limit = self.try_limits(&recorded);
            }
        }
        goes_on().then_some((diagnosis, untold_limit))
    }

    /// Tries expandable segments in addition to the settings in force: from the current position, or from the first
    /// event of a run that has ended.
    fn try_settings(&self, recorded: &RecordedRun) -> Option<(Remedy, Gain)> {
        let text = recorded.facts.conditions.settings.with_expandable_segments()?;
        let gain = match self.fork {
            Some(step) => {
                let forked = recorded.program.forked(&recorded.facts.conditions, step, Some(&text))?;
                Gain { from: forked.emptied, to: forked.changed?, trial: Trial::Forked }
            }
            None => {
                let changed = recorded.under(&text).ok()?;
                let peak = |conditions| recorded.program.replay(conditions).figures;
                let (own, other) = (peak(&recorded.facts.conditions), peak(&changed));
                // Settings under which requests fail also hold less.
                let gain = Gain { from: own.peak_reserved, to: other.peak_reserved, trial: Trial::Replayed };
                (other.ooms <= own.ooms).then_some(gain)?
            }
        };
        Some((Remedy::settings(text), gain))
    }

    /// What is known of an unrecorded limit, if nothing serves the requests at its lowest possible value: the change
    /// that does, and from which limit on.
    fn try_limits(&self, recorded: &RecordedRun) -> Option<UntoldLimit> {
        let range = recorded.facts.unknown_limit.filter(|_| self.failed && self.of.whole)?;
        let torch = recorded.facts.conditions.settings.torch();
        let tuning = Tuning::of(recorded, Some(range.most()), Effort::Short, torch, &|_, _| {}).ok();
        let best = tuning.as_ref().and_then(|tuning| tuning.recommended(recorded));
        let fits_from = best.and_then(|best| {
            let limit = smallest_limit(&recorded.program, &best.conditions)?;
            Some((Remedy::settings(best.conditions.text().to_owned()), limit))
        });
        Some(UntoldLimit { least: range.least, fits_from })
    }

    /// Remedies for the requests that failed in a run that has ended.
    fn try_for_failures(&self, recorded: &RecordedRun) -> Option<Arc<[RemedyTrial]>> {
        if !self.failed || !self.of.whole {
            return None;
        }
        let torch = recorded.facts.conditions.settings.torch();
        let tuning = Tuning::of(recorded, None, Effort::Short, torch, &|_, _| {}).ok()?;
        let mut remedied = tuning.remedied();
        if recorded.facts.unknown_limit.is_some() {
            // Tried at the lowest possible limit: a remedy that fails there may still work.
            remedied.retain(|tried| tried.fits);
            if remedied.is_empty() {
                return None;
            }
        }
        Some(remedied.into())
    }
}
