//! What a lesson does to the lab.

use std::fmt;
use std::sync::Arc;

use crate::session::{Setup, Switch};
use crate::train::Config;
use crate::user_input::hint;

/// What a lesson does to the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LessonAction {
    /// Trains this many steps, then stops between two of them.
    Steps(u64),
    /// Sets a switch.
    Set(Switch, Arc<str>),
    /// Gives cached segments back.
    EmptyCache,
    /// Resets the peaks.
    ResetPeaks,
    /// Stops the lab.
    Pause,
    /// Lets the lab run on.
    Resume,
    /// Remembers the figures of this moment under a name.
    Mark(Arc<str>),
    /// Begins the run again, from a clean state.
    Restart,
    /// Begins another of the lesson's runs, from a clean state.
    Run(Arc<str>),
}

/// The words of the actions: the word that begins one, and how the action is written.
const WORDS: [(&str, &str); 9] = [
    ("steps", "steps N"),
    ("set", "set SWITCH VALUE"),
    ("empty_cache", "empty_cache"),
    ("reset_peaks", "reset_peaks"),
    ("pause", "pause"),
    ("resume", "resume"),
    ("mark", "mark NAME"),
    ("restart", "restart"),
    ("run", "run NAME"),
];

/// The most steps of one action: a lesson needs no more.
const MOST_STEPS: u64 = 10_000;
/// Names that a lesson can't give its marks, because the course itself sets them.
pub(super) const OWN_MARKS: [&str; 3] = ["start", "before", "oom"];

impl LessonAction {
    /// Whether both actions set the same switch.
    pub(super) fn sets_the_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Set(one, _), Self::Set(other, _)) if one == other)
    }

    /// Reads an action.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim()));
        let alone = |action: Self| {
            if rest.is_empty() { Ok(action) } else { Err(format!("'{word}' stands alone; leave '{rest}' out")) }
        };
        match word {
            "steps" => match rest.parse() {
                Ok(steps) if (1..=MOST_STEPS).contains(&steps) => Ok(Self::Steps(steps)),
                _ => Err(format!("'steps' takes a count from 1 to {MOST_STEPS}, such as: steps 5")),
            },
            "set" => {
                let (switch, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                set(switch, value.trim()).map(|(switch, value)| Self::Set(switch, value))
            }
            "empty_cache" => alone(Self::EmptyCache),
            "reset_peaks" => alone(Self::ResetPeaks),
            "pause" => alone(Self::Pause),
            "resume" => alone(Self::Resume),
            "restart" => alone(Self::Restart),
            "run" if is_name(rest) => Ok(Self::Run(rest.into())),
            "run" => Err("'run' takes the name of a table of the front matter: [run.NAME]".to_owned()),
            "mark" if OWN_MARKS.contains(&rest) => {
                Err(format!("'{rest}' is marked by every lesson; take another name"))
            }
            "mark" if is_name(rest) => Ok(Self::Mark(rest.into())),
            "mark" => Err("a mark is a word of small letters, digits and _, such as: mark small_batch".to_owned()),
            _ => {
                let meant = hint(word, WORDS.iter().map(|(word, _)| *word));
                let all: Vec<&str> = WORDS.iter().map(|(_, form)| *form).collect();
                Err(format!("'{word}' is no action{meant}; actions are: {}", all.join(", ")))
            }
        }
    }
}

/// The switch `word`, and `value` in the wording that the lab shows once it is in force.
pub(super) fn set(word: &str, value: &str) -> Result<(Switch, Arc<str>), String> {
    let Some(switch) = Switch::named(word) else {
        let meant = hint(word, Switch::all().map(Switch::word));
        return Err(format!("there is no switch '{word}'{meant}; `vramlab list` has them"));
    };
    if value.is_empty() {
        return Err(format!("the value of {word} is missing"));
    }
    switch.set(&mut Setup::new(Config::new(1)), value).map_err(|reason| {
        let meant = hint(value, switch.values().iter().copied());
        format!("{reason}{meant}")
    })?;
    Ok((switch, value.into()))
}

/// Whether a mark or a run may have this name.
pub(super) fn is_name(text: &str) -> bool {
    let small = |symbol: char| symbol.is_ascii_lowercase() || symbol == '_';
    text.starts_with(small) && text.chars().all(|symbol| small(symbol) || symbol.is_ascii_digit())
}

impl fmt::Display for LessonAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(steps) => write!(f, "steps {steps}"),
            Self::Set(switch, value) => write!(f, "set {} {value}", switch.word()),
            Self::EmptyCache => f.write_str("empty_cache"),
            Self::ResetPeaks => f.write_str("reset_peaks"),
            Self::Pause => f.write_str("pause"),
            Self::Resume => f.write_str("resume"),
            Self::Mark(name) => write!(f, "mark {name}"),
            Self::Restart => f.write_str("restart"),
            Self::Run(name) => write!(f, "run {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_print_as_they_are_written() {
        for text in [
            "steps 5",
            "set amp fp16",
            "set limit 12GiB",
            "set alloc-conf expandable_segments:True,max_split_size_mb:64",
            "empty_cache",
            "reset_peaks",
            "pause",
            "resume",
            "mark small_batch",
            "restart",
            "run small_batch",
        ] {
            assert_eq!(LessonAction::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_action_is_refused_with_what_was_meant() {
        for (text, part) in [
            ("step 5", "did you mean \"steps\"?"),
            ("steps", "takes a count"),
            ("steps 0", "takes a count"),
            ("set ampp fp16", "did you mean \"amp\"?"),
            ("set amp fp61", "did you mean \"fp16\"?"),
            ("set amp", "value of amp is missing"),
            ("set alloc-conf no_such:1", "no_such"),
            ("mark before", "marked by every lesson"),
            ("mark A b", "a mark is a word"),
            ("pause now", "stands alone"),
            ("run", "takes the name of a table"),
            ("run A", "takes the name of a table"),
        ] {
            let reason = LessonAction::parse(text).unwrap_err();
            assert!(reason.contains(part), "{text}: {reason}");
        }
    }
}
