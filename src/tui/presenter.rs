//! Support for an audience: keys are shown when pressed, quitting asks first, and commands that would spoil a
//! demonstration are off.

use std::time::Duration;

use super::action::{Action, Key};

/// How long a key is shown.
const SHOWN: Duration = Duration::from_secs(3);
/// How many keys are shown.
const MOST: usize = 4;
/// How long the question before quitting stands.
const ASKED: Duration = Duration::from_secs(5);

/// A key that was pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PressedKey {
    /// The key in words.
    pub key: String,
    /// The word of its command; empty for none.
    pub word: String,
    until: Duration,
}

/// The keys that were pressed, and whether quitting was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Presenter {
    shown: Vec<PressedKey>,
    asked: Option<Duration>,
}

impl Presenter {
    /// Notes a key, and its action if it has one.
    pub fn press(&mut self, key: Key, action: Option<Action>, now: Duration) {
        let word = action.map_or_else(String::new, |action| action.word().into_owned());
        self.shown.push(PressedKey { key: key.to_string(), word, until: now + SHOWN });
        let spare = self.shown.len().saturating_sub(MOST);
        self.shown.drain(..spare);
    }

    /// The last keys, the newest last.
    pub fn shown(&self) -> &[PressedKey] {
        &self.shown
    }

    /// Drops keys whose time is up. Returns true if there were any.
    pub fn forget(&mut self, now: Duration) -> bool {
        let before = self.shown.len();
        self.shown.retain(|shown| shown.until > now);
        self.shown.len() < before
    }

    /// When the next key disappears.
    pub fn next_change(&self) -> Option<Duration> {
        self.shown.first().map(|shown| shown.until)
    }

    /// Checks whether `action` may be performed now.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub fn permits(&mut self, action: Action, now: Duration) -> Result<(), &'static str> {
        match action {
            Action::Quit if self.asked.is_some_and(|asked| now < asked + ASKED) => Ok(()),
            Action::Quit => {
                self.asked = Some(now);
                Err("presenting: press it again to end the run and quit")
            }
            Action::Flip(switch, _) if switch.word() == "retain" => Err("presenting: the leak is off"),
            _ => Ok(()),
        }
    }
}
