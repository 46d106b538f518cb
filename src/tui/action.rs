//! What a key or a click asks for.

use std::borrow::Cow;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_width::UnicodeWidthStr;

use super::dialog::DialogAction;
use super::panel::Panel;
use super::states::{Lookup, ScreenAction};
use crate::recording::Direction;
use crate::session::{FlipDirection, Reach, StepSize, Switch};
use crate::source::{Ability, Landmark, MoveUnit};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Flip a switch to its next value, or back.
    Flip(Switch, FlipDirection),
    /// Write the value of a switch.
    Edit(Switch),
    /// Give cached segments back to the driver.
    EmptyCache,
    /// Reset `max_memory_allocated` and `max_memory_reserved`.
    ResetPeaks,
    /// Pause, or go on; in what has happened, play or stop.
    TogglePause,
    /// Go on for a bit and stop again.
    Advance(StepSize),
    /// Start the same run over on the processor.
    UseProcessor,
    /// Start the run over with another way of parallelism.
    NextWay,
    /// Move the cursor to the next or the last end of something.
    Cursor(MoveUnit, Direction),
    /// Move the cursor to the next or the last of its kind.
    Jump(Landmark, Direction),
    /// Move the cursor to the first position.
    CursorStart,
    /// Move the cursor to the end, and along with it.
    CursorNow,
    /// Play so many times as fast, as a power of two.
    Faster(i8),
    /// Show the next device of several.
    NextDevice,
    /// Pin a step to compare others with, or let it go.
    Pin,
    /// Choose where the cursor is to go.
    GoTo,
    /// Choose another allocator to follow the run.
    Ghost,
    /// Write what is looked for.
    Filter(Lookup),
    /// Write a recording, or end it.
    Record,
    /// Save what is on the screen.
    SaveScreen,
    /// Choose what to copy to the clipboard.
    Copy,
    /// Write which file is compared with the run.
    CompareFile,
    /// What only one screen knows of.
    Own(ScreenAction),
    /// What only the dialog on top knows of.
    Dialog(DialogAction),
    /// Do what can be done about the finding that is selected.
    Remedy,
    /// Scroll what is on top by so many rows.
    Scroll(i32),
    /// Scroll what is on top by so many pages.
    ScrollPage(i32),
    /// Show a screen, by its place in the list.
    Screen(usize),
    /// Show the screen so many places further on, round and round.
    NextScreen(i8),
    /// Open or close all findings.
    ToggleFindings,
    /// Open the list of themes.
    ChooseTheme,
    /// Begin or end to show keys to an audience.
    TogglePresenting,
    /// Find something by a few letters, and do it.
    Palette,
    /// Open or close the help.
    ToggleHelp,
    /// Open the help about a panel.
    HelpOn(Panel),
    /// Close what is open on top.
    Close,
    /// Redraw everything.
    Repaint,
    /// Stop the process as Ctrl-Z does elsewhere.
    Suspend,
    /// Start the lesson over.
    LessonAnew,
    /// Make the lesson's pane small, or large again.
    FoldLesson,
    /// Have the lesson measure what it asks, without an answer.
    PassQuestion,
    /// Look at the lesson's step before again.
    LessonBack,
    /// Take the lab from the lesson until it goes on.
    TakeLab,
    /// Leave.
    Quit,
}

impl Action {
    /// What a switch's own key asks for.
    #[must_use]
    pub const fn of_switch(switch: Switch) -> Self {
        match switch.reach() {
            Reach::Written => Self::Edit(switch),
            Reach::Round | Reach::Steps => Self::Flip(switch, FlipDirection::Next),
        }
    }

