//! The stack machine that executes a pickle's opcodes.

use super::PickleListener;
use super::arena::Arena;
use super::error::{PickleError, Problem};
use super::glance::{Glance, Stop};
use super::input::{Input, PickleSource};
use super::memo::Memo;
use super::opcode as op;
use super::value::Value;

/// Marks that may be open at once; a snapshot needs about eight.
const MAX_DEPTH: usize = 1000;
/// Longest text in bytes; the longest of a snapshot is a path.
const MAX_TEXT: u64 = 16 << 20;

/// The machine: a stack of values, the marks on it, and the memo.
///
/// The machine reads from any [`PickleSource`] through a pointer, a quarter of a megabyte at a time. If it were generic
/// over the source, it would be compiled once for each way in which a file may be packed and opened.
pub struct Machine<'a, L> {
    input: Input<'a>,
    arena: Arena,
    stack: Vec<Value>,
    /// The greatest depth of the stack so far, which has been charged to the budget.
    charged_stack: usize,
    marks: Vec<usize>,
    memo: Memo,
    glance: Glance,
    listener: &'a mut L,
    /// How many entries there were when the listener was last called.
    heard: usize,
}

impl<'a, L: PickleListener> Machine<'a, L> {
    pub fn new(reader: &'a mut dyn PickleSource, listener: &'a mut L) -> Self {
        Self {
            input: Input::new(reader),
            arena: Arena::default(),
            stack: Vec::new(),
            charged_stack: 0,
            marks: Vec::new(),
            memo: Memo::default(),
            glance: Glance::default(),
            listener,
            heard: 0,
        }
    }

    /// Runs to STOP. Returns the objects, the top value, and the offset behind it.
    pub fn run(mut self) -> Result<(Arena, Value, u64), PickleError> {
        loop {
            let offset = self.input.offset();
            match self.step() {
                Ok(None) => {}
                Ok(Some(top)) => {
                    self.arena.budget.set_read(self.input.paid());
                    return Ok((self.arena, top, self.input.offset()));
                }
                Err(problem) => return Err(PickleError { offset, problem }),
            }
        }
    }

    /// Executes one opcode. Returns the top of the stack at STOP.
    #[inline]
    fn step(&mut self) -> Result<Option<Value>, Problem> {
        let opcode = self.input.byte()?;
        match opcode {
            op::BINGET => {
                let [index] = self.input.array()?;
                self.recall(u64::from(index))?;
            }
            op::LONG_BINGET => {
                let index = u32::from_le_bytes(self.input.array()?);
                self.recall(u64::from(index))?;
            }
            op::MEMOIZE => self.store(self.memo.next())?,
            op::BININT1 => {
                let [n] = self.input.array()?;
                self.push(Value::Int(i64::from(n)))?;
            }
            op::BININT2 => {
                let n = u16::from_le_bytes(self.input.array()?);
                self.push(Value::Int(i64::from(n)))?;
            }
            op::BININT => {
                let n = i32::from_le_bytes(self.input.array()?);
                self.push(Value::Int(i64::from(n)))?;
            }
            op::LONG1 => {
                let [len] = self.input.array()?;
                let value = long(self.input.take(usize::from(len))?);
                self.push(value)?;
            }
            op::SHORT_BINUNICODE => {
                let [len] = self.input.array()?;
                self.text(u64::from(len))?;
            }
            op::EMPTY_DICT if self.glance(Glance::entry)? => {}
            op::EMPTY_LIST if self.glance(Glance::stack)? => {}
            op::EMPTY_DICT => {
                self.arena.budget.set_read(self.input.paid());
                let dict = self.arena.empty_dict()?;
                self.push(dict)?;
            }
            op::EMPTY_LIST | op::EMPTY_TUPLE => {
                self.arena.budget.set_read(self.input.paid());
                let list = self.arena.empty_list()?;
                self.push(list)?;
            }
            op::MARK => {
                if self.marks.len() >= MAX_DEPTH {
                    return Err(Problem::TooDeep(MAX_DEPTH));
                }
                self.marks.push(self.stack.len());
            }
            op::SETITEMS => {
                let from = self.pop_mark()?;
                let dict = self.below(from)?;
                self.set_items(dict, from)?;
            }
            op::APPENDS => {
                let from = self.pop_mark()?;
                let list = self.below(from)?;
                self.append(list, from)?;
            }
            op::STOP => return self.pop().map(Some),
            _ => self.rare_step(opcode)?,
        }
        Ok(None)
    }

