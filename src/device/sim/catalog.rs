//! Simulated GPUs by name: `lab/devices/*.toml`, which are built in, and the user's own, which replace them.

use std::path::Path;

use thiserror::Error;

use super::card::Card;
use vramlab_user_input::{FileError, Shelf, ShelfError};

const BUILT_IN: [(&str, &str); 18] = [
    ("a100-40g", include_str!("../lab/a100-40g.toml")),
    ("a100-80g", include_str!("../lab/a100-80g.toml")),
    ("a10g", include_str!("../lab/a10g.toml")),
    ("a6000", include_str!("../lab/a6000.toml")),
    ("b200", include_str!("../lab/b200.toml")),
    ("h100-80g", include_str!("../lab/h100-80g.toml")),
    ("h100-94g", include_str!("../lab/h100-94g.toml")),
    ("h200", include_str!("../lab/h200.toml")),
    ("l4", include_str!("../lab/l4.toml")),
    ("l40s", include_str!("../lab/l40s.toml")),
    ("mi300x", include_str!("../lab/mi300x.toml")),
    ("rtx-3060-12g", include_str!("../lab/rtx-3060-12g.toml")),
    ("rtx-3090", include_str!("../lab/rtx-3090.toml")),
    ("rtx-4090", include_str!("../lab/rtx-4090.toml")),
    ("rtx-5060ti-16g", include_str!("../lab/rtx-5060ti-16g.toml")),
    ("rtx-5090", include_str!("../lab/rtx-5090.toml")),
    ("rtx-pro-6000", include_str!("../lab/rtx-pro-6000.toml")),
    ("t4", include_str!("../lab/t4.toml")),
];

/// Why there is no such card.
#[derive(Debug, Error)]
pub enum CardError {
    /// No file has the name.
    #[error("there is no simulated device 'sim:{name}'; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A file is not read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file does not parse, or contradicts itself.
    #[error("the device file {name}.toml is not understood ({reason}); correct or remove it")]
    Malformed {
        /// The file's name.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// All simulated GPUs.
#[derive(Clone, Debug)]
pub struct CardCatalog(Shelf);

impl CardCatalog {
    /// The built-in cards, and the `.toml` files in `folder`, which replace built-in cards of the same name.
    #[must_use]
    pub fn with_user_cards(folder: Option<&Path>) -> Self {
        Self(Shelf::new(&BUILT_IN, folder))
    }

    /// Adds a card, or replaces the one of this name.
    pub fn insert(&mut self, name: &str, source: &str) {
        self.0.insert(name, source);
    }

    /// All names: built-in ones first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// The files of the user's folder that define no card, and why.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.0.warnings_of(|name| self.card(name))
    }

    /// The card of this name.
    ///
    /// # Errors
    /// If there is none, or its file can't be parsed.
    pub fn card(&self, name: &str) -> Result<Card, CardError> {
        let malformed = |reason: String| CardError::Malformed { name: name.to_owned(), reason };
        let card: Card = self.0.get(name).map_err(|error| match error {
            ShelfError::Unknown => CardError::Unknown {
                name: name.to_owned(),
                known: self.names().map(|name| format!("sim:{name}")).collect::<Vec<_>>().join(", "),
            },
            ShelfError::File(error) => error.into(),
            ShelfError::Malformed(reason) => malformed(reason.to_string()),
        })?;
        match card.contradiction() {
            Some((key, reason)) => Err(malformed(match self.0.text(name).ok().and_then(|text| text.place_of(key)) {
                Some(place) => format!("line {}: {reason}", place.line()),
                None => reason.to_owned(),
            })),
            None => Ok(Card { name: name.to_owned(), ..card }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_card_is_understood() {
        let catalog = CardCatalog::with_user_cards(None);
        for name in catalog.names() {
            assert_eq!(catalog.card(name).unwrap().name, name);
        }
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = CardCatalog::with_user_cards(None).card("h300").unwrap_err().to_string();
        let known: Vec<String> = BUILT_IN.iter().map(|(name, _)| format!("sim:{name}")).collect();
        assert_eq!(error, format!("there is no simulated device 'sim:h300'; there are {}", known.join(", ")));
    }

    #[test]
    fn a_users_card_wins_and_an_impossible_one_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let t4 = BUILT_IN.iter().find(|(name, _)| *name == "t4").unwrap().1;
        std::fs::write(folder.path().join("t4.toml"), t4.replace("Tesla T4", "my own")).unwrap();
        std::fs::write(folder.path().join("none.toml"), t4.replace("multiprocessors = 40", "multiprocessors = 0"))
            .unwrap();
        let catalog = CardCatalog::with_user_cards(Some(folder.path()));
        assert_eq!(catalog.card("t4").unwrap().title, "my own");
        let error = catalog.card("none").unwrap_err().to_string();
        let line = t4.lines().position(|line| line.starts_with("multiprocessors")).unwrap() + 1;
        assert!(
            error.contains(&format!("none.toml is not understood (line {line}: multiprocessors counts")),
            "{error}"
        );
    }
}
