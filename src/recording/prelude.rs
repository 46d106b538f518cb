//! The beginning of a recording that starts late.

use std::sync::Arc;

use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{Event, EventKind, Lab, NameId, Presence, Ranks, Segment};

/// Events that bring a fresh [`Ranks`] to the present state of memory: the description of the run, all names, the
/// switches, the limit, segments with their blocks, and the lab's state.
///
/// The past is left out: counters, peaks and steps start from zero, and it is unknown when and by which op blocks were
/// allocated. A step in progress counts as one that has just begun.
#[must_use]
pub fn prelude(ranks: &mut Ranks) -> Vec<Event> {
    let mut events = Vec::new();
    for index in 0..ranks.len() {
        let device = u16::try_from(index).map(DeviceIndex).ok();
        if let Some((device, lab)) = device.and_then(|device| Some((device, ranks.lab_mut(device)?))) {
            let time = lab.time();
            tell(lab, &mut |kind| events.push(Event { time, device, kind }));
        }
    }
    events
}

fn tell(lab: &mut Lab, emit: &mut impl FnMut(EventKind)) {
    let view = lab.view();
    emit(EventKind::Begin(view.about));
    if let Some(alike) = lab.alike() {
        emit(EventKind::AlikeRanks(Arc::clone(alike)));
    }
    if !lab.foreign_contexts().is_empty() {
        emit(EventKind::ForeignContexts(Arc::clone(lab.foreign_contexts())));
    }
    if let Some(memory) = lab.device_memory() {
        emit(EventKind::DeviceMemory(memory));
    }
    for (index, text) in (0..).zip(view.names.0.iter()) {
        // Names without a text are gaps between defined ones.
        if !text.is_empty() {
            emit(EventKind::Define { id: NameId(index), text: Arc::clone(text) });
        }
    }
    for (name, frames) in view.stacks.iter() {
        emit(EventKind::Stack { name, frames: Arc::clone(frames) });
    }
    emit(EventKind::Settings(view.settings));
    emit(EventKind::Limit { limit: view.limit });
    emit(EventKind::HostMemory { allocated: view.host.allocated, reserved: view.host.reserved });
    for segment in lab.memory().segments() {
        tell_segment(&segment, emit);
    }
    if let Some(reading) = view.gpu {
        emit(EventKind::Reading(reading));
    }
    if let Some(note) = view.lesson {
        emit(EventKind::Lesson(note));
    }
    emit(EventKind::Run(view.run));
    if lab.presence() != Presence::There {
        emit(EventKind::Presence(lab.presence()));
    }
    if lab.profile_under_way().is_some() {
        emit(EventKind::StepBegin { step: view.steps.finished });
    }
    if let Some(phase) = view.phase {
        emit(EventKind::PhaseBegin { phase });
    }
}

fn tell_segment(segment: &Segment<'_>, emit: &mut impl FnMut(EventKind)) {
    let (address, size, stream, pool) = (segment.address(), segment.size(), segment.stream(), segment.pool());
    emit(match segment.range() {
        Some((range, page)) => EventKind::SegmentMap { address, size, stream, pool, range, page },
        None => EventKind::SegmentAlloc { address, size, stream, pool },
    });
    for block in segment.blocks() {
        let address = address.offset(block.offset);
        emit(EventKind::Alloc {
            address,
            size: block.size,
            requested: block.requested,
            stream,
            category: block.category,
            name: block.name,
        });
        if block.pending {
            emit(EventKind::FreeRequested { address });
        }
    }
}
