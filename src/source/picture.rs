//! Everything that a front end needs for one frame.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use super::diagnoses::UntoldLimit;
use super::ghost::Ghost;
use super::listings::Listing;
use super::rank_figures::RankFigures;
use super::reading::{FileProgress, ReadingStage};
use vramlab_allocator::DeviceMemory;
use vramlab_allocator::units::Bytes;
use vramlab_model::{
    Autopsy, Configuration, Diagnosis, Effect, Finding, History, Level, Micros, Occupancy, Profile, RunSettings,
    RunState, Study, View,
};

/// A source at its cursor.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// What is known at the cursor, and nothing from after it.
    pub view: Arc<View>,
    /// The peaks and floors of all known steps, before and after the cursor.
    pub history: Arc<History>,
    /// All known configurations of the run, before and after the cursor.
    pub configurations: Arc<[Arc<Configuration>]>,
    /// All measured effects that are kept, before and after the cursor.
    pub effects: Arc<[Arc<Effect>]>,
    /// The moment whose memory is shown while the cursor has not been moved, unless it is the end.
    pub marked: Option<MarkedMoment>,
    /// The step that others are compared with.
    pub pinned: Option<Arc<PinnedStep>>,
    /// The curve of the step around the cursor, including what follows the cursor if known.
    pub step: Option<Arc<Profile>>,
    /// The findings at the end of that step; `None` if the cursor is not in a step that has ended.
    pub concluded: Option<Arc<[Finding]>>,
    /// The cursor.
    pub cursor: Cursor,
    /// The range of positions that can be asked for.
    pub extent: Extent,
    /// The speed at which the cursor moves by itself; `None` if it does not.
    pub playing: Option<f64>,
    /// The run's state at its end, wherever the cursor is.
    pub run: RunState,
    /// The switches at the run's end, wherever the cursor is.
    pub settings: Arc<RunSettings>,
    /// What kind of source it is.
    pub kind: SourceKind,
    /// The device that is shown.
    pub device: ShownDevice,
    /// The ranks that train together at the cursor, one entry for those that do the same work; empty for a run without ranks.
    pub ranks: Arc<[RankFigures]>,
    /// The recording that is being written.
    pub recording: Option<RecordingState>,
    /// The study of the part that a screen asked for.
    pub study: Option<Arc<Study>>,
    /// The source file that a screen asked for.
    pub listing: Option<Arc<Listing>>,
    /// The progress of the current study, from 0 to 1.
    pub studying: Option<f64>,
    /// The number of requests that the keeper had obeyed before it made the picture.
    pub answered: u64,
    /// The diagnosis so far, from reading the run again.
    pub diagnosis: Option<Arc<Diagnosis>>,
    /// What is known of an unrecorded limit that refused a request.
    pub untold_limit: Option<Arc<UntoldLimit>>,
    /// Another allocator that follows the run.
    pub ghost: Option<Arc<Ghost>>,
    /// The device's memory, and how much was free before the run, if known.
    pub memory: Option<DeviceMemory>,
    /// The last message of the source itself, and the number of its messages so far. Messages recorded in a file don't count.
    pub said: Option<(u64, Arc<str>)>,
    /// The progress of the file while its history is incomplete. The picture then shows the end.
    pub reading: Option<FileProgress>,
}

/// The moment whose memory is shown while the cursor has not been moved.
#[derive(Clone, Debug)]
pub struct MarkedMoment {
    /// The kind of moment.
    pub moment: Moment,
    /// What was known at the moment.
    pub view: Arc<View>,
    /// The curve of the whole step that contains it.
    pub step: Option<Arc<Profile>>,
    /// The ghost's memory at the moment.
    pub ghost: Option<Arc<Occupancy>>,
}

/// A step that others are compared with.
#[derive(Clone, Debug)]
pub struct PinnedStep {
    /// Memory at its peak.
    pub view: Arc<View>,
    /// Its curve.
    pub step: Arc<Profile>,
    /// The study of its ops; `None` until it is finished.
    pub study: Option<Arc<Study>>,
}

