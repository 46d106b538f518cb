//! Builds a [`Snapshot`] from a pickle's objects.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::error::SnapshotError;
use super::pickle::records::{self, EntryError, FieldError};
use super::pickle::{self, Arena, PickleError, PickleSource, Problem, Value};
use super::types::{AllocatorSettings, Annotation, Block, Segment, Snapshot, StackId, TraceEntry};
use vramlab_allocator::units::Micros;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{BlockState, PoolId, PoolKind, TorchVersion};

/// The most devices that a snapshot can have: PyTorch numbers them with eight bits, one of which is the sign.
const MAX_DEVICES: usize = 128;
/// How many keys of a snapshot are searched for the history.
const MOST_KEYS: usize = 16;

/// Why a pickle is not a snapshot.
enum NotASnapshot {
    /// The pickle holds something else: where, and what.
    Shape(String),
    /// The pickle asks for more than its length explains.
    Problem(Problem),
}

impl From<String> for NotASnapshot {
    fn from(shape: String) -> Self {
        Self::Shape(shape)
    }
}

impl From<&str> for NotASnapshot {
    fn from(shape: &str) -> Self {
        Self::Shape(shape.to_owned())
    }
}

impl From<Problem> for NotASnapshot {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

type Shape<T> = Result<T, NotASnapshot>;

/// A listener that hears of a snapshot while it is read. The file may still turn out not to be a snapshot.
pub trait Listener {
    /// Memory as it was at the end, which a file has before the history: segments, and the texts and stacks of their
    /// blocks. The settings and the version are not known yet.
    fn memory(&mut self, memory: Snapshot);

    /// More entries of a device's history were read. Return false if the rest is not wanted.
    fn entries(&mut self, device: usize, entries: &[TraceEntry]) -> bool;
}

/// Reads the snapshot that a (decompressed) pickle holds. A `listener` hears of it meanwhile.
///
/// # Errors
/// [`SnapshotError::Pickle`] if the pickle can't be read, [`SnapshotError::Shape`] if it holds something else.
pub fn snapshot(source: &mut dyn PickleSource, listener: Option<&mut dyn Listener>) -> Result<Snapshot, SnapshotError> {
    let (mut arena, top, offset) = pickle::read(source, &mut ListenerFeed { listener, told: 0, memory_told: false })?;
    let mut snapshot = convert(&mut arena, top).map_err(|wrong| match wrong {
        NotASnapshot::Shape(shape) => SnapshotError::Shape(shape),
        NotASnapshot::Problem(problem) => SnapshotError::Pickle(PickleError { offset, problem }),
    })?;
    snapshot.entries = arena.entries;
    snapshot.texts = arena.texts;
    snapshot.stacks = arena.stacks;
    Ok(snapshot)
}

/// Tells a listener about parts as they become complete.
struct ListenerFeed<'a> {
    listener: Option<&'a mut dyn Listener>,
    /// How many entries have been told.
    told: usize,
    memory_told: bool,
}

impl pickle::PickleListener for ListenerFeed<'_> {
    fn hear(&mut self, arena: &mut Arena, stack: &[Value]) -> Result<(), Problem> {
        let Some(listener) = &mut self.listener else { return Ok(()) };
        // When Python writes a snapshot, keys and values wait on the stack, above the dictionary that they are for.
        let value_of = |arena: &Arena, key: &str| {
            let is_key = |at: &usize| matches!(stack.get(*at), Some(Value::Text(id)) if arena.texts.get(*id) == key);
            (1..stack.len()).step_by(2).take(MOST_KEYS).find(is_key).map(|at| at + 1)
        };
        let Some(traces) = value_of(arena, "device_traces") else { return Ok(()) };
        // Above `traces` lie the lists of its devices, the top one not complete yet. Anything else belongs to a single entry.
        let devices = stack.get(traces + 1..).unwrap_or_default();
        if devices.len() > MAX_DEVICES || !devices.iter().all(|value| matches!(value, Value::List(_))) {
            return Ok(());
        }
        let Some(device) = devices.len().checked_sub(1) else { return Ok(()) };
        if !std::mem::replace(&mut self.memory_told, true)
            && let Some(list) = value_of(arena, "segments").filter(|at| *at < traces).and_then(|at| stack.get(at))
        {
            match segments(arena, *list) {
                Ok(segments) => {
                    if let Some((texts, stacks)) = arena.copies() {
                        listener.memory(Snapshot { segments, texts, stacks, ..Snapshot::default() });
                    }
                }
                // Errors are reported once everything has been read.
                Err(NotASnapshot::Shape(_)) => {}
                Err(NotASnapshot::Problem(problem)) => return Err(problem),
            }
        }
        let new = arena.entries.get(self.told..).unwrap_or_default();
        self.told = arena.entries.len();
        if listener.entries(device, new) { Ok(()) } else { Err(Problem::Stopped) }
    }
}

