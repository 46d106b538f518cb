//! Norms with a separate weight for each head, as in StableLM.

use std::cell::RefCell;
use std::rc::Rc;

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::{DType, Operand, kernels};

impl Context {
    /// `torch.cat([layer_norm(head, weight) for head, weight in zip(heads.split(1, dim=1), weights)], dim=1)` of heads (batch,
    /// heads, rows, head size), without biases. Runs in f32 under autocast. Saves each head, and mean and reciprocal deviation of
    /// its rows. The result lies head by head.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn norms_of_heads(&mut self, heads: &Tensor, weights: &[Tensor], eps: f32) -> OpResult<Tensor> {
        let (shape, narrow) = (heads.shape(), heads.dtype());
        let &[batch, _, rows, cols] = shape.dims() else { return Ok(heads.clone()) };
        let of_head = Shape::new(&[batch, 1, rows, cols]);
        let head_of = move |whole: &Tensor, number: usize| {
            let layout = whole.layout();
            whole.strided(of_head, layout, number * layout[1])
        };
        let widens = self.autocast.dtype().is_some() && matches!(narrow, DType::F16 | DType::Bf16);
        let statistics = Shape::new(&[batch * rows]);
        // Gradients of the heads, the last one first, and the gradient of the result, which the heads' nodes pass from one to the next.
        let made: Rc<RefCell<Vec<Tensor>>> = Rc::default();
        let (mut outputs, mut before) = (Vec::with_capacity(weights.len()), heads.clone());
        for (number, weight) in weights.iter().enumerate() {
            let (output, source) = self.op("layer_norm", |cx| {
                let head = head_of(heads, number);
                let head = if widens { cx.head_in_f32(&head)? } else { head };
                let differentiates = cx.differentiates(&[heads, weight]);
                let saved = if differentiates { Some([cx.save(&head)?, cx.save(weight)?]) } else { None };
                let together = cx.contiguous(&head, "contiguous input")?;
                let output = cx.activation(of_head, head.dtype(), "layer_norm output")?;
                let mean = cx.activation(statistics, DType::F32, "mean")?;
                let rstd = cx.activation(statistics, DType::F32, "rstd")?;
                cx.launch(kernels::LayerNorm::Forward {
                    src: together.operand(),
                    weight: weight.operand(),
                    bias: Operand { len: 0, ..weight.operand() },
                    dst: output.operand(),
                    mean: mean.operand(),
                    rstd: rstd.operand(),
                    cols,
                    eps,
                })?;
                let Some([saved_head, saved_weight]) = saved else { return Ok((output, None)) };
                let saved_statistics = [cx.save(&mean)?, cx.save(&rstd)?];
                let (wants, made) = (weight.requires_grad(), Rc::clone(&made));
                let source = cx.record("layer_normBackward", [Some(&before), Some(weight)], move |cx, grads| {
                    let [Some(grad), ..] = grads else { return Ok([None, None]) };
                    let (head, weight) = (saved_head.unpack(cx)?, saved_weight.unpack(cx)?);
                    let [mean, rstd] = [saved_statistics[0].unpack(cx)?, saved_statistics[1].unpack(cx)?];
                    let together = cx.contiguous(&head, "contiguous input")?;
                    let dsrc = cx.temporary(of_head, head.dtype(), "input gradient")?;
                    let dweight =
                        wants.then(|| cx.temporary(weight.shape(), weight.dtype(), "weight gradient")).transpose()?;
                    let of_output = cx.contiguous(&head_of(&grad, number), "contiguous gradient")?;
                    let none = Operand { len: 0, ..weight.operand() };
                    cx.launch(kernels::LayerNorm::Backward {
                        grad: of_output.operand(),
                        src: together.operand(),
                        mean: mean.operand(),
                        rstd: rstd.operand(),
                        weight: weight.operand(),
                        dsrc: dsrc.operand(),
                        dweight: dweight.as_ref().map_or(none, Tensor::operand),
                        dbias: none,
                        cols,
                    })?;
                    drop((of_output, together, head, weight, mean, rstd));
                    drop((saved_head, saved_weight, saved_statistics));
                    let grad = (number > 0).then_some(grad);
                    made.borrow_mut().push(cx.narrowed(&dsrc, narrow)?);
                    drop(dsrc);
                    if grad.is_some() {
                        return Ok([grad, dweight]);
                    }
                    let parts = made.take();
                    let whole = cx.temporary(shape, narrow, "gradients of heads")?;
                    for (number, part) in parts.iter().rev().enumerate() {
                        cx.copy(part, &head_of(&whole, number))?;
                    }
                    Ok([Some(whole), dweight])
                });
                Ok((output, Some(source)))
            })?;
            if let Some(source) = source {
                before = heads.clone().with_source(source);
            }
            outputs.push(output);
        }
        let dtype = outputs.first().map_or(narrow, Tensor::dtype);
        let whole = self.op("cat", |cx| {
            let whole = cx.activation(shape, dtype, "normalised heads")?;
            for (number, output) in outputs.iter().enumerate() {
                cx.copy(output, &head_of(&whole, number))?;
            }
            Ok(whole)
        })?;
        Ok(whole.with_source(before.source()))
    }

    /// `tensor` in f32, contiguous, not recorded on the tape.
    fn head_in_f32(&self, tensor: &Tensor) -> OpResult<Tensor> {
        let copy = self.activation(tensor.shape(), DType::F32, "layer_norm input")?;
        self.arrange(tensor, &copy)?;
        Ok(copy)
    }
}