/// The moment whose memory is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// The end of what is known.
    #[default]
    Now,
    /// The cursor's position.
    Cursor,
    /// The allocated peak of the last whole step, in a run that goes on.
    StepPeak,
    /// The allocated peak of a run that has ended.
    RunPeak,
    /// The failure of a run that ended because it ran out of memory.
    Failure,
}

/// The position of a cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cursor {
    /// At the end of what is known, following it.
    #[default]
    Now,
    /// After this many events.
    At(u64),
}

/// The extent of what is known of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first position that can be asked for.
    pub first: u64,
    /// The number of events.
    pub end: u64,
    /// Steps finished.
    pub steps: u64,
    /// Time of the last event.
    pub time: Micros,
    /// True if more may come.
    pub grows: bool,
}

/// The device that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShownDevice {
    /// Its index, from 0.
    pub place: usize,
    /// The number of devices on which something happened.
    pub of: usize,
}

/// What kind of source it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// A lab in this process.
    #[default]
    Live,
    /// A file of events, complete or still being written, with its name.
    Recording(Arc<str>),
    /// A PyTorch snapshot, with its name.
    Snapshot(Arc<str>),
    /// A PyTorch program that is running, with its name.
    Watched(Arc<str>),
}

/// A recording that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingState {
    /// Its path.
    pub path: PathBuf,
    /// The number of bytes so far.
    pub bytes: Bytes,
}

/// An ability that a source may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Flip switches, empty the cache.
    Flip,
    /// Pause and step the run.
    Run,
    /// Move the cursor.
    Seek,
    /// Write a recording.
    Record,
}

impl Picture {
    /// The picture of a source of which nothing is known yet.
    pub(super) fn before(kind: SourceKind, memory: Option<DeviceMemory>) -> Self {
        Self { kind, memory, extent: Extent { grows: true, ..Extent::default() }, ..Self::default() }
    }

