//! Why a configuration string is refused, and by which exception of PyTorch.

use thiserror::Error;

use super::keys;
use crate::version::TorchVersion;

/// The exception that PyTorch raises for a configuration error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// `ValueError`: a bad key or value.
    Value,
    /// `IndexError`: a number of more than 64 bits.
    Index,
    /// `RuntimeError` (internal assertion): the text is not of the form `key:value,key:value`.
    Runtime,
}

/// A configuration string that PyTorch refuses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// No such key.
    #[error(
        "allocator setting {key:?} does not exist in PyTorch {torch}; its keys are {}",
        keys::of(*torch).collect::<Vec<_>>().join(", ")
    )]
    UnknownKey {
        /// The text in the place of a key.
        key: String,
        /// The version whose settings they are.
        torch: TorchVersion,
    },
    /// The value lies outside what the key allows.
    #[error("allocator setting {key} can't be {value:?}; it takes {allowed}")]
    Refused {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The values that the key takes.
        allowed: String,
    },
    /// An integer of more than 64 bits.
    #[error("allocator setting {key} can't be {value:?}: the number is too large; it takes {allowed}")]
    TooLarge {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The values that the key takes.
        allowed: String,
    },
    /// The text ends where a value should stand.
    #[error("allocator setting {key} has no value; write key:value, with commas between settings")]
    MissingValue {
        /// The key.
        key: String,
    },
    /// A list without a closing bracket.
    #[error("the list of allocator setting {key} has no end; close it with ]")]
    UnclosedList {
        /// The key.
        key: String,
    },
    /// A back end other than the native allocator.
    #[error("allocator setting backend can't be {value:?} here; this allocator is native")]
    OtherBackend {
        /// The back end asked for.
        value: String,
    },
}

impl SettingsError {
    /// The exception that PyTorch raises for it since 2.10. Before, most are `RuntimeError`.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::UnknownKey { .. } | Self::Refused { .. } => ErrorClass::Value,
            Self::TooLarge { .. } => ErrorClass::Index,
            Self::MissingValue { .. } | Self::UnclosedList { .. } | Self::OtherBackend { .. } => ErrorClass::Runtime,
        }
    }
}