fn convert(arena: &mut Arena, top: Value) -> Shape<Snapshot> {
    // torch.cuda.memory_snapshot() returns only the list of segments.
    if matches!(top, Value::List(_)) {
        let segments = segments(arena, top)?;
        return if segments.is_empty() {
            Err("is an empty list".into())
        } else {
            Ok(Snapshot { segments, ..Snapshot::default() })
        };
    }
    if !matches!(top, Value::Dict(_)) {
        return Err(format!("is {}, not a dictionary", top.kind()).into());
    }
    let traces = arena.get(top, "device_traces")?.filter(|traces| *traces != Value::None);
    let list = arena.get(top, "segments")?.filter(|list| *list != Value::None);
    if traces.is_none() && list.is_none() {
        return Err("has no device_traces and no segments: it is no snapshot".into());
    }
    let device_traces = match traces {
        Some(traces) => device_traces(arena, traces)?,
        None => Vec::new(),
    };
    let segments = match list {
        Some(list) => segments(arena, list)?,
        None => Vec::new(),
    };
    let allocator_settings = match arena.get(top, "allocator_settings")? {
        Some(dict) => settings(arena, dict)?,
        None => AllocatorSettings::default(),
    };
    let annotations = match arena.get(top, "external_annotations")? {
        Some(list) => annotations(arena, list)?,
        None => Vec::new(),
    };
    let torch = writer(arena, top, &allocator_settings)?;
    Ok(Snapshot { segments, device_traces, allocator_settings, annotations, torch, ..Snapshot::default() })
}

/// The version that wrote the snapshot: each version has keys that earlier ones lack.
fn writer(arena: &mut Arena, top: Value, settings: &AllocatorSettings) -> Shape<TorchVersion> {
    let conf = settings.conf.as_deref().unwrap_or_default();
    Ok(if conf.contains("expandable_segments_reserve") {
        TorchVersion::V2_15
    } else if arena.get(top, "host_traces")?.is_some() {
        TorchVersion::V2_14
    } else if settings.others.iter().any(|(key, _)| &**key == "max_round_threshold") {
        TorchVersion::V2_13
    } else if arena.entries.iter().any(|entry| entry.pool.is_some()) {
        TorchVersion::V2_12
    } else {
        TorchVersion::V2_11
    })
}

fn items(arena: &mut Arena, list: Value, what: &str) -> Shape<usize> {
    let len = arena.list_len(list)?;
    Ok(len.ok_or_else(|| format!("has {what} that is {} where a list should be", list.kind()))?)
}

fn device_traces(arena: &mut Arena, traces: Value) -> Shape<Vec<Range<usize>>> {
    let devices = items(arena, traces, "a device_traces")?;
    if devices > MAX_DEVICES {
        return Err(format!("has traces of {devices} devices, and PyTorch knows {MAX_DEVICES} at most").into());
    }
    // The same list under several devices is read once.
    let mut known: HashMap<u32, Range<usize>> = HashMap::new();
    let mut ranges = Vec::new();
    for device in 0..devices {
        let trace = arena.item(traces, device).unwrap_or(Value::None);
        let Value::List(id) = trace else {
            return Err(format!("has a trace of device {device} that is {}, not a list", trace.kind()).into());
        };
        let range = match known.get(&id) {
            Some(range) => {
                // Costs as much as a copy, because users of the snapshot read it once more.
                arena.budget.charge(range.len().saturating_mul(size_of::<TraceEntry>()))?;
                range.clone()
            }
            None => {
                let range = device_trace(arena, trace, device)?;
                known.insert(id, range.clone());
                range
            }
        };
        ranges.push(range);
    }
    Ok(ranges)
}

