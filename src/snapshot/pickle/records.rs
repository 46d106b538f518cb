//! Compact records for what a snapshot has millions of: how a dictionary becomes a trace entry or a frame.

use super::error::Problem;
use super::value::Value;
use crate::types::{Action, Frame, StackId, TextId, Texts, TraceEntry};
use vramlab_allocator::PoolId;
use vramlab_allocator::units::Micros;
use vramlab_allocator::units::{Address, Bytes, StreamId};

/// The empty text, which [`TextId::default`] is.
const EMPTY: TextId = TextId(0);
/// The words of [`Action::KNOWN`] come first, then [`KEYS`].
const FIRST_ACTION: u32 = 1;
const FIRST_KEY: u32 = FIRST_ACTION + Action::KNOWN.len() as u32;
/// Keys of entries and frames, in the order of the constants below.
const KEYS: [&str; 12] = [
    "action",
    "addr",
    "size",
    "stream",
    "time_us",
    "device_free",
    "user_metadata",
    "frames",
    "filename",
    "line",
    "name",
    "pool_id",
];

/// The key that makes a dictionary a trace entry.
pub const ACTION: TextId = TextId(FIRST_KEY);
const ADDR: TextId = TextId(FIRST_KEY + 1);
const SIZE: TextId = TextId(FIRST_KEY + 2);
const STREAM: TextId = TextId(FIRST_KEY + 3);
const TIME_US: TextId = TextId(FIRST_KEY + 4);
const DEVICE_FREE: TextId = TextId(FIRST_KEY + 5);
const USER_METADATA: TextId = TextId(FIRST_KEY + 6);
const FRAMES: TextId = TextId(FIRST_KEY + 7);
/// The key that makes a dictionary a frame.
pub const FILENAME: TextId = TextId(FIRST_KEY + 8);
const LINE: TextId = TextId(FIRST_KEY + 9);
const NAME: TextId = TextId(FIRST_KEY + 10);
const POOL_ID: TextId = TextId(FIRST_KEY + 11);

/// A table that knows the fixed texts.
pub fn known_texts() -> Texts {
    let mut texts = Texts::default();
    texts.intern("");
    for (_, word) in Action::KNOWN {
        texts.intern(word);
    }
    for key in KEYS {
        texts.intern(key);
    }
    texts
}

/// Answers what the lists of a pickle stand for.
pub trait Objects {
    /// The stack that a list of frames forms; `None` if the list holds something else.
    ///
    /// # Errors
    /// [`Problem`] when the budget is used up.
    fn stack(&mut self, list: Value) -> Result<Option<StackId>, Problem>;

    /// The pool id that a pair of numbers forms.
    fn pool_id(&self, pair: Value) -> Option<PoolId>;
}

/// Why a dictionary is not a trace entry: which key, and what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The key.
    pub key: &'static str,
    /// What was expected.
    pub expected: &'static str,
}

/// Why an entry can't be read.
#[derive(Debug)]
pub enum EntryError {
    /// The dictionary is not an entry.
    Field(FieldError),
    /// Reading can't continue.
    Problem(Problem),
}

impl From<FieldError> for EntryError {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

impl From<Problem> for EntryError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// A trace entry while its dictionary is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryBuilder {
    action: Option<Action>,
    address: u64,
    size: Option<u64>,
    stream: u64,
    time: u64,
    stack: StackId,
    metadata: TextId,
    pool: Option<PoolId>,
}

impl From<TraceEntry> for EntryBuilder {
    fn from(entry: TraceEntry) -> Self {
        Self {
            action: Some(entry.action),
            address: entry.address.0,
            size: Some(entry.size.0),
            stream: entry.stream.0,
            time: entry.time.0,
            stack: entry.stack,
            metadata: entry.metadata,
            pool: entry.pool,
        }
    }
}

