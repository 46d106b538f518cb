//! The glossary: what the words on screens mean in PyTorch's sense, their current figures, and where they are used.
//!
//! The help shows it. Every word that a screen uses must have an entry; a test checks all screens.

mod memory;
mod training;

use super::panel::Panel;
use super::stage::Stage;

/// An entry of the glossary.
pub(crate) struct GlossaryEntry {
    /// The word as screens write it.
    pub word: &'static str,
    /// Other forms on screens: a short form, another case.
    pub also: &'static [&'static str],
    /// The panels that use it.
    pub panels: &'static [Panel],
    /// Its current figure.
    pub figure: Option<fn(&Stage<'_>) -> Option<String>>,
    /// What it means.
    pub meaning: &'static str,
}

impl GlossaryEntry {
    /// True if `name`, in lower case, is its word or another form of it.
    pub fn is_called(&self, name: &str) -> bool {
        self.also.iter().chain([&self.word]).any(|word| word.to_lowercase() == name)
    }

    /// True if the word or its meaning contains `sought`, which is in lower case.
    pub fn says(&self, sought: &str) -> bool {
        let words = self.also.iter().chain([&self.word]);
        words.map(|word| word.to_lowercase()).any(|word| word.contains(sought))
            || self.meaning.to_lowercase().contains(sought)
    }
}

/// Every word, in the order of the help.
pub(crate) fn all() -> impl Iterator<Item = &'static GlossaryEntry> {
    memory::WORDS.iter().chain(training::WORDS)
}

/// The entries of a panel.
pub(crate) fn of(panel: Panel) -> impl Iterator<Item = &'static GlossaryEntry> {
    all().filter(move |entry| entry.panels.contains(&panel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_once_and_every_panel_has_some() {
        let words: Vec<String> =
            all().flat_map(|entry| entry.also.iter().chain([&entry.word])).map(|word| word.to_lowercase()).collect();
        let mut once = words.clone();
        once.sort();
        let twice: Vec<&String> = once.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
        assert_eq!(twice, Vec::<&String>::new());
        for panel in all().flat_map(|entry| entry.panels) {
            assert!(of(*panel).count() > 0 && !panel.name().is_empty());
        }
        for entry in all() {
            assert!(entry.meaning.chars().count() <= 260, "{} is no sentence any more", entry.word);
        }
    }
}
