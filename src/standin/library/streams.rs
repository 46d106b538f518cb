//! Streams: the card's clock says when the work of a stream ends.

use std::ffi::c_void;

use crate::codes::{Code, INVALID_HANDLE, INVALID_VALUE, NOT_READY, SUCCESS, of};
use crate::context::noted;
use crate::foreign::put;
use crate::ranks;
use crate::store::{self, COMMON, Stream, current};

fn create(place: *mut u64, flags: u32, priority: i32) -> Code {
    if place.is_null() {
        return INVALID_VALUE;
    }
    let mut state = store::lock();
    let made = state.current().map(|_| ());
    of(made.map(|()| {
        let stream = Stream { device: current(), priority: priority.clamp(-5, 0), flags, capture: None };
        put(place, state.streams.make(stream));
    }))
}

fn destroy(handle: u64) -> Code {
    if handle < COMMON {
        return INVALID_HANDLE;
    }
    let mut state = store::lock();
    state.ranks.forget_stream(handle);
    state.clock.forget(handle);
    if state.streams.remove(handle) { SUCCESS } else { INVALID_HANDLE }
}

fn ask<T>(handle: u64, place: *mut T, what: impl FnOnce(Stream) -> T) -> Code {
    store::lock().streams.get(handle).map_or(INVALID_HANDLE, |stream| {
        put(place, what(stream));
        SUCCESS
    })
}

/// Whether a stream has finished its work.
fn is_done(handle: u64) -> Code {
    match is_open(handle) {
        SUCCESS if !ranks::is_stream_done(handle) => NOT_READY,
        code => code,
    }
}

/// Makes the host wait for a stream.
fn finish(handle: u64) -> Code {
    match is_open(handle) {
        SUCCESS => ranks::wait_for_stream(handle),
        code => code,
    }
}

/// Whether a stream may be queried.
fn is_open(handle: u64) -> Code {
    store::lock().streams.get(handle).map_or(INVALID_HANDLE, |stream| match stream.capture {
        Some(_) => crate::codes::CAPTURE_UNSUPPORTED,
        None => SUCCESS,
    })
}

/// A function of the program that the stream would call.
type HostFunction = extern "C" fn(*mut c_void);
/// The same, with the stream and its state.
type Callback = extern "C" fn(u64, Code, *mut c_void);

entries! {
    fn cudaStreamCreate(place: *mut u64) -> Code { noted(create(place, 0, 0)) }
    fn cudaStreamCreateWithFlags(place: *mut u64, flags: u32) -> Code { noted(create(place, flags, 0)) }
    fn cudaStreamCreateWithPriority(place: *mut u64, flags: u32, priority: i32) -> Code { noted(create(place, flags, priority)) }
    fn cudaStreamDestroy(stream: u64) -> Code { noted(destroy(stream)) }
    fn cudaStreamGetPriority(stream: u64, priority: *mut i32) -> Code { noted(ask(stream, priority, |stream| stream.priority)) }
    fn cudaStreamGetFlags(stream: u64, flags: *mut u32) -> Code { noted(ask(stream, flags, |stream| stream.flags)) }
    fn cudaStreamGetDevice(stream: u64, device: *mut i32) -> Code { noted(ask(stream, device, |stream| stream.device as i32)) }
    fn cudaStreamGetId(stream: u64, number: *mut u64) -> Code { noted(ask(stream, number, |_| stream)) }
    fn cudaStreamSynchronize(stream: u64) -> Code { noted(finish(stream)) }
    fn cudaStreamQuery(stream: u64) -> Code { noted(is_done(stream)) }
    fn cudaDeviceSynchronize() -> Code { noted(ranks::wait_for_device()) }
    fn cudaLaunchHostFunc(_stream: u64, function: Option<HostFunction>, data: *mut c_void) -> Code {
        let Some(function) = function else { return noted(INVALID_VALUE) };
        function(data);
        SUCCESS
    }
    fn cudaStreamAddCallback(stream: u64, function: Option<Callback>, data: *mut c_void, _flags: u32) -> Code {
        let Some(function) = function else { return noted(INVALID_VALUE) };
        function(stream, SUCCESS, data);
        SUCCESS
    }

    fn cuStreamCreate(place: *mut u64, flags: u32) -> Code { create(place, flags, 0) }
    fn cuStreamCreateWithPriority(place: *mut u64, flags: u32, priority: i32) -> Code { create(place, flags, priority) }
    fn cuStreamDestroy_v2(stream: u64) -> Code { destroy(stream) }
    fn cuStreamGetPriority(stream: u64, priority: *mut i32) -> Code { ask(stream, priority, |stream| stream.priority) }
    fn cuStreamGetFlags(stream: u64, flags: *mut u32) -> Code { ask(stream, flags, |stream| stream.flags) }
    fn cuStreamGetDevice(stream: u64, device: *mut i32) -> Code { ask(stream, device, |stream| stream.device as i32) }
    fn cuStreamGetId(stream: u64, number: *mut u64) -> Code { ask(stream, number, |_| stream) }
    fn cuStreamSynchronize(stream: u64) -> Code { finish(stream) }
    fn cuStreamQuery(stream: u64) -> Code { is_done(stream) }
    fn cuCtxSynchronize() -> Code { ranks::wait_for_device() }
    fn cuLaunchHostFunc(stream: u64, function: Option<HostFunction>, data: *mut c_void) -> Code { cudaLaunchHostFunc(stream, function, data) }
    fn cuStreamAddCallback(stream: u64, function: Option<Callback>, data: *mut c_void, flags: u32) -> Code {
        cudaStreamAddCallback(stream, function, data, flags)
    }
}
