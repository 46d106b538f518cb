//! Storage for the objects of a pickle.

use std::collections::HashMap;

use super::budget::Budget;
use super::error::Problem;
use super::packed::{PackedValue, WideNumbers};
use super::records::{self, EntryBuilder, EntryError, Objects};
use super::value::Value;
use crate::types::{Frame, FrameId, StackId, Stacks, TextId, Texts, TraceEntry};
use vramlab_allocator::PoolId;

/// What a list has become so far.
#[derive(Clone, Copy, Debug)]
enum ListSlot {
    Empty,
    /// Its items, in [`Arena::lists`].
    Items(u32),
    /// A list of frames that has not been used yet.
    Frames(StackId),
    /// A list of frames that an entry or a block used as its stack.
    Stack(StackId),
    /// Two numbers, in [`Arena::pairs_of_numbers`].
    Pair(u32),
}

/// What a dictionary has become so far.
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
    /// The memory that may still be taken, and the work that may still be done.
    pub budget: Budget,
    list_slots: Vec<ListSlot>,
    lists: Vec<Vec<PackedValue>>,
    /// Lists in [`Arena::lists`] that became stacks and may be reused for new lists.
    spare_lists: Vec<u32>,
    dict_slots: Vec<DictSlot>,
    dicts: Vec<Vec<(PackedValue, PackedValue)>>,
    /// The dictionary that each frame was read from.
    frame_dicts: Vec<u32>,
    pairs_of_numbers: Vec<(PackedValue, PackedValue)>,
    /// The index of each pair of numbers.
    pair_ids: HashMap<(i64, i64), u32>,
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
            frame_dicts: Vec::new(),
            pairs_of_numbers: Vec::new(),
            pair_ids: HashMap::new(),
            numbers: WideNumbers::default(),
            scratch: Vec::new(),
        }
    }
}

/// Bytes for a list's slot, its vector and its first growth.
const LIST_COST: usize = size_of::<Vec<PackedValue>>() + 4 * size_of::<PackedValue>();
/// Bytes for a dictionary's slot, its vector and its first growth.
const DICT_COST: usize = size_of::<Vec<(PackedValue, PackedValue)>>() + 4 * size_of::<(PackedValue, PackedValue)>();
/// Bytes for a frame in its table and in the table's index.
const FRAME_COST: usize = 4 * size_of::<Frame>() + size_of::<u32>();
/// Bytes for a pair of numbers in its table and in the table's index.
const PAIR_COST: usize = 3 * size_of::<(i64, i64)>();
/// Bytes for a text besides its content: two pointers to it, its id, two reference counts, and the spare room of tables.
const TEXT_COST: usize = 112;

impl Arena {
    /// Packs `value` into four bytes.
    pub(super) fn pack(&mut self, value: Value) -> Result<PackedValue, Problem> {
        let (packed, widened) = self.numbers.pack(value)?;
        if widened {
            self.budget.charge(WideNumbers::COST)?;
        }
        Ok(packed)
    }

    /// Unpacks a value; `None` for a value that was never set.
    pub(super) fn unpack(&self, packed: PackedValue) -> Option<Value> {
        self.numbers.unpack(packed)
    }

    /// Copies of the current texts and stacks; `None` if the budget does not allow them.
    pub fn copies(&mut self) -> Option<(Texts, Stacks)> {
        let weight = self.texts.len() * TEXT_COST + self.stacks.weight();
        self.budget.spare(weight).then(|| (self.texts.clone(), self.stacks.clone()))
    }

    /// Stores a text.
    pub(super) fn text(&mut self, text: &str) -> Result<Value, Problem> {
        self.intern(text).map(Value::Text)
    }

    /// The id of a text.
    ///
    /// # Errors
    /// [`Problem`] when the budget is used up.
    pub fn intern(&mut self, text: &str) -> Result<TextId, Problem> {
        let (id, new) = self.texts.intern(text);
        if new {
            self.budget.charge(TEXT_COST + text.len())?;
        }
        Ok(id)
    }