    /// The word by which settings name it; empty for what only the mouse asks for.
    #[must_use]
    pub fn word(self) -> Cow<'static, str> {
        let way = |of: &str, direction: Direction| match direction {
            Direction::Backward => format!("{of}-back"),
            Direction::Forward => format!("{of}-on"),
        };
        let sign = |of: &str, amount: i32| format!("{of}-{}", if amount < 0 { "up" } else { "down" });
        let unit = |unit: MoveUnit| match unit {
            MoveUnit::Op => "op",
            MoveUnit::Phase => "phase",
            MoveUnit::Step => "step",
        };
        let landmark = |landmark: Landmark| match landmark {
            Landmark::Peak => "peak",
            Landmark::Flip => "flip",
            Landmark::OutOfMemory => "out-of-memory",
            Landmark::Finding => "finding",
        };
        Cow::Borrowed(match self {
            Self::Flip(switch, FlipDirection::Next) | Self::Edit(switch) => switch.word(),
            Self::Flip(switch, FlipDirection::Previous) => return format!("{}-back", switch.word()).into(),
            Self::EmptyCache => "empty-cache",
            Self::ResetPeaks => "reset-peaks",
            Self::TogglePause => "pause",
            Self::Advance(StepSize::Op) => "op",
            Self::Advance(StepSize::Phase) => "phase",
            Self::Advance(StepSize::Step) => "step",
            Self::UseProcessor => "processor",
            Self::NextWay => "way",
            Self::Cursor(of, direction) => return way(unit(of), direction).into(),
            Self::Jump(to, direction) => return way(landmark(to), direction).into(),
            Self::CursorStart => "start",
            Self::CursorNow => "now",
            Self::Faster(power) => {
                if power < 0 {
                    "slower"
                } else {
                    "faster"
                }
            }
            Self::NextDevice => "device",
            Self::Pin => "pin-step",
            Self::GoTo => "go-to",
            Self::Record => "record",
            Self::SaveScreen => "save-screen",
            Self::Copy => "copy",
            Self::CompareFile => "compare-file",
            Self::Own(action) => action.word(),
            Self::Dialog(action) => action.word(),
            Self::Scroll(rows) => return sign("scroll", rows).into(),
            Self::ScrollPage(pages) => return sign("page", pages).into(),
            Self::NextScreen(places) => {
                if places < 0 {
                    "previous-screen"
                } else {
                    "next-screen"
                }
            }
            Self::Remedy => "remedy",
            Self::Ghost => "ghost",
            Self::Filter(Lookup::Blocks) => "filter",
            Self::Filter(Lookup::Stacks) => "stacks-search",
            Self::Screen(index) => return format!("screen-{}", index + 1).into(),
            Self::ToggleFindings => "findings",
            Self::ChooseTheme => "theme",
            Self::TogglePresenting => "present",
            Self::Palette => "find",
            Self::ToggleHelp => "help",
            Self::HelpOn(_) => "",
            Self::Close => "close",
            Self::Repaint => "repaint",
            Self::Suspend => "suspend",
            Self::LessonAnew => "lesson-anew",
            Self::FoldLesson => "lesson-fold",
            Self::PassQuestion => "lesson-pass",
            Self::LessonBack => "lesson-back",
            Self::TakeLab => "lesson-lab",
            Self::Quit => "quit",
        })
    }

    /// What the source must be able to do for it.
    #[must_use]
    pub const fn needs(self) -> Option<Ability> {
        match self {
            Self::Flip(..) | Self::Edit(_) | Self::EmptyCache | Self::ResetPeaks | Self::Remedy | Self::NextWay => {
                Some(Ability::Flip)
            }
            Self::UseProcessor => Some(Ability::Run),
            Self::Record => Some(Ability::Record),
            Self::Cursor(..) | Self::Jump(..) | Self::CursorStart | Self::Faster(_) | Self::GoTo | Self::Pin => {
                Some(Ability::Seek)
            }
            _ => None,
        }
    }
}

/// Where a command stands in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyGroup {
    /// Switches that change how the lab trains.
    Switches,
    /// Pause and step.
    Run,
    /// Moving in time.
    Time,
    /// What is shown.
    View,
    /// Everything else.
    Program,
    /// While something lies over the screen.
    Dialogs,
}

