//! Layer normalisation.

use crate::device::{DType, Kernel};
use crate::train::context::Context;
use crate::train::error::OpResult;
use crate::train::tape::Gradients;
use crate::train::tensor::{Shape, Tensor};

impl Context {
    /// Normalises the last dimension of `input`, then scales by `weight` and adds `bias`. Runs in f32 under autocast.
    /// Saves the input, and mean and reciprocal deviation of every row.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn layer_norm(&mut self, input: &Tensor, weight: &Tensor, bias: &Tensor, eps: f32) -> OpResult<Tensor> {
        let input = &self.cast_to_f32(input, "layer_norm input")?;
        self.op("layer_norm", |cx| {
            let differentiates = cx.differentiates(&[input, weight, bias]);
            let saved_input = if differentiates { Some((cx.save(input)?, cx.save(weight)?)) } else { None };
            let cols = input.shape().last();
            let statistics = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            let rows = Shape::new(&[input.shape().rows()]);
            let output = cx.activation(input.shape(), input.dtype(), "layer_norm output")?;
            let mean = cx.activation(rows, statistics, "mean")?;
            let rstd = cx.activation(rows, statistics, "rstd")?;
            cx.launch(&Kernel::LayerNorm {
                src: input.operand(),
                weight: weight.operand(),
                bias: bias.operand(),
                dst: output.operand(),
                mean: mean.operand(),
                rstd: rstd.operand(),
                cols,
                eps,
            })?;
            let Some((saved_input, saved_weight)) = saved_input else { return Ok(output) };
            let saved_statistics = (cx.save(&mean)?, cx.save(&rstd)?);
            let inputs = [Some(input), Some(weight), Some(bias)];
            let source = cx.record("layer_normBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (src, weight) = (saved_input.unpack(cx)?, saved_weight.unpack(cx)?);
                let (mean, rstd) = (saved_statistics.0.unpack(cx)?, saved_statistics.1.unpack(cx)?);
                let dsrc = cx.temporary(src.shape(), src.dtype(), "input gradient")?;
                let dweight = cx.temporary(weight.shape(), weight.dtype(), "weight gradient")?;
                let dbias = cx.temporary(weight.shape(), weight.dtype(), "bias gradient")?;
                cx.launch(&Kernel::LayerNormBackward {
                    grad: grad.operand(),
                    src: src.operand(),
                    mean: mean.operand(),
                    rstd: rstd.operand(),
                    weight: weight.operand(),
                    dsrc: dsrc.operand(),
                    dweight: dweight.operand(),
                    dbias: dbias.operand(),
                    cols,
                })?;
                Ok([Some(dsrc), Some(dweight), Some(dbias)])
            });
            Ok(output.with_source(source))
        })
    }
}