    /// A new list without items.
    pub(super) fn empty_list(&mut self) -> Result<Value, Problem> {
        self.new_list(ListSlot::Empty)
    }

    /// A new list of the frames of a stack.
    pub(super) fn list_of_frames(&mut self, stack: StackId) -> Result<Value, Problem> {
        self.new_list(ListSlot::Frames(stack))
    }

    /// A new tuple of two numbers.
    pub(super) fn pair_of(&mut self, numbers: (i64, i64)) -> Result<Value, Problem> {
        let index = match self.pair_ids.get(&numbers) {
            Some(index) => *index,
            None => {
                self.budget.charge(PAIR_COST)?;
                let pair = (self.pack(Value::Int(numbers.0))?, self.pack(Value::Int(numbers.1))?);
                let index = u32::try_from(self.pairs_of_numbers.len()).map_err(|_| Problem::TooBig)?;
                self.pairs_of_numbers.push(pair);
                self.pair_ids.insert(numbers, index);
                index
            }
        };
        self.new_list(ListSlot::Pair(index))
    }

    fn new_list(&mut self, slot: ListSlot) -> Result<Value, Problem> {
        self.budget.charge(size_of::<ListSlot>())?;
        let id = u32::try_from(self.list_slots.len()).map_err(|_| Problem::TooBig)?;
        self.list_slots.push(slot);
        Ok(Value::List(id))
    }

    /// A new dictionary without pairs.
    pub(super) fn empty_dict(&mut self) -> Result<Value, Problem> {
        self.new_dict(DictSlot::Empty)
    }

    /// The id of the next dictionary.
    pub(super) fn next_dict(&mut self) -> Result<PackedValue, Problem> {
        let id = u32::try_from(self.dict_slots.len()).map_err(|_| Problem::TooBig)?;
        self.pack(Value::Dict(id))
    }

    /// A new dictionary that is a trace entry.
    pub(super) fn add_entry(&mut self, entry: TraceEntry) -> Result<Value, Problem> {
        let slot = self.entry_slot(entry)?;
        self.new_dict(slot)
    }

    fn new_dict(&mut self, slot: DictSlot) -> Result<Value, Problem> {
        self.budget.charge(size_of::<DictSlot>())?;
        let id = u32::try_from(self.dict_slots.len()).map_err(|_| Problem::TooBig)?;
        self.dict_slots.push(slot);
        Ok(Value::Dict(id))
    }

    fn entry_slot(&mut self, entry: TraceEntry) -> Result<DictSlot, Problem> {
        self.budget.charge(size_of::<TraceEntry>())?;
        let index = u32::try_from(self.entries.len()).map_err(|_| Problem::TooBig)?;
        self.entries.push(entry);
        Ok(DictSlot::Entry(index))
    }

    /// Appends `values` to the list `id`.
    pub(super) fn extend_list(&mut self, id: u32, values: &[Value]) -> Result<(), Problem> {
        let index = match self.list_slots.get(id as usize).copied() {
            _ if values.is_empty() => return Ok(()),
            Some(ListSlot::Items(index)) => index,
            Some(ListSlot::Empty) => self.give_items(id)?,
            Some(ListSlot::Frames(stack)) => {
                let index = self.give_items(id)?;
                let frames = self.stacks.ids(stack);
                self.budget.charge(size_of_val(frames))?;
                for frame in frames {
                    let dict = self.frame_dicts.get(frame.0 as usize).copied().unwrap_or_default();
                    let (packed, _) = self.numbers.pack(Value::Dict(dict))?;
                    self.lists[index as usize].push(packed);
                }
                index
            }
            Some(ListSlot::Pair(_)) => return Err(Problem::Malformed("a pair of numbers grows")),
            _ => return Err(Problem::Malformed("a list of frames grows after it was used")),
        };
        self.budget.charge(size_of_val(values) / size_of::<Value>() * size_of::<PackedValue>())?;
        self.lists[index as usize].reserve(values.len());
        for value in values {
            let packed = self.pack(*value)?;
            self.lists[index as usize].push(packed);
        }
        Ok(())
    }

