//! What a screen is drawn from, and what drawing it finds out.

use ratatui::layout::{Position, Rect};

use super::action::Action;
use super::hold::Hold;
use super::keys::Keymap;
use super::panel::Panel;
use super::presenter::Shown;
use super::states::ScreenStates;
use super::theme::Theme;
use crate::model::{DeviceKind, NameId, Occupancy, RunState, Touched, View};
use crate::source::Picture;

/// Everything that a screen may draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage<'a> {
    /// The source at its cursor.
    pub picture: &'a Picture,
    /// The view whose figures and blocks are shown: of a lab that runs fast the fullest moment of the last interval, else
    /// that of the picture.
    pub shown: &'a View,
    /// Where the memory of a ghost stands at that moment; `None` without one, and where it has not come there.
    pub ghost: Option<&'a Occupancy>,
    /// `shown` is such a moment.
    pub fullest: bool,
    /// The look.
    pub theme: &'a Theme,
    /// The keys in force.
    pub keys: &'a Keymap,
    /// What each screen remembers.
    pub states: &'a ScreenStates,
    /// The first row of what scrolls on the screen.
    pub scroll: usize,
    /// Keys that were pressed for an audience.
    pub pressed: &'a [Shown],
    /// The measured effect has just become known.
    pub loud: bool,
    /// What a lesson keeps back.
    pub hold: Hold,
}

impl Stage<'_> {
    /// The view at the cursor.
    pub fn view(&self) -> &View {
        &self.picture.view
    }

    /// Nothing moves: what one op did can be seen.
    pub fn is_still(&self) -> bool {
        !self.picture.is_now() || self.picture.run != RunState::Running
    }

    /// Blocks that the op under way took or gave back; none while things move, or where no op is known.
    pub fn touched(&self) -> &[Touched] {
        if self.is_still() && self.shown.op != NameId::NONE { &self.shown.touched } else { &[] }
    }

    /// Whose times are shown.
    pub fn clock(&self) -> Clock {
        if self.picture.view.about.kind == DeviceKind::Simulated { Clock::Simulated } else { Clock::Real }
    }
}

/// Whose times a lab shows: every figure of a simulated clock says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// They were measured.
    Real,
    /// They are a model's.
    Simulated,
}

impl Clock {
    /// The word that fits.
    pub const fn of(self, real: &'static str, simulated: &'static str) -> &'static str {
        match self {
            Self::Real => real,
            Self::Simulated => simulated,
        }
    }
}

/// Where a click does what.
pub(crate) type Targets = Vec<(Rect, Action)>;

/// What drawing a frame found out, for keys and clicks that refer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
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
    /// What Esc does here before it goes back to now.
    pub leave: Option<Action>,
}

impl Layout {
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
