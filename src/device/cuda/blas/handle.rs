//! cuBLASLt's calls, with descriptors that are destroyed when dropped.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;

use super::product::{MatrixLayout, Product, Shape};
use crate::DType;
use crate::cuda::driver::Stream;
use crate::cuda::refusal::Refusal;
use vramlab_allocator::units::Address;

fn refused(error: CublasError) -> Refusal {
    Refusal::Library { library: "cuBLASLt", status: format!("{:?}", error.0) }
}

const fn data_type(dtype: DType) -> sys::cudaDataType_t {
    match dtype {
        DType::F16 => sys::cudaDataType_t::CUDA_R_16F,
        DType::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        DType::E4M3 => sys::cudaDataType_t::CUDA_R_8F_E4M3,
        DType::E5M2 => sys::cudaDataType_t::CUDA_R_8F_E5M2,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    }
}

/// cuBLASLt's algorithm, as its own 64 bytes.
pub(super) type AlgorithmData = [u64; 8];

/// One way to compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Algorithm {
    pub data: AlgorithmData,
    /// Bytes of workspace that the algorithm needs.
    pub workspace: usize,
}

impl Algorithm {
    /// The library's answer about an algorithm, if it works with at most `most` bytes of workspace.
    fn found(status: sys::cublasStatus_t, data: AlgorithmData, result: &Heuristic, most: usize) -> Option<Self> {
        let works = status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS && result.workspaceSize <= most;
        works.then_some(Self { data, workspace: result.workspaceSize })
    }
}

type Heuristic = sys::cublasLtMatmulHeuristicResult_t;

fn no_result() -> Heuristic {
    // SAFETY: all of its fields may be zero.
    unsafe { mem::zeroed() }
}

/// The library's handle.
pub(super) struct BlasHandle(sys::cublasLtHandle_t);

// SAFETY: cuBLASLt's handle may be used from any thread, one at a time.
unsafe impl Send for BlasHandle {}

