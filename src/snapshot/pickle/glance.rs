//! Reads the records that a snapshot has millions of in one step instead of opcode by opcode.
//!
//! Python writes trace entries and stacks in few ways: texts and frames that it has written before are references, and
//! the rest are small numbers. These forms are read here straight from the bytes. Anything else is left to the machine,
//! which reads everything; both give the same result.

use super::arena::Arena;
use super::error::Problem;
use super::memo::Memo;
use super::opcode as op;
use super::packed::PackedValue;
use super::records::{self, EntryBuilder, EntryError};
use super::runs::{self, RunPrefix, Runs};
use super::value::Value;
use crate::types::TextId;

/// Why a value could not be read in one step.
#[derive(Debug)]
pub enum Stop {
    /// The bytes end too early.
    Short,
    /// The form is unusual; the machine must read it.
    Unusual,
    /// Reading can't continue.
    Problem(Box<Problem>),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl From<EntryError> for Stop {
    fn from(error: EntryError) -> Self {
        match error {
            // The machine reads it in full and reports what is wrong with it.
            EntryError::Field(_) => Self::Unusual,
            EntryError::Problem(problem) => problem.into(),
        }
    }
}

/// Reads entries and stacks in one step, and remembers the stacks.
#[derive(Debug, Default)]
pub struct Glance {
    runs: Runs,
    /// The values that the last read value stores in the memo, in order.
    stored: Vec<PackedValue>,
    /// The last text that was written in full. Often the next text is the same.
    last_text: TextId,
}

impl Glance {
    /// The values that the last read value stores in the memo, in order.
    pub fn stored(&self) -> &[PackedValue] {
        &self.stored
    }

    /// Reads a list, a stack whose frames were all written before, from `bytes`, which follow the list's first opcode.
    /// Returns the list and how many bytes it takes.
    ///
    /// # Errors
    /// [`Stop`] if the bytes hold anything else.
    pub fn stack(&mut self, bytes: &[u8], memo: &Memo, arena: &mut Arena) -> Result<(Value, usize), Stop> {
        self.stored.clear();
        let mut cursor = Cursor { bytes, at: 0 };
        let list = self.list(&mut cursor, memo, arena)?;
        Ok((list, cursor.at))
    }

    /// Like [`Glance::stack`], for a dictionary: a trace entry whose first key is its action.
    ///
    /// # Errors
    /// [`Stop`] if the bytes hold anything else.
    pub fn entry(&mut self, bytes: &[u8], memo: &Memo, arena: &mut Arena) -> Result<(Value, usize), Stop> {
        self.stored.clear();
        let mut cursor = Cursor { bytes, at: 0 };
        if cursor.takes(op::MEMOIZE)? {
            self.stored.push(arena.next_dict()?);
        }
        cursor.expect(op::MARK)?;
        let mut builder = EntryBuilder::default();
        let mut key = cursor.key(memo)?;
        if key != records::ACTION {
            return Err(Stop::Unusual);
        }
        loop {
            // Each kind of value takes its own path into the entry. A common intermediate value would double the time.
            match cursor.peek()? {
                op::BINGET | op::LONG_BINGET => {
                    let stored = cursor.stored(memo)?;
                    if let Some(text) = stored.text() {
                        set(&mut builder, key, Value::Text(text), arena)?;
                    } else if let Some(list) = stored.list() {
                        set(&mut builder, key, Value::List(list), arena)?;
                    } else {
                        let value = arena.unpack(stored).ok_or(Stop::Unusual)?;
                        set(&mut builder, key, value, arena)?;
                    }
                }
                op::BININT1 | op::BININT2 | op::BININT | op::LONG1 => {
                    let number = cursor.number()?;
                    if matches!(cursor.peek()?, op::BININT1 | op::BININT2 | op::BININT) {
                        let second = cursor.number()?;
                        let pair = self.pair((number, second), &mut cursor, arena)?;
                        set(&mut builder, key, pair, arena)?;
                    } else {
                        set(&mut builder, key, Value::Int(number), arena)?;
                    }
                }
                op::SHORT_BINUNICODE => {
                    let text = self.text(&mut cursor, arena)?;
                    set(&mut builder, key, Value::Text(text), arena)?;
                }
                op::EMPTY_LIST => {
                    cursor.at += 1;
                    let list = self.list(&mut cursor, memo, arena)?;
                    set(&mut builder, key, list, arena)?;
                }
                op::NONE => {
                    cursor.at += 1;
                    set(&mut builder, key, Value::None, arena)?;
                }
                _ => return Err(Stop::Unusual),
            }
            if cursor.takes(op::SETITEMS)? {
                break;
            }
            key = cursor.key(memo)?;
        }
        let entry = builder.finish().map_err(EntryError::from)?;
        Ok((arena.add_entry(entry)?, cursor.at))
    }

    /// Stores a value in the memo, if that is the next opcode.
    fn store(&mut self, value: Value, cursor: &mut Cursor<'_>, arena: &mut Arena) -> Result<(), Stop> {
        if cursor.takes(op::MEMOIZE)? {
            self.stored.push(arena.pack(value)?);
        }
        Ok(())
    }

