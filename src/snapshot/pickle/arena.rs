//! Where the objects of a pickle live.

use super::Problem;
use super::budget::Budget;
use super::packed::{Packed, WideNumbers};
use super::records::{self, EntryBuilder, FieldError};
use crate::snapshot::{Frame, FrameId, StackId, Stacks, TextId, Texts, TraceEntry};

/// A value on the stack of the machine: a scalar, or the id of an object in the [`Arena`].
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
    /// Something that snapshots have no use for: bytes, sets, numbers beyond 64 bits. Its content is not kept.
    Opaque,
}

impl Value {
    /// What it is, for messages.
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

/// What has become of a list so far.
#[derive(Clone, Copy, Debug)]
enum ListSlot {
    Empty,
    /// Its items, in [`Arena::lists`].
    Items(u32),
    /// A list of frames that some entry or block used as its stack.
    Stack(StackId),
}

/// What has become of a dictionary so far.
#[derive(Clone, Copy, Debug)]
enum DictSlot {
    Empty,
    /// Its pairs, in [`Arena::dicts`].
    Pairs(u32),
    /// A trace entry, in [`Arena::entries`].
    Entry(u32),
    Frame(FrameId),
}

/// The objects of a pickle.
#[derive(Debug)]
pub struct Arena {
    /// All texts.
    pub texts: Texts,
    /// All frames and stacks.
    pub stacks: Stacks,
    /// The trace entries in the order in which their dictionaries were completed.
    pub entries: Vec<TraceEntry>,
    /// The memory that may still be taken.
    pub budget: Budget,
    list_slots: Vec<ListSlot>,
    lists: Vec<Vec<Packed>>,
    /// Lists of [`Arena::lists`] that became stacks, for the next list.
    spare_lists: Vec<u32>,
    dict_slots: Vec<DictSlot>,
    dicts: Vec<Vec<(Packed, Packed)>>,
    numbers: WideNumbers,
    scratch: Vec<FrameId>,
}

impl Default for Arena {
    fn default() -> Self {
        Self {
            texts: records::known_texts(),
            stacks: Stacks::default(),
            entries: Vec::new(),
            budget: Budget::default(),
            list_slots: Vec::new(),
            lists: Vec::new(),
            spare_lists: Vec::new(),
            dict_slots: Vec::new(),
            dicts: Vec::new(),
            numbers: WideNumbers::default(),
            scratch: Vec::new(),
        }
    }
}

/// What a list's slot, its vector and its first growth take.
const LIST_COST: usize = size_of::<Vec<Packed>>() + 4 * size_of::<Packed>();
/// The same for a dictionary.
const DICT_COST: usize = size_of::<Vec<(Packed, Packed)>>() + 4 * size_of::<(Packed, Packed)>();
/// What a text takes beside its bytes: two pointers to it, its id, two reference counts.
const TEXT_COST: usize = 64;

impl Arena {
    /// `value` in four bytes.
    pub(super) fn pack(&mut self, value: Value) -> Result<Packed, Problem> {
        let (packed, widened) = self.numbers.pack(value)?;
        if widened {
            self.budget.charge(WideNumbers::COST)?;
        }
        Ok(packed)
    }

    /// The value that was packed; `None` for one that was never set.
    pub(super) fn unpack(&self, packed: Packed) -> Option<Value> {
        self.numbers.unpack(packed)
    }

    /// A text.
    pub(super) fn text(&mut self, text: &str) -> Result<Value, Problem> {
        let (id, new) = self.texts.intern(text);
        if new {
            self.budget.charge(TEXT_COST + text.len())?;
        }
        Ok(Value::Text(id))
    }

    /// A new list without items.
    pub(super) fn empty_list(&mut self) -> Result<Value, Problem> {
        self.budget.charge(size_of::<ListSlot>())?;
        let id = u32::try_from(self.list_slots.len()).map_err(|_| Problem::TooBig)?;
        self.list_slots.push(ListSlot::Empty);
        Ok(Value::List(id))
    }

    /// A new dictionary without pairs.
    pub(super) fn empty_dict(&mut self) -> Result<Value, Problem> {
        self.budget.charge(size_of::<DictSlot>())?;
        let id = u32::try_from(self.dict_slots.len()).map_err(|_| Problem::TooBig)?;
        self.dict_slots.push(DictSlot::Empty);
        Ok(Value::Dict(id))
    }