    /// Makes room for the items of a list that had none.
    fn give_items(&mut self, id: u32) -> Result<u32, Problem> {
        let index = match self.spare_lists.pop() {
            Some(index) => index,
            None => {
                self.budget.charge(LIST_COST)?;
                self.lists.push(Vec::new());
                u32::try_from(self.lists.len() - 1).map_err(|_| Problem::TooBig)?
            }
        };
        self.list_slots[id as usize] = ListSlot::Items(index);
        Ok(index)
    }

    /// Sets the keys of dictionary `id`: `pairs` is key, value, key, value …
    pub(super) fn extend_dict(&mut self, id: u32, pairs: &[Value]) -> Result<(), Problem> {
        let Some(slot) = self.dict_slots.get(id as usize).copied() else {
            return Err(Problem::Malformed("a dictionary that does not exist is changed"));
        };
        match slot {
            DictSlot::Empty => {
                if let Some(folded) = self.fold(id, pairs)? {
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
                    builder.set(pair[0], pair[1], self).map_err(|error| match error {
                        EntryError::Field(_) => Problem::Malformed("a trace entry changes to something else"),
                        EntryError::Problem(problem) => problem,
                    })?;
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
        self.budget.charge(pairs.len() * size_of::<PackedValue>())?;
        self.dicts[index as usize].reserve(pairs.len() / 2);
        for pair in pairs.chunks_exact(2) {
            let pair = (self.pack(pair[0])?, self.pack(pair[1])?);
            self.dicts[index as usize].push(pair);
        }
        Ok(())
    }

    /// Turns a dictionary's pairs into a record if they form a trace entry or a frame.
    fn fold(&mut self, id: u32, pairs: &[Value]) -> Result<Option<DictSlot>, Problem> {
        for key in pairs.iter().step_by(2) {
            match key {
                Value::Text(records::ACTION) => return self.fold_entry(pairs),
                // A single key is the first of several calls.
                Value::Text(records::FILENAME) if pairs.len() > 2 => {
                    let pairs = pairs.chunks_exact(2).map(|pair| (pair[0], pair[1]));
                    let Some(frame) = records::frame(pairs) else { return Ok(None) };
                    return Ok(Some(DictSlot::Frame(self.frame(frame, id)?)));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn fold_entry(&mut self, pairs: &[Value]) -> Result<Option<DictSlot>, Problem> {
        // An ill-formed entry stays a plain dictionary. The error then comes from the code that wanted an entry, which
        // can say which one.
        let entry = match self.entry_from_pairs(pairs) {
            Ok(entry) => entry,
            Err(EntryError::Field(_)) => return Ok(None),
            Err(EntryError::Problem(problem)) => return Err(problem),
        };
        self.entry_slot(entry).map(Some)
    }

    fn entry_from_pairs(&mut self, pairs: &[Value]) -> Result<TraceEntry, EntryError> {
        let mut builder = EntryBuilder::default();
        for pair in pairs.chunks_exact(2) {
            builder.set(pair[0], pair[1], self)?;
        }
        Ok(builder.finish()?)
    }

    /// The stack that a list of frames forms; `None` if the list holds something else.
    ///
    /// # Errors
    /// [`Problem`] when the budget is used up.
    pub fn stack_of(&mut self, list: Value) -> Result<Option<StackId>, Problem> {
        let id = match list {
            Value::List(id) => id,
            Value::None => return Ok(Some(StackId::EMPTY)),
            _ => return Ok(None),
        };
        let index = match self.list_slots.get(id as usize) {
            Some(ListSlot::Empty) => return Ok(Some(StackId::EMPTY)),
            Some(ListSlot::Stack(stack)) => return Ok(Some(*stack)),
            Some(ListSlot::Frames(stack)) => {
                let stack = *stack;
                self.list_slots[id as usize] = ListSlot::Stack(stack);
                return Ok(Some(stack));
            }
            Some(ListSlot::Items(index)) => *index,
            Some(ListSlot::Pair(_)) | None => return Ok(None),
        };
        let len = self.lists[index as usize].len();
        // A list that is not a stack stays a list, and may be examined again.
        self.budget.look(len)?;
        self.scratch.clear();
        for at in 0..len {
            let Some(Value::Dict(dict)) = self.unpack(self.lists[index as usize][at]) else { return Ok(None) };
            let frame = match self.dict_slots.get(dict as usize) {
                Some(DictSlot::Frame(frame)) => *frame,
                Some(DictSlot::Pairs(_)) => match self.late_frame(dict)? {
                    Some(frame) => frame,
                    None => return Ok(None),
                },
                _ => return Ok(None),
            };
            self.scratch.push(frame);
        }
        // Its cost was charged when the list was filled.
        let stack = self.scratch_stack(0)?;
        self.list_slots[id as usize] = ListSlot::Stack(stack);
        self.lists[index as usize].clear();
        self.spare_lists.push(index);
        Ok(Some(stack))
    }

    /// The stack formed by frames that were complete when they were stored; `None` if one is something else.
    pub(super) fn stack_of_frames(
        &mut self,
        stored: impl Iterator<Item = Option<PackedValue>>,
    ) -> Result<Option<StackId>, Problem> {
        self.scratch.clear();
        for packed in stored {
            let Some(Value::Dict(dict)) = packed.and_then(|packed| self.unpack(packed)) else { return Ok(None) };
            let Some(DictSlot::Frame(frame)) = self.dict_slots.get(dict as usize) else { return Ok(None) };
            self.scratch.push(*frame);
        }
        self.scratch_stack(size_of::<FrameId>()).map(Some)
    }

    /// The stack formed by the collected frames, each of which costs `each` bytes.
    fn scratch_stack(&mut self, each: usize) -> Result<StackId, Problem> {
        let (stack, new) = self.stacks.intern_stack(&self.scratch);
        if new {
            // Besides its frames, a stack has an end and a hash.
            self.budget.charge(size_of::<usize>() * 6 + self.scratch.len() * each)?;
        }
        Ok(stack)
    }

    /// The frame that a dictionary describes if its keys came one by one.
    fn late_frame(&mut self, dict: u32) -> Result<Option<FrameId>, Problem> {
        let Some(frame) = records::frame(self.pairs(Value::Dict(dict))?) else { return Ok(None) };
        let id = self.frame(frame, dict)?;
        self.dict_slots[dict as usize] = DictSlot::Frame(id);
        Ok(Some(id))
    }

    /// Stores a frame and returns its id. `dict` is the dictionary that it was read from.
    fn frame(&mut self, frame: Frame, dict: u32) -> Result<FrameId, Problem> {
        let (id, new) = self.stacks.intern_frame(frame);
        if new {
            self.budget.charge(FRAME_COST)?;
            self.frame_dicts.push(dict);
        }
        Ok(id)
    }

    /// How many items a list has; `None` if it is not a list.
    ///
    /// # Errors
    /// [`Problem`] if the budget does not allow visiting all items, which is why callers ask for the length.
    pub fn list_len(&mut self, list: Value) -> Result<Option<usize>, Problem> {
        let Value::List(id) = list else { return Ok(None) };
        let len = match self.list_slots.get(id as usize) {
            Some(ListSlot::Empty) => 0,
            Some(ListSlot::Items(index)) => self.lists[*index as usize].len(),
            Some(ListSlot::Frames(stack) | ListSlot::Stack(stack)) => self.stacks.depth(*stack),
            Some(ListSlot::Pair(_)) => 2,
            None => return Ok(None),
        };
        self.budget.look(len)?;
        Ok(Some(len))
    }

    /// An item of a list; `None` for stacks, whose items are no longer values.
    #[must_use]
    pub fn item(&self, list: Value, at: usize) -> Option<Value> {
        let Value::List(id) = list else { return None };
        match self.list_slots.get(id as usize)? {
            ListSlot::Items(index) => self.unpack(*self.lists[*index as usize].get(at)?),
            ListSlot::Frames(stack) => {
                let frame = self.stacks.ids(*stack).get(at)?;
                self.frame_dicts.get(frame.0 as usize).map(|dict| Value::Dict(*dict))
            }
            ListSlot::Pair(index) => {
                let (first, second) = *self.pairs_of_numbers.get(*index as usize)?;
                self.unpack(*[first, second].get(at)?)
            }
            ListSlot::Empty | ListSlot::Stack(_) => None,
        }
    }

    /// The pool id that a pair of numbers forms.
    pub fn pool_id(&self, pair: Value) -> Option<PoolId> {
        let number = |at| match self.item(pair, at) {
            Some(Value::Int(n)) => u32::try_from(n).ok(),
            _ => None,
        };
        Some(PoolId(number(0)?, number(1)?))
    }

    /// The value of `key` in a dictionary. The last one wins, as in Python.
    ///
    /// # Errors
    /// As [`Arena::pairs`].
    pub fn get(&mut self, dict: Value, key: &str) -> Result<Option<Value>, Problem> {
        self.look_through(dict)?;
        let Some(key) = self.texts.find(key).map(Value::Text) else { return Ok(None) };
        let pairs = self.slice_of_pairs(dict).iter().rev();
        let mut found = pairs.filter(|(held, _)| self.unpack(*held) == Some(key));
        Ok(found.find_map(|(_, value)| self.unpack(*value)))
    }

    /// The pairs of a dictionary that is neither an entry nor a frame.
    ///
    /// # Errors
    /// [`Problem`] if the budget does not allow visiting all of them.
    pub fn pairs(&mut self, dict: Value) -> Result<impl Iterator<Item = (Value, Value)> + '_, Problem> {
        self.look_through(dict)?;
        Ok(self.held_pairs(dict))
    }

    fn look_through(&mut self, dict: Value) -> Result<(), Problem> {
        let pairs = self.slice_of_pairs(dict).len();
        self.budget.look(1 + pairs)
    }

    fn held_pairs(&self, dict: Value) -> impl Iterator<Item = (Value, Value)> + '_ {
        self.slice_of_pairs(dict).iter().filter_map(|(key, value)| Some((self.unpack(*key)?, self.unpack(*value)?)))
    }

    fn slice_of_pairs(&self, dict: Value) -> &[(PackedValue, PackedValue)] {
        let Value::Dict(id) = dict else { return &[] };
        match self.dict_slots.get(id as usize) {
            Some(DictSlot::Pairs(index)) => &self.dicts[*index as usize],
            _ => &[],
        }
    }

    /// The index in [`Arena::entries`] of a dictionary that became an entry.
    #[must_use]
    pub fn entry_index(&self, dict: Value) -> Option<usize> {
        let Value::Dict(id) = dict else { return None };
        match self.dict_slots.get(id as usize)? {
            DictSlot::Entry(index) => Some(*index as usize),
            _ => None,
        }
    }

    /// The entry that a plain dictionary describes if its keys came one by one.
    ///
    /// # Errors
    /// [`EntryError`] says which key is missing or wrong.
    pub fn entry(&mut self, dict: Value) -> Result<TraceEntry, EntryError> {
        let mut builder = EntryBuilder::default();
        let pairs = self.pairs(dict)?.count();
        for at in 0..pairs {
            // A dictionary that is a frame of its own stack has no pairs any more once the stack has been read.
            let Some(&(key, value)) = self.slice_of_pairs(dict).get(at) else { break };
            if let (Some(key), Some(value)) = (self.unpack(key), self.unpack(value)) {
                builder.set(key, value, self)?;
            }
        }
        Ok(builder.finish()?)
    }
}

impl Objects for Arena {
    fn stack(&mut self, list: Value) -> Result<Option<StackId>, Problem> {
        Self::stack_of(self, list)
    }

    fn pool_id(&self, pair: Value) -> Option<PoolId> {
        Self::pool_id(self, pair)
    }
}