    /// A tuple of the two numbers just read.
    fn pair(&mut self, numbers: (i64, i64), cursor: &mut Cursor<'_>, arena: &mut Arena) -> Result<Value, Stop> {
        cursor.expect(op::TUPLE2)?;
        let pair = arena.pair_of(numbers)?;
        self.store(pair, cursor, arena)?;
        Ok(pair)
    }

    fn text(&mut self, cursor: &mut Cursor<'_>, arena: &mut Arena) -> Result<TextId, Stop> {
        let [_, length] = cursor.array()?;
        let bytes = cursor.take(usize::from(length))?;
        if arena.texts.get(self.last_text).as_bytes() != bytes {
            self.last_text = arena.intern(std::str::from_utf8(bytes).map_err(|_| Stop::Unusual)?)?;
        }
        self.store(Value::Text(self.last_text), cursor, arena)?;
        Ok(self.last_text)
    }

    fn list(&mut self, cursor: &mut Cursor<'_>, memo: &Memo, arena: &mut Arena) -> Result<Value, Stop> {
        let stored = cursor.takes(op::MEMOIZE)?;
        let list = if cursor.takes(op::MARK)? {
            let rest = cursor.rest();
            let (stack, length) = match self.runs.find(rest) {
                // The memo entry may have been overwritten since.
                _ if !memo.is_lasting() => return Err(Stop::Unusual),
                RunPrefix::Known(stack, length) => (stack, length),
                RunPrefix::New(length) => {
                    let run = &rest[..length];
                    let references = runs::references(run).map(|index| memo.get(index));
                    let stack = arena.stack_of_frames(references)?.ok_or(Stop::Unusual)?;
                    self.runs.insert(run, stack, &mut arena.budget)?;
                    (stack, length)
                }
                RunPrefix::Short => return Err(Stop::Short),
                RunPrefix::Other => return Err(Stop::Unusual),
            };
            cursor.at += length;
            arena.list_of_frames(stack)?
        } else {
            arena.empty_list()?
        };
        if stored {
            self.stored.push(arena.pack(list)?);
        }
        Ok(list)
    }
}

/// Sets one key of an entry.
#[inline(always)]
fn set(builder: &mut EntryBuilder, key: TextId, value: Value, arena: &mut Arena) -> Result<(), Stop> {
    Ok(builder.set(Value::Text(key), value, arena)?)
}

/// A position in the bytes that were read ahead.
#[derive(Debug)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::Short)
    }

    /// Skips `opcode` if it comes next. Returns whether it did.
    fn takes(&mut self, opcode: u8) -> Result<bool, Stop> {
        let comes = self.peek()? == opcode;
        self.at += usize::from(comes);
        Ok(comes)
    }

    fn expect(&mut self, opcode: u8) -> Result<(), Stop> {
        if self.takes(opcode)? { Ok(()) } else { Err(Stop::Unusual) }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let bytes = self.rest().get(..length).ok_or(Stop::Short)?;
        self.at += length;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let array = *self.rest().first_chunk().ok_or(Stop::Short)?;
        self.at += N;
        Ok(array)
    }

    /// A reference to a stored value.
    #[inline]
    fn stored(&mut self, memo: &Memo) -> Result<PackedValue, Stop> {
        let index = match self.peek()? {
            op::BINGET => {
                let [_, index] = self.array()?;
                u64::from(index)
            }
            op::LONG_BINGET => {
                let [_, index @ ..] = self.array::<5>()?;
                u64::from(u32::from_le_bytes(index))
            }
            _ => return Err(Stop::Unusual),
        };
        memo.get(index).ok_or(Stop::Unusual)
    }

    /// A reference to a stored key.
    #[inline]
    fn key(&mut self, memo: &Memo) -> Result<TextId, Stop> {
        self.stored(memo)?.text().ok_or(Stop::Unusual)
    }

    /// A number of up to 64 bits.
    fn number(&mut self) -> Result<i64, Stop> {
        Ok(match self.peek()? {
            op::BININT1 => {
                let [_, n] = self.array()?;
                i64::from(n)
            }
            op::BININT2 => {
                let [_, n @ ..] = self.array::<3>()?;
                i64::from(u16::from_le_bytes(n))
            }
            op::BININT => {
                let [_, n @ ..] = self.array::<5>()?;
                i64::from(i32::from_le_bytes(n))
            }
            op::LONG1 => {
                // Eight bytes are always read; those behind the number are shifted out.
                let [_, length, n @ ..] = *self.rest().first_chunk::<10>().ok_or(Stop::Short)?;
                let unused = match length {
                    1..=8 => 64 - 8 * u32::from(length),
                    _ => return Err(Stop::Unusual),
                };
                self.at += 2 + usize::from(length);
                i64::from_le_bytes(n) << unused >> unused
            }
            _ => return Err(Stop::Unusual),
        })
    }
}
