//! From a pickle's objects to a [`Snapshot`].

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;

use super::pickle::records::{self, FieldError};
use super::pickle::{self, Arena, Value};
use super::{AllocatorSettings, Annotation, Block, BlockState, Segment, Snapshot, SnapshotError};
use crate::model::{Micros, Pool};
use crate::units::{Address, Bytes, StreamId};

/// Where something is wrong, and what.
type Shape<T> = Result<T, String>;

/// Reads the snapshot that a (decompressed) pickle holds.
///
/// # Errors
/// [`SnapshotError::Pickle`] when it is no readable pickle, [`SnapshotError::Shape`] when it is one of something else.
pub fn snapshot(reader: impl Read) -> Result<Snapshot, SnapshotError> {
    let (mut arena, top) = pickle::read(reader)?;
    let mut snapshot = convert(&mut arena, top).map_err(SnapshotError::Shape)?;
    snapshot.entries = arena.entries;
    snapshot.texts = arena.texts;
    snapshot.stacks = arena.stacks;
    Ok(snapshot)
}

fn convert(arena: &mut Arena, top: Value) -> Shape<Snapshot> {
    if !matches!(top, Value::Dict(_)) {
        return Err(format!("is {}, not a dictionary", top.kind()));
    }
    let traces = arena
        .get(top, "device_traces")
        .ok_or("has no device_traces: it is no snapshot, or PyTorch did not record its history")?;
    let device_traces = device_traces(arena, traces)?;
    let segments = match arena.get(top, "segments") {
        Some(list) => segments(arena, list)?,
        None => Vec::new(),
    };
    Ok(Snapshot {
        segments,
        device_traces,
        allocator_settings: arena.get(top, "allocator_settings").map_or_else(Default::default, |d| settings(arena, d)),
        annotations: arena.get(top, "external_annotations").map_or_else(Vec::new, |list| annotations(arena, list)),
        ..Snapshot::default()
    })
}

fn items(arena: &Arena, list: Value, what: &str) -> Shape<usize> {
    arena.list_len(list).ok_or_else(|| format!("has {what} that is {} where a list should be", list.kind()))
}

fn device_traces(arena: &mut Arena, traces: Value) -> Shape<Vec<Range<usize>>> {
    let devices = items(arena, traces, "a device_traces")?;
    // The same list under several devices is read once: sharing costs nothing.
    let mut known: HashMap<u32, Range<usize>> = HashMap::new();
    let mut ranges = Vec::new();
    for device in 0..devices {
        let trace = arena.item(traces, device).unwrap_or(Value::None);
        let range = match trace {
            Value::List(id) => match known.get(&id) {
                Some(range) => range.clone(),
                None => {
                    let range = device_trace(arena, trace, device)?;
                    known.insert(id, range.clone());
                    range
                }
            },
            _ => return Err(format!("has a trace of device {device} that is {}, not a list", trace.kind())),
        };
        ranges.push(range);
    }
    Ok(ranges)
}

/// Where the entries of one device stand. As a rule they were folded one after the other and stay where they are.
fn device_trace(arena: &mut Arena, trace: Value, device: usize) -> Shape<Range<usize>> {
    let len = items(arena, trace, "a trace")?;
    let first = arena.item(trace, 0).and_then(|item| arena.entry_index(item)).unwrap_or(0);
    let in_place =
        (0..len).all(|at| arena.item(trace, at).and_then(|item| arena.entry_index(item)) == Some(first + at));
    if in_place {
        return Ok(first..first + len);
    }
    let start = arena.entries.len();
    for at in 0..len {
        let item = arena.item(trace, at).unwrap_or(Value::None);
        let entry = match arena.entry_index(item) {
            Some(index) => arena.entries[index],
            None => arena.entry(item).map_err(|FieldError { key, expected }| {
                format!("has an entry {at} in the trace of device {device} whose `{key}` is not {expected}")
            })?,
        };
        arena.budget.charge(size_of_val(&entry)).map_err(|problem| problem.to_string())?;
        arena.entries.push(entry);
    }
    Ok(start..arena.entries.len())
}

/// Looks up the keys of one dictionary, and says which one was wrong.
struct Fields<'a> {
    arena: &'a mut Arena,
    dict: Value,
    what: &'static str,
}

