//! Everything a front end needs for one frame.

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
    /// What is known at the cursor, and of nothing behind it.
    pub view: Arc<View>,
    /// Peaks and floor of every step that is known, before and behind the cursor.
    pub history: Arc<History>,
    /// Every configuration of the run that is known, before and behind the cursor.
    pub configurations: Arc<[Arc<Configuration>]>,
    /// Every measured effect that is kept, before and behind the cursor.
    pub effects: Arc<[Arc<Effect>]>,
    /// The moment that memory is shown of while the cursor has not been moved, unless that is the end.
    pub marked: Option<MarkedMoment>,
    /// The step that others are compared with.
    pub pinned: Option<Arc<PinnedStep>>,
    /// The curve of the step around the cursor, with what follows the cursor in it where that is known.
    pub step: Option<Arc<Profile>>,
    /// What was concluded when that step had ended; `None` where the cursor is in none that has.
    pub concluded: Option<Arc<[Finding]>>,
    /// Where the cursor is.
    pub cursor: Cursor,
    /// What can be asked for.
    pub extent: Extent,
    /// How fast the cursor goes on by itself, if it does.
    pub playing: Option<f64>,
    /// What the run is doing at its end, wherever the cursor is.
    pub run: RunState,
    /// How the switches stand at its end, wherever the cursor is.
    pub settings: Arc<RunSettings>,
    /// What kind of source it is.
    pub kind: SourceKind,
    /// Which of its devices it shows.
    pub device: ShownDevice,
    /// The ranks that train together at the cursor, those that do the same once; empty where a run has no ranks.
    pub ranks: Arc<[RankFigures]>,
    /// The file that is being written.
    pub recording: Option<RecordingState>,
    /// What was found out of the part that a screen wants studied.
    pub study: Option<Arc<Study>>,
    /// The file of source that a screen wants to show.
    pub listing: Option<Arc<Listing>>,
    /// How far the study under way is, from 0 to 1.
    pub studying: Option<f64>,
    /// Requests to its keeper that were obeyed before it was made.
    pub answered: u64,
    /// What reading the run again found out so far.
    pub diagnosis: Option<Arc<Diagnosis>>,
    /// What is known of a limit that refused a request and that nobody tells.
    pub untold_limit: Option<Arc<UntoldLimit>>,
    /// Another allocator that follows the run.
    pub ghost: Option<Arc<Ghost>>,
    /// What the device has, and how much of it was free before the run, where that is known.
    pub memory: Option<DeviceMemory>,
    /// What the source itself said last, and how often it has said something. What a file has recorded is not among it.
    pub said: Option<(u64, Arc<str>)>,
    /// How far the file is, while its history is not all there: the picture is that of its end.
    pub reading: Option<FileProgress>,
}

/// The moment that memory is shown of while the cursor has not been moved.
#[derive(Clone, Debug)]
pub struct MarkedMoment {
    /// Which one.
    pub moment: Moment,
    /// What was known then.
    pub view: Arc<View>,
    /// The curve of the whole step that it lies in.
    pub step: Option<Arc<Profile>>,
    /// Where the memory of a ghost stood then.
    pub ghost: Option<Arc<Occupancy>>,
}

/// A step that others are compared with.
#[derive(Clone, Debug)]
pub struct PinnedStep {
    /// Memory at its peak.
    pub view: Arc<View>,
    /// Its curve.
    pub step: Arc<Profile>,
    /// What its ops took; `None` until that is found.
    pub study: Option<Arc<Study>>,
}

/// Which moment memory is shown of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// The end of what is known.
    #[default]
    Now,
    /// Where the cursor is.
    Cursor,
    /// Where allocated was highest in the last whole step of a run that goes on.
    StepPeak,
    /// Where allocated was highest in a run that is over.
    RunPeak,
    /// Where a run that is over failed for want of memory.
    Failure,
}

/// Where a cursor is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cursor {
    /// At the end of what is known, wherever that goes.
    #[default]
    Now,
    /// Behind so many events.
    At(u64),
}

/// What is known of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first position that can be asked for.
    pub first: u64,
    /// Events in all.
    pub end: u64,
    /// Steps finished.
    pub steps: u64,
    /// Time of the last event.
    pub time: Micros,
    /// More may come.
    pub grows: bool,
}

/// Which device is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShownDevice {
    /// Its index, from 0.
    pub place: usize,
    /// Devices that something happened on.
    pub of: usize,
}

/// What kind of source it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// A lab that runs here.
    #[default]
    Live,
    /// A file of events, or one that is being written; its name.
    Recording(Arc<str>),
    /// A PyTorch snapshot; its name.
    Snapshot(Arc<str>),
    /// A PyTorch program that runs; its name.
    Watched(Arc<str>),
}

