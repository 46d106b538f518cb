//! Captures a stream into a graph, with the streams that join it through events.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::codes::{Code, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, SUCCESS};
use crate::context::noted;
use crate::foreign::put;
use crate::launches;
use crate::store::{self, COMMON, Capture};

static LAST: AtomicU64 = AtomicU64::new(0);

fn begin(stream: u64) -> Code {
    if stream < COMMON {
        return crate::codes::CAPTURE_UNSUPPORTED;
    }
    let mut state = store::lock();
    let graph = state.graphs.make();
    match state.streams.made(stream) {
        None => INVALID_HANDLE,
        Some(stream) if stream.capture.is_some() => ILLEGAL_STATE,
        Some(found) => {
            let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            found.capture = Some(Capture { number, graph, launches: launches::count(), origin: stream });
            SUCCESS
        }
    }
}

fn end(stream: u64, graph: *mut u64) -> Code {
    let mut state = store::lock();
    let Some(found) = state.streams.made(stream) else { return INVALID_HANDLE };
    let Some(capture) = found.capture else { return ILLEGAL_STATE };
    if capture.origin != stream {
        return crate::codes::CAPTURE_UNMATCHED;
    }
    for other in state.streams.all() {
        if other.capture.is_some_and(|other| other.number == capture.number) {
            other.capture = None;
        }
    }
    state.graphs.recorded(capture.graph, launches::count().saturating_sub(capture.launches));
    put(graph, capture.graph);
    SUCCESS
}

fn capture_of(stream: u64) -> Result<Option<Capture>, Code> {
    store::lock().streams.get(stream).map(|stream| stream.capture).ok_or(INVALID_HANDLE)
}

fn is_capturing(stream: u64, status: *mut i32) -> Code {
    match capture_of(stream) {
        Err(code) => code,
        Ok(capture) => {
            put(status, i32::from(capture.is_some()));
            SUCCESS
        }
    }
}

/// Every pointer but the first may be null. The dependencies of a graph's nodes are not kept.
fn info(
    stream: u64,
    status: *mut i32,
    number: *mut u64,
    graph: *mut u64,
    nodes: [*mut u64; 2],
    count: *mut usize,
) -> Code {
    if status.is_null() {
        return INVALID_VALUE;
    }
    match capture_of(stream) {
        Err(code) => code,
        Ok(capture) => {
            put(status, i32::from(capture.is_some()));
            put(number, capture.map_or(0, |capture| capture.number));
            put(graph, capture.map_or(0, |capture| capture.graph));
            nodes.into_iter().for_each(|place| put(place, 0));
            put(count, 0);
            SUCCESS
        }
    }
}

const NONE: *mut u64 = std::ptr::null_mut();

entries! {
    fn cudaStreamBeginCapture(stream: u64, _mode: i32) -> Code { noted(begin(stream)) }
    fn cudaStreamEndCapture(stream: u64, graph: *mut u64) -> Code { noted(end(stream, graph)) }
    fn cudaStreamIsCapturing(stream: u64, status: *mut i32) -> Code { noted(is_capturing(stream, status)) }
    /// In CUDA 13 this function has seven arguments, in CUDA 12 three.
    fn cudaStreamGetCaptureInfo(stream: u64, status: *mut i32, number: *mut u64, graph: *mut u64, nodes: *mut u64, edges: *mut u64, count: *mut usize) -> Code {
        if crate::real::runtime_version() >= 13000 {
            noted(info(stream, status, number, graph, [nodes, edges], count))
        } else {
            noted(info(stream, status, number, NONE, [NONE; 2], std::ptr::null_mut()))
        }
    }
    fn cudaStreamGetCaptureInfo_v2(stream: u64, status: *mut i32, number: *mut u64, graph: *mut u64, nodes: *mut u64, count: *mut usize) -> Code {
        noted(info(stream, status, number, graph, [nodes, NONE], count))
    }
    fn cudaStreamGetCaptureInfo_v3(stream: u64, status: *mut i32, number: *mut u64, graph: *mut u64, nodes: *mut u64, edges: *mut u64, count: *mut usize) -> Code {
        noted(info(stream, status, number, graph, [nodes, edges], count))
    }
    fn cudaStreamUpdateCaptureDependencies(_stream: u64, _nodes: u64, _count: usize, _flags: u32) -> Code { SUCCESS }
    fn cudaStreamUpdateCaptureDependencies_v2(_stream: u64, _nodes: u64, _edges: u64, _count: usize, _flags: u32) -> Code { SUCCESS }
    fn cudaThreadExchangeStreamCaptureMode(_mode: *mut i32) -> Code { SUCCESS }

    fn cuStreamBeginCapture_v2(stream: u64, _mode: i32) -> Code { begin(stream) }
    fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> Code { end(stream, graph) }
    fn cuStreamIsCapturing(stream: u64, status: *mut i32) -> Code { is_capturing(stream, status) }
    fn cuStreamGetCaptureInfo_v2(stream: u64, status: *mut i32, number: *mut u64, graph: *mut u64, nodes: *mut u64, count: *mut usize) -> Code {
        info(stream, status, number, graph, [nodes, NONE], count)
    }
    fn cuStreamGetCaptureInfo_v3(stream: u64, status: *mut i32, number: *mut u64, graph: *mut u64, nodes: *mut u64, edges: *mut u64, count: *mut usize) -> Code {
        info(stream, status, number, graph, [nodes, edges], count)
    }
    fn cuThreadExchangeStreamCaptureMode(_mode: *mut i32) -> Code { SUCCESS }
}
