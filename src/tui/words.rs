//! Remedies and flips in the words of the screen, with their keys.

use std::borrow::Cow;

use super::action::Action;
use super::dialog::DialogAction;
use super::keys::Keymap;
use super::stage::Stage;
use crate::drawing::figures;
use crate::model::{Evidence, Finding, Flip, Level, LogLine, MarkKind, News, Remedy};
use crate::session::{self, FlipDirection, Reach, Switch};
use crate::source::SourceKind;
use crate::units::Bytes;

/// A remedy in words: with the key in a lab, the flag for a run of ours that is over, or PyTorch's line for a user's own program.
pub(crate) fn remedy(stage: &Stage<'_>, remedy: &Remedy) -> String {
    match stage.picture.kind {
        SourceKind::Live => pressed(stage.keys, remedy, &|switch| {
            let setting = stage.picture.switches().get(switch.word())?;
            Some(setting.wanted.as_deref().unwrap_or(&setting.value).to_owned())
        }),
        // A recording may be of a watched program.
        SourceKind::Recording(_) if stage.view().about.history.is_none() => session::in_flags(remedy),
        SourceKind::Recording(_) | SourceKind::Snapshot(_) | SourceKind::Watched(_) => in_program(stage, remedy),
    }
}

/// A remedy as a change of the program in view.
pub(crate) fn in_program(stage: &Stage<'_>, remedy: &Remedy) -> String {
    session::in_program(remedy, stage.view().about.oldest_torch())
}

/// The key to press for a remedy: `c (checkpoint on)`. `now` returns a switch's current value.
fn pressed(keys: &Keymap, remedy: &Remedy, now: &dyn Fn(Switch) -> Option<String>) -> String {
    match remedy {
        Remedy::Flip { switch, value } => match Switch::named(switch) {
            Some(named) => flip_to(keys, named, value, now(named).as_deref()),
            None => format!("{switch} {value}"),
        },
        Remedy::SmallerBatch { batch } => {
            let text = if *batch == 0 { "a smaller batch".to_owned() } else { format!("batch {batch}") };
            Switch::named("batch").map_or_else(
                || text.clone(),
                |batch| keys.with_key(Action::Flip(batch, FlipDirection::Previous), &text),
            )
        }
        Remedy::EmptyCache => keys.with_key(Action::EmptyCache, "empty_cache"),
        Remedy::HigherLimit => {
            let action = Switch::named("limit").map(Action::of_switch);
            action.map_or_else(|| "a higher limit".to_owned(), |action| keys.with_key(action, "a higher limit"))
        }
        Remedy::KeepNumbers | Remedy::Detach | Remedy::LetGo | Remedy::BreakCycles | Remedy::ChooseGpu => {
            session::in_flags(remedy)
        }
    }
}

fn flip_to(keys: &Keymap, switch: Switch, value: &str, now: Option<&str>) -> String {
    let (action, label) = (Action::of_switch(switch), switch.label());
    match keys.key_of(action) {
        key if !key.is_empty() && switch.reach() == Reach::Written => format!("{key} ({value})"),
        // A key moves from value to value.
        key if !key.is_empty() => {
            let place = |value: &str| switch.values().iter().position(|known| *known == value);
            let presses = now.and_then(place).zip(place(value)).map(|(from, to)| {
                let values = switch.values().len();
                (to + values - from) % values
            });
            match presses.unwrap_or(1) {
                // One more press would undo it.
                0 => keys.with_key(Action::TogglePause, &format!("{label} {value} is set")),
                1 => format!("{key} ({label} {value})"),
                presses => format!("{key}×{presses} ({label} {value})"),
            }
        }
        _ => keys.with_key(action, &format!("{label} {value}")),
    }
}

/// The remedies of a finding in one sentence; empty if there is nothing to do.
pub(crate) fn remedies(stage: &Stage<'_>, finding: &Finding) -> String {
    let words: Vec<String> = finding.remedies.iter().map(|one| remedy(stage, one)).collect();
    let choice = || words.join(" or ");
    match (&finding.evidence, finding.gain) {
        _ if words.is_empty() => String::new(),
        (Evidence::Leak { .. }, _) => words.join("; "),
        (Evidence::Releasable { .. }, None) => returns(stage, "them"),
        (_, Some(gain)) => format!("Try {}: {gain}", choice()),
        (_, None) => format!("Try {}", choice()),
    }
}

