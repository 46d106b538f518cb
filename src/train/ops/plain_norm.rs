//! A norm without weight and bias.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, Operand, kernels};

impl Context {
    /// Normalises the last dimension of `input`: `F.layer_norm(input, shape, None, None, eps)`. Saves the input, and mean and reciprocal
    /// deviation of every row.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn plain_layer_norm(&mut self, input: &Tensor, eps: f32) -> OpResult<Tensor> {
        let input = &self.cast_to_f32(input, "layer_norm input")?;
        self.op("layer_norm", |cx| {
            let saved_input = if cx.differentiates(&[input]) { Some(cx.save(input)?) } else { None };
            let cols = input.shape().last();
            let statistics = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            let rows = Shape::new(&[input.shape().rows()]);
            let output = cx.activation(input.shape(), input.dtype(), "layer_norm output")?;
            let mean = cx.activation(rows, statistics, "mean")?;
            let rstd = cx.activation(rows, statistics, "rstd")?;
            let none = Operand { len: 0, ..output.operand() };
            cx.launch(kernels::LayerNorm::Forward {
                src: input.operand(),
                weight: none,
                bias: none,
                dst: output.operand(),
                mean: mean.operand(),
                rstd: rstd.operand(),
                cols,
                eps,
            })?;
            let Some(saved_input) = saved_input else { return Ok(output) };
            let saved = [saved_input, cx.save(&mean)?, cx.save(&rstd)?];
            let source = cx.record("layer_normBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let [src, mean, rstd] = [saved[0].unpack(cx)?, saved[1].unpack(cx)?, saved[2].unpack(cx)?];
                let dsrc = cx.temporary(src.shape(), src.dtype(), "input gradient")?;
                let none = Operand { len: 0, ..dsrc.operand() };
                cx.launch(kernels::LayerNorm::Backward {
                    grad: grad.operand(),
                    src: src.operand(),
                    mean: mean.operand(),
                    rstd: rstd.operand(),
                    weight: none,
                    dsrc: dsrc.operand(),
                    dweight: none,
                    dbias: none,
                    cols,
                })?;
                Ok([Some(dsrc), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
