//! Values in four bytes: how the memo, lists and dictionaries hold them.

use super::error::Problem;
use super::value::Value;
use crate::types::TextId;

const TAG_BITS: u32 = 3;
const PAYLOAD_BITS: u32 = 32 - TAG_BITS;
const PAYLOAD_MASK: u32 = (1 << PAYLOAD_BITS) - 1;

const CONSTANT: u32 = 0;
const SMALL: u32 = 1;
const WIDE: u32 = 2;
const TEXT: u32 = 3;
const LIST: u32 = 4;
const DICT: u32 = 5;

const UNSET: u32 = 0;
const NONE: u32 = 1;
const FALSE: u32 = 2;
const TRUE: u32 = 3;
const OPAQUE: u32 = 4;

/// A number that does not fit in a [`PackedValue`] value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wide {
    Int(i64),
    Unsigned(u64),
    Float(f64),
}

/// A value in four bytes: a tag, and a small number or an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedValue(u32);

impl PackedValue {
    /// No value: a memo entry that was never stored.
    pub const UNSET: Self = Self(CONSTANT << PAYLOAD_BITS | UNSET);

    /// The value's text id, if it is a text.
    pub fn text(self) -> Option<TextId> {
        (self.0 >> PAYLOAD_BITS == TEXT).then_some(TextId(self.0 & PAYLOAD_MASK))
    }

    /// The value's list id, if it is a list.
    pub fn list(self) -> Option<u32> {
        (self.0 >> PAYLOAD_BITS == LIST).then_some(self.0 & PAYLOAD_MASK)
    }
}

/// The numbers that did not fit in four bytes.
#[derive(Debug, Default)]
pub struct WideNumbers(Vec<Wide>);

impl WideNumbers {
    /// Bytes that one more packed number can take.
    pub const COST: usize = size_of::<Wide>();

    /// Packs `value` into four bytes. Also returns true if a wide number was added for it.
    ///
    /// # Errors
    /// [`Problem::TooBig`] beyond 2²⁹ objects of one kind.
    pub fn pack(&mut self, value: Value) -> Result<(PackedValue, bool), Problem> {
        let (tag, payload) = match value {
            Value::None => (CONSTANT, NONE),
            Value::Bool(false) => (CONSTANT, FALSE),
            Value::Bool(true) => (CONSTANT, TRUE),
            Value::Opaque => (CONSTANT, OPAQUE),
            Value::Text(id) => (TEXT, id.0),
            Value::List(id) => (LIST, id),
            Value::Dict(id) => (DICT, id),
            Value::Int(n) => match u32::try_from(n) {
                Ok(n) if n <= PAYLOAD_MASK => (SMALL, n),
                _ => return self.widen(Wide::Int(n)),
            },
            Value::Unsigned(n) => return self.widen(Wide::Unsigned(n)),
            Value::Float(x) => return self.widen(Wide::Float(x)),
        };
        if payload > PAYLOAD_MASK {
            return Err(Problem::TooBig);
        }
        Ok((PackedValue(tag << PAYLOAD_BITS | payload), false))
    }

    fn widen(&mut self, number: Wide) -> Result<(PackedValue, bool), Problem> {
        let index = u32::try_from(self.0.len()).ok().filter(|n| *n <= PAYLOAD_MASK).ok_or(Problem::TooBig)?;
        self.0.push(number);
        Ok((PackedValue(WIDE << PAYLOAD_BITS | index), true))
    }

    /// The value that was packed; `None` for [`PackedValue::UNSET`].
    #[must_use]
    pub fn unpack(&self, packed: PackedValue) -> Option<Value> {
        let payload = packed.0 & PAYLOAD_MASK;
        Some(match packed.0 >> PAYLOAD_BITS {
            CONSTANT => match payload {
                NONE => Value::None,
                FALSE => Value::Bool(false),
                TRUE => Value::Bool(true),
                OPAQUE => Value::Opaque,
                _ => return None,
            },
            SMALL => Value::Int(i64::from(payload)),
            WIDE => match *self.0.get(payload as usize)? {
                Wide::Int(n) => Value::Int(n),
                Wide::Unsigned(n) => Value::Unsigned(n),
                Wide::Float(x) => Value::Float(x),
            },
            TEXT => Value::Text(TextId(payload)),
            LIST => Value::List(payload),
            DICT => Value::Dict(payload),
            _ => return None,
        })
    }
}
