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
            let saved_input =
                if differentiates { Some([cx.save(input)?, cx.save(weight)?, cx.save(bias)?]) } else { None };
            let cols = input.shape().last();
            let statistics = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            let rows = Shape::new(&[input.shape().rows()]);
            let rows_together = cx.contiguous(input, "contiguous input")?;
            let output = cx.activation(input.shape(), input.dtype(), "layer_norm output")?;
            let mean = cx.activation(rows, statistics, "mean")?;
            let rstd = cx.activation(rows, statistics, "rstd")?;
            cx.launch(&Kernel::LayerNorm {
                src: rows_together.operand(),
                weight: weight.operand(),
                bias: bias.operand(),
                dst: output.operand(),
                mean: mean.operand(),
                rstd: rstd.operand(),
                cols,
                eps,
            })?;
            let Some([saved_input, saved_weight, saved_bias]) = saved_input else { return Ok(output) };
            let saved_statistics = (cx.save(&mean)?, cx.save(&rstd)?);
            let inputs = [Some(input), Some(weight), Some(bias)];
            let source = cx.record("layer_normBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let _bias = saved_bias.unpack(cx)?;
                let (src, weight) = (saved_input.unpack(cx)?, saved_weight.unpack(cx)?);
                let (mean, rstd) = (saved_statistics.0.unpack(cx)?, saved_statistics.1.unpack(cx)?);
                let rows_together = cx.contiguous(&src, "contiguous input")?;
                let dsrc = cx.temporary(src.shape(), src.dtype(), "input gradient")?;
                let dweight = cx.temporary(weight.shape(), weight.dtype(), "weight gradient")?;
                let dbias = cx.temporary(weight.shape(), weight.dtype(), "bias gradient")?;
                let (dweight, dbias) = cx.sum_in_parts(&src, dweight, dbias)?;
                cx.launch(&Kernel::LayerNormBackward {
                    grad: grad.operand(),
                    src: rows_together.operand(),
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

    /// Gradients of weight and bias over very many rows of few columns are summed by groups of rows, then over the groups.
    fn sum_in_parts(&mut self, src: &Tensor, dweight: Tensor, dbias: Tensor) -> OpResult<(Tensor, Tensor)> {
        const MANY_ROWS: usize = 64 * 1024;
        const FEW_COLUMNS: usize = 132 / 2 * 32;
        const GROUP: usize = 32;
        let (rows, shape) = (src.shape().rows(), dweight.shape());
        if rows <= MANY_ROWS || shape.numel() >= FEW_COLUMNS {
            return Ok((dweight, dbias));
        }
        let groups = rows.div_ceil(GROUP);
        let parts = Shape::new(&[groups, shape.numel()]);
        let of_weight = self.temporary(parts, dweight.dtype(), "weight gradient parts")?;
        let of_bias = self.temporary(parts, dbias.dtype(), "bias gradient parts")?;
        let summed_weight = self.row_sum_output(dweight.dtype(), groups, shape, "weight gradient")?;
        drop(dweight);
        let summed_bias = self.row_sum_output(dbias.dtype(), groups, shape, "bias gradient")?;
        drop((dbias, of_weight, of_bias));
        Ok((summed_weight, summed_bias))
    }
}