/// The range of one device's entries. Usually they were read one after the other and stay where they are.
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
            None => arena.entry(item).map_err(|error| match error {
                EntryError::Problem(problem) => NotASnapshot::Problem(problem),
                EntryError::Field(FieldError { key, expected }) => NotASnapshot::Shape(format!(
                    "has an entry {at} in the trace of device {device} whose `{key}` is not {expected}"
                )),
            })?,
        };
        arena.budget.charge(size_of_val(&entry))?;
        arena.entries.push(entry);
    }
    Ok(start..arena.entries.len())
}

/// Looks up the keys of one dictionary, and names the key that is wrong.
struct Fields<'a> {
    arena: &'a mut Arena,
    dict: Value,
    what: &'static str,
}

impl Fields<'_> {
    fn wrong(&self, error: FieldError) -> NotASnapshot {
        NotASnapshot::Shape(format!("has a {} whose `{}` is not {}", self.what, error.key, error.expected))
    }

    fn get(&mut self, key: &str) -> Shape<Option<Value>> {
        Ok(self.arena.get(self.dict, key)?)
    }

    fn memory(&mut self, key: &'static str) -> Shape<Option<u64>> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        records::memory(key, value).map(Some).map_err(|error| self.wrong(error))
    }

    fn required(&mut self, key: &'static str) -> Shape<u64> {
        self.memory(key)?.ok_or_else(|| self.wrong(FieldError { key, expected: "there" }))
    }

    fn unsigned(&mut self, key: &'static str) -> Shape<u64> {
        let Some(value) = self.get(key)? else { return Ok(0) };
        records::unsigned(key, value).map_err(|error| self.wrong(error))
    }

    fn device(&mut self) -> Shape<u32> {
        u32::try_from(self.unsigned("device")?)
            .map_err(|_| self.wrong(FieldError { key: "device", expected: "an index" }))
    }

    fn text(&mut self, key: &str) -> Shape<Option<&str>> {
        Ok(match self.get(key)? {
            Some(Value::Text(id)) => Some(self.arena.texts.get(id)),
            _ => None,
        })
    }

    fn stack(&mut self) -> Shape<StackId> {
        let Some(frames) = self.get("frames")? else { return Ok(StackId::EMPTY) };
        let stack = self.arena.stack_of(frames)?;
        stack.ok_or_else(|| self.wrong(FieldError { key: "frames", expected: "a list of frames" }))
    }
}

fn segments(arena: &mut Arena, list: Value) -> Shape<Vec<Segment>> {
    let len = items(arena, list, "a `segments`")?;
    let mut segments = Vec::new();
    for at in 0..len {
        let dict = arena.item(list, at).unwrap_or(Value::None);
        arena.budget.charge(size_of::<Segment>())?;
        segments.push(segment(arena, dict)?);
    }
    Ok(segments)
}

fn segment(arena: &mut Arena, dict: Value) -> Shape<Segment> {
    let pool_id = match arena.get(dict, "segment_pool_id")? {
        Some(pair) => arena.pool_id(pair).ok_or("has a segment whose `segment_pool_id` is not a pair of numbers")?,
        None => PoolId::DEFAULT,
    };
    let mut fields = Fields { arena, dict, what: "segment" };
    let address = Address(fields.required("address")?);
    let mut segment = Segment {
        device: fields.device()?,
        address,
        total_size: Bytes(fields.required("total_size")?),
        stream: StreamId(fields.unsigned("stream")?),
        pool: if fields.text("segment_type")? == Some("small") { PoolKind::Small } else { PoolKind::Large },
        pool_id,
        expandable: fields.get("is_expandable")? == Some(Value::Bool(true)),
        stack: fields.stack()?,
        blocks: Vec::new(),
    };
    if let Some(list) = arena.get(dict, "blocks")? {
        let mut next = address;
        for at in 0..items(arena, list, "a `blocks`")? {
            let dict = arena.item(list, at).unwrap_or(Value::None);
            arena.budget.charge(size_of::<Block>())?;
            let block = block(arena, dict, next)?;
            next = block.address.offset(block.size);
            segment.blocks.push(block);
        }
    }
    Ok(segment)
}