    /// Appends `values` to the list `id`.
    pub(super) fn extend_list(&mut self, id: u32, values: &[Value]) -> Result<(), Problem> {
        let index = match self.list_slots.get(id as usize).copied() {
            _ if values.is_empty() => return Ok(()),
            Some(ListSlot::Items(index)) => index,
            Some(ListSlot::Empty) => {
                let index = match self.spare_lists.pop() {
                    Some(index) => index,
                    None => {
                        self.budget.charge(LIST_COST)?;
                        self.lists.push(Vec::new());
                        u32::try_from(self.lists.len() - 1).map_err(|_| Problem::TooBig)?
                    }
                };
                self.list_slots[id as usize] = ListSlot::Items(index);
                index
            }
            _ => return Err(Problem::Malformed("a list of frames grows after it was used")),
        };
        self.budget.charge(size_of_val(values) / size_of::<Value>() * size_of::<Packed>())?;
        for value in values {
            let packed = self.pack(*value)?;
            self.lists[index as usize].push(packed);
        }
        Ok(())
    }

    /// Sets the keys of dictionary `id`: `pairs` is key, value, key, value …
    pub(super) fn extend_dict(&mut self, id: u32, pairs: &[Value]) -> Result<(), Problem> {
        let Some(slot) = self.dict_slots.get(id as usize).copied() else {
            return Err(Problem::Malformed("a dictionary that does not exist is changed"));
        };
        match slot {
            DictSlot::Empty => {
                if let Some(folded) = self.fold(pairs)? {
                    self.dict_slots[id as usize] = folded;
                    return Ok(());
                }
                self.budget.charge(DICT_COST)?;
                let index = u32::try_from(self.dicts.len()).map_err(|_| Problem::TooBig)?;
                self.dicts.push(Vec::new());
                self.dict_slots[id as usize] = DictSlot::Pairs(index);
                self.add_pairs(index, pairs)
            }
            DictSlot::Pairs(index) => self.add_pairs(index, pairs),
            DictSlot::Entry(index) => {
                let mut builder = EntryBuilder::from(self.entries[index as usize]);
                for pair in pairs.chunks_exact(2) {
                    builder
                        .set(self, pair[0], pair[1])
                        .map_err(|_| Problem::Malformed("a trace entry changes to something else"))?;
                }
                if let Ok(entry) = builder.finish() {
                    self.entries[index as usize] = entry;
                }
                Ok(())
            }
            DictSlot::Frame(_) => Err(Problem::Malformed("a frame grows after it was complete")),
        }
    }

    fn add_pairs(&mut self, index: u32, pairs: &[Value]) -> Result<(), Problem> {
        self.budget.charge(pairs.len() * size_of::<Packed>())?;
        for pair in pairs.chunks_exact(2) {
            let pair = (self.pack(pair[0])?, self.pack(pair[1])?);
            self.dicts[index as usize].push(pair);
        }
        Ok(())
    }

