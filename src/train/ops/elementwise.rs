//! Sums, and products with a scalar.

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

impl Context {
    /// `a + b`, where `b` may lack leading dimensions of `a` and may be of a narrower type. The sum has the layout of `a`.
    /// Saves nothing.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn add(&mut self, a: &Tensor, b: &Tensor) -> OpResult<Tensor> {
        self.op("add", |cx| {
            let dtype = if a.dtype().size() >= b.dtype().size() { a.dtype() } else { b.dtype() };
            let output = cx.laid_out_as(a, dtype, "sum")?;
            if a.is_contiguous() && b.is_contiguous() {
                cx.launch(kernels::Elementwise::Add { a: a.operand(), b: b.operand(), dst: output.operand() })?;
            } else {
                cx.arrange(b, &output)?;
                cx.launch(kernels::Elementwise::Add { a: output.flat(), b: a.flat(), dst: output.flat() })?;
            }
            if !cx.differentiates(&[a, b]) {
                return Ok(output);
            }
            let (a_dtype, b_dtype, b_shape) = (a.dtype(), b.dtype(), b.requires_grad().then(|| b.shape()));
            let to_first = a.requires_grad();
            let repeats = a.numel() / b.numel().max(1);
            // A leading dimension that b lacks is summed over, even if its size is 1.
            let broadcast = a.shape().dims().len() > b.shape().dims().len();
            let source = cx.record("addBackward", [Some(a), Some(b), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let to_a = to_first.then(|| cx.cast_gradient(&grad, a_dtype)).transpose()?;
                let to_b = match b_shape {
                    Some(shape) if broadcast => {
                        let sum = cx.sum_rows(&grad, repeats, shape, "sum over the batch")?;
                        Some(cx.cast_gradient(&sum, b_dtype)?)
                    }
                    Some(_) => Some(cx.narrowed(&grad, b_dtype)?),
                    None => None,
                };
                Ok([to_a, to_b, None])
            });
            if !broadcast && b.requires_grad() {
                cx.tape.want_copy(source, b_dtype);
            }
            Ok(output.with_source(source))
        })
    }

    /// The gradient of the op that runs backward, in another type: the copy that came with it, or a cast.
    pub(super) fn narrowed(&mut self, gradient: &Tensor, dtype: DType) -> OpResult<Tensor> {
        match self.gradient_copy.take().filter(|copy| copy.dtype() == dtype) {
            Some(copy) => Ok(copy),
            None => self.cast_gradient(gradient, dtype),
        }
    }

    /// `a + b` in place of `a`, for tensors of one shape and type (`a += b`). Saves nothing.
    ///
    /// # Errors
    /// A failed kernel.
    pub fn add_in_place(&mut self, a: Tensor, b: &Tensor) -> OpResult<Tensor> {
        self.op("add_", |cx| {
            cx.launch(kernels::Elementwise::Add { a: a.operand(), b: b.operand(), dst: a.operand() })?;
            if !cx.differentiates(&[&a, b]) {
                return Ok(a);
            }
            let of_b = b.dtype();
            let source = cx.record("add_Backward", [Some(&a), Some(b), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let to_b = cx.cast_gradient(&grad, of_b)?;
                Ok([Some(grad), Some(to_b), None])
            });
            Ok(a.with_source(source))
        })
    }

    /// `input · factor`; backward does the same with the gradient. Saves nothing.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn scale(&mut self, input: &Tensor, factor: f64, what: &'static str) -> OpResult<Tensor> {
        self.op("scale", |cx| {
            let output = cx.activation(input.shape(), input.dtype(), what)?;
            cx.launch(kernels::Elementwise::Scale { src: input.operand(), dst: output.operand(), factor })?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let source = cx.record("scaleBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let dst = cx.temporary(grad.shape(), grad.dtype(), "scaled gradient")?;
                // Rows of a slice may have gaps between them.
                let rows = cx.in_rows(&grad, &dst)?;
                cx.launch(kernels::Elementwise::Scale { src: rows.operand(), dst: dst.operand(), factor })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// `input + value`. Saves nothing.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn add_number(&mut self, input: &Tensor, value: f64) -> OpResult<Tensor> {
        self.op("add", |cx| {
            let output = cx.activation(input.shape(), input.dtype(), "sum")?;
            cx.launch(kernels::Elementwise::AddScalar { src: input.operand(), dst: output.operand(), value })?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let source = cx.record("addBackward", [Some(input), None, None], |_, [grad, ..]| Ok([grad, None, None]));
            Ok(output.with_source(source))
        })
    }

    /// `input · factor` with a factor of one element on the device, which gets no gradient. Saves the factor.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn multiply(&mut self, input: &Tensor, factor: &Tensor, what: &'static str) -> OpResult<Tensor> {
        self.op("mul", |cx| {
            let differentiates = cx.differentiates(&[input]);
            let saved = if differentiates { Some(cx.save(factor)?) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), what)?;
            cx.launch(kernels::Elementwise::Mul { a: input.operand(), b: factor.operand(), dst: output.operand() })?;
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("mulBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let factor = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "scaled gradient")?;
                cx.launch(kernels::Elementwise::Mul { a: grad.operand(), b: factor.operand(), dst: dst.operand() })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
