//! The input for drawing a screen, and its output besides cells.

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
    /// Memory at the moment that all screens show. Every figure of memory comes from this view.
    pub shown: &'a View,
    /// The ghost's memory at that moment; `None` without a ghost, or if it has not got there.
    pub ghost: Option<&'a Occupancy>,
    /// The theme.
    pub theme: &'a Theme,
    /// The keys in force.
    pub keys: &'a Keymap,
    /// What each screen remembers.
    pub states: &'a ScreenStates,
    /// The first row of the list that scrolls on the screen.
    pub scroll: usize,
    /// Keys that were pressed, for an audience.
    pub pressed: &'a [PressedKey],
    /// True if there is an audience: the text it reads is bold and set apart.
    pub presenting: bool,
    /// True if the measured effect has just become known.
    pub loud: bool,
    /// True if it became known not long ago, so that somebody may still be reading it.
    pub news: bool,
    /// What a lesson holds back.
    pub hold: Hold,
    /// The height of memory that a lesson is about.
    pub aim: Option<Aim>,
    /// The switches that a lesson's goal leaves to the learner, while there is one.
    pub allowed: Option<&'a [Switch]>,
}

impl Stage<'_> {
    /// What is known of the run: at the cursor if it was moved, otherwise at its end. Its memory may be of another
    /// moment than the one shown.
    pub fn view(&self) -> &View {
        &self.picture.view
    }

    /// The log so far; in a recording, up to the moment shown.
    pub fn log(&self) -> &[LogLine] {
        let SourceKind::Recording(_) = self.picture.kind else { return &self.view().log };
        match &*self.shown.log {
            [first, rest @ ..] if first.text.starts_with("recording to ") => rest,
            all => all,
        }
    }

    /// Remarks about a snapshot's file, a sentence each.
    pub fn remarks(&self) -> impl Iterator<Item = &LogLine> {
        let log = if matches!(self.picture.kind, SourceKind::Snapshot(_)) { self.log() } else { &[] };
        log.iter().filter(|line| line.level == Level::Warning)
    }

    /// True if a switch's key acts now, as far as a lesson allows.
    pub fn permits(&self, switch: Switch) -> bool {
        self.hold.permits(Action::of_switch(switch), self.picture)
            && self.allowed.is_none_or(|allowed| allowed.contains(&switch))
    }

    /// The findings at the cursor, the most important first; none while a lesson leaves them to the learner.
    pub fn findings(&self) -> Cow<'_, [Finding]> {
        if self.hold.advises() { self.picture.findings() } else { Cow::Borrowed(&[]) }
    }

    /// True if nothing moves, so that the effect of a single op is visible.
    pub fn is_still(&self) -> bool {
        !self.picture.goes_on()
    }

    /// The number of events before the moment shown; `None` if it is the end of a run that goes on.
    pub fn position(&self) -> Option<u64> {
        (self.is_still() || self.picture.moment() != Moment::Now).then_some(self.shown.position)
    }

    /// The height that memory can't exceed here: the limit, or else the card's memory if it is known.
    pub fn ceiling(&self) -> Option<Ceiling> {
        let read = self.view().gpu.as_deref().and_then(|reading| reading.memory.as_ref());
        let card = self.picture.memory.map(|memory| memory.total).or_else(|| read.map(|read| read.used + read.free));
        Ceiling::new(self.view().limit, card)
    }

    /// The unit for the run's memory: one for all panels, suitable for the run's highest value.
    pub fn unit(&self) -> ByteUnit {
        let history = &self.picture.history;
        let run = history.column(history.level_of_run(1), 0).map_or(Bytes::ZERO, |run| run.reserved.max(run.peak));
        ByteUnit::for_largest(self.shown.peak_reserved.max(self.shown.ledger.reserved()).max(run))
    }

    /// The blocks that the current op allocated or freed; empty while things move, or if no op is known.
    pub fn touched(&self) -> &[TouchedBlock] {
        if self.is_still() && self.shown.op != NameId::NONE { &self.shown.touched } else { &[] }
    }

    /// The source of the times shown.
    pub fn clock(&self) -> TimeSource {
        match self.picture.view.about.kind {
            DeviceKind::Gpu | DeviceKind::Processor => TimeSource::Real,
            DeviceKind::Simulated => TimeSource::Simulated,
            DeviceKind::Absent => TimeSource::Host,
        }
    }
}

/// The source of a lab's times. Every figure from a simulated clock says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeSource {
    /// Measured.
    Real,
    /// Simulated by a model.
    Simulated,
    /// Measured on the host, which has no card to wait for.
    Host,
}

impl TimeSource {
    /// The matching word. Times of the host were measured, too.
    pub const fn of(self, real: &'static str, simulated: &'static str) -> &'static str {
        match self {
            Self::Real | Self::Host => real,
            Self::Simulated => simulated,
        }
    }
}

/// The areas in which a click performs an action.
pub(crate) type Targets = Vec<(Rect, Action)>;

/// The results of drawing a frame, which keys and clicks refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameLayout {
    /// The areas in which a click performs an action.
    pub targets: Vec<(Rect, Action)>,
    /// The areas of the panels.
    pub panels: Vec<(Rect, Panel)>,
    /// The panel of the selection.
    pub focus: Option<Panel>,
    /// Charts in which a click moves the cursor.
    pub charts: Vec<(Rect, Chart)>,
    /// The number of rows that scroll, and how many are visible.
    pub rows: (usize, usize),
    /// The number of rows of the topmost layer, and how many are visible.
    pub layer_rows: (usize, usize),
    /// The number of lines of the lesson's text, and how many are visible.
    pub lesson_rows: (usize, usize),
    /// The number of columns in the history.
    pub history_columns: usize,
    /// The map of blocks, in which a click selects.
    pub map: Option<Rect>,
    /// The Lab's map, in which a click opens Blocks at the cell's content.
    pub overview: Option<Rect>,
    /// What Esc does here before it returns to now.
    pub leave: Option<Action>,
}

impl FrameLayout {
    /// The panel at a position, the last one drawn.
    #[must_use]
    pub fn panel_at(&self, position: Position) -> Option<Panel> {
        self.panels.iter().rev().find(|(area, _)| area.contains(position)).map(|(_, panel)| *panel)
    }
}

/// A chart whose columns stand for moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chart {
    /// A column is one step, or several.
    History,
    /// A column is a number of memory events of one step.
    Step,
    /// A column is a number of memory events of the timeline's window.
    Window,
}
