//! The values that the pickle machine computes with.

use crate::types::TextId;

/// A value on the stack of the machine: a scalar, or the id of an object in the [`Arena`](super::Arena).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A number beyond `i64`.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(TextId),
    /// A list or tuple.
    List(u32),
    /// A dictionary.
    Dict(u32),
    /// Something that snapshots don't use: bytes, sets, numbers beyond 64 bits. Its content is not kept.
    Opaque,
}

impl Value {
    /// The kind of value, for messages.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a bool",
            Self::Int(_) | Self::Unsigned(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Dict(_) => "a dictionary",
            Self::Opaque => "bytes or a set",
        }
    }
}
