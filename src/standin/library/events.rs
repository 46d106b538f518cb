//! Events. An event is reached when its stream has got there by the card's clock, and the other ranks have, too.

use std::time::{Duration, Instant};

use crate::clock::HostInstant;
use crate::codes::{Code, INVALID_HANDLE, INVALID_VALUE, NOT_READY, SUCCESS, of};
use crate::context::noted;
use crate::foreign::put;
use crate::store::{self, COMMON, Event, State};
use crate::{launches, ranks};

/// If a program has no work on the card and waits for no rank for this long, all its work counts as done.
const IDLE: Duration = Duration::from_secs(5);

fn create(place: *mut u64) -> Code {
    if place.is_null() {
        return INVALID_VALUE;
    }
    let mut state = store::lock();
    let has_context = state.current().map(|_| ());
    of(has_context.map(|()| put(place, state.events.make())))
}

fn known(is: bool) -> Code {
    if is { SUCCESS } else { INVALID_HANDLE }
}

fn destroy(event: u64) -> Code {
    let mut state = store::lock();
    state.ranks.forget_event(event);
    known(state.events.remove(event))
}

fn record(event: u64, stream: u64) -> Code {
    let mut state = store::lock();
    let Some(of_stream) = state.streams.get(stream) else { return INVALID_HANDLE };
    let (device, queue) = state.queue(stream);
    let done = state.clock.end(device, queue);
    ranks::recorded(&mut state, event, (device, queue));
    known(
        state.events.set(event, Event { at: Some(HostInstant::now()), done, looked: None, capture: of_stream.capture }),
    )
}

/// Makes a stream wait for an event. If the event was captured, the capture spreads to the stream.
fn wait(stream: u64, event: u64) -> Code {
    let mut state = store::lock();
    ranks::waits(&mut state, stream, event);
    let Some(event) = state.events.get(event) else { return INVALID_HANDLE };
    let (device, queue) = state.queue(stream);
    state.clock.hold(device, queue, event.done);
    if let Some(capture) = event.capture
        && stream >= COMMON
        && let Some(stream) = state.streams.made(stream)
        && stream.capture.is_none()
    {
        stream.capture = Some(capture);
    }
    SUCCESS
}

/// Whether a thread that queries an event finds it reached.
///
/// Threads that launch nothing, such as PyTorch's watchdog, look now and then. Their queries don't advance the clock.
fn has_come(state: &mut State, event: u64, found: Event) -> bool {
    if launches::are_from_here() {
        return state.clock.ask(found.done);
    }
    let now = state.clock.host();
    if now >= state.ranks.is_seen_at(event).unwrap_or(found.done) {
        return true;
    }
    match found.looked {
        Some((since, then)) if then == now && !ranks::are_awaited() => since.elapsed() >= IDLE,
        _ => {
            state.events.set(event, Event { looked: Some((Instant::now(), now)), ..found });
            false
        }
    }
}

fn is_done(event: u64) -> Code {
    let mut state = store::lock();
    let Some(found) = state.events.get(event) else { return INVALID_HANDLE };
    let reached = ranks::have_reached(&mut state, event);
    let found = state.events.get(event).unwrap_or(found);
    if !reached || !has_come(&mut state, event, found) {
        return NOT_READY;
    }
    if !launches::are_from_here() {
        state.ranks.saw(event);
    }
    SUCCESS
}

fn reach(event: u64) -> Code {
    if store::lock().events.get(event).is_none() {
        return INVALID_HANDLE;
    }
    ranks::wait_for_event(event)
}

fn elapsed(milliseconds: *mut f32, from: u64, to: u64) -> Code {
    let state = store::lock();
    let at = |event| state.events.get(event).and_then(|event| event.at);
    match (at(from), at(to)) {
        (Some(from), Some(to)) => {
            put(milliseconds, to.since(from));
            SUCCESS
        }
        _ => INVALID_HANDLE,
    }
}

entries! {
    fn cudaEventCreate(place: *mut u64) -> Code { noted(create(place)) }
    fn cudaEventCreateWithFlags(place: *mut u64, _flags: u32) -> Code { noted(create(place)) }
    fn cudaEventDestroy(event: u64) -> Code { noted(destroy(event)) }
    fn cudaEventRecord(event: u64, stream: u64) -> Code { noted(record(event, stream)) }
    fn cudaEventRecordWithFlags(event: u64, stream: u64, _flags: u32) -> Code { noted(record(event, stream)) }
    fn cudaEventQuery(event: u64) -> Code { noted(is_done(event)) }
    fn cudaEventSynchronize(event: u64) -> Code { noted(reach(event)) }
    fn cudaEventElapsedTime(milliseconds: *mut f32, from: u64, to: u64) -> Code { noted(elapsed(milliseconds, from, to)) }
    fn cudaEventElapsedTime_v2(milliseconds: *mut f32, from: u64, to: u64) -> Code { noted(elapsed(milliseconds, from, to)) }
    fn cudaStreamWaitEvent(stream: u64, event: u64, _flags: u32) -> Code { noted(wait(stream, event)) }

    fn cuEventCreate(place: *mut u64, _flags: u32) -> Code { create(place) }
    fn cuEventDestroy_v2(event: u64) -> Code { destroy(event) }
    fn cuEventRecord(event: u64, stream: u64) -> Code { record(event, stream) }
    fn cuEventRecordWithFlags(event: u64, stream: u64, _flags: u32) -> Code { record(event, stream) }
    fn cuEventQuery(event: u64) -> Code { is_done(event) }
    fn cuEventSynchronize(event: u64) -> Code { reach(event) }
    fn cuEventElapsedTime(milliseconds: *mut f32, from: u64, to: u64) -> Code { elapsed(milliseconds, from, to) }
    fn cuEventElapsedTime_v2(milliseconds: *mut f32, from: u64, to: u64) -> Code { elapsed(milliseconds, from, to) }
    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) -> Code { wait(stream, event) }
}
