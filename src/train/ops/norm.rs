//! Layer normalisation.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::{GradientTarget, Tensor};
use vramlab_device::{DType, Operand, kernels};

/// The types in which a fused norm returns its result under autocast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOutputs {
    /// In 16 bits, for products only.
    Lower,
    /// In f32 for the residual stream too, with a 16-bit copy for products.
    Both,
}

/// A sum and its norm.
pub struct AddNormOutput {
    /// The sum, which goes on as the residual stream.
    pub sum: Tensor,
    /// The norm.
    pub output: Tensor,
}

impl Context {
    /// Normalises the last dimension of `input`, then scales by `weight` and adds `bias`. Runs in f32 under autocast.
    /// Saves the input, and mean and reciprocal deviation of every row.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn layer_norm(&mut self, input: &Tensor, weight: &Tensor, bias: &Tensor, eps: f32) -> OpResult<Tensor> {
        if self.fused && input.dtype() == weight.dtype() {
            return Ok(self.fused_layer_norm(input, None, [weight, bias], eps, NormOutputs::Both)?.output);
        }
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
            cx.launch(kernels::LayerNorm::Forward {
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
            let wants = weight.requires_grad() || bias.requires_grad();
            let source = cx.record("layer_normBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let _bias = saved_bias.unpack(cx)?;
                let (src, weight) = (saved_input.unpack(cx)?, saved_weight.unpack(cx)?);
                let (mean, rstd) = (saved_statistics.0.unpack(cx)?, saved_statistics.1.unpack(cx)?);
                let rows_together = cx.contiguous(&src, "contiguous input")?;
                let dsrc = cx.temporary(src.shape(), src.dtype(), "input gradient")?;
                let parameters = if wants {
                    let dweight = cx.temporary(weight.shape(), weight.dtype(), "weight gradient")?;
                    let dbias = cx.temporary(weight.shape(), weight.dtype(), "bias gradient")?;
                    Some(cx.sum_in_parts(&src, dweight, dbias)?)
                } else {
                    None
                };
                let none = Operand { len: 0, ..weight.operand() };
                let of_parameters = parameters.as_ref().map(|(dweight, dbias)| [dweight.operand(), dbias.operand()]);
                let [dweight, dbias] = of_parameters.unwrap_or([none; 2]);
                cx.launch(kernels::LayerNorm::Backward {
                    grad: grad.operand(),
                    src: rows_together.operand(),
                    mean: mean.operand(),
                    rstd: rstd.operand(),
                    weight: weight.operand(),
                    dsrc: dsrc.operand(),
                    dweight,
                    dbias,
                    cols,
                })?;
                let (dweight, dbias) = parameters.unzip();
                Ok([Some(dsrc), dweight, dbias])
            });
            Ok(output.with_source(source))
        })
    }

    /// [`Self::layer_norm`] with 1 added to the weight, in autocast's type if it is on: input, weight and bias are cast to it
    /// (`NemotronLayerNorm1P` of transformers).
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn centred_layer_norm(&mut self, input: &Tensor, weight: &Tensor, bias: &Tensor, eps: f32) -> OpResult<Tensor> {
        let raised = self.add_number(weight, 1.0)?;
        let Some(narrow) = self.autocast.dtype() else { return self.layer_norm(input, &raised, bias, eps) };
        let mut given = |part: &Tensor, what| {
            if part.dtype() == narrow { Ok(part.clone()) } else { self.cast(part, narrow, what) }
        };
        let input = given(input, "norm input in 16 bits")?;
        let weight = given(&raised, "weight in 16 bits")?;
        let bias = given(bias, "bias in 16 bits")?;
        drop(raised);
        self.without_autocast(|cx| cx.layer_norm(&input, &weight, &bias, eps))
    }

    /// Normalises the sum of `input` and `added`, or `input` itself: returns `norm(x)` and the `x` that goes on beside
    /// it. One kernel joins their gradients. For fused mode.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn add_layer_norm(
        &mut self,
        input: &Tensor,
        added: Option<&Tensor>,
        [weight, bias]: [&Tensor; 2],
        eps: f32,
        wanted: NormOutputs,
    ) -> OpResult<AddNormOutput> {
        let widest = added.is_none_or(|added| {
            added.dtype().size() <= input.dtype().size() && added.shape() == input.shape() && added.is_contiguous()
        });
        if input.dtype() == weight.dtype() && widest {
            // Under autocast the kernel takes `added` in the type of products. A bias after an all-reduce leaves it in the
            // residual stream's type.
            let lower = self.autocast.dtype().unwrap_or(input.dtype());
            return match added {
                Some(added) if added.dtype() != lower && lower != input.dtype() => {
                    let sum = self.add(input, added)?;
                    self.fused_layer_norm(&sum, None, [weight, bias], eps, wanted)
                }
                _ => self.fused_layer_norm(input, added, [weight, bias], eps, wanted),
            };
        }
        let sum = added.map_or_else(|| Ok(input.clone()), |added| self.add(input, added))?;
        let output = self.layer_norm(&sum, weight, bias, eps)?;
        Ok(AddNormOutput { sum, output })
    }

    /// The same for inputs in the type of the parameters. Saves the sum, and mean and reciprocal deviation of every row.
    fn fused_layer_norm(
        &mut self,
        input: &Tensor,
        added: Option<&Tensor>,
        [weight, bias]: [&Tensor; 2],
        eps: f32,
        wanted: NormOutputs,
    ) -> OpResult<AddNormOutput> {
        self.op("add_layer_norm", |cx| {
            let lower = cx.autocast.dtype().filter(|_| input.dtype() == DType::F32);
            let (shape, dtype, cols) = (input.shape(), input.dtype(), input.shape().last());
            let statistics = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let rows = Shape::new(&[shape.rows()]);
            let src = cx.contiguous(input, "contiguous input")?;
            let sum = match added {
                Some(_) => cx.activation(shape, dtype, "sum")?,
                None => src.clone(),
            };
            let (output_type, copy_type) = match (lower, wanted) {
                (Some(lower), NormOutputs::Lower) => (lower, None),
                _ => (dtype, lower),
            };
            let output = cx.activation(shape, output_type, "layer_norm output")?;
            let copy = copy_type.map(|lower| cx.activation(shape, lower, "layer_norm output in 16 bit")).transpose()?;
            let mean = cx.activation(rows, statistics, "mean")?;
            let rstd = cx.activation(rows, statistics, "rstd")?;
            cx.launch(kernels::LayerNorm::Add {
                src: src.operand(),
                add: added.map(|added| (added.operand(), sum.operand())),
                weight: weight.operand(),
                bias: bias.operand(),
                dst: output.operand(),
                copy: copy.as_ref().map(Tensor::operand),
                mean: mean.operand(),
                rstd: rstd.operand(),
                cols,
                eps,
            })?;
            if !cx.differentiates(&[input, added.unwrap_or(input), weight, bias]) {
                if let Some(copy) = copy {
                    cx.autocast.keep_twin(&output, copy);
                }
                return Ok(AddNormOutput { sum, output });
            }
            let saved = [cx.save(&sum)?, cx.save(weight)?, cx.save(&mean)?, cx.save(&rstd)?];
            let sum = sum.with_source(added.map_or(input.source(), |added| cx.record_sum(input, added)));
            let to = sum.source();
            let inputs = [Some(&sum), Some(weight), Some(bias)];
            let source = cx.record("add_layer_normBackward", inputs, move |cx, grads| {
                cx.fused_layer_norm_backward(&saved, grads, to, cols)
            });
            let output = output.with_source(source);
            if let Some(copy) = copy {
                cx.autocast.keep_twin(&output, copy.with_source(source).with_slot(1));
            }
            Ok(AddNormOutput { sum: sum.with_source(source).with_slot(2), output })
        })
    }

    /// Records the sum of two tensors; its gradient is the gradient of both.
    fn record_sum(&mut self, input: &Tensor, added: &Tensor) -> GradientTarget {
        let (dtype, wanted) = (added.dtype(), added.requires_grad());
        let source = self.record("addBackward", [Some(input), Some(added), None], move |cx, [grad, ..]| {
            let Some(grad) = grad else { return Ok(Gradients::default()) };
            let to_added = wanted.then(|| cx.narrowed(&grad, dtype)).transpose()?;
            Ok([Some(grad), to_added, None])
        });
        if wanted {
            self.tape.want_copy(source, dtype);
        }
        source
    }

    /// `grads` are the gradients of the result, of its 16-bit copy, and of the sum if it went on.
    fn fused_layer_norm_backward(
        &mut self,
        saved: &[SavedVariable; 4],
        grads: Gradients,
        to: GradientTarget,
        cols: usize,
    ) -> OpResult<Gradients> {
        let [grad, of_copy, residual] = grads;
        let (grad, second) = match (grad, of_copy) {
            (Some(grad), second) => (grad, second),
            (None, Some(grad)) => (grad, None),
            (None, None) => return Ok([residual, None, None]),
        };
        let [src, weight, mean, rstd] = saved;
        let (src, weight) = (src.unpack(self)?, weight.unpack(self)?);
        let (mean, rstd) = (mean.unpack(self)?, rstd.unpack(self)?);
        // If the residual gradient has no other owner, the input's gradient overwrites it.
        let dsrc = match &residual {
            Some(residual) if residual.is_exclusive() => residual.clone(),
            _ => self.temporary(src.shape(), src.dtype(), "input gradient")?,
        };
        let copy = self.tape.wanted_copy(to).filter(|dtype| *dtype != src.dtype());
        let copy = copy.map(|dtype| self.temporary(src.shape(), dtype, "input gradient in 16 bit")).transpose()?;
        let dweight = self.temporary(weight.shape(), weight.dtype(), "weight gradient")?;
        let dbias = self.temporary(weight.shape(), weight.dtype(), "bias gradient")?;
        self.launch(kernels::LayerNorm::AddBackward {
            grad: grad.operand(),
            second: second.as_ref().map(Tensor::operand),
            residual: residual.as_ref().map(Tensor::operand),
            src: src.operand(),
            mean: mean.operand(),
            rstd: rstd.operand(),
            weight: weight.operand(),
            dsrc: dsrc.operand(),
            copy: copy.as_ref().map(Tensor::operand),
            dweight: dweight.operand(),
            dbias: dbias.operand(),
            cols,
        })?;
        if let Some(copy) = copy {
            self.tape.deliver_copy(to, copy);
        }
        Ok([Some(dsrc), Some(dweight), Some(dbias)])
    }

    /// For very many rows of few columns, the gradients of weight and bias are summed by groups of rows, then over the groups.
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