    /// Makes a record of a dictionary's pairs if they are those of a trace entry or a frame.
    fn fold(&mut self, pairs: &[Value]) -> Result<Option<DictSlot>, Problem> {
        for key in pairs.iter().step_by(2) {
            match key {
                Value::Text(records::ACTION) => return self.fold_entry(pairs),
                Value::Text(records::FILENAME) => {
                    let pairs = pairs.chunks_exact(2).map(|pair| (pair[0], pair[1]));
                    let Some(frame) = records::frame(pairs) else { return Ok(None) };
                    let (id, new) = self.stacks.intern_frame(frame);
                    if new {
                        self.budget.charge(3 * size_of::<Frame>())?;
                    }
                    return Ok(Some(DictSlot::Frame(id)));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn fold_entry(&mut self, pairs: &[Value]) -> Result<Option<DictSlot>, Problem> {
        // What is not well formed stays a plain dictionary: the message then comes from who wanted an entry, and
        // can say which.
        let Ok(entry) = self.entry_from_pairs(pairs) else { return Ok(None) };
        self.budget.charge(size_of::<TraceEntry>())?;
        let index = u32::try_from(self.entries.len()).map_err(|_| Problem::TooBig)?;
        self.entries.push(entry);
        Ok(Some(DictSlot::Entry(index)))
    }

    fn entry_from_pairs(&mut self, pairs: &[Value]) -> Result<TraceEntry, FieldError> {
        let mut builder = EntryBuilder::default();
        for pair in pairs.chunks_exact(2) {
            builder.set(self, pair[0], pair[1])?;
        }
        builder.finish()
    }

    /// The stack that a list of frames is; `None` if it is something else.
    pub fn stack(&mut self, list: Value) -> Option<StackId> {
        let id = match list {
            Value::List(id) => id,
            Value::None => return Some(StackId::EMPTY),
            _ => return None,
        };
        let index = match self.list_slots.get(id as usize)? {
            ListSlot::Empty => return Some(StackId::EMPTY),
            ListSlot::Stack(stack) => return Some(*stack),
            ListSlot::Items(index) => *index,
        };
        self.scratch.clear();
        for at in 0..self.lists[index as usize].len() {
            let Some(Value::Dict(dict)) = self.unpack(self.lists[index as usize][at]) else { return None };
            let frame = match *self.dict_slots.get(dict as usize)? {
                DictSlot::Frame(frame) => frame,
                DictSlot::Pairs(_) => self.late_frame(dict)?,
                _ => return None,
            };
            self.scratch.push(frame);
        }
        // Its cost was charged when the list was filled; beside that, a new stack has an end and a hash.
        let (stack, new) = self.stacks.intern_stack(&self.scratch);
        if new {
            self.budget.charge(size_of::<usize>() * 6).ok()?;
        }
        self.list_slots[id as usize] = ListSlot::Stack(stack);
        self.lists[index as usize].clear();
        self.spare_lists.push(index);
        Some(stack)
    }

    /// The frame that a dictionary is whose keys came one by one.
    fn late_frame(&mut self, dict: u32) -> Option<FrameId> {
        let frame = records::frame(self.pairs(Value::Dict(dict)))?;
        let (id, new) = self.stacks.intern_frame(frame);
        if new {
            self.budget.charge(3 * size_of::<Frame>()).ok()?;
        }
        self.dict_slots[dict as usize] = DictSlot::Frame(id);
        Some(id)
    }

    /// How many items a list has; `None` if it is no list.
    #[must_use]
    pub fn list_len(&self, list: Value) -> Option<usize> {
        let Value::List(id) = list else { return None };
        Some(match self.list_slots.get(id as usize)? {
            ListSlot::Empty => 0,
            ListSlot::Items(index) => self.lists[*index as usize].len(),
            ListSlot::Stack(stack) => self.stacks.frames(*stack).count(),
        })
    }

    /// An item of a list; `None` for stacks, whose items are no values any more.
    #[must_use]
    pub fn item(&self, list: Value, at: usize) -> Option<Value> {
        let Value::List(id) = list else { return None };
        match self.list_slots.get(id as usize)? {
            ListSlot::Items(index) => self.unpack(*self.lists[*index as usize].get(at)?),
            _ => None,
        }
    }

    /// What a dictionary holds under `key`; the last one wins, as in Python.
    #[must_use]
    pub fn get(&self, dict: Value, key: &str) -> Option<Value> {
        self.pairs(dict)
            .filter(|(k, _)| matches!(k, Value::Text(id) if self.texts.get(*id) == key))
            .last()
            .map(|(_, v)| v)
    }

    /// The pairs of a dictionary that is neither entry nor frame.
    pub fn pairs(&self, dict: Value) -> impl Iterator<Item = (Value, Value)> + '_ {
        let pairs = match dict {
            Value::Dict(id) => match self.dict_slots.get(id as usize) {
                Some(DictSlot::Pairs(index)) => self.dicts[*index as usize].as_slice(),
                _ => &[],
            },
            _ => &[],
        };
        pairs.iter().filter_map(|(key, value)| Some((self.unpack(*key)?, self.unpack(*value)?)))
    }

    /// Where in [`Arena::entries`] a dictionary's entry stands, if it became one.
    #[must_use]
    pub fn entry_index(&self, dict: Value) -> Option<usize> {
        let Value::Dict(id) = dict else { return None };
        match self.dict_slots.get(id as usize)? {
            DictSlot::Entry(index) => Some(*index as usize),
            _ => None,
        }
    }

    /// The entry that a plain dictionary holds: one whose keys came one by one.
    ///
    /// # Errors
    /// [`FieldError`] says which key is missing or wrong.
    pub fn entry(&mut self, dict: Value) -> Result<TraceEntry, FieldError> {
        let pairs: Vec<Value> = self.pairs(dict).flat_map(|(key, value)| [key, value]).collect();
        self.entry_from_pairs(&pairs)
    }
}
