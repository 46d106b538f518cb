//! Exit codes of commands.

use crate::tui::Exit;

/// How a command ended: the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(u8);

impl Status {
    /// The command did what it was asked to.
    pub const DONE: Self = Self(0);
    /// The command failed.
    pub const FAILED: Self = Self(1);
    /// The request was invalid.
    pub const USAGE: Self = Self(2);
    /// The input does not contain the answer.
    pub const UNKNOWN: Self = Self(3);
    /// Ctrl-C was pressed.
    pub const INTERRUPTED: Self = Self(130);
    /// A bug of this program ended the command.
    pub const PANICKED: Self = Self(101);

    /// The exit code of a program that the command ran.
    pub(super) const fn of_code(code: u8) -> Self {
        Self(code)
    }

    /// The exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl From<Exit> for Status {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Quit => Self::DONE,
            Exit::Signal(signal) => Self(u8::try_from(128 + signal).unwrap_or(1)),
            Exit::Panicked => Self::PANICKED,
        }
    }
}
