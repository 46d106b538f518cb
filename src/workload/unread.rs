//! Values of keys in other programs' files that are not read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The value of a key that is not read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Unread {
    Switch(bool),
    Number(f64),
    Nothing(()),
    Keys(BTreeMap<String, IgnoredAny>),
    Something(IgnoredAny),
}

impl Unread {
    /// Whether it asks for nothing.
    pub fn is_off(&self) -> bool {
        match self {
            Self::Switch(on) => !*on,
            Self::Number(number) => *number == 0.0,
            Self::Nothing(()) => true,
            Self::Keys(keys) => keys.is_empty(),
            Self::Something(_) => false,
        }
    }
}