    /// Reads a value whose first opcode has been read, if it can be read in one step.
    #[inline]
    fn glance(&mut self, read: Look) -> Result<bool, Problem> {
        for _ in 0..LOOKS {
            self.arena.budget.set_read(self.input.paid());
            match read(&mut self.glance, self.input.ahead(), &self.memo, &mut self.arena) {
                Ok((value, len)) => {
                    self.input.pass(len);
                    self.memo.push(self.glance.stored(), &mut self.arena.budget)?;
                    self.push(value)?;
                    return Ok(true);
                }
                Err(Stop::Unusual) => return Ok(false),
                Err(Stop::Short) => {
                    if !self.input.read_ahead()? {
                        return Ok(false);
                    }
                }
                Err(Stop::Problem(problem)) => return Err(*problem),
            }
        }
        Ok(false)
    }

    /// Executes the opcodes that are rare in large snapshots.
    fn rare_step(&mut self, opcode: u8) -> Result<(), Problem> {
        self.arena.budget.set_read(self.input.paid());
        match opcode {
            op::PROTO => {
                let [protocol] = self.input.array()?;
                if protocol > 5 {
                    return Err(Problem::Protocol(protocol));
                }
            }
            // A frame is only a hint about how much to read ahead.
            op::FRAME => self.input.skip(8)?,
            op::SETITEM => {
                let from = self.index_of_top(2)?;
                let dict = self.below(from)?;
                self.set_items(dict, from)?;
            }
            op::APPEND => {
                let from = self.index_of_top(1)?;
                let list = self.below(from)?;
                self.append(list, from)?;
            }
            op::TUPLE1 => self.tuple(1)?,
            op::TUPLE2 => self.tuple(2)?,
            op::TUPLE3 => self.tuple(3)?,
            op::TUPLE | op::LIST => {
                let from = self.pop_mark()?;
                self.tuple(self.stack.len() - from)?;
            }
            op::DICT => {
                let from = self.pop_mark()?;
                let dict = self.arena.empty_dict()?;
                self.stack.insert(from, dict);
                self.set_items(dict, from + 1)?;
            }
            op::POP => {
                // A mark can be popped like a value.
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop()?;
                }
            }
            op::POP_MARK => {
                let from = self.pop_mark()?;
                self.stack.truncate(from);
            }
            op::DUP => {
                let top = *self.stack.last().ok_or(UNDERFLOW)?;
                self.push(top)?;
            }
            op::EMPTY_SET => self.push(Value::Opaque)?,
            op::ADDITEMS => {
                let from = self.pop_mark()?;
                self.below(from)?;
                self.stack.truncate(from);
            }
            op::FROZENSET => {
                let from = self.pop_mark()?;
                self.stack.truncate(from);
                self.push(Value::Opaque)?;
            }
            op::PUT | op::BINPUT | op::LONG_BINPUT | op::GET => self.memo_step(opcode)?,
            _ => self.scalar_step(opcode)?,
        }
        Ok(())
    }

    fn memo_step(&mut self, opcode: u8) -> Result<(), Problem> {
        let index = match opcode {
            op::BINPUT => {
                let [index] = self.input.array()?;
                u64::from(index)
            }
            op::LONG_BINPUT => u64::from(u32::from_le_bytes(self.input.array()?)),
            _ => parse(self.input.line()?).ok_or(Problem::Malformed("a memo index is no number"))?,
        };
        if opcode == op::GET { self.recall(index) } else { self.store(index) }
    }

    fn scalar_step(&mut self, opcode: u8) -> Result<(), Problem> {
        let value = match opcode {
            op::NONE => Value::None,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.input.array()?)),
            op::LONG4 => {
                let len = i32::from_le_bytes(self.input.array()?);
                let len = u64::try_from(len).map_err(|_| Problem::Malformed("a number has a negative length"))?;
                if len <= 16 {
                    #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
                    let bytes = self.input.take(len as usize)?;
                    long(bytes)
                } else {
                    self.input.skip(len)?;
                    Value::Opaque
                }
            }
            op::BINUNICODE | op::BINSTRING => {
                let len = u32::from_le_bytes(self.input.array()?);
                return self.text(u64::from(len));
            }
            op::BINUNICODE8 => {
                let len = u64::from_le_bytes(self.input.array()?);
                return self.text(len);
            }
            op::SHORT_BINSTRING => {
                let [len] = self.input.array()?;
                return self.text(u64::from(len));
            }
            op::SHORT_BINBYTES => {
                let [len] = self.input.array()?;
                self.input.skip(u64::from(len))?;
                Value::Opaque
            }
            op::BINBYTES => {
                let len = u32::from_le_bytes(self.input.array()?);
                self.input.skip(u64::from(len))?;
                Value::Opaque
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let len = u64::from_le_bytes(self.input.array()?);
                self.input.skip(len)?;
                Value::Opaque
            }
            op::INT => match self.input.line()? {
                b"00" => Value::Bool(false),
                b"01" => Value::Bool(true),
                line => decimal(line)?,
            },
            op::LONG => {
                let line = self.input.line()?;
                decimal(line.strip_suffix(b"L").unwrap_or(line))?
            }
            op::FLOAT => Value::Float(parse(self.input.line()?).ok_or(NO_NUMBER)?),
            op::UNICODE => {
                let text = raw_unicode_escape(self.input.line()?);
                self.arena.text(&text)?
            }
            op::STRING => {
                let line = self.input.line()?;
                let inner = line
                    .strip_prefix(b"'")
                    .and_then(|line| line.strip_suffix(b"'"))
                    .or_else(|| line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\"")))
                    .ok_or(Problem::Malformed("a text has no quotes"))?;
                self.arena.text(&String::from_utf8_lossy(inner))?
            }
            _ => {
                return Err(op::executing(opcode).map_or(Problem::UnknownOpcode(opcode), Problem::Executes));
            }
        };
        self.push(value)
    }

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), Problem> {
        self.stack.push(value);
        if self.stack.len() > self.charged_stack {
            self.arena.budget.set_read(self.input.paid());
            self.arena.budget.charge(size_of::<Value>())?;
            self.charged_stack = self.stack.len();
        }
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, Problem> {
        if self.marks.last().is_some_and(|mark| *mark == self.stack.len()) {
            return Err(UNDERFLOW);
        }
        self.stack.pop().ok_or(UNDERFLOW)
    }

    fn pop_mark(&mut self) -> Result<usize, Problem> {
        let from = self.marks.pop().ok_or(Problem::Malformed("values are collected without a mark"))?;
        if from > self.stack.len() { Err(UNDERFLOW) } else { Ok(from) }
    }

    /// The index of the `count`-th value from the top.
    fn index_of_top(&self, count: usize) -> Result<usize, Problem> {
        self.stack.len().checked_sub(count).ok_or(UNDERFLOW)
    }

    /// The value under stack index `from`: the container being filled.
    #[inline]
    fn below(&self, from: usize) -> Result<Value, Problem> {
        from.checked_sub(1).and_then(|index| self.stack.get(index)).copied().ok_or(UNDERFLOW)
    }

    fn set_items(&mut self, dict: Value, from: usize) -> Result<(), Problem> {
        let Value::Dict(id) = dict else {
            return Err(Problem::Malformed("keys are set in something that is no dictionary"));
        };
        if !(self.stack.len() - from).is_multiple_of(2) {
            return Err(Problem::Malformed("a dictionary's key has no value"));
        }
        self.arena.budget.set_read(self.input.paid());
        self.arena.extend_dict(id, &self.stack[from..])?;
        self.stack.truncate(from);
        Ok(())
    }

    fn append(&mut self, list: Value, from: usize) -> Result<(), Problem> {
        self.arena.budget.set_read(self.input.paid());
        match list {
            Value::List(id) => self.arena.extend_list(id, &self.stack[from..])?,
            Value::Opaque => {}
            _ => return Err(Problem::Malformed("values are appended to something that is no list")),
        }
        self.stack.truncate(from);
        if self.arena.entries.len() > self.heard {
            self.heard = self.arena.entries.len();
            self.listener.hear(&mut self.arena, &self.stack)?;
        }
        Ok(())
    }

    /// Replaces the top `count` values by a list of them.
    fn tuple(&mut self, count: usize) -> Result<(), Problem> {
        let from = self.index_of_top(count)?;
        let list = self.arena.empty_list()?;
        if let Value::List(id) = list {
            self.arena.extend_list(id, &self.stack[from..])?;
        }
        self.stack.truncate(from);
        self.push(list)
    }

    fn text(&mut self, len: u64) -> Result<(), Problem> {
        let len = usize::try_from(len).ok().filter(|_| len <= MAX_TEXT).ok_or(Problem::LongText(len))?;
        self.arena.budget.set_read(self.input.paid_after(len as u64));
        let bytes = self.input.take(len)?;
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => self.arena.text(text)?,
            // Python writes text that it can't encode (surrogates from undecodable paths) as invalid UTF-8.
            Err(_) => self.arena.text(&String::from_utf8_lossy(bytes))?,
        };
        self.push(text)
    }

    #[inline]
    fn recall(&mut self, index: u64) -> Result<(), Problem> {
        let packed = self.memo.get(index);
        let value = packed.and_then(|packed| self.arena.unpack(packed)).ok_or(Problem::NoMemo(index))?;
        self.push(value)
    }

    #[inline]
    fn store(&mut self, index: u64) -> Result<(), Problem> {
        let top = *self.stack.last().ok_or(UNDERFLOW)?;
        let packed = self.arena.pack(top)?;
        self.arena.budget.set_read(self.input.paid());
        self.memo.set(index, packed, &mut self.arena.budget)
    }
}

