//! What a screen is drawn from, and what drawing it finds out.

use std::borrow::Cow;

use ratatui::layout::{Position, Rect};

use super::action::Action;
use super::aim::Aim;
use super::hold::Hold;
use super::keys::Keymap;
use super::panel::Panel;
use super::presenter::PressedKey;
use super::states::ScreenStates;
use crate::drawing::chart::Ceiling;
use crate::drawing::figures::ByteUnit;
use crate::drawing::theme::Theme;
use crate::model::{DeviceKind, Finding, Level, LogLine, NameId, Occupancy, TouchedBlock, View};
use crate::session::Switch;
use crate::source::{Moment, Picture, SourceKind};
use crate::units::Bytes;

/// Everything that a screen may draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage<'a> {
    /// The source at its cursor.
    pub picture: &'a Picture,
    /// Memory at the moment that all screens show: every figure of memory is of this view.
    pub shown: &'a View,
    /// Where the memory of a ghost stands at that moment; `None` without one, and where it has not come there.
    pub ghost: Option<&'a Occupancy>,
    /// The look.
    pub theme: &'a Theme,
    /// The keys in force.
    pub keys: &'a Keymap,
    /// What each screen remembers.
    pub states: &'a ScreenStates,
    /// The first row of what scrolls on the screen.
    pub scroll: usize,
    /// Keys that were pressed for an audience.
    pub pressed: &'a [PressedKey],
    /// There is an audience: what it reads is bold and set apart.
    pub presenting: bool,
    /// The measured effect has just become known.
    pub loud: bool,
    /// It became known not long ago: somebody may still be reading what it was.
    pub news: bool,
    /// What a lesson keeps back.
    pub hold: Hold,
    /// The height of memory that a lesson speaks of.
    pub aim: Option<Aim>,
    /// Switches that a lesson's goal leaves to the learner, while there is one.
    pub allowed: Option<&'a [Switch]>,
}

impl Stage<'_> {
    /// What is known of the run: at the cursor, else at its end. Its memory may be that of another moment than the one shown.
    pub fn view(&self) -> &View {
        &self.picture.view
    }

    /// What was said up to now; in a recording, up to the moment shown, and behind that it is one.
    pub fn log(&self) -> &[LogLine] {
        let SourceKind::Recording(_) = self.picture.kind else { return &self.view().log };
        match &*self.shown.log {
            [first, rest @ ..] if first.text.starts_with("recording to ") => rest,
            all => all,
        }
    }

    /// What is remarked of a snapshot's file, a sentence each.
    pub fn remarks(&self) -> impl Iterator<Item = &LogLine> {
        let log = if matches!(self.picture.kind, SourceKind::Snapshot(_)) { self.log() } else { &[] };
        log.iter().filter(|line| line.level == Level::Warning)
    }

    /// Whether a switch's key does something now, as far as a lesson is concerned.
    pub fn permits(&self, switch: Switch) -> bool {
        self.hold.permits(Action::of_switch(switch), self.picture)
            && self.allowed.is_none_or(|allowed| allowed.contains(&switch))
    }

    /// What is concluded at the cursor, most important first; nothing while a lesson leaves that to the learner.
    pub fn findings(&self) -> Cow<'_, [Finding]> {
        if self.hold.advises() { self.picture.findings() } else { Cow::Borrowed(&[]) }
    }

    /// Nothing moves: what one op did can be seen.
    pub fn is_still(&self) -> bool {
        !self.picture.goes_on()
    }

    /// Behind how many events the moment shown lies; `None` where it is the end of what goes on.
    pub fn position(&self) -> Option<u64> {
        (self.is_still() || self.picture.moment() != Moment::Now).then_some(self.shown.position)
    }

    /// What memory can't pass here: the limit, else what the card has, where that is known.
    pub fn ceiling(&self) -> Option<Ceiling> {
        let read = self.view().gpu.as_deref().and_then(|reading| reading.memory.as_ref());
        let card = self.picture.memory.map(|memory| memory.total).or_else(|| read.map(|read| read.used + read.free));
        Ceiling::new(self.view().limit, card)
    }

    /// The unit of memory of whoever shows that of the run: one for all panels, and as large as the most of the run wants.
    pub fn unit(&self) -> ByteUnit {
        let history = &self.picture.history;
        let run = history.column(history.level_of_run(1), 0).map_or(Bytes::ZERO, |run| run.reserved.max(run.peak));
        ByteUnit::for_largest(self.shown.peak_reserved.max(self.shown.ledger.reserved()).max(run))
    }

    /// Blocks that the op under way took or gave back; none while things move, or where no op is known.
    pub fn touched(&self) -> &[TouchedBlock] {
        if self.is_still() && self.shown.op != NameId::NONE { &self.shown.touched } else { &[] }
    }

    /// Whose times are shown.
    pub fn clock(&self) -> TimeSource {
        match self.picture.view.about.kind {
            DeviceKind::Gpu | DeviceKind::Processor => TimeSource::Real,
            DeviceKind::Simulated => TimeSource::Simulated,
            DeviceKind::Absent => TimeSource::Host,
        }
    }
}

/// Whose times a lab shows: every figure of a simulated clock says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeSource {
    /// They were measured.
    Real,
    /// They are a model's.
    Simulated,
    /// They are the host's, which has no card to wait for.
    Host,
}

impl TimeSource {
    /// The word that fits: those of the host were measured, too.
    pub const fn of(self, real: &'static str, simulated: &'static str) -> &'static str {
        match self {
            Self::Real | Self::Host => real,
            Self::Simulated => simulated,
        }
    }
}

/// Where a click does what.
pub(crate) type Targets = Vec<(Rect, Action)>;

/// What drawing a frame found out, for keys and clicks that refer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameLayout {
    /// Where a click does what.
    pub targets: Vec<(Rect, Action)>,
    /// Where which panel lies.
    pub panels: Vec<(Rect, Panel)>,
    /// The panel of what a person has selected.
    pub focus: Option<Panel>,
    /// Charts in which a click moves the cursor.
    pub charts: Vec<(Rect, Chart)>,
    /// Rows of what scrolls in all, and how many are seen.
    pub rows: (usize, usize),
    /// Rows of the layer on top in all, and how many are seen.
    pub layer_rows: (usize, usize),
    /// Lines of the lesson's text in all, and how many are seen.
    pub lesson_rows: (usize, usize),
    /// Columns of the history.
    pub history_columns: usize,
    /// The map of blocks, in which a click selects.
    pub map: Option<Rect>,
    /// The Lab's map, in which a click leads to what is drawn there.
    pub overview: Option<Rect>,
    /// What Esc does here before it goes back to now.
    pub leave: Option<Action>,
}

impl FrameLayout {
    /// The panel at a place, the one drawn last.
    #[must_use]
    pub fn panel_at(&self, position: Position) -> Option<Panel> {
        self.panels.iter().rev().find(|(area, _)| area.contains(position)).map(|(_, panel)| *panel)
    }
}

/// A chart whose columns stand for moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chart {
    /// A column is a step, or several.
    History,
    /// A column is some memory events of one step.
    Step,
    /// A column is some memory events of the timeline's window.
    Window,
}
