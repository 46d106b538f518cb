//! A norm that subtracts the mean, op by op in f32, as in Cohere's models.

use std::cell::RefCell;
use std::rc::Rc;

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, Operand, kernels};

impl Context {
    /// `weight.float() · (x − x.mean(-1)) · rsqrt(variance + eps)` with `x = input.float()` and the mean of `(x − x.mean(-1))²`
    /// as variance, cast back. A weight of two dimensions belongs to several heads. Kernels compute fewer results than PyTorch's
    /// ops; the blocks are those of PyTorch's ops.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn wide_layer_norm(&mut self, input: &Tensor, weight: &Tensor, eps: f32) -> OpResult<Tensor> {
        let narrow = input.dtype();
        let wide = if narrow == DType::F64 { DType::F64 } else { DType::F32 };
        if narrow == wide {
            return self.normalised_in_f32(input.clone(), weight, eps).map(|(output, _locals)| output);
        }
        let input = self.cast(input, wide, "in f32")?;
        let (output, _locals) = self.normalised_in_f32(input, weight, eps)?;
        self.cast(&output, narrow, "normalised")
    }

    /// The norm, and the variables of its function that live until it returns.
    fn normalised_in_f32(&mut self, x: Tensor, weight: &Tensor, eps: f32) -> OpResult<(Tensor, [Tensor; 2])> {
        self.op("layer_norm in f32", |cx| {
            let (shape, wide) = (x.shape(), x.dtype());
            let (cols, rows) = (shape.last(), Shape::new(&[shape.rows()]));
            let differentiates = cx.differentiates(&[&x, weight]);
            let [to_input, to_weight] = [&x, weight].map(|tensor| differentiates && tensor.requires_grad());
            let of_input = x.source();
            let mean = cx.temporary(rows, wide, "mean")?;
            let centred = cx.activation(shape, wide, "centred for the variance")?;
            let saved_centred = to_input.then(|| cx.save(&centred)).transpose()?;
            let squares = cx.temporary(shape, wide, "squares")?;
            drop(centred);
            let variance = cx.temporary(rows, wide, "variance")?;
            drop(squares);
            let centred = cx.activation(shape, wide, "centred")?;
            let with_eps = cx.temporary(rows, wide, "variance and eps")?;
            let rstd = cx.activation(rows, wide, "rstd")?;
            drop(with_eps);
            let normalised = cx.activation(shape, wide, "normalised")?;
            let none = Operand { len: 0, ..normalised.operand() };
            cx.launch(kernels::LayerNorm::Forward {
                src: x.operand(),
                weight: none,
                bias: none,
                dst: normalised.operand(),
                mean: mean.operand(),
                rstd: rstd.operand(),
                cols,
                eps,
            })?;
            // The centred input is recovered from the quotient.
            let deviation = variance.operand();
            cx.launch(kernels::Elementwise::Rsqrt { src: rstd.operand(), dst: deviation })?;
            cx.launch(kernels::Elementwise::Mul { a: deviation, b: deviation, dst: deviation })?;
            let [a, dst] = [&normalised, &centred].map(Tensor::operand);
            cx.launch(kernels::Elementwise::MulRows { a, b: deviation, dst, cols })?;
            // Saved by the op that made it, and by the product.
            let saved = if to_input { Some((cx.save(&rstd)?, cx.save(&centred)?, cx.save(&rstd)?)) } else { None };
            drop((x, centred, rstd));
            let wide_weight = if weight.dtype() == wide {
                weight.clone()
            } else {
                let copy = cx.activation(weight.shape(), wide, "weight in f32")?;
                cx.launch(kernels::Elementwise::Cast { src: weight.operand(), dst: copy.operand() })?;
                copy
            };
            let product = cx.activation(shape, wide, "normalised times weight")?;
            let [a, b, dst] = [&normalised, &wide_weight, &product].map(Tensor::operand);
            cx.launch(kernels::Elementwise::Mul { a, b, dst })?;
            let saved_weight = to_input.then(|| cx.save(&wide_weight)).transpose()?;
            let saved_normalised = to_weight.then(|| cx.save(&normalised)).transpose()?;
            drop((normalised, wide_weight));
            if !differentiates {
                return Ok((product, [mean, variance]));
            }
            let input = variance.clone().with_source(of_input);
            let held = Rc::new(RefCell::new(None));
            let given = Rc::clone(&held);
            // Backward of the mean of squares and of the mean: their share of the input's gradient is already
            // in the gradient computed before.
            let of_variance = cx.record("mean of squaresBackward", [None; 3], move |cx, grads| {
                let ([Some(to_variance), ..], Some(saved_centred)) = (grads, saved_centred) else {
                    return Ok(Gradients::default());
                };
                let whole = |cx: &Self, what| cx.temporary(shape, wide, what);
                let spread = whole(cx, "gradient of squares")?;
                drop(to_variance);
                let centred = saved_centred.unpack(cx)?;
                let parts = [whole(cx, "power")?, whole(cx, "power times gradient")?];
                let to_centred = whole(cx, "gradient of the centred")?;
                drop((centred, saved_centred, spread, parts));
                let negated = whole(cx, "negated gradient")?;
                let sum = cx.temporary(rows, wide, "gradient of the mean again")?;
                drop((to_centred, negated, sum));
                let spread = whole(cx, "gradient of the mean's parts")?;
                let to_mean: Option<Tensor> = given.take();
                drop((to_mean, spread));
                Ok(Gradients::default())
            });
            let of_variance = to_input.then(|| variance.clone().with_source(of_variance));
            let of_normalised =
                cx.record("layer_norm in f32Backward", [Some(&input), of_variance.as_ref(), None], move |cx, grads| {
                    let ([Some(to_normalised), ..], Some((saved_result, saved_factor, saved_rstd))) = (grads, saved)
                    else {
                        return Ok(Gradients::default());
                    };
                    let whole = |cx: &Self, what| cx.temporary(shape, wide, what);
                    let of_rows = |cx: &Self, what| cx.temporary(rows, wide, what);
                    let (centred, rstd) = (saved_factor.unpack(cx)?, saved_rstd.unpack(cx)?);
                    let of_rstd = whole(cx, "gradient times centred")?;
                    let to_input = whole(cx, "gradient times rstd")?;
                    // In one kernel, with a mean of 0, because the input is centred.
                    let zeros = of_rstd.window(rows, 0).operand();
                    cx.launch(kernels::Elementwise::Fill { dst: zeros, value: 0.0 })?;
                    let none = Operand { len: 0, ..zeros };
                    cx.launch(kernels::LayerNorm::Backward {
                        grad: to_normalised.operand(),
                        src: centred.operand(),
                        mean: zeros,
                        rstd: rstd.operand(),
                        weight: none,
                        dsrc: to_input.operand(),
                        dweight: none,
                        dbias: none,
                        cols,
                    })?;
                    drop((centred, rstd));
                    let sum = of_rows(cx, "gradient of rstd")?;
                    drop((saved_factor, saved_rstd, to_normalised, of_rstd));
                    let rstd = saved_result.unpack(cx)?;
                    let parts = [of_rows(cx, "cube of rstd")?, of_rows(cx, "half the gradient")?];
                    let to_variance = of_rows(cx, "gradient of the variance")?;
                    drop((rstd, saved_result, sum, parts));
                    let negated = whole(cx, "negated gradient")?;
                    let to_mean = of_rows(cx, "gradient of the mean")?;
                    drop(negated);
                    held.replace(Some(to_mean));
                    Ok([Some(to_input), Some(to_variance), None])
                });
            let (of_weights, of_weight) = (weight.shape(), weight.dtype());
            let normalised = to_input.then(|| product.clone().with_source(of_normalised));
            let source = cx.record("mulBackward", [normalised.as_ref(), Some(weight), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let whole = |cx: &Self, what| cx.temporary(shape, wide, what);
                let wide_weight = saved_weight.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                let normalised = saved_normalised.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                let to_normalised = wide_weight.as_ref().map(|weight| {
                    let dst = whole(cx, "gradient times weight")?;
                    let (a, b) = (cx.in_rows(&grad, &dst)?, weight.operand());
                    cx.launch(kernels::Elementwise::Mul { a: a.operand(), b, dst: dst.operand() })?;
                    OpResult::Ok(dst)
                });
                let to_normalised = to_normalised.transpose()?;
                let Some(normalised) = normalised else {
                    drop((wide_weight, grad, saved_weight));
                    return Ok([to_normalised, None, None]);
                };
                let product = whole(cx, "gradient times normalised")?;
                let (a, b) = (cx.in_rows(&grad, &product)?, normalised.operand());
                cx.launch(kernels::Elementwise::Mul { a: a.operand(), b, dst: product.operand() })?;
                drop(a);
                // Sums come after the node.
                drop((normalised, wide_weight));
                let sum = cx.temporary(of_weights, wide, "weight gradient in f32")?;
                let cols = of_weights.numel();
                let rows = shape.numel() / cols.max(1);
                cx.launch(kernels::Sums::Columns { src: product.operand(), dst: sum.operand(), rows, cols })?;
                drop((product, grad, saved_weight, saved_normalised));
                let to_weight = if of_weight == wide { sum } else { cx.cast_gradient(&sum, of_weight)? };
                Ok([to_normalised, Some(to_weight), None])
            });
            Ok((product.with_source(source), [mean, variance]))
        })
    }
}