    /// Whether the source has an ability.
    ///
    /// # Errors
    /// Why it has not, in a few words.
    pub fn can(&self, ability: Ability) -> Result<(), &'static str> {
        if let (Ability::Seek, Some(reading)) = (ability, &self.reading) {
            return Err(match reading.doing {
                ReadingStage::Failed => "the file is damaged: its history can't be read",
                _ => "the history is still being read: this is its end",
            });
        }
        if ability == Ability::Seek
            && matches!(self.kind, SourceKind::Watched(_))
            && self.view.about.workload.is_empty()
        {
            return Err("the program has not used a GPU yet");
        }
        match (ability, &self.kind) {
            (Ability::Seek, _) | (_, SourceKind::Live) => Ok(()),
            (Ability::Flip, SourceKind::Recording(_)) => Err("a recording can't be changed"),
            (Ability::Flip, SourceKind::Snapshot(_)) => Err("a snapshot can't be changed"),
            (Ability::Flip, SourceKind::Watched(_)) => Err("vramlab only watches this program: it can't change it"),
            (Ability::Run, SourceKind::Watched(_)) => Err("the program runs by itself: only what it did can be played"),
            (Ability::Record, SourceKind::Watched(_)) => Ok(()),
            (Ability::Run, _) => Err("nothing runs here: it can only be played"),
            (Ability::Record, _) => Err("this is a recording already"),
        }
    }

    /// The findings, the most important first: those of the moment shown, those of the whole run if it has ended, and
    /// those from reading the run again.
    #[must_use]
    pub fn findings(&self) -> Cow<'_, [Finding]> {
        let known = if self.view.run == RunState::Finished { &self.view } else { self.known() };
        let findings = self.concluded.as_deref().unwrap_or(&known.findings);
        let mut all: Cow<'_, [Finding]> = match &self.diagnosis {
            Some(diagnosis) => diagnosis.amended(findings, &known.settings).into(),
            None => findings.into(),
        };
        for finding in RankFigures::findings(&self.ranks) {
            let louder = all.iter().take_while(|other| other.level > finding.level).count();
            all.to_mut().insert(louder, finding);
        }
        // Below a failure, findings with remedies come first: an important finding without a remedy comes after a minor
        // one with one.
        let offers = |finding: &Finding| (finding.level == Level::Danger, !finding.remedies.is_empty());
        if !all.is_sorted_by_key(|finding| std::cmp::Reverse(offers(finding))) {
            all.to_mut().sort_by_key(|finding| std::cmp::Reverse(offers(finding)));
        }
        all
    }

    /// Why the last request at the cursor failed, with the remedies for it that are known.
    #[must_use]
    pub fn autopsy(&self) -> Option<Cow<'_, Autopsy>> {
        let autopsy = self.view.autopsy.as_deref()?;
        let remedied = self.diagnosis.as_ref().and_then(|diagnosis| diagnosis.remedied.as_ref());
        Some(match remedied.filter(|_| !autopsy.tried) {
            Some(remedied) => Cow::Owned(Autopsy { remedied: Arc::clone(remedied), tried: true, ..autopsy.clone() }),
            None => Cow::Borrowed(autopsy),
        })
    }

    /// True if a live lab in this process is behind it.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.kind, SourceKind::Live)
    }

    /// The switches: for a live lab the current ones, which keys act on; otherwise those at the moment shown.
    #[must_use]
    pub fn switches(&self) -> &RunSettings {
        if self.is_live() { &self.settings } else { &self.known().settings }
    }

    /// What is known of the run: for a live lab everything, or what was known at the cursor; otherwise what was known
    /// at the moment shown.
    #[must_use]
    pub fn known(&self) -> &View {
        if self.is_live() { &self.view } else { self.shown() }
    }

    /// The curve for "this step": the whole step around the cursor or the mark; otherwise the last whole step, or the
    /// current one before the first has ended.
    #[must_use]
    pub fn shown_step(&self) -> Option<&Profile> {
        let profiles = &self.view.profiles;
        let under_way = Some(&profiles.under_way).filter(|profile| profile.events > 0);
        let marked = self.marked.as_ref().and_then(|marked| marked.step.as_ref());
        self.step.as_ref().or(marked).or(profiles.last.as_ref()).or(under_way).map(|profile| &**profile)
    }

    /// The last effect that had begun at the moment shown, with everything known of it by now: a recording has the result.
    #[must_use]
    pub fn effect(&self) -> Option<&Effect> {
        let last = self.known().effects.last()?;
        let known = self.effects.iter().find(|known| known.position == last.position);
        Some(known.unwrap_or(last))
    }

    /// The memory that every screen shows: at the cursor if it was moved, otherwise at the mark, otherwise now.
    #[must_use]
    pub fn shown(&self) -> &View {
        self.marked.as_ref().map_or(&self.view, |marked| &marked.view)
    }

    /// The ghost's memory at that moment; `None` without a ghost, or if it has not got there.
    #[must_use]
    pub fn shown_ghost(&self) -> Option<&Occupancy> {
        let ghost = self.ghost.as_ref()?;
        match &self.marked {
            Some(marked) => marked.ghost.as_deref(),
            None => ghost.occupancy.as_deref(),
        }
    }

    /// The kind of that moment.
    #[must_use]
    pub fn moment(&self) -> Moment {
        match (&self.marked, self.cursor) {
            (Some(marked), _) => marked.moment,
            (None, Cursor::Now) => Moment::Now,
            (None, Cursor::At(_)) => Moment::Cursor,
        }
    }

    /// The number of events before that moment; all events if it is the end.
    #[must_use]
    pub fn place(&self) -> u64 {
        match (self.moment(), self.cursor) {
            (Moment::Now, _) => self.extent.end,
            (Moment::Cursor, Cursor::At(position)) => position,
            _ => self.shown().position,
        }
    }

    /// True if more events happen while the picture is shown, and appear at once.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.is_now() && self.run == RunState::Running && (self.is_live() || self.extent.grows)
    }

    /// True while the picture shows the end.
    #[must_use]
    pub fn is_now(&self) -> bool {
        self.cursor == Cursor::Now
    }
}
