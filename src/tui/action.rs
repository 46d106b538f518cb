//! The actions that keys and clicks ask for.

use std::borrow::Cow;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_width::UnicodeWidthStr;

use super::dialog::DialogAction;
use super::panel::Panel;
use super::states::{Lookup, ScreenAction};
use crate::recording::Direction;
use crate::session::{FlipDirection, Reach, StepSize, Switch};
use crate::source::{Ability, Landmark, MoveUnit};

/// An action that a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Flip a switch to its next value, or back.
    Flip(Switch, FlipDirection),
    /// Open a line to write the value of a switch.
    Edit(Switch),
    /// Release cached segments to the driver.
    EmptyCache,
    /// Reset `max_memory_allocated` and `max_memory_reserved`.
    ResetPeaks,
    /// Pause or go on; for what has already happened, play or stop.
    TogglePause,
    /// Go on for a bit, then pause again.
    Advance(StepSize),
    /// Start the same run again on the processor.
    UseProcessor,
    /// Start the run again with another way of parallelism.
    NextWay,
    /// Move the cursor to the next or the previous end of a unit.
    Cursor(MoveUnit, Direction),
    /// Move the cursor to the next or the previous landmark of a kind.
    Jump(Landmark, Direction),
    /// Move the cursor to the first position.
    CursorStart,
    /// Move the cursor to the end, which it then follows.
    CursorNow,
    /// Change the speed of playing by this power of two.
    Faster(i8),
    /// Show the next device of several.
    NextDevice,
    /// Pin a step to compare others with it, or release the pin.
    Pin,
    /// Choose where to move the cursor.
    GoTo,
    /// Choose another allocator that follows the run.
    Ghost,
    /// Write the words of a filter.
    Filter(Lookup),
    /// Start or stop a recording.
    Record,
    /// Save what is on the screen.
    SaveScreen,
    /// Choose what to copy to the clipboard.
    Copy,
    /// Write the name of a file to compare with the run.
    CompareFile,
    /// An action that only one screen knows.
    Own(ScreenAction),
    /// An action that only the dialog on top knows.
    Dialog(DialogAction),
    /// Apply the selected remedy of the selected finding.
    Remedy,
    /// Scroll the topmost list by this many rows.
    Scroll(i32),
    /// Scroll the topmost list by this many pages.
    ScrollPage(i32),
    /// Show a screen, by its index in the list.
    Screen(usize),
    /// Show the screen this many places further on, in a cycle.
    NextScreen(i8),
    /// Open or close all findings.
    ToggleFindings,
    /// Open the list of themes.
    ChooseTheme,
    /// Start or stop showing keys to an audience.
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
    /// Stop the process, as Ctrl-Z does elsewhere.
    Suspend,
    /// Start the lesson again.
    LessonAnew,
    /// Shrink or enlarge the lesson's pane.
    FoldLesson,
    /// Let the lesson measure what it asks, without an answer.
    PassQuestion,
    /// Look at the previous step of the lesson again.
    LessonBack,
    /// Take the lab over from the lesson until it goes on.
    TakeLab,
    /// Leave.
    Quit,
}

impl Action {
    /// The action of a switch's own key.
    #[must_use]
    pub const fn of_switch(switch: Switch) -> Self {
        match switch.reach() {
            Reach::Written => Self::Edit(switch),
            Reach::Round | Reach::Steps => Self::Flip(switch, FlipDirection::Next),
        }
    }

    /// The word for the action in settings; empty for actions that only the mouse has.
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

    /// The ability that the source must have for it.
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

/// The group of a command in the help.
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
    /// Commands while something lies over the screen.
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

/// A key with its modifiers.
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

    /// A key with a name.
    #[must_use]
    pub const fn named(code: KeyCode) -> Self {
        Self(KeyModifiers::NONE, code)
    }

    /// The key that was pressed.
    #[must_use]
    pub fn of(event: KeyEvent) -> Self {
        match event.code {
            // Shift is already in the character (`T`, `?`, `+`). Terminals differ in whether they also report it.
            KeyCode::Char(_) | KeyCode::BackTab => Self(event.modifiers.difference(KeyModifiers::SHIFT), event.code),
            code => Self(event.modifiers, code),
        }
    }
}

/// A command and its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The keys that trigger it.
    pub keys: Vec<Key>,
    /// What it does.
    pub action: Action,
    /// Its keys in words, for help and guide.
    pub label: String,
    /// A word for the footer; empty if the footer does not mention it.
    pub hint: &'static str,
    /// A sentence for the help.
    pub help: String,
    /// A shorter text for the help's two-column layout, if the sentence does not fit there.
    pub brief: Option<&'static str>,
    /// Its group in the help.
    pub group: KeyGroup,
    /// The index of the screen that it belongs to; `None` for all screens.
    pub screen: Option<usize>,
}

impl Binding {
    /// A command for all screens.
    #[must_use]
    pub fn new(keys: &[Key], label: &str, action: Action, group: KeyGroup, hint: &'static str, help: &str) -> Self {
        let (keys, label, help) = (keys.to_vec(), label.to_owned(), help.to_owned());
        Self { keys, action, label, hint, help, brief: None, group, screen: None }
    }

    /// Adds a shorter text for narrow columns.
    #[must_use]
    pub fn brief(self, brief: &'static str) -> Self {
        Self { brief: Some(brief), ..self }
    }

    /// Its sentence if that fits in `width` cells, otherwise the shorter text.
    #[must_use]
    pub fn help_in(&self, width: usize) -> &str {
        self.brief.filter(|_| self.help.width() > width).unwrap_or(&self.help)
    }

    /// Its first key in words; empty if it has none.
    #[must_use]
    pub fn first_label(&self) -> &str {
        self.label.split(' ').next().unwrap_or_default()
    }

    /// Gives it other keys.
    pub fn bind(&mut self, keys: Vec<Key>) {
        self.label = keys.iter().map(Key::to_string).collect::<Vec<_>>().join(" ");
        self.keys = keys;
    }

    /// True if it acts while a dialog is open, and only then.
    #[must_use]
    pub const fn is_of_dialogs(&self) -> bool {
        matches!(self.action, Action::Dialog(_))
    }

    /// True if it acts on the screen with this index while no dialog takes the key.
    #[must_use]
    pub fn acts_on(&self, screen: usize) -> bool {
        !self.is_of_dialogs() && self.screen.is_none_or(|of| of == screen)
    }

    /// True if there is a screen or a dialog on which both act.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        if self.is_of_dialogs() || other.is_of_dialogs() {
            return self.is_of_dialogs() && other.is_of_dialogs();
        }
        self.screen.is_none() || other.screen.is_none() || self.screen == other.screen
    }
}