/// A sentence that no remedy that was tried is worth it; `None` if there is a remedy, or nothing was tried yet.
pub(crate) fn no_remedy(stage: &Stage<'_>, finding: &Finding) -> Option<&'static str> {
    let was_tried = match finding.evidence {
        Evidence::Peak { .. } => stage.picture.known().weighed.is_some(),
        Evidence::Stranded { .. } => {
            stage.picture.diagnosis.as_ref().is_some_and(|diagnosis| diagnosis.tried.is_some())
        }
        _ => false,
    };
    (was_tried && finding.remedies.is_empty()).then_some("No remedy that was tried gains 1 % or more.")
}

/// What releases `cached` bytes: `e returns them`.
pub(crate) fn returns(stage: &Stage<'_>, cached: &str) -> String {
    match (stage.picture.is_live(), stage.keys.key_of(Action::EmptyCache)) {
        (true, key) if !key.is_empty() => format!("{key} returns {cached}"),
        _ => format!("{} returns {cached}", in_program(stage, &Remedy::EmptyCache)),
    }
}

/// What the last flip did, and what to do about it; `None` once it is not news any more, or before it was measured.
pub(crate) fn news(stage: &Stage<'_>) -> Option<(String, String)> {
    /// For how many steps a flip is news, including the steps of its measurement.
    const STEPS: u64 = 24;
    let view = stage.picture.known();
    let effect = view.effects.last().filter(|_| !stage.hold.asks() && stage.hold.advises())?;
    let fresh = stage.news || view.steps.finished.saturating_sub(effect.step) <= STEPS;
    let news = News::of(effect).filter(|_| fresh)?;
    let flips: Vec<String> = effect.flips.iter().map(flip).collect();
    let told = if flips.is_empty() { news.to_string() } else { format!("{}: {news}", flips.join(", ")) };
    let cached = news.spare > Bytes::ZERO || news.waits;
    let remedy = if cached { returns(stage, "what is cached") } else { String::new() };
    Some((told, remedy))
}

/// A switch's name in the panel.
pub(crate) fn label(word: &str) -> &str {
    Switch::named(word).map_or(word, |switch| switch.label())
}

/// A flip in the panel's words: `AMP off → bf16`.
pub(crate) fn flip(flip: &Flip) -> String {
    format!("{} {} → {}", label(&flip.switch), value(&flip.from), value(&flip.to))
}

/// A switch's value; a size without useless decimals.
pub(crate) fn value(text: &str) -> Cow<'_, str> {
    if text.contains(".00 ") { text.replace(".00 ", " ").into() } else { text.into() }
}

/// A line of the log, with the panel's name for a switch: a flip's line begins with the switch's word.
pub(crate) fn logged(line: &LogLine) -> Cow<'_, str> {
    match line.text.split_once(' ') {
        Some((word, rest)) if line.level == Level::Switch => format!("{} {}", label(word), value(rest)).into(),
        _ => Cow::Borrowed(&*line.text),
    }
}

/// The key of a flipped switch.
pub(crate) fn key_of<'a>(keys: &'a Keymap, word: &str) -> &'a str {
    let key = Switch::named(word).map_or("", |switch| keys.key_of(Action::of_switch(switch)));
    if key.is_empty() { "·" } else { key }
}

/// Replaces a key at the mark of a failure.
pub(crate) const FAILED: &str = "!";

/// The text of a mark: its key, and a few words.
pub(crate) fn mark<'a>(keys: &'a Keymap, kind: &MarkKind) -> (&'a str, String) {
    match kind {
        MarkKind::Flip { switch, to } => (key_of(keys, switch), value(to).into_owned()),
        MarkKind::EmptyCache { released } => {
            (keys.key_of(Action::EmptyCache), format!("−{}", figures::short_bytes(*released)))
        }
        MarkKind::OutOfMemory => (FAILED, "out of memory".to_owned()),
    }
}

