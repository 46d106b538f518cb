//! Whether a limit is kept, broken, or can't be judged from the file.

use serde::Serialize;

use crate::cli::columns::Tone;

/// Whether a limit is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LimitVerdict {
    /// It is.
    #[default]
    Kept,
    /// The file does not tell.
    Unknown,
    /// It is not.
    Broken,
}

impl LimitVerdict {
    /// Its colour.
    pub const fn tone(self) -> Tone {
        match self {
            Self::Kept => Tone::Good,
            Self::Unknown => Tone::Mixed,
            Self::Broken => Tone::Bad,
        }
    }
}

/// One limit, held against one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CheckedLimit {
    /// The option, as a key.
    pub check: &'static str,
    /// What the run has: bytes, or a number.
    pub value: Option<u64>,
    /// The most that is allowed, where it is a number of the same kind.
    pub most: Option<u64>,
    pub verdict: LimitVerdict,
    pub sentence: String,
}

impl CheckedLimit {
    /// What is over a limit breaks it, even if the rest is unknown; what is not may be more than is seen, and `unseen` says why.
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
