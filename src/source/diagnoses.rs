//! What a run suffers from, found out by reading it again on a thread of its own: which lines leak, and which remedies would
//! gain something. Each is tried before it is shown.

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

/// Steps after a flip before anything is looked for.
const STEPS: u64 = 6;
/// Events of a history without steps before anything is looked for.
const EVENTS: u64 = 1 << 12;
/// Of longer runs no settings are tried: what they asked would take too much room.
const TRIED: u64 = 1 << 21;
/// The same of a run that goes on.
const TRIED_LIVE: u64 = 1 << 20;

/// A limit that refused a request and that nobody tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntoldLimit {
    /// The least that it can have been.
    pub least: Bytes,
    /// A change with which the requests that failed would have been served, and the smallest limit for that; only where nothing does
    /// under the least.
    pub fits_from: Option<(Remedy, Bytes)>,
}

/// What was found out, and of what.
#[derive(Debug)]
pub(super) struct Diagnoses {
    last: Option<Arc<Diagnosis>>,
    untold_limit: Option<Arc<UntoldLimit>>,
    of: Option<DiagnosedPart>,
    stop: Option<Stop>,
    finished: (mpsc::UnboundedSender<PartDiagnosis>, mpsc::UnboundedReceiver<PartDiagnosis>),
}

/// The part of a run that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DiagnosedPart {
    device: DeviceIndex,
    /// Events before the last flip: what is wrong since then is wrong now.
    since: u64,
    end: u64,
    /// Nothing more will come.
    whole: bool,
}

/// What was found out of a part.
#[derive(Debug)]
pub(super) struct PartDiagnosis {
    of: DiagnosedPart,
    diagnosis: Diagnosis,
    untold_limit: Option<UntoldLimit>,
}

/// Stops the search when dropped.
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

    /// What was found out last of what is so still.
    pub fn last(&self) -> Option<Arc<Diagnosis>> {
        self.last.clone()
    }

    /// What is known of a limit that nobody tells, where one refused a request.
    pub fn untold_limit(&self) -> Option<Arc<UntoldLimit>> {
        self.untold_limit.clone()
    }

    /// The next that is found out.
    pub async fn next(&mut self) -> PartDiagnosis {
        match self.finished.1.recv().await {
            Some(found) => found,
            // Never: a sender is kept beside it.
            None => std::future::pending().await,
        }
    }

    /// Takes it.
    pub fn take(&mut self, found: PartDiagnosis) {
        if self.of == Some(found.of) {
            self.stop = None;
            self.last = Some(Arc::new(found.diagnosis));
            self.untold_limit = found.untold_limit.map(Arc::new);
        }
    }

    /// Looks again where enough is new: of a run that goes on whenever it is twice as long since the last flip, of one that has
    /// ended once.
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
            // The first whole step under the switches in force, behind the one that takes the cache for them.
            fork: grows.then(|| finished.saturating_sub(3).max(step + 1)),
            failed: lab.memory().traffic().ooms > 0,
            tries: first == 0 && end <= if grows { TRIED_LIVE } else { TRIED },
        };
        if let Some(excerpt) = timeline.excerpt(first..end) {
            self.start(excerpt, run);
        }
    }

    /// Without a thread nothing is found out, and nothing is advised.
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

/// A run to look at.
struct ExaminedRun {
    of: DiagnosedPart,
    names: Names,
    /// The step from which remedies are tried, of a run that goes on: they are put in force where it is, not where it began.
    fork: Option<u64>,
    /// Requests failed.
    failed: bool,
    /// All that it asked is known, and not too much to try settings on.
    tries: bool,
}

impl ExaminedRun {
    /// `None` if it was stopped.
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

    /// Expandable segments, beside what is in force: from where a run is, or from the first event of one that has ended.
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
                // What fails serves less, and holds less.
                let gain = Gain { from: own.peak_reserved, to: other.peak_reserved, trial: Trial::Replayed };
                (other.ooms <= own.ooms).then_some(gain)?
            }
        };
        Some((Remedy::settings(text), gain))
    }

    /// What is known of a limit that nobody tells, and that nothing serves at its lowest: what would, from which limit on.
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

    /// What serves the requests that failed, of a run that has ended.
    fn try_for_failures(&self, recorded: &RecordedRun) -> Option<Arc<[RemedyTrial]>> {
        if !self.failed || !self.of.whole {
            return None;
        }
        let torch = recorded.facts.conditions.settings.torch();
        let tuning = Tuning::of(recorded, None, Effort::Short, torch, &|_, _| {}).ok()?;
        let mut remedied = tuning.remedied();
        if recorded.facts.unknown_limit.is_some() {
            // Tried at the lowest that it can be: what fails there may fit.
            remedied.retain(|tried| tried.fits);
            if remedied.is_empty() {
                return None;
            }
        }
        Some(remedied.into())
    }
}