/// How a layer is read and closed: ` · ? or Esc closes, j k scroll`.
pub(crate) fn how_to_read(keys: &Keymap, opened_by: Action) -> String {
    let closes: Vec<&str> = [opened_by, Action::Close]
        .map(|action| keys.key_of(action))
        .into_iter()
        .filter(|key| !key.is_empty())
        .collect();
    let scroll = [DialogAction::Next, DialogAction::Previous].map(|action| last_key(keys, action)).join(" ");
    format!(" · {} closes, {scroll} scroll", closes.join(" or "))
}

/// How a dialog is answered: ` · Enter keeps it, Esc leaves it`. Parts without a key or a word are left out.
pub(crate) fn in_dialog(keys: &Keymap, apply: &str, cancel: &str) -> String {
    let said = [(DialogAction::Apply, apply), (DialogAction::Cancel, cancel)].map(|(action, word)| {
        let key = keys.key_of(Action::Dialog(action));
        if key.is_empty() || word.is_empty() { String::new() } else { format!("{key} {word}") }
    });
    let said: Vec<String> = said.into_iter().filter(|said| !said.is_empty()).collect();
    if said.is_empty() { String::new() } else { format!(" · {}", said.join(", ")) }
}

/// The last key of a dialog action in words; if it has several, that is a character.
fn last_key(keys: &Keymap, action: DialogAction) -> &str {
    let binding = keys.bindings().iter().find(|binding| binding.action == Action::Dialog(action));
    binding.and_then(|binding| binding.label.split(' ').next_back()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::Micros;
    use crate::tui::keymap;

    fn all(keys: &Keymap) -> Vec<String> {
        let flip =
            |switch: &'static str, value: &'static str| Remedy::Flip { switch: switch.into(), value: value.into() };
        let remedies = [
            flip("ckpt", "on"),
            flip("retain", "off"),
            flip("alloc-conf", "expandable_segments:True"),
            Remedy::SmallerBatch { batch: 8 },
            Remedy::EmptyCache,
            Remedy::HigherLimit,
        ];
        remedies.iter().map(|one| pressed(keys, one, &|_| None)).collect()
    }

    #[test]
    fn a_key_is_said_as_often_as_it_is_to_be_pressed() {
        let off = Remedy::Flip { switch: "retain".into(), value: "off".into() };
        for (now, said) in [("losses", "r×3 (leak off)"), ("graph", "r×2 (leak off)"), ("cycles", "r (leak off)")] {
            assert_eq!(pressed(keymap::standard(), &off, &|_| Some(now.to_owned())), said);
        }
    }

    #[test]
    fn remedies_name_the_keys_in_force() {
        let standard = [
            "c (checkpoint on)",
            "r (leak off)",
            "x (expandable_segments:True)",
            "b (batch 8)",
            "e (empty_cache)",
            "L (a higher limit)",
        ];
        assert_eq!(all(keymap::standard()), standard);
        let bound = ["ckpt", "retain", "alloc-conf", "batch-back", "empty-cache", "limit"]
            .into_iter()
            .zip(["f1", "f2", "f3", "f4", "f5"]);
        let mut wanted: BTreeMap<String, Vec<String>> =
            bound.map(|(word, key)| (word.into(), vec![key.into()])).collect();
        wanted.insert("limit".into(), Vec::new());
        let (keys, told) = keymap::standard().rebound(&wanted);
        assert_eq!(told, Vec::<String>::new());
        let anew = [
            "F1 (checkpoint on)",
            "F2 (leak off)",
            "F3 (expandable_segments:True)",
            "F4 (batch 8)",
            "F5 (empty_cache)",
            "a higher limit",
        ];
        assert_eq!(all(&keys), anew);
        assert_eq!((key_of(&keys, "ckpt"), key_of(&keys, "limit"), key_of(&keys, "none")), ("F1", "·", "·"));
        assert_eq!(how_to_read(keymap::standard(), Action::ToggleHelp), " · ? or Esc closes, j k scroll");
    }

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