impl EntryBuilder {
    /// Sets one key to a value, which is one of `objects`. Ignores unknown keys and keys that are not texts.
    ///
    /// # Errors
    /// [`EntryError`] if a known key has a value of the wrong kind.
    #[inline(always)]
    pub fn set(&mut self, key: Value, value: Value, objects: &mut impl Objects) -> Result<(), EntryError> {
        let Value::Text(key) = key else { return Ok(()) };
        match key {
            ACTION => match value {
                Value::Text(word) => self.action = Some(action(word)),
                _ => return Err(FieldError { key: "action", expected: "a text" }.into()),
            },
            ADDR => self.address = memory("addr", value)?,
            DEVICE_FREE => self.address = memory("device_free", value)?,
            SIZE => self.size = Some(size(value)?),
            STREAM => self.stream = unsigned("stream", value)?,
            TIME_US => self.time = unsigned("time_us", value)?,
            USER_METADATA => {
                if let Value::Text(text) = value {
                    self.metadata = text;
                }
            }
            FRAMES => {
                self.stack = objects.stack(value)?.ok_or(FieldError { key: "frames", expected: "a list of frames" })?;
            }
            POOL_ID => self.pool = objects.pool_id(value),
            _ => {}
        }
        Ok(())
    }

    /// The entry.
    ///
    /// # Errors
    /// [`FieldError`] if the entry has no action or no size.
    pub fn finish(self) -> Result<TraceEntry, FieldError> {
        Ok(TraceEntry {
            action: self.action.ok_or(FieldError { key: "action", expected: "a text" })?,
            address: Address(self.address),
            size: Bytes(self.size.ok_or(FieldError { key: "size", expected: "a number of bytes" })?),
            stream: StreamId(self.stream),
            time: Micros(self.time),
            stack: self.stack,
            metadata: self.metadata,
            pool: self.pool,
        })
    }
}

fn action(word: TextId) -> Action {
    match word.0.checked_sub(FIRST_ACTION).and_then(|index| Action::KNOWN.get(index as usize)) {
        Some((action, _)) => *action,
        None => Action::Other(word),
    }
}

/// A number of at least zero. Raw pointers that were written as negative 64-bit numbers get their original value.
pub fn unsigned(key: &'static str, value: Value) -> Result<u64, FieldError> {
    match value {
        Value::Int(n) => Ok(n.cast_unsigned()),
        Value::Unsigned(n) => Ok(n),
        _ => Err(FieldError { key, expected: "a number" }),
    }
}

/// An address or a size. No device has more than 2⁵⁷ bytes of address space, so sums of accepted values can't overflow.
pub fn memory(key: &'static str, value: Value) -> Result<u64, FieldError> {
    match value {
        Value::Int(n) if (0..1 << 57).contains(&n) => Ok(n.cast_unsigned()),
        _ => Err(FieldError { key, expected: "a number from 0 to 2^57" }),
    }
}

/// A size. A failed request can be larger than any device.
fn size(value: Value) -> Result<u64, FieldError> {
    match value {
        Value::Int(n) if n >= 1 << 57 => Ok((1 << 57) - 1),
        Value::Unsigned(_) => Ok((1 << 57) - 1),
        value => memory("size", value),
    }
}

/// The frame that a dictionary's pairs describe; `None` if they describe none.
pub fn frame(pairs: impl Iterator<Item = (Value, Value)>) -> Option<Frame> {
    let mut filename = None;
    let mut name = EMPTY;
    let mut line = 0;
    for (key, value) in pairs {
        match (key, value) {
            (Value::Text(FILENAME), Value::Text(text)) => filename = Some(text),
            (Value::Text(NAME), Value::Text(text)) => name = text,
            (Value::Text(LINE), Value::Int(n)) => line = u32::try_from(n).unwrap_or(0),
            // Code generated by torch.compile has the line -1, written without its sign; for some code the line is unknown.
            (Value::Text(LINE), Value::Unsigned(_) | Value::None) => line = 0,
            (Value::Text(NAME), Value::None) => name = EMPTY,
            (Value::Text(FILENAME), Value::None) => filename = Some(EMPTY),
            (Value::Text(FILENAME | NAME | LINE), _) => return None,
            _ => {}
        }
    }
    Some(Frame { filename: filename?, line, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_action_has_its_word() {
        let texts = known_texts();
        for (index, (expected, word)) in Action::KNOWN.into_iter().enumerate() {
            let id = TextId(FIRST_ACTION + u32::try_from(index).unwrap());
            assert_eq!(texts.get(id), word);
            assert_eq!(action(id), expected);
        }
        assert_eq!(action(ACTION), Action::Other(ACTION));
        for (id, key) in [(EMPTY, ""), (ACTION, "action"), (FILENAME, "filename"), (NAME, "name"), (FRAMES, "frames")] {
            assert_eq!(texts.get(id), key);
        }
    }
}
