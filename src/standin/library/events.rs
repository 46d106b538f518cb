//! Events: they are reached as soon as they are recorded, unless other ranks are waited for.

use crate::clock::Moment;
use crate::codes::{Code, INVALID_HANDLE, INVALID_VALUE, NOT_READY, SUCCESS, of};
use crate::context::noted;
use crate::foreign::put;
use crate::ranks;
use crate::store::{self, COMMON, Event};

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
    ranks::recorded(&mut state, event, stream);
    known(state.events.set(event, Event { at: Some(Moment::now()), capture: of_stream.capture }))
}

/// A stream waits for an event: there is nothing to wait for, but what is captured spreads.
fn wait(stream: u64, event: u64) -> Code {
    let mut state = store::lock();
    ranks::waits(&mut state, stream, event);
    let Some(event) = state.events.get(event) else { return INVALID_HANDLE };
    if let Some(capture) = event.capture
        && stream >= COMMON
        && let Some(stream) = state.streams.made(stream)
        && stream.capture.is_none()
    {
        stream.capture = Some(capture);
    }
    SUCCESS
}

fn is_made(event: u64) -> Code {
    known(store::lock().events.get(event).is_some())
}

fn is_done(event: u64) -> Code {
    match is_made(event) {
        SUCCESS if !ranks::is_event_done(event) => NOT_READY,
        code => code,
    }
}

fn reach(event: u64) -> Code {
    match is_made(event) {
        SUCCESS => ranks::wait_for_event(event),
        code => code,
    }
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
