//! Whether a limit is kept, broken, or can't be judged from the file.

use serde::Serialize;

use crate::cli::columns::Tone;

/// Whether a limit is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LimitVerdict {
    /// The limit is kept.
    #[default]
    Kept,
    /// The file does not say.
    Unknown,
    /// The limit is broken.
    Broken,
}

impl LimitVerdict {
    /// The verdict's colour.
    pub const fn tone(self) -> Tone {
        match self {
            Self::Kept => Tone::Good,
            Self::Unknown => Tone::Mixed,
            Self::Broken => Tone::Bad,
        }
    }
}

/// One limit, checked against one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CheckedLimit {
    /// The option's name, as a JSON key.
    pub check: &'static str,
    /// The run's value: bytes, or a number.
    pub value: Option<u64>,
    /// The highest allowed value, if it is a number of the same kind.
    pub most: Option<u64>,
    pub verdict: LimitVerdict,
    pub sentence: String,
}

impl CheckedLimit {
    /// A value above the limit breaks it, even if part of the run is unknown. A value within the limit may be higher in
    /// truth than the file shows; `unseen` says why.
    pub fn of(
        check: &'static str,
        value: Option<u64>,
        most: Option<u64>,
        over: bool,
        unseen: Option<&str>,
        sentence: impl FnOnce(LimitVerdict) -> String,
    ) -> Self {
        let verdict = match (over, unseen) {
            (true, _) => LimitVerdict::Broken,
            (false, Some(_)) => LimitVerdict::Unknown,
            (false, None) => LimitVerdict::Kept,
        };
        let mut sentence = sentence(verdict);
        if let Some(why) = unseen.filter(|_| verdict == LimitVerdict::Unknown) {
            sentence = format!("can't be checked: {sentence}; {why}");
        }
        Self { check, value, most, verdict, sentence }
    }
}
