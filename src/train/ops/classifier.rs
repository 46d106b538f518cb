//! The product with an odd number of classes at the end of a language model, fused for tensor cores.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, MatrixView, kernels};
use vramlab_model::Category;

/// Classes are padded to a multiple of this: rows of logits then begin at multiples of 128 bytes.
const PADDING: usize = 64;

impl Context {
    /// Whether [`Context::padded_logits`] pays off here.
    pub(super) fn pads_logits(&self, weight: &Tensor) -> bool {
        let classes = weight.shape().dims()[0];
        let casts = self.autocast.dtype().is_some() && weight.dtype() == DType::F32;
        // Columns that ranks put side by side leave no room between rows.
        let apart = self.classifying && !self.in_parts;
        self.fused && apart && casts && !classes.is_multiple_of(PADDING) && classes > PADDING
    }

    /// `input` times the transpose of `weight` (classes × in) under autocast. The 16-bit copy of the weight is padded with
    /// rows of zeros, and the logits with columns that are never read, so that tensor cores get whole tiles. The product
    /// for the weight's gradient writes f32 directly.
    pub(super) fn padded_logits(&mut self, input: &Tensor, weight: &Tensor) -> OpResult<Tensor> {
        let input = self.cast_to_lower(input, "input copy")?;
        self.op("classifier", |cx| {
            let dtype = input.dtype();
            let (rows, width, classes) = (input.shape().rows(), input.shape().last(), weight.shape().dims()[0]);
            let padded = classes.next_multiple_of(PADDING);
            let copy = cx.memory().tensor(Shape::new(&[padded, width]), dtype, Category::Temporary, "weight copy")?;
            let (kept, rest) = (Shape::new(&[classes, width]), Shape::new(&[padded - classes, width]));
            cx.launch(kernels::Elementwise::Cast { src: weight.operand(), dst: copy.window(kept, 0).operand() })?;
            cx.launch(kernels::Elementwise::Fill { dst: copy.window(rest, classes * width).operand(), value: 0.0 })?;
            let differentiates = cx.differentiates(&[&input, weight]);
            let saved = if differentiates { Some((cx.save(&input)?, cx.save(&copy)?)) } else { None };
            let logits = cx.activation(input.shape().with_last(padded), dtype, "output")?;
            cx.reserve_gemm_workspace()?;
            cx.matrix_product([rows, padded, width], input.matrix(), copy.transposed(), logits.matrix())?;
            let logits = logits.first_columns(classes);
            let Some((saved_input, saved_copy)) = saved else { return Ok(logits) };
            let (shape, weight_shape) = (input.shape(), weight.shape());
            let source = cx.record("classifierBackward", [Some(&input), Some(weight), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let to_weight = cx.temporary(weight_shape, DType::F32, "weight gradient")?;
                let x = saved_input.unpack(cx)?;
                cx.reserve_gemm_workspace()?;
                cx.matrix_product([classes, width, rows], grad.transposed(), x.matrix(), to_weight.matrix())?;
                // If the logits' gradient has the padding columns, they are zero.
                let cols = grad.row_stride().min(padded);
                let to_input = cx.temporary(shape, dtype, "input gradient")?;
                let copy = saved_copy.unpack(cx)?;
                cx.reserve_gemm_workspace()?;
                cx.matrix_product([rows, width, cols], grad.matrix(), copy.matrix(), to_input.matrix())?;
                Ok([Some(to_input), Some(to_weight), None])
            });
            Ok(logits.with_source(source))
        })
    }

    fn reserve_gemm_workspace(&mut self) -> OpResult<()> {
        let memory = self.memory().clone();
        self.workspaces.gemm(&memory)
    }

    fn matrix_product(&self, [m, n, k]: [usize; 3], a: MatrixView, b: MatrixView, c: MatrixView) -> OpResult<()> {
        self.launch(kernels::Gemm { m, n, k, batch: 1, a, b, c, bias: None, alpha: 1.0, beta: 0.0 })
    }
}