impl Drop for BlasHandle {
    fn drop(&mut self) {
        // SAFETY: the handle was created and is not used again.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

/// Descriptors of one shape.
pub(super) struct MatmulDescriptors {
    description: sys::cublasLtMatmulDesc_t,
    left: Matrix,
    right: Matrix,
    product: Matrix,
}

// SAFETY: descriptors are plain memory of the library.
unsafe impl Send for MatmulDescriptors {}

impl Drop for MatmulDescriptors {
    fn drop(&mut self) {
        // SAFETY: the description was created and is not used again.
        let _ = unsafe { result::destroy_matmul_desc(self.description) };
    }
}

struct Matrix(sys::cublasLtMatrixLayout_t);

impl Drop for Matrix {
    fn drop(&mut self) {
        // SAFETY: the layout was created and is not used again.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

impl Matrix {
    fn new(layout: &MatrixLayout, dtype: DType, batch: usize) -> Result<Self, Refusal> {
        let (rows, cols) = (layout.rows as u64, layout.cols as u64);
        let leading = i64::try_from(layout.leading).unwrap_or(i64::MAX);
        let matrix = Self(result::create_matrix_layout(data_type(dtype), rows, cols, leading).map_err(refused)?);
        if batch > 1 {
            use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
            let (count, stride) = (i32::try_from(batch).unwrap_or(i32::MAX), layout.batch_stride as i64);
            // SAFETY: the layout is alive; the values have the attributes' types.
            unsafe {
                let (count, stride) = ((&raw const count).cast(), (&raw const stride).cast());
                result::set_matrix_layout_attribute(matrix.0, Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count, 4)
                    .map_err(refused)?;
                let attribute = Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
                result::set_matrix_layout_attribute(matrix.0, attribute, stride, 8).map_err(refused)?;
            }
        }
        Ok(matrix)
    }
}

impl MatmulDescriptors {
    /// The layouts of both factors and of the product. The addend has the product's layout.
    const fn layouts(&self) -> [sys::cublasLtMatrixLayout_t; 3] {
        [self.left.0, self.right.0, self.product.0]
    }

    /// Makes the descriptors of `shape`.
    pub fn new(shape: &Shape) -> Result<Self, Refusal> {
        let compute = if shape.tf32 {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32
        } else {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F
        };
        let matrix = |layout, dtype| Matrix::new(layout, dtype, shape.batch);
        let (left, right) = (matrix(&shape.left, shape.types[0])?, matrix(&shape.right, shape.types[1])?);
        let product = matrix(&shape.product, shape.output)?;
        let description = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F).map_err(refused)?;
        let plan = Self { description, left, right, product };
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        // CUBLAS_OP_N and CUBLAS_OP_T, which the bindings of this library lack.
        let transposition = |transposed: bool| i32::from(transposed);
        plan.describe(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposition(shape.left.transposed))?;
        plan.describe(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &transposition(shape.right.transposed))?;
        if shape.fast {
            plan.describe(Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM, &1_i8)?;
        }
        if let Some(dtype) = shape.bias {
            plan.describe(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS)?;
            plan.describe(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &data_type(dtype))?;
        }
        Ok(plan)
    }

    /// Sets the addresses of both factors' scales, before algorithms are requested and before the product runs.
    pub fn scale(&self, scales: Option<[Address; 2]>) -> Result<(), Refusal> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let Some([left, right]) = scales else { return Ok(()) };
        self.describe(Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &left.0)?;
        self.describe(Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &right.0)
    }

    fn describe<T>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<(), Refusal> {
        let value: *const T = value;
        // SAFETY: the description is alive; every caller passes the attribute's own type.
        unsafe { result::set_matmul_desc_attribute(self.description, attribute, value.cast(), mem::size_of::<T>()) }
            .map_err(refused)
    }
}

impl BlasHandle {
    pub fn new() -> Result<Self, Refusal> {
        Ok(Self(result::create_handle().map_err(refused)?))
    }

    /// The library's version, in its own numbering.
    pub fn version(&self) -> usize {
        // SAFETY: the library is loaded.
        unsafe { sys::cublasLtGetVersion() }
    }

    /// Up to `count` algorithms for `shape` with at most `workspace` bytes, the most promising first; empty if the
    /// library has none.
    pub fn algorithms(
        &self,
        plan: &MatmulDescriptors,
        shape: &Shape,
        workspace: usize,
        count: usize,
    ) -> Result<Vec<Algorithm>, Refusal> {
        let preference = Preference(result::create_matmul_pref().map_err(refused)?);
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace)?;
        for attribute in [
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            preference.set(attribute, &shape.alignment)?;
        }
        let mut results = vec![no_result(); count];
        let mut returned = 0;
        let [left, right, product] = plan.layouts();
        // SAFETY: descriptors and preference are alive; `results` has room for as many as are asked for.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.0,
                plan.description,
                left,
                right,
                product,
                product,
                preference.0,
                i32::try_from(count).unwrap_or(i32::MAX),
                results.as_mut_ptr(),
                &raw mut returned,
            )
        };
        match status {
            sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => {}
            sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => return Ok(Vec::new()),
            other => return Err(refused(CublasError(other))),
        }
        results.truncate(usize::try_from(returned).unwrap_or(0));
        let found = |result: &Heuristic| Algorithm::found(result.state, result.algo.data, result, workspace);
        Ok(results.iter().filter_map(found).collect())
    }

    /// The algorithm with this `data`, if the library can run it for `plan` with at most `workspace` bytes.
    pub fn check(&self, plan: &MatmulDescriptors, data: AlgorithmData, workspace: usize) -> Option<Algorithm> {
        let mut result = no_result();
        let algorithm = sys::cublasLtMatmulAlgo_t { data };
        let [left, right, product] = plan.layouts();
        // SAFETY: handle and descriptors are alive; the library validates the algorithm, which is the purpose of the
        // call.
        let status = unsafe {
            let (asked, answer) = (&raw const algorithm, &raw mut result);
            sys::cublasLtMatmulAlgoCheck(self.0, plan.description, left, right, product, product, asked, answer)
        };
        Algorithm::found(status, data, &result, workspace)
    }

    /// Queues the product.
    pub fn multiply(
        &self,
        plan: &MatmulDescriptors,
        product: &Product,
        algorithm: &Algorithm,
        workspace: Address,
        stream: Stream,
    ) -> Result<(), Refusal> {
        plan.scale(product.scales)?;
        if let Some(bias) = product.bias {
            plan.describe(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.0)?;
        }
        let algorithm_data = sys::cublasLtMatmulAlgo_t { data: algorithm.data };
        let at = |address: Address| address.0 as *mut c_void;
        // SAFETY: the library has agreed to the algorithm for these descriptors; the operands are live blocks of the
        // sizes that the descriptors tell, as `Device::launch` asks; alpha and beta are read before the call returns.
        unsafe {
            result::matmul(
                self.0,
                plan.description,
                (&raw const product.alpha).cast(),
                (&raw const product.beta).cast(),
                at(product.left),
                plan.left.0,
                at(product.right),
                plan.right.0,
                at(product.product),
                plan.product.0,
                at(product.product),
                plan.product.0,
                &raw const algorithm_data,
                at(workspace),
                algorithm.workspace,
                stream.raw().cast(),
            )
        }
        .map_err(refused)
    }
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn set<T>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Result<(), Refusal> {
        let value: *const T = value;
        // SAFETY: the preference is alive; every caller passes the attribute's own type.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, value.cast(), mem::size_of::<T>()) }
            .map_err(refused)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: the preference was created and is not used again.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}
