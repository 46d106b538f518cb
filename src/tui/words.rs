//! Remedies and flips in the words of the screen: with the keys that do them.

use crate::model::{Evidence, Finding, Flip, MarkKind, Remedy};
use crate::session::{Hand, Switch};

/// What to press for a remedy: `c (checkpoint on)`.
pub(crate) fn remedy(remedy: &Remedy) -> String {
    Hand::Keys.does(remedy)
}

/// What can be done about a finding, in one sentence; empty where nothing need be done.
pub(crate) fn remedies(finding: &Finding) -> String {
    let words: Vec<String> = finding.remedies.iter().map(remedy).collect();
    match (&finding.evidence, words.as_slice()) {
        (_, []) => String::new(),
        (Evidence::Leak { .. }, words) => words.join("; "),
        (Evidence::Releasable { .. }, _) => "e does it now".to_owned(),
        (_, words) => format!("Try {}", words.join(" or ")),
    }
}

/// A flip as the panel words it: `AMP off → bf16`.
pub(crate) fn flip(flip: &Flip) -> String {
    let named = Switch::named(&flip.switch);
    let label: &str = match &named {
        Some(switch) => switch.label(),
        None => &flip.switch,
    };
    format!("{label} {} → {}", flip.from, flip.to)
}

/// The key of a flipped switch.
pub(crate) fn key_of(word: &str) -> char {
    Switch::named(word).map_or('·', Switch::key)
}

/// What a mark says: its key, and a few words.
pub(crate) fn mark(kind: &MarkKind) -> (char, String) {
    match kind {
        MarkKind::Flip { switch, to } => (key_of(switch), to.to_string()),
        MarkKind::EmptyCache { released } => ('e', format!("−{}", super::figures::short_bytes(*released))),
        MarkKind::OutOfMemory => ('!', "out of memory".to_owned()),
    }
}
