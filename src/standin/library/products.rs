//! Matrix products: launches whose number of multiplications is known.

use crate::costs::{self, Factors};
use crate::kernels;
use crate::{blas, blas_lt};

/// CUDA_R_32F.
const FP32: i32 = 0;
/// CUBLAS_COMPUTE_32F_FAST_TF32.
const COMPUTE_TF32: i32 = 77;

/// A product of `m` × `k` and `k` × `n`, `batch` times.
fn product([m, n, k]: [i32; 3], batch: i32, handle: u64, kind: i32, compute: i32) -> i32 {
    let count = [m, n, k, batch].iter().map(|size| u64::try_from(*size).unwrap_or(0)).product();
    let tf32 = compute == COMPUTE_TF32 || blas::may_round(handle);
    kernels::launched(blas::stream(handle), 1, costs::multiplies(count, Factors::of(kind, tf32)));
    0
}

entries! {
    fn cublasSgemm_v2(handle: u64, _a_form: i32, _b_form: i32, m: i32, n: i32, k: i32, _alpha: u64, _a: u64, _a_lead: i32, _b: u64, _b_lead: i32, _beta: u64, _c: u64, _c_lead: i32) -> i32 {
        product([m, n, k], 1, handle, FP32, 0)
    }
    fn cublasSgemmStridedBatched(handle: u64, _a_form: i32, _b_form: i32, m: i32, n: i32, k: i32, _alpha: u64, _a: u64, _a_lead: i32, _a_stride: i64, _b: u64, _b_lead: i32, _b_stride: i64, _beta: u64, _c: u64, _c_lead: i32, _c_stride: i64, batch: i32) -> i32 {
        product([m, n, k], batch, handle, FP32, 0)
    }
    fn cublasGemmEx(handle: u64, _a_form: i32, _b_form: i32, m: i32, n: i32, k: i32, _alpha: u64, _a: u64, kind: i32, _a_lead: i32, _b: u64, _b_kind: i32, _b_lead: i32, _beta: u64, _c: u64, _c_kind: i32, _c_lead: i32, compute: i32, _algorithm: i32) -> i32 {
        product([m, n, k], 1, handle, kind, compute)
    }
    fn cublasGemmStridedBatchedEx(handle: u64, _a_form: i32, _b_form: i32, m: i32, n: i32, k: i32, _alpha: u64, _a: u64, kind: i32, _a_lead: i32, _a_stride: i64, _b: u64, _b_kind: i32, _b_lead: i32, _b_stride: i64, _beta: u64, _c: u64, _c_kind: i32, _c_lead: i32, _c_stride: i64, batch: i32, compute: i32, _algorithm: i32) -> i32 {
        product([m, n, k], batch, handle, kind, compute)
    }
    fn cublasLtMatmul(_handle: u64, _operation: u64, _alpha: u64, _a: u64, a_layout: *const blas_lt::MatrixLayout, _b: u64, _b_layout: u64, _beta: u64, _c: u64, _c_layout: u64, _d: u64, d_layout: *const blas_lt::MatrixLayout, _algorithm: u64, _workspace: u64, _bytes: usize, stream: u64) -> i32 {
        let (count, kind) = blas_lt::multiplications(a_layout, d_layout);
        kernels::launched(stream, 1, costs::multiplies(count, Factors::of(kind, false)));
        0
    }
}