impl KeyGroup {
    /// All groups in the order of the help.
    pub const ALL: [Self; 6] = [Self::Run, Self::Time, Self::Switches, Self::View, Self::Program, Self::Dialogs];

    /// Its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Switches => "switches",
            Self::Run => "run",
            Self::Time => "time",
            Self::View => "view",
            Self::Program => "program",
            Self::Dialogs => "dialogs",
        }
    }
}

/// A key with what it needs held down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub KeyModifiers, pub KeyCode);

impl Key {
    /// A character.
    #[must_use]
    pub const fn plain(symbol: char) -> Self {
        Self(KeyModifiers::NONE, KeyCode::Char(symbol))
    }

    /// A character with Ctrl.
    #[must_use]
    pub const fn ctrl(symbol: char) -> Self {
        Self(KeyModifiers::CONTROL, KeyCode::Char(symbol))
    }

    /// A key that has a name.
    #[must_use]
    pub const fn named(code: KeyCode) -> Self {
        Self(KeyModifiers::NONE, code)
    }

    /// The key that was pressed.
    #[must_use]
    pub fn of(event: KeyEvent) -> Self {
        match event.code {
            // Shift is already in the character (`T`, `?`, `+`); terminals differ in whether they also report it.
            KeyCode::Char(_) | KeyCode::BackTab => Self(event.modifiers.difference(KeyModifiers::SHIFT), event.code),
            code => Self(event.modifiers, code),
        }
    }
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Keys that ask for it.
    pub keys: Vec<Key>,
    /// What it does.
    pub action: Action,
    /// Its keys in words, as help and guide show them.
    pub label: String,
    /// A word for the footer; empty where the footer does not name it.
    pub hint: &'static str,
    /// A sentence for the help.
    pub help: String,
    /// What fits beside its key where the help has two columns, if the sentence doesn't.
    pub brief: Option<&'static str>,
    /// Its place in the help.
    pub group: KeyGroup,
    /// The screen that it belongs to, by its place in the list; `None`: all of them.
    pub screen: Option<usize>,
}

impl Binding {
    /// A command of every screen.
    #[must_use]
    pub fn new(keys: &[Key], label: &str, action: Action, group: KeyGroup, hint: &'static str, help: &str) -> Self {
        let (keys, label, help) = (keys.to_vec(), label.to_owned(), help.to_owned());
        Self { keys, action, label, hint, help, brief: None, group, screen: None }
    }

    /// The same with a sentence for narrow columns.
    #[must_use]
    pub fn brief(self, brief: &'static str) -> Self {
        Self { brief: Some(brief), ..self }
    }

    /// Its sentence where that fits in so many cells, else the short one.
    #[must_use]
    pub fn help_in(&self, width: usize) -> &str {
        self.brief.filter(|_| self.help.width() > width).unwrap_or(&self.help)
    }

    /// The first of its keys in words; empty where it has none.
    #[must_use]
    pub fn first_label(&self) -> &str {
        self.label.split(' ').next().unwrap_or_default()
    }

    /// Gives it other keys.
    pub fn bind(&mut self, keys: Vec<Key>) {
        self.label = keys.iter().map(Key::to_string).collect::<Vec<_>>().join(" ");
        self.keys = keys;
    }

    /// It acts while a dialog is open, and only then.
    #[must_use]
    pub const fn is_of_dialogs(&self) -> bool {
        matches!(self.action, Action::Dialog(_))
    }

    /// It acts on the screen with this place in the list, while no dialog takes the key.
    #[must_use]
    pub fn acts_on(&self, screen: usize) -> bool {
        !self.is_of_dialogs() && self.screen.is_none_or(|of| of == screen)
    }

    /// Whether there is a screen or a dialog on which both act.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        if self.is_of_dialogs() || other.is_of_dialogs() {
            return self.is_of_dialogs() && other.is_of_dialogs();
        }
        self.screen.is_none() || other.screen.is_none() || self.screen == other.screen
    }
}