/// The most attempts to read one value, each with more bytes ahead. For files the second attempt has all that one value needs.
const LOOKS: u32 = 8;

/// A function that reads one value and its length from the bytes ahead.
type Look = fn(&mut Glance, &[u8], &Memo, &mut Arena) -> Result<(Value, usize), Stop>;

const UNDERFLOW: Problem = Problem::Malformed("an opcode needs a value that is not there");
const NO_NUMBER: Problem = Problem::Malformed("a number has no digits");

/// A little-endian two's-complement number of any length.
fn long(bytes: &[u8]) -> Value {
    let significant = match bytes {
        // Python adds a zero byte if the highest bit would read as a sign.
        [rest @ .., 0] if rest.len() == 8 => rest,
        _ => bytes,
    };
    let positive = significant.len() < bytes.len();
    if significant.len() > 8 {
        return Value::Opaque;
    }
    let negative = !positive && significant.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut array = [if negative { 0xff } else { 0 }; 8];
    array[..significant.len()].copy_from_slice(significant);
    let n = u64::from_le_bytes(array);
    match i64::try_from(n) {
        Ok(n) => Value::Int(n),
        Err(_) if negative => Value::Int(n.cast_signed()),
        Err(_) => Value::Unsigned(n),
    }
}

fn decimal(line: &[u8]) -> Result<Value, Problem> {
    let n: i128 = parse(line).ok_or(NO_NUMBER)?;
    Ok(i64::try_from(n).map(Value::Int).or_else(|_| u64::try_from(n).map(Value::Unsigned)).unwrap_or(Value::Opaque))
}

/// Decodes Python's encoding of texts in protocol 0: Latin-1, and `\uXXXX` or `\UXXXXXXXX` for other characters.
fn raw_unicode_escape(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let [byte, after @ ..] = rest {
        rest = after;
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => after.get(1..5),
            (b'\\', Some(b'U')) => after.get(1..9),
            _ => None,
        };
        let code = digits.and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (code.and_then(char::from_u32), digits) {
            (Some(escaped), Some(digits)) => {
                text.push(escaped);
                rest = &after[1 + digits.len()..];
            }
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

fn parse<T: std::str::FromStr>(line: &[u8]) -> Option<T> {
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}
