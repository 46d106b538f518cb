//! Everything a front end needs for one frame.

use std::path::PathBuf;
use std::sync::Arc;

use super::ghost::Ghost;
use super::listings::Listing;
use super::reading::{Doing, Reading};
use crate::allocator::DeviceMemory;
use crate::model::{Configuration, History, Micros, Profile, RunState, Settings, Study, View};
use crate::units::Bytes;

/// A source at its cursor.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// What is known at the cursor, and of nothing behind it.
    pub view: Arc<View>,
    /// Peaks and floor of every step that is known, before and behind the cursor.
    pub history: Arc<History>,
    /// Every configuration of the run that is known, before and behind the cursor.
    pub configurations: Arc<[Arc<Configuration>]>,
    /// The curve of the step around the cursor, with what follows the cursor in it where that is known.
    pub step: Option<Arc<Profile>>,
    /// Where the cursor is.
    pub cursor: Cursor,
    /// What can be asked for.
    pub extent: Extent,
    /// How fast the cursor goes on by itself, if it does.
    pub playing: Option<f64>,
    /// What the run is doing at its end, wherever the cursor is.
    pub run: RunState,
    /// How the switches stand at its end, wherever the cursor is.
    pub settings: Arc<Settings>,
    /// What kind of source it is.
    pub kind: Kind,
    /// Which of its devices it shows.
    pub device: Shown,
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
    /// Another allocator that follows the run.
    pub ghost: Option<Arc<Ghost>>,
    /// What the device has, and how much of it was free before the run, where that is known.
    pub memory: Option<DeviceMemory>,
    /// How far the file is, while its history is not all there: the picture is that of its end.
    pub reading: Option<Reading>,
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
pub struct Shown {
    /// The so-manieth, from 0 on.
    pub place: usize,
    /// Devices that something happened on.
    pub of: usize,
}

/// What kind of source it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
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
    pub(super) fn before(kind: Kind, memory: Option<DeviceMemory>) -> Self {
        Self { kind, memory, extent: Extent { grows: true, ..Extent::default() }, ..Self::default() }
    }

    /// Whether the source can do something.
    ///
    /// # Errors
    /// Why not, in a few words.
    pub const fn can(&self, ability: Ability) -> Result<(), &'static str> {
        if let (Ability::Seek, Some(reading)) = (ability, &self.reading) {
            return Err(match reading.doing {
                Doing::Failed => "the file is damaged: its history can't be read",
                _ => "the history is still being read: this is its end",
            });
        }
        match (ability, &self.kind) {
            (Ability::Seek, _) | (_, Kind::Live) => Ok(()),
            (Ability::Flip, Kind::Recording(_)) => Err("a recording can't be changed: it has happened"),
            (Ability::Flip, Kind::Snapshot(_)) => Err("a snapshot can't be changed: it has happened"),
            (Ability::Flip, Kind::Watched(_)) => Err("vramlab only watches this program: it can't change it"),
            (Ability::Run, Kind::Watched(_)) => Err("the program runs by itself: space plays what it did"),
            (Ability::Record, Kind::Watched(_)) => Ok(()),
            (Ability::Run, _) => Err("nothing runs here: space plays"),
            (Ability::Record, _) => Err("this is a recording already"),
        }
    }

    /// A lab that runs here stands behind it.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.kind, Kind::Live)
    }

    /// How the switches stand: of a lab that runs as keys find them, of what has happened as they were at the cursor.
    #[must_use]
    pub fn switches(&self) -> &Settings {
        if self.is_live() { &self.settings } else { &self.view.settings }
    }

    /// The curve that "this step" shows: the whole step around a cursor that looks back; else the last whole one, or the one
    /// under way before the first ended.
    #[must_use]
    pub fn shown_step(&self) -> Option<&Profile> {
        let profiles = &self.view.profiles;
        let under_way = Some(&profiles.under_way).filter(|profile| profile.events > 0);
        self.step.as_ref().or(profiles.last.as_ref()).or(under_way).map(|profile| &**profile)
    }

    /// True while the picture is that of the end.
    #[must_use]
    pub fn is_now(&self) -> bool {
        self.cursor == Cursor::Now
    }
}
