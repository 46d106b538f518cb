//! Simulated GPUs by name: `lab/devices/*.toml`, embedded, and the user's own over them.

use std::collections::BTreeMap;
use std::path::Path;

use thiserror::Error;

use super::card::Card;

const BUILT_IN: [(&str, &str); 7] = [
    ("a100-40g", include_str!("../../../lab/devices/a100-40g.toml")),
    ("a100-80g", include_str!("../../../lab/devices/a100-80g.toml")),
    ("h100-80g", include_str!("../../../lab/devices/h100-80g.toml")),
    ("h200", include_str!("../../../lab/devices/h200.toml")),
    ("rtx-3060-12g", include_str!("../../../lab/devices/rtx-3060-12g.toml")),
    ("rtx-4090", include_str!("../../../lab/devices/rtx-4090.toml")),
    ("t4", include_str!("../../../lab/devices/t4.toml")),
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
    /// A file does not parse, or contradicts itself.
    #[error("the device file {name}.toml is not understood: {reason}")]
    Malformed {
        /// The file's name.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// All simulated GPUs.
#[derive(Clone, Debug)]
pub struct CardCatalog {
    sources: BTreeMap<String, String>,
}

impl CardCatalog {
    /// The built-in cards and, over them, the `.toml` files in `folder`.
    #[must_use]
    pub fn with_user_cards(folder: Option<&Path>) -> Self {
        let mut sources: BTreeMap<_, _> =
            BUILT_IN.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned())).collect();
        let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
        for path in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            if let (Some(name), Some("toml")) = (stem, path.extension().and_then(|e| e.to_str()))
                && let Ok(source) = std::fs::read_to_string(&path)
            {
                sources.insert(name.to_owned(), source);
            }
        }
        Self { sources }
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// The card of that name.
    ///
    /// # Errors
    /// When there is none, or its file is not understood.
    pub fn card(&self, name: &str) -> Result<Card, CardError> {
        let source = self.sources.get(name).ok_or_else(|| CardError::Unknown {
            name: name.to_owned(),
            known: self.names().map(|name| format!("sim:{name}")).collect::<Vec<_>>().join(", "),
        })?;
        let malformed = |reason: &str| CardError::Malformed { name: name.to_owned(), reason: reason.to_owned() };
        let card: Card = toml::from_str(source).map_err(|error| malformed(error.message()))?;
        match card.contradiction() {
            Some(reason) => Err(malformed(reason)),
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
        assert_eq!(
            error,
            "there is no simulated device 'sim:h300'; there are sim:a100-40g, sim:a100-80g, sim:h100-80g, sim:h200, \
             sim:rtx-3060-12g, sim:rtx-4090, sim:t4"
        );
    }

    #[test]
    fn a_users_card_wins_and_an_impossible_one_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let t4 = BUILT_IN.iter().find(|(name, _)| *name == "t4").unwrap().1;
        std::fs::write(folder.path().join("t4.toml"), t4.replace("Tesla T4", "my own")).unwrap();
        std::fs::write(folder.path().join("none.toml"), t4.replace("= 40", "= 0")).unwrap();
        let catalog = CardCatalog::with_user_cards(Some(folder.path()));
        assert_eq!(catalog.card("t4").unwrap().title, "my own");
        assert!(matches!(catalog.card("none"), Err(CardError::Malformed { .. })));
    }
}
