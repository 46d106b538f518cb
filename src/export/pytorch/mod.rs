//! Writes a memory snapshot as `torch.cuda.memory._dump_snapshot()` of the recorded PyTorch does (2.11, unless the run
//! names another). PyTorch's viewers read it, and so does [`crate::snapshot`].

mod frames;
mod pickle;

use std::io::{self, Write};

use super::devices::{Devices, ExportedDevice, Label};
use super::error::ExportError;
use crate::allocator::{BlockState, PoolKind, SegmentSnapshot, Settings, TorchVersion};
use crate::model::{Event, EventKind, Micros};
use crate::snapshot::Action;
use crate::source::Whole;
use crate::units::{Address, Bytes, DeviceIndex, StreamId};
use frames::Frames;
use pickle::Pickler;

/// Writes the snapshot that PyTorch would have written before the event `end`. The history of a device is that of the
/// current run, and begins with that run.
pub(super) fn write(
    whole: &Whole,
    end: u64,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ExportError> {
    let mut devices = Devices::default();
    let mut begun = Vec::new();
    whole.each(0..end, |index, event| {
        devices.apply(event);
        let device = usize::from(event.device.0);
        if matches!(event.kind, EventKind::Begin(_)) && device < devices.iter().count() {
            begun.resize(begun.len().max(device + 1), 0);
            begun[device] = index;
        }
        Ok::<_, ExportError>(())
    })?;
    let total = end * (devices.iter().count() as u64 + 1);
    let mut pickler = Pickler::new(out)?;
    let mut frames = Frames::default();
    pickler.open_dict()?;
    pickler.shared("segments")?;
    pickler.open_list()?;
    for (index, device) in devices.iter() {
        for segment in device.state().segments() {
            pickler.item()?;
            write_segment(&mut pickler, &mut frames, index, device, &segment)?;
        }
    }
    pickler.close_list()?;
    pickler.shared("device_traces")?;
    pickler.open_list()?;
    for (index, _) in devices.iter() {
        pickler.item()?;
        let from = begun.get(usize::from(index.0)).copied().unwrap_or(0);
        let done = end * u64::from(index.0);
        // From here on, names belong to the run again.
        frames.forget();
        let mut trace = Trace { pickler: &mut pickler, frames: &mut frames, index, device: Devices::default() };
        trace.pickler.open_list()?;
        whole.each(from..end, |position, event| {
            progress(done + position, total);
            if event.device == index { trace.push(event) } else { Ok(()) }
        })?;
        pickler.close_list()?;
    }
    pickler.close_list()?;
    pickler.shared("allocator_settings")?;
    let settings = devices.iter().find(|(_, device)| device.seen).map(|(_, device)| device.state().settings().clone());
    let settings = settings.unwrap_or_default();
    write_settings(&mut pickler, &settings)?;
    if settings.torch() >= TorchVersion::V2_14 {
        for key in ["host_segments", "host_traces"] {
            pickler.shared(key)?;
            pickler.open_list()?;
            pickler.close_list()?;
        }
    }
    pickler.shared("external_annotations")?;
    let done = total - end;
    let mut annotations = Annotations { pickler: &mut pickler, open: Vec::new() };
    annotations.pickler.open_list()?;
    whole.each(0..end, |position, event| {
        progress(done + position, total);
        let from = begun.get(usize::from(event.device.0)).copied().unwrap_or(0);
        if position >= from { annotations.push(event) } else { Ok(()) }
    })?;
    pickler.close_list()?;
    pickler.close_dict()?;
    Ok(pickler.finish()?)
}

fn write_segment(
    pickler: &mut Pickler<impl Write>,
    frames: &mut Frames,
    index: DeviceIndex,
    device: &ExportedDevice,
    segment: &SegmentSnapshot,
) -> io::Result<()> {
    let sum = |wanted: fn(BlockState) -> bool| {
        segment.blocks.iter().filter(|block| wanted(block.state)).map(|block| block.size).sum::<Bytes>()
    };
    let is_active = |state| state != BlockState::Inactive;
    let requested: Bytes =
        segment.blocks.iter().filter(|block| is_active(block.state)).map(|block| block.requested).sum();
    pickler.open_dict()?;
    entry(pickler, "device", index.0)?;
    entry(pickler, "address", segment.address.0)?;
    entry(pickler, "total_size", segment.size.0)?;
    entry(pickler, "allocated_size", sum(|state| state == BlockState::ActiveAllocated).0)?;
    entry(pickler, "active_size", sum(|state| state != BlockState::Inactive).0)?;
    entry(pickler, "requested_size", requested.0)?;
    entry(pickler, "stream", segment.stream.0)?;
    pickler.shared("segment_type")?;
    pickler.shared(match segment.pool {
        PoolKind::Small => "small",
        PoolKind::Large => "large",
    })?;
    pickler.shared("segment_pool_id")?;
    let pool = device.pool(segment.address);
    pickler.int(pool.0)?;
    pickler.int(pool.1)?;
    pickler.pair()?;
    pickler.shared("is_expandable")?;
    pickler.bool(segment.expandable)?;
    pickler.shared("frames")?;
    pickler.open_list()?;
    pickler.close_list()?;
    pickler.shared("blocks")?;
    pickler.open_list()?;
    for block in &segment.blocks {
        pickler.item()?;
        pickler.open_dict()?;
        entry(pickler, "address", block.address.0)?;
        entry(pickler, "size", block.size.0)?;
        entry(pickler, "requested_size", block.requested.0)?;
        pickler.shared("state")?;
        pickler.shared(block.state.name())?;
        pickler.shared("frames")?;
        if block.state == BlockState::Inactive {
            pickler.open_list()?;
            pickler.close_list()?;
        } else {
            frames.write(pickler, index, device, device.label(block.address))?;
        }
        pickler.close_dict()?;
    }
    pickler.close_list()?;
    pickler.close_dict()
}

fn entry(pickler: &mut Pickler<impl Write>, key: &str, value: impl Into<i128>) -> io::Result<()> {
    pickler.shared(key)?;
    pickler.int(value)
}

/// The history of one device.
struct Trace<'a, W> {
    pickler: &'a mut Pickler<W>,
    frames: &'a mut Frames,
    index: DeviceIndex,
    device: Devices,
}

