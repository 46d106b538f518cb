//! cuBLASLt: descriptors, and an algorithm for every product.
//!
//! cuDNN calls the same functions through `libcublasLt.so`, which forwards to these.

use std::ffi::c_char;
use std::mem;

use crate::foreign::{get, put, zero};
use crate::{blas, real};

/// CUBLAS_STATUS_INVALID_VALUE.
const INVALID_VALUE: i32 = 7;
/// Bytes of an opaque descriptor: at least as many as in any version.
const DESCRIPTOR: usize = 256;

/// A matrix layout, as its descriptor stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MatrixLayout {
    kind: i32,
    rows: u64,
    columns: u64,
    lead: i64,
    batch: i32,
}

/// cublasLtMatmulHeuristicResult_t.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct HeuristicResult {
    algorithm: [u64; 8],
    workspace: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// CUDA_R_32F.
const FP32: i32 = 0;
/// CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES.
const MOST_WORKSPACE: i32 = 1;
/// CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT.
const BATCH_COUNT: i32 = 5;

fn descriptor(place: *mut u64) -> i32 {
    if place.is_null() {
        return INVALID_VALUE;
    }
    let made: Box<[u64; DESCRIPTOR / 8]> = Box::new([0; DESCRIPTOR / 8]);
    put(place, Box::into_raw(made) as u64);
    0
}

fn destroy(descriptor: u64) -> i32 {
    if descriptor != 0 {
        // SAFETY: a program gives back what `descriptor` made, once.
        drop(unsafe { Box::from_raw(descriptor as *mut [u64; DESCRIPTOR / 8]) });
    }
    0
}

/// Bytes of the workspace of the answer with index `at`, as an H200 answered for the shapes of ResNet. A product that
/// sums over rows, as a weight's gradient does, has none.
fn workspace(a: MatrixLayout, b: MatrixLayout, at: usize) -> usize {
    match (a.rows == b.rows, at, a.kind) {
        (true, ..) | (_, 2.., _) => 0,
        (_, _, FP32) => 144,
        _ => 16,
    }
}

/// The number of multiplications of a product, and the type of its factors.
pub fn multiplications(a: *const MatrixLayout, d: *const MatrixLayout) -> (u64, i32) {
    let (Some(a), Some(d)) = (get(a), get(d)) else { return (0, FP32) };
    let inner = a.rows.saturating_mul(a.columns).checked_div(d.rows).unwrap_or(0);
    let count = d.rows.saturating_mul(d.columns).saturating_mul(inner);
    (count.saturating_mul(u64::try_from(d.batch).unwrap_or(1)), a.kind)
}

entries! {
    fn cublasLtCreate(place: *mut u64) -> i32 { descriptor(place) }
    fn cublasLtDestroy(handle: u64) -> i32 { destroy(handle) }
    fn cublasLtGetVersion() -> usize { blas::version() as usize }
    fn cublasLtGetCudartVersion() -> usize { real::runtime_version() as usize }
    /// A part of the version: major, minor or patch.
    fn cublasLtGetProperty(part: i32, value: *mut i32) -> i32 {
        let version = blas::version();
        put(value, match part {
            0 => version / 10000,
            1 => version / 100 % 100,
            2 => version % 100,
            _ => return INVALID_VALUE,
        });
        0
    }
    fn cublasLtGetStatusName(status: i32) -> *const c_char {
        if status == 0 { c"CUBLAS_STATUS_SUCCESS".as_ptr() } else { c"CUBLAS_STATUS_NOT_SUPPORTED".as_ptr() }
    }
    fn cublasLtGetStatusString(status: i32) -> *const c_char { cublasLtGetStatusName(status) }
    fn cublasLtMatmulDescCreate(place: *mut u64, _compute: i32, _scale: i32) -> i32 { descriptor(place) }
    fn cublasLtMatmulDescDestroy(descriptor: u64) -> i32 { destroy(descriptor) }
    fn cublasLtMatmulPreferenceCreate(place: *mut u64) -> i32 { descriptor(place) }
    fn cublasLtMatmulPreferenceSetAttribute(preference: *mut u64, attribute: i32, value: *const u64, size: usize) -> i32 {
        if attribute == MOST_WORKSPACE && size == mem::size_of::<u64>() && let Some(most) = get(value) {
            put(preference, most);
        }
        0
    }
    fn cublasLtMatmulPreferenceDestroy(descriptor: u64) -> i32 { destroy(descriptor) }
    fn cublasLtMatrixTransformDescCreate(place: *mut u64, _scale: i32) -> i32 { descriptor(place) }
    fn cublasLtMatrixTransformDescDestroy(descriptor: u64) -> i32 { destroy(descriptor) }
    fn cublasLtMatrixLayoutCreate(place: *mut u64, kind: i32, rows: u64, columns: u64, lead: i64) -> i32 {
        let code = descriptor(place);
        if let Some(made) = get(place) {
            put(made as *mut MatrixLayout, MatrixLayout { kind, rows, columns, lead, batch: 1 });
        }
        code
    }
    fn cublasLtMatrixLayoutDestroy(descriptor: u64) -> i32 { destroy(descriptor) }
    fn cublasLtMatrixLayoutInit_internal(place: *mut MatrixLayout, _size: usize, kind: i32, rows: u64, columns: u64, lead: i64) -> i32 {
        put(place, MatrixLayout { kind, rows, columns, lead, batch: 1 });
        0
    }
    fn cublasLtMatrixLayoutSetAttribute(layout: *mut MatrixLayout, attribute: i32, value: *const i32, size: usize) -> i32 {
        if attribute == BATCH_COUNT
            && size == mem::size_of::<i32>()
            && let (Some(known), Some(batch)) = (get(layout.cast_const()), get(value))
        {
            put(layout, MatrixLayout { batch, ..known });
        }
        0
    }
    fn cublasLtMatmulAlgoGetHeuristic(_handle: u64, _operation: u64, a: *const MatrixLayout, b: *const MatrixLayout, _c: u64, _d: u64, preference: *const u64, wanted: i32, found: *mut HeuristicResult, count: *mut i32) -> i32 {
        let (Some(a), Some(b)) = (get(a), get(b)) else { return INVALID_VALUE };
        let most = get(preference).unwrap_or(0) as usize;
        let wanted = wanted.max(0) as usize;
        zero(found.cast(), wanted * mem::size_of::<HeuristicResult>());
        for at in 0..wanted {
            let workspace = Some(workspace(a, b, at)).filter(|bytes| *bytes <= most).unwrap_or(0);
            put(found.wrapping_add(at), HeuristicResult { waves: 1.0, workspace, ..HeuristicResult::default() });
        }
        put(count, wanted as i32);
        0
    }
}
