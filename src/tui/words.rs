//! Remedies and flips in the words of the screen: with the keys that do them.

use std::borrow::Cow;

use super::figures;
use crate::model::{Evidence, Finding, Flip, Level, LogLine, MarkKind, Remedy};
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

/// What the panel calls a switch.
pub(crate) fn label(word: &str) -> &str {
    Switch::named(word).map_or(word, |switch| switch.label())
}

/// A flip as the panel words it: `AMP off → bf16`.
pub(crate) fn flip(flip: &Flip) -> String {
    format!("{} {} → {}", label(&flip.switch), value(&flip.from), value(&flip.to))
}

/// A switch's value: of a size without decimals that say nothing.
pub(crate) fn value(text: &str) -> Cow<'_, str> {
    if text.contains(".00 ") { text.replace(".00 ", " ").into() } else { text.into() }
}

/// A line of the log, in which a switch goes by the name that the panel has for it: a flip's line begins with its word.
pub(crate) fn logged(line: &LogLine) -> Cow<'_, str> {
    match line.text.split_once(' ') {
        Some((word, rest)) if line.level == Level::Switch => format!("{} {}", label(word), value(rest)).into(),
        _ => Cow::Borrowed(&*line.text),
    }
}

/// The key of a flipped switch.
pub(crate) fn key_of(word: &str) -> char {
    Switch::named(word).map_or('·', Switch::key)
}

/// What a mark says: its key, and a few words.
pub(crate) fn mark(kind: &MarkKind) -> (char, String) {
    match kind {
        MarkKind::Flip { switch, to } => (key_of(switch), value(to).into_owned()),
        MarkKind::EmptyCache { released } => ('e', format!("−{}", figures::short_bytes(*released))),
        MarkKind::OutOfMemory => ('!', "out of memory".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Micros;

    #[test]
    fn the_log_calls_switches_what_the_panel_calls_them() {
        let line = |level, text: &str| LogLine { time: Micros(0), step: 0, level, text: text.into() };
        for (level, text, shown) in [
            (Level::Switch, "ckpt off → on", "checkpoint off → on"),
            (Level::Switch, "limit none → 120.00 MiB", "limit none → 120 MiB"),
            (Level::Switch, "empty_cache returned 52.00 MiB", "empty_cache returned 52 MiB"),
            (Level::Info, "batch of nothing", "batch of nothing"),
        ] {
            assert_eq!(logged(&line(level, text)), shown);
        }
    }
}