/// The fields of an entry in addition to its time.
struct TraceExtras {
    action: Action,
    /// For [`Action::Oom`], the driver's free bytes.
    address: Address,
    size: Bytes,
    stream: StreamId,
    label: Label,
}

impl<W: Write> Trace<'_, W> {
    fn push(&mut self, event: &Event) -> Result<(), ExportError> {
        // Freed memory is known only before the event, new memory only after it.
        let before = self.device.get(self.index).and_then(|device| given_back(device, event));
        self.device.apply(event);
        let Some(device) = self.device.get(self.index).filter(|device| !device.before_history) else { return Ok(()) };
        if let Some(entry) = before.or_else(|| taken(device, event)) {
            self.write(&entry, event.time)?;
        }
        Ok(())
    }

    fn write(&mut self, what: &TraceExtras, time: Micros) -> io::Result<()> {
        let Some(device) = self.device.get(self.index) else { return Ok(()) };
        let pickler = &mut *self.pickler;
        pickler.item()?;
        pickler.open_dict()?;
        pickler.shared("action")?;
        pickler.shared(what.action.word())?;
        entry(pickler, if what.action == Action::Oom { "device_free" } else { "addr" }, what.address.0)?;
        entry(pickler, "size", what.size.0)?;
        entry(pickler, "stream", what.stream.0)?;
        entry(pickler, "time_us", time.0)?;
        pickler.shared("compile_context")?;
        pickler.shared("N/A")?;
        pickler.shared("user_metadata")?;
        pickler.shared("")?;
        if device.state().settings().torch() >= TorchVersion::V2_12 {
            pickler.shared("pool_id")?;
            pickler.int(0)?;
            pickler.int(0)?;
            pickler.pair()?;
        }
        pickler.shared("frames")?;
        self.frames.write(pickler, self.index, device, what.label)?;
        pickler.close_dict()
    }
}

/// The entry of an event that frees memory, from the state before it.
fn given_back(device: &ExportedDevice, event: &Event) -> Option<TraceExtras> {
    let block = |action, address| {
        let block = device.state().block(address)?;
        let label = Label { op: device.op, phase: device.phase, ..device.label(address) };
        Some(TraceExtras { action, address, size: block.requested, stream: block.stream, label })
    };
    let segment = |action, address, size| {
        let (stream, _) = device.state().home(address)?;
        Some(TraceExtras { action, address, size, stream, label: device.now() })
    };
    match event.kind {
        EventKind::FreeRequested { address } => block(Action::FreeRequested, address),
        EventKind::FreeCompleted { address } => block(Action::FreeCompleted, address),
        EventKind::SegmentFree { address, size } => segment(Action::SegmentFree, address, size),
        EventKind::SegmentUnmap { address, size } => segment(Action::SegmentUnmap, address, size),
        _ => None,
    }
}

