//! Remedies and flips in the words of the screen: with the keys that do them.

use crate::model::{Evidence, Finding, Flip, MarkKind, Remedy};
use crate::session::{Reach, Switch};

/// What to press for a remedy: `c (checkpoint on)`.
pub(crate) fn remedy(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Flip { switch, value } => match Switch::named(switch) {
            Some(named) if named.reach() == Reach::Written => format!("{} ({value})", named.key()),
            Some(named) if *value == "off" => format!("{} lets go ({} off)", named.key(), named.label()),
            Some(named) => format!("{} ({} {value})", named.key(), named.label()),
            None => format!("{switch} {value}"),
        },
        Remedy::SmallerBatch { batch: 0 } => "b (a smaller batch)".to_owned(),
        Remedy::SmallerBatch { batch } => format!("b (batch {batch})"),
        Remedy::EmptyCache => "e (empty_cache)".to_owned(),
        Remedy::HigherLimit => "L (a higher limit)".to_owned(),
        Remedy::KeepNumbers => "keep loss.item() instead of the loss".to_owned(),
    }
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
