//! The Newton–Schulz iteration of Muon: a matrix whose singular values come close to 1.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use super::reduce::{Scratch, sum_scratch};

/// Coefficients of the quintic polynomial, and how often it is applied: the defaults of `torch.optim.Muon`.
const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];
const STEPS: usize = 5;
/// Lower bound of the norm.
const LEAST: f32 = 1e-7;

impl Context {
    /// `_zeropower_via_newtonschulz` of PyTorch 2.11: in bf16, transposed if there are more rows than columns. A bf16 matrix is
    /// divided by its norm in place.
    pub(crate) fn orthogonalised(&self, matrix: &Tensor) -> OpResult<Tensor> {
        let lower = match matrix.dtype() {
            DType::Bf16 => matrix.clone(),
            _ => {
                let lower = self.temporary(matrix.shape(), DType::Bf16, "update in bf16")?;
                self.launch(kernels::Elementwise::Cast { src: matrix.operand(), dst: lower.operand() })?;
                lower
            }
        };
        let norm = self.whole_norm(&lower)?;
        let clamped = self.temporary(Shape::new(&[]), lower.dtype(), "clamped norm")?;
        self.launch(kernels::Muon::Normalise { matrix: lower.operand(), norm: norm.operand(), least: LEAST })?;
        drop((norm, clamped));
        let &[rows, cols] = matrix.shape().dims() else { return Ok(lower) };
        let (turned, least) = (rows > cols, rows.min(cols));
        let oriented = |x: Tensor| if turned { x.transpose() } else { x };
        let mut x = oriented(lower);
        // Variables of a loop: each lives until the next value replaces it.
        let (mut gram, mut polynomial) = (None, None);
        let [linear, cubic, quintic] = COEFFICIENTS;
        for _ in 0..STEPS {
            let square = Shape::new(&[least, least]);
            let products = self.temporary(square, x.dtype(), "Gram matrix")?;
            self.polynomial_term([&x, &x.transpose()], &products, [1.0, 0.0])?;
            drop(gram.replace(products.clone()));
            let factors = self.temporary(square, x.dtype(), "polynomial of the Gram matrix")?;
            self.arrange(&products, &factors)?;
            self.polynomial_term([&products, &products], &factors, [quintic, cubic])?;
            drop(polynomial.replace(factors.clone()));
            let next = self.temporary(x.shape(), x.dtype(), "orthogonal update")?;
            self.arrange(&x, &next)?;
            self.polynomial_term([&factors, &x], &next, [1.0, linear])?;
            x = next;
        }
        Ok(oriented(x))
    }

    /// `c = alpha · a b + beta · c`.
    fn polynomial_term(&self, [a, b]: [&Tensor; 2], c: &Tensor, [alpha, beta]: [f32; 2]) -> OpResult<()> {
        let [m, k, n] = [a.shape().rows(), a.shape().last(), b.shape().last()];
        let [a, b, c] = [a, b, c].map(Tensor::strided_matrix);
        self.launch(kernels::Gemm { m, n, k, batch: 1, a, b, c, bias: None, alpha, beta })
    }

    /// `tensor.norm()` of contiguous elements, in their type.
    fn whole_norm(&self, tensor: &Tensor) -> OpResult<Tensor> {
        let norm = self.temporary(Shape::new(&[]), tensor.dtype(), "norm")?;
        let scratch = match sum_scratch(tensor.numel(), 4, self.workspaces.policy) {
            Some(Scratch { partials, semaphores }) => {
                Some([self.scratch(partials, "norm partials")?, self.scratch(semaphores, "norm semaphores")?])
            }
            None => None,
        };
        let (src, dst) = (tensor.operand(), norm.operand());
        self.launch(kernels::RmsNorm::RowNorm { src, dst, cols: tensor.numel() })?;
        drop(scratch);
        Ok(norm)
    }
}