/// A block. Older dumps leave out its address, which is then the end of the block before.
fn block(arena: &mut Arena, dict: Value, next: Address) -> Shape<Block> {
    let mut fields = Fields { arena, dict, what: "block" };
    let state = match fields.text("state")? {
        Some("active_allocated") => BlockState::ActiveAllocated,
        // The second name appeared only in PyTorch's documentation; other writers may have taken it from there.
        Some("active_pending_free" | "active_awaiting_free") => BlockState::ActivePendingFree,
        Some("inactive") => BlockState::Inactive,
        _ => return Err(fields.wrong(FieldError { key: "state", expected: "a known state" })),
    };
    let mut block = Block {
        address: fields.memory("address")?.map_or(next, Address),
        size: Bytes(fields.required("size")?),
        requested: fields.memory("requested_size")?.map(Bytes),
        state,
        stack: fields.stack()?,
    };
    // PyTorch 2.0 keeps a history of uses with each block, the last use at the end.
    if let Some(history) = arena.get(dict, "history")?
        && let Some(uses) = arena.list_len(history)?
        && let Some(last) = uses.checked_sub(1).and_then(|last| arena.item(history, last))
    {
        let mut fields = Fields { arena, dict: last, what: "use of a block" };
        block.requested = match block.requested {
            None => fields.memory("real_size")?.map(Bytes),
            known => known,
        };
        if block.stack == StackId::EMPTY {
            block.stack = fields.stack()?;
        }
    }
    // No block is smaller than the bytes asked for.
    if block.state != BlockState::Inactive {
        block.requested = block.requested.filter(|requested| *requested <= block.size);
    }
    Ok(block)
}

fn settings(arena: &mut Arena, dict: Value) -> Shape<AllocatorSettings> {
    let mut settings = AllocatorSettings::default();
    let pairs: Vec<(Value, Value)> = arena.pairs(dict)?.collect();
    arena.budget.charge(size_of_val(pairs.as_slice()))?;
    for (key, value) in pairs {
        let Value::Text(key) = key else { continue };
        let value = match value {
            Value::Text(id) => id,
            Value::Int(n) => arena.intern(&n.to_string())?,
            Value::Float(x) => arena.intern(&x.to_string())?,
            Value::Bool(true) => arena.intern("True")?,
            Value::Bool(false) => arena.intern("False")?,
            _ => continue,
        };
        let value = arena.texts.shared(value);
        match arena.texts.get(key) {
            "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_HIP_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" => settings.conf = Some(value),
            _ => {
                arena.budget.charge(size_of::<(Arc<str>, Arc<str>)>())?;
                settings.others.push((arena.texts.shared(key), value));
            }
        }
    }
    Ok(settings)
}

/// Annotations are decoration: those that can't be read are skipped.
fn annotations(arena: &mut Arena, list: Value) -> Shape<Vec<Annotation>> {
    let mut annotations = Vec::new();
    for at in 0..arena.list_len(list)?.unwrap_or(0) {
        let dict = arena.item(list, at).unwrap_or(Value::None);
        match annotation(arena, dict) {
            Ok(Some(annotation)) => {
                arena.budget.charge(size_of::<Annotation>())?;
                annotations.push(annotation);
            }
            Ok(None) | Err(NotASnapshot::Shape(_)) => {}
            Err(NotASnapshot::Problem(problem)) => return Err(problem.into()),
        }
    }
    Ok(annotations)
}

fn annotation(arena: &mut Arena, dict: Value) -> Shape<Option<Annotation>> {
    let mut fields = Fields { arena, dict, what: "annotation" };
    let Some(Value::Text(name)) = fields.get("name")? else { return Ok(None) };
    Ok(Some(Annotation {
        name,
        start: fields.text("stage")? == Some("START"),
        device: fields.device()?,
        time: Micros(fields.unsigned("time_us")?),
    }))
}