/// A file that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingState {
    /// Where.
    pub path: PathBuf,
    /// Bytes so far.
    pub bytes: Bytes,
}

/// Something that a source may be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Flip switches, empty the cache.
    Flip,
    /// Pause and step what runs.
    Run,
    /// Move the cursor.
    Seek,
    /// Write a recording.
    Record,
}

impl Picture {
    /// A source of which nothing is known yet.
    pub(super) fn before(kind: SourceKind, memory: Option<DeviceMemory>) -> Self {
        Self { kind, memory, extent: Extent { grows: true, ..Extent::default() }, ..Self::default() }
    }

    /// Whether the source can do something.
    ///
    /// # Errors
    /// Why not, in a few words.
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

    /// What is concluded, most important first: of the moment shown, of a run that has ended of all of it, and what reading the
    /// run again found out.
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
        // First what can be done something about: below a failure, a loud finding without a way out waits behind a quiet one with one.
        let offers = |finding: &Finding| (finding.level == Level::Danger, !finding.remedies.is_empty());
        if !all.is_sorted_by_key(|finding| std::cmp::Reverse(offers(finding))) {
            all.to_mut().sort_by_key(|finding| std::cmp::Reverse(offers(finding)));
        }
        all
    }

    /// Why the last request failed at the cursor, with what would have served it as far as that is known.
    #[must_use]
    pub fn autopsy(&self) -> Option<Cow<'_, Autopsy>> {
        let autopsy = self.view.autopsy.as_deref()?;
        let remedied = self.diagnosis.as_ref().and_then(|diagnosis| diagnosis.remedied.as_ref());
        Some(match remedied.filter(|_| !autopsy.tried) {
            Some(remedied) => Cow::Owned(Autopsy { remedied: Arc::clone(remedied), tried: true, ..autopsy.clone() }),
            None => Cow::Borrowed(autopsy),
        })
    }

    /// A lab that runs here stands behind it.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.kind, SourceKind::Live)
    }

    /// How the switches stand: of a lab that runs as keys find them, of what has happened as they were at the moment shown.
    #[must_use]
    pub fn switches(&self) -> &RunSettings {
        if self.is_live() { &self.settings } else { &self.known().settings }
    }

    /// What is known of the run: of a lab all of it, or what was at the cursor; of what has happened what was at the moment shown.
    #[must_use]
    pub fn known(&self) -> &View {
        if self.is_live() { &self.view } else { self.shown() }
    }

    /// The curve that "this step" shows: the whole step around the cursor or the mark; else the last whole one, or the one under
    /// way before the first ended.
    #[must_use]
    pub fn shown_step(&self) -> Option<&Profile> {
        let profiles = &self.view.profiles;
        let under_way = Some(&profiles.under_way).filter(|profile| profile.events > 0);
        let marked = self.marked.as_ref().and_then(|marked| marked.step.as_ref());
        self.step.as_ref().or(marked).or(profiles.last.as_ref()).or(under_way).map(|profile| &**profile)
    }

    /// The last effect that had begun at the moment shown, as far as it is known by now: a recording has the answer.
    #[must_use]
    pub fn effect(&self) -> Option<&Effect> {
        let last = self.known().effects.last()?;
        let known = self.effects.iter().find(|known| known.position == last.position);
        Some(known.unwrap_or(last))
    }

    /// Memory at the moment that every screen shows: where the cursor is, else at the mark, else now.
    #[must_use]
    pub fn shown(&self) -> &View {
        self.marked.as_ref().map_or(&self.view, |marked| &marked.view)
    }

    /// Where the memory of a ghost stands at that moment; `None` without one, and where it has not come there.
    #[must_use]
    pub fn shown_ghost(&self) -> Option<&Occupancy> {
        let ghost = self.ghost.as_ref()?;
        match &self.marked {
            Some(marked) => marked.ghost.as_deref(),
            None => ghost.occupancy.as_deref(),
        }
    }

    /// Which moment that is.
    #[must_use]
    pub fn moment(&self) -> Moment {
        match (&self.marked, self.cursor) {
            (Some(marked), _) => marked.moment,
            (None, Cursor::Now) => Moment::Now,
            (None, Cursor::At(_)) => Moment::Cursor,
        }
    }

    /// Behind how many events that is; where it is the end, however far that goes, all of them.
    #[must_use]
    pub fn place(&self) -> u64 {
        match (self.moment(), self.cursor) {
            (Moment::Now, _) => self.extent.end,
            (Moment::Cursor, Cursor::At(position)) => position,
            _ => self.shown().position,
        }
    }

    /// More happens while this is looked at, and it is shown as it happens.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.is_now() && self.run == RunState::Running && (self.is_live() || self.extent.grows)
    }

    /// True while the picture is that of the end.
    #[must_use]
    pub fn is_now(&self) -> bool {
        self.cursor == Cursor::Now
    }
}