/// The entry of an event that takes memory, or fails to, from the state after it.
fn taken(device: &ExportedDevice, event: &Event) -> Option<TraceExtras> {
    let label = device.now();
    match event.kind {
        EventKind::SegmentAlloc { address, size, stream, .. } => {
            Some(TraceExtras { action: Action::SegmentAlloc, address, size, stream, label })
        }
        EventKind::SegmentMap { address, size, stream, .. } => {
            Some(TraceExtras { action: Action::SegmentMap, address, size, stream, label })
        }
        EventKind::Alloc { address, requested, stream, .. } => {
            let label = device.label(address);
            Some(TraceExtras { action: Action::Alloc, address, size: requested, stream, label })
        }
        EventKind::Oom(ref request) => Some(TraceExtras {
            action: Action::Oom,
            address: Address(request.device_free.0),
            size: request.rounded,
            stream: request.stream,
            label: Label { name: request.name, ..label },
        }),
        _ => None,
    }
}

fn write_settings(pickler: &mut Pickler<impl Write>, settings: &Settings) -> io::Result<()> {
    let bytes = |size: Bytes| if size == Settings::UNLIMITED { -1 } else { i128::from(size.0) };
    pickler.open_dict()?;
    pickler.shared("PYTORCH_CUDA_ALLOC_CONF")?;
    pickler.text(settings.text())?;
    entry(pickler, "max_split_size", bytes(settings.max_split_size))?;
    pickler.shared("garbage_collection_threshold")?;
    pickler.float(settings.garbage_collection_threshold)?;
    pickler.shared("expandable_segments")?;
    pickler.bool(settings.expandable_segments)?;
    entry(pickler, "pinned_num_register_threads", settings.pinned_num_register_threads)?;
    for (key, value) in [
        ("release_lock_on_cudamalloc", settings.release_lock_on_cudamalloc),
        ("pinned_use_cuda_host_register", settings.pinned_use_cuda_host_register),
        ("graph_capture_record_stream_reuse", settings.graph_capture_record_stream_reuse),
    ] {
        pickler.shared(key)?;
        pickler.bool(value)?;
    }
    if settings.torch() >= TorchVersion::V2_13 {
        let pinned = |size: Option<Bytes>| size.map_or(-1, |size| i128::from(size.0));
        entry(pickler, "max_round_threshold", pinned(settings.pinned_max_round_threshold))?;
        entry(pickler, "max_cached_size", pinned(settings.pinned_max_cached_size))?;
    }
    pickler.shared("roundup_power2_divisions")?;
    pickler.open_dict()?;
    for (interval, divisions) in settings.roundup_power2_divisions.entries().iter().enumerate() {
        pickler.text(&(1_u64 << interval).to_string())?;
        pickler.int(*divisions)?;
    }
    pickler.close_dict()?;
    pickler.close_dict()
}

/// Steps and phases, as PyTorch's profiler writes its scopes.
struct Annotations<'a, W> {
    pickler: &'a mut Pickler<W>,
    /// The open scopes, with their devices.
    open: Vec<(DeviceIndex, OpenScope)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenScope {
    Step(u64),
    Phase(crate::model::Phase),
}

impl<W: Write> Annotations<'_, W> {
    fn push(&mut self, event: &Event) -> Result<(), ExportError> {
        let all = |_: OpenScope| true;
        match event.kind {
            // A step that was given up has no end event of its own.
            EventKind::Begin(_) => self.close(event, all)?,
            EventKind::StepBegin { step } => {
                self.close(event, all)?;
                self.begin(event, OpenScope::Step(step))?;
            }
            EventKind::StepEnd(_) => self.close(event, all)?,
            EventKind::PhaseBegin { phase } => {
                self.close(event, |scope| matches!(scope, OpenScope::Phase(_)))?;
                self.begin(event, OpenScope::Phase(phase))?;
            }
            EventKind::PhaseEnd { phase } => self.close(event, |scope| scope == OpenScope::Phase(phase))?,
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, event: &Event, scope: OpenScope) -> io::Result<()> {
        self.open.push((event.device, scope));
        self.write(event, scope, "START")
    }

    /// Ends those of the device's open scopes that are `wanted`, innermost first.
    fn close(&mut self, event: &Event, wanted: impl Fn(OpenScope) -> bool) -> io::Result<()> {
        let ended: Vec<OpenScope> = self
            .open
            .extract_if(.., |(device, scope)| *device == event.device && wanted(*scope))
            .map(|(_, scope)| scope)
            .collect();
        ended.into_iter().rev().try_for_each(|scope| self.write(event, scope, "END"))
    }

    fn write(&mut self, event: &Event, scope: OpenScope, stage: &str) -> io::Result<()> {
        let pickler = &mut *self.pickler;
        pickler.item()?;
        pickler.open_dict()?;
        pickler.shared("stage")?;
        pickler.shared(stage)?;
        pickler.shared("name")?;
        match scope {
            OpenScope::Step(step) => pickler.text(&format!("step {step}"))?,
            OpenScope::Phase(phase) => pickler.shared(phase.label())?,
        }
        entry(pickler, "device", event.device.0)?;
        entry(pickler, "time_us", event.time.0)?;
        pickler.close_dict()
    }
}
