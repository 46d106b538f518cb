//! cuBLAS: handles and their settings. The table treats products as launches.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::foreign::put;
use crate::placement::DeviceLibrary;
use crate::{real, store};

/// CUBLAS_STATUS_NOT_INITIALIZED.
const NOT_INITIALIZED: i32 = 1;

/// The settings of a handle.
#[derive(Clone, Copy, Debug, Default)]
struct Handle {
    stream: u64,
    math_mode: i32,
    pointer_mode: i32,
    atomics_mode: i32,
    multiprocessors: i32,
}

/// All handles, and the number of the next one.
static HANDLES: Mutex<Option<(u64, HashMap<u64, Handle>)>> = Mutex::new(None);
const FIRST: u64 = 0x5700_0000_0000;

fn with<T>(act: impl FnOnce(&mut u64, &mut HashMap<u64, Handle>) -> T) -> T {
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    let (count, handles) = handles.get_or_insert_with(Default::default);
    act(count, handles)
}

fn change(handle: u64, change: impl FnOnce(&mut Handle)) -> i32 {
    with(|_, handles| {
        handles.get_mut(&handle).map_or(NOT_INITIALIZED, |handle| {
            change(handle);
            0
        })
    })
}

fn ask<T>(handle: u64, place: *mut T, what: impl FnOnce(&Handle) -> T) -> i32 {
    change(handle, |handle| put(place, what(handle)))
}

/// The version of the cuBLAS that belongs to the program's runtime: 10000 times the major version plus 100 times the
/// minor.
pub fn version() -> i32 {
    let runtime = real::runtime_version();
    runtime / 1000 * 10000 + runtime % 1000 * 10
}

/// The stream on which a handle runs its products.
pub fn stream(handle: u64) -> u64 {
    with(|_, handles| handles.get(&handle).map_or(0, |handle| handle.stream))
}

/// Whether products of f32 may round to TensorFloat-32: CUBLAS_TF32_TENSOR_OP_MATH.
pub fn may_round(handle: u64) -> bool {
    with(|_, handles| handles.get(&handle).is_some_and(|handle| handle.math_mode == 3))
}

entries! {
    fn cublasCreate_v2(place: *mut u64) -> i32 {
        store::lock().begin(DeviceLibrary::Products);
        with(|count, handles| {
            *count += 1;
            let handle = FIRST + *count * 256;
            handles.insert(handle, Handle::default());
            put(place, handle);
        });
        0
    }
    fn cublasDestroy_v2(handle: u64) -> i32 { with(|_, handles| handles.remove(&handle).map_or(NOT_INITIALIZED, |_| 0)) }
    fn cublasGetVersion_v2(_handle: u64, place: *mut i32) -> i32 {
        put(place, version());
        0
    }
    fn cublasSetStream_v2(handle: u64, stream: u64) -> i32 { change(handle, |handle| handle.stream = stream) }
    fn cublasGetStream_v2(handle: u64, stream: *mut u64) -> i32 { ask(handle, stream, |handle| handle.stream) }
    fn cublasSetWorkspace_v2(handle: u64, _workspace: u64, _bytes: usize) -> i32 { change(handle, |_| ()) }
    fn cublasSetMathMode(handle: u64, mode: i32) -> i32 { change(handle, |handle| handle.math_mode = mode) }
    fn cublasGetMathMode(handle: u64, mode: *mut i32) -> i32 { ask(handle, mode, |handle| handle.math_mode) }
    fn cublasSetPointerMode_v2(handle: u64, mode: i32) -> i32 { change(handle, |handle| handle.pointer_mode = mode) }
    fn cublasGetPointerMode_v2(handle: u64, mode: *mut i32) -> i32 { ask(handle, mode, |handle| handle.pointer_mode) }
    fn cublasSetAtomicsMode(handle: u64, mode: i32) -> i32 { change(handle, |handle| handle.atomics_mode = mode) }
    fn cublasGetAtomicsMode(handle: u64, mode: *mut i32) -> i32 { ask(handle, mode, |handle| handle.atomics_mode) }
    fn cublasSetSmCountTarget(handle: u64, count: i32) -> i32 { change(handle, |handle| handle.multiprocessors = count) }
    fn cublasGetSmCountTarget(handle: u64, count: *mut i32) -> i32 { ask(handle, count, |handle| handle.multiprocessors) }
}
