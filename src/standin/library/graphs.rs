//! Graphs: only the number of a graph's launches is kept.

use crate::codes::{Code, INVALID_HANDLE, INVALID_VALUE, SUCCESS};
use crate::context::noted;
use crate::foreign::put;
use crate::{costs, kernels, store};

fn create(place: *mut u64) -> Code {
    put(place, store::lock().graphs.make());
    SUCCESS
}

fn copied(place: *mut u64, graph: u64) -> Code {
    if place.is_null() {
        return INVALID_VALUE;
    }
    let mut state = store::lock();
    let Some(launches) = state.graphs.launches(graph) else { return INVALID_HANDLE };
    let made = state.graphs.make();
    state.graphs.recorded(made, launches);
    put(place, made);
    SUCCESS
}

fn destroy(graph: u64) -> Code {
    if store::lock().graphs.remove(graph) { SUCCESS } else { INVALID_HANDLE }
}

fn launch(graph: u64, stream: u64) -> Code {
    let launches = store::lock().graphs.launches(graph);
    launches.map_or(INVALID_HANDLE, |launches| {
        kernels::launched(stream, launches, launches.saturating_mul(costs::UNKNOWN));
        SUCCESS
    })
}

/// A graph reports one node for each launch; it has no handles of them.
fn nodes(graph: u64, nodes: *mut u64, count: *mut usize) -> Code {
    let Some(launches) = store::lock().graphs.launches(graph) else { return INVALID_HANDLE };
    if nodes.is_null() {
        put(count, launches as usize);
    } else {
        put(count, 0);
    }
    SUCCESS
}

entries! {
    fn cudaGraphCreate(place: *mut u64, _flags: u32) -> Code { noted(create(place)) }
    fn cudaGraphClone(place: *mut u64, graph: u64) -> Code { noted(copied(place, graph)) }
    fn cudaGraphInstantiate(place: *mut u64, graph: u64, _flags: u64) -> Code { noted(copied(place, graph)) }
    fn cudaGraphInstantiateWithFlags(place: *mut u64, graph: u64, _flags: u64) -> Code { noted(copied(place, graph)) }
    fn cudaGraphInstantiateWithParams(place: *mut u64, graph: u64, _parameters: u64) -> Code { noted(copied(place, graph)) }
    fn cudaGraphDestroy(graph: u64) -> Code { noted(destroy(graph)) }
    fn cudaGraphExecDestroy(graph: u64) -> Code { noted(destroy(graph)) }
    fn cudaGraphLaunch(graph: u64, stream: u64) -> Code { noted(launch(graph, stream)) }
    fn cudaGraphUpload(_graph: u64, _stream: u64) -> Code { SUCCESS }
    fn cudaGraphGetNodes(graph: u64, places: *mut u64, count: *mut usize) -> Code { noted(nodes(graph, places, count)) }
    fn cudaGraphGetRootNodes(graph: u64, places: *mut u64, count: *mut usize) -> Code { noted(nodes(graph, places, count)) }
    fn cudaGraphDebugDotPrint(_graph: u64, _path: u64, _flags: u32) -> Code { SUCCESS }

    fn cuGraphCreate(place: *mut u64, _flags: u32) -> Code { create(place) }
    fn cuGraphInstantiateWithFlags(place: *mut u64, graph: u64, _flags: u64) -> Code { copied(place, graph) }
    fn cuGraphDestroy(graph: u64) -> Code { destroy(graph) }
    fn cuGraphExecDestroy(graph: u64) -> Code { destroy(graph) }
    fn cuGraphLaunch(graph: u64, stream: u64) -> Code { launch(graph, stream) }
}