impl Fields<'_> {
    fn wrong(&self, error: FieldError) -> String {
        format!("has a {} whose `{}` is not {}", self.what, error.key, error.expected)
    }

    fn memory(&self, key: &'static str) -> Shape<Option<u64>> {
        let Some(value) = self.arena.get(self.dict, key) else { return Ok(None) };
        records::memory(key, value).map(Some).map_err(|error| self.wrong(error))
    }

    fn required(&self, key: &'static str) -> Shape<u64> {
        self.memory(key)?.ok_or_else(|| self.wrong(FieldError { key, expected: "there" }))
    }

    fn unsigned(&self, key: &'static str) -> Shape<u64> {
        let Some(value) = self.arena.get(self.dict, key) else { return Ok(0) };
        records::unsigned(key, value).map_err(|error| self.wrong(error))
    }

    fn device(&self) -> Shape<u32> {
        u32::try_from(self.unsigned("device")?)
            .map_err(|_| self.wrong(FieldError { key: "device", expected: "an index" }))
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.arena.get(self.dict, key)? {
            Value::Text(id) => Some(self.arena.texts.get(id)),
            _ => None,
        }
    }

    fn stack(&mut self) -> Shape<super::StackId> {
        let Some(frames) = self.arena.get(self.dict, "frames") else { return Ok(super::StackId::EMPTY) };
        self.arena.stack(frames).ok_or_else(|| self.wrong(FieldError { key: "frames", expected: "a list of frames" }))
    }
}

fn segments(arena: &mut Arena, list: Value) -> Shape<Vec<Segment>> {
    let len = items(arena, list, "a `segments`")?;
    let mut segments = Vec::new();
    for at in 0..len {
        let dict = arena.item(list, at).unwrap_or(Value::None);
        arena.budget.charge(size_of::<Segment>()).map_err(|problem| problem.to_string())?;
        segments.push(segment(arena, dict)?);
    }
    Ok(segments)
}

fn segment(arena: &mut Arena, dict: Value) -> Shape<Segment> {
    let pool_id = match arena.get(dict, "segment_pool_id") {
        Some(pair) => match (arena.item(pair, 0), arena.item(pair, 1)) {
            (Some(Value::Int(a)), Some(Value::Int(b))) => (a, b),
            _ => return Err("has a segment whose `segment_pool_id` is not a pair of numbers".into()),
        },
        None => (0, 0),
    };
    let block_list = arena.get(dict, "blocks");
    let mut fields = Fields { arena, dict, what: "segment" };
    let address = Address(fields.required("address")?);
    let mut segment = Segment {
        device: fields.device()?,
        address,
        total_size: Bytes(fields.required("total_size")?),
        stream: StreamId(fields.unsigned("stream")?),
        pool: if fields.text("segment_type") == Some("small") { Pool::Small } else { Pool::Large },
        pool_id,
        expandable: fields.arena.get(dict, "is_expandable") == Some(Value::Bool(true)),
        stack: fields.stack()?,
        blocks: Vec::new(),
    };
    if let Some(list) = block_list {
        let mut next = address;
        for at in 0..items(arena, list, "a `blocks`")? {
            let dict = arena.item(list, at).unwrap_or(Value::None);
            arena.budget.charge(size_of::<Block>()).map_err(|problem| problem.to_string())?;
            let block = block(arena, dict, next)?;
            next = block.address.offset(block.size);
            segment.blocks.push(block);
        }
    }
    Ok(segment)
}

/// A block; older dumps leave out its address, which then is the end of the one before.
fn block(arena: &mut Arena, dict: Value, next: Address) -> Shape<Block> {
    let mut fields = Fields { arena, dict, what: "block" };
    let state = match fields.text("state") {
        Some("active_allocated") => BlockState::Allocated,
        // The second name stood in PyTorch's documentation only; other writers may have taken it from there.
        Some("active_pending_free" | "active_awaiting_free") => BlockState::PendingFree,
        Some("inactive") => BlockState::Inactive,
        _ => return Err(fields.wrong(FieldError { key: "state", expected: "a known state" })),
    };
    Ok(Block {
        address: fields.memory("address")?.map_or(next, Address),
        size: Bytes(fields.required("size")?),
        requested: fields.memory("requested_size")?.map(Bytes),
        state,
        stack: fields.stack()?,
    })
}

fn settings(arena: &Arena, dict: Value) -> AllocatorSettings {
    let mut settings = AllocatorSettings::default();
    for (key, value) in arena.pairs(dict) {
        let Value::Text(key) = key else { continue };
        let text = match value {
            Value::Text(id) => arena.texts.get(id).to_owned(),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => x.to_string(),
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            _ => continue,
        };
        match arena.texts.get(key) {
            "PYTORCH_CUDA_ALLOC_CONF" => settings.conf = Some(text),
            key => settings.others.push((key.to_owned(), text)),
        }
    }
    settings
}

/// Annotations are decoration: what is not understood is passed over.
fn annotations(arena: &mut Arena, list: Value) -> Vec<Annotation> {
    let mut annotations = Vec::new();
    for at in 0..arena.list_len(list).unwrap_or(0) {
        let dict = arena.item(list, at).unwrap_or(Value::None);
        let fields = Fields { arena, dict, what: "annotation" };
        let (Some(Value::Text(name)), Ok(device), Ok(time)) =
            (fields.arena.get(dict, "name"), fields.device(), fields.unsigned("time_us"))
        else {
            continue;
        };
        annotations.push(Annotation { name, start: fields.text("stage") == Some("START"), device, time: Micros(time) });
    }
    annotations
}
