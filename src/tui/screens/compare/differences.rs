//! Names configurations by the switches in which they differ.

use std::sync::Arc;

use crate::model::{Configuration, Setting};
use crate::tui::words;

/// The name of a configuration: how it differs from the first.
pub(super) fn name(all: &[Arc<Configuration>], place: usize) -> String {
    let words = differences(all, place);
    match words.as_str() {
        "" if all.get(place).is_some_and(|one| one.knows_no_steps()) => "recorded".to_owned(),
        "" => "initial settings".to_owned(),
        _ => words,
    }
}

/// How a configuration differs from the first; empty if it does not.
pub(super) fn differences(all: &[Arc<Configuration>], place: usize) -> String {
    let (Some(first), Some(this)) = (all.first(), all.get(place)) else { return String::new() };
    let differs =
        |setting: &&Setting| first.settings.get(&setting.switch).is_none_or(|before| before.value != setting.value);
    let words: Vec<String> = this
        .settings
        .0
        .iter()
        .filter(differs)
        .map(|setting| format!("{} {}", words::label(&setting.switch), words::value(&setting.value)))
        .collect();
    words.join(", ")
}

/// The switches whose values are not the same in all configurations.
pub(super) fn differing(all: &[Arc<Configuration>]) -> Vec<&Setting> {
    let Some(last) = all.last() else { return Vec::new() };
    let differs = |setting: &&Setting| {
        let value = |configuration: &Arc<Configuration>| {
            configuration.settings.get(&setting.switch).is_none_or(|other| other.value != setting.value)
        };
        all.iter().any(value)
    };
    last.settings.0.iter().filter(differs).collect()
}

/// True if configurations differ only in how memory is managed, so that equal allocated bytes are no news.
pub(super) fn only_allocator(all: &[Arc<Configuration>]) -> bool {
    let differing = differing(all);
    !differing.is_empty() && differing.iter().all(|setting| &*setting.switch == "alloc-conf")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RunSettings;

    fn with(values: &[(&str, &str)]) -> Arc<Configuration> {
        let setting = |(switch, value): &(&str, &str)| Setting {
            switch: (*switch).into(),
            value: (*value).into(),
            wanted: None,
            idle: None,
        };
        Arc::new(Configuration {
            settings: Arc::new(RunSettings(values.iter().map(setting).collect())),
            step: 0,
            position: 0,
            steps: 1,
            measured: None,
            out_of_memory: false,
            curve: None,
        })
    }

    #[test]
    fn configurations_are_called_by_what_makes_them_differ_from_the_first() {
        let all = [
            with(&[("amp", "off"), ("ckpt", "off"), ("opt", "adamw")]),
            with(&[("amp", "bf16"), ("ckpt", "off"), ("opt", "adamw")]),
            with(&[("amp", "bf16"), ("ckpt", "on"), ("opt", "adamw")]),
        ];
        let names: Vec<String> = (0..3).map(|place| name(&all, place)).collect();
        assert_eq!(names, ["initial settings", "AMP bf16", "AMP bf16, checkpoint on"]);
        let differing: Vec<&str> = differing(&all).iter().map(|setting| &*setting.switch).collect();
        assert_eq!(differing, ["amp", "ckpt"]);
    }
}
