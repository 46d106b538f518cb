//! RMS norm, op by op as models in PyTorch write it.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

/// Which argument of a product the weight is.
#[derive(Clone, Copy)]
pub(super) enum WeightSide {
    First,
    Second,
}

/// When the weight is multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WeightPrecision {
    /// After the cast back to the type of the input.
    Narrow,
    /// Before that cast.
    Wide,
    /// The same, in f32 as well.
    Cast,
}

impl Context {
    /// `weight · (x · rsqrt(mean(x²) + eps))` over the last dimension, with `x` in f32 and the normalised result cast to
    /// the type of `input`: `x = input.float(); variance = x.pow(2).mean(-1, keepdim=True); weight * (x *
    /// torch.rsqrt(variance + eps)).to(input.dtype)`. Seven ops, with the saved tensors of each.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rms_norm(&mut self, input: &Tensor, weight: &Tensor, eps: f64) -> OpResult<Tensor> {
        if self.fused && input.dtype() == weight.dtype() {
            return self.fused_rms_norm(input, weight, eps);
        }
        self.weighted_norm(input, weight, eps, WeightPrecision::Narrow)
    }

    /// The same with the weight before the cast: `(weight * (x * torch.rsqrt(variance + eps))).to(input.dtype)` (OLMo 2).
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn late_rms_norm(&mut self, input: &Tensor, weight: &Tensor, eps: f64) -> OpResult<Tensor> {
        if self.fused && input.dtype() == weight.dtype() {
            return self.fused_rms_norm(input, weight, eps);
        }
        self.weighted_norm(input, weight, eps, WeightPrecision::Wide)
    }

    /// The same with the weight cast to f32 first: `(weight.to(torch.float32) * ...).to(input.dtype)` (Helium).
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn late_rms_norm_of_cast(&mut self, input: &Tensor, weight: &Tensor, eps: f64) -> OpResult<Tensor> {
        if self.fused && input.dtype() == weight.dtype() {
            return self.fused_rms_norm(input, weight, eps);
        }
        self.weighted_norm(input, weight, eps, WeightPrecision::Cast)
    }

    fn weighted_norm(&mut self, input: &Tensor, weight: &Tensor, eps: f64, by: WeightPrecision) -> OpResult<Tensor> {
        let dtype = input.dtype();
        let narrow = matches!(dtype, DType::F16 | DType::Bf16);
        let x = if narrow { self.cast(input, DType::F32, "norm input in f32")? } else { input.clone() };
        let square = self.square(&x)?;
        let last = square.shape().dims().len().saturating_sub(1);
        // A local variable of the norm's forward: it lives until the forward returns.
        let variance = self.mean(&square, last..last + 1)?;
        drop(square);
        let shifted = self.add_number(&variance, eps)?;
        let factors = self.rsqrt(&shifted)?;
        drop(shifted);
        let normalised = self.scale_rows(&x, &factors)?;
        drop((x, factors));
        let output = match by {
            WeightPrecision::Narrow => {
                let normalised = if narrow { self.cast(&normalised, dtype, "normalised")? } else { normalised };
                self.scale_columns(&normalised, weight, WeightSide::First)
            }
            WeightPrecision::Wide | WeightPrecision::Cast => {
                let casts = by == WeightPrecision::Cast && matches!(weight.dtype(), DType::F16 | DType::Bf16);
                // The cast weight is freed with the product, unless that saves it.
                let wide = {
                    let weight = if casts { &self.cast(weight, DType::F32, "norm weight in f32")? } else { weight };
                    self.scale_columns(&normalised, weight, WeightSide::First)?
                };
                if wide.dtype() == dtype { Ok(wide) } else { self.cast(&wide, dtype, "norm output") }
            }
        };
        drop(variance);
        output
    }

    /// `(x · rsqrt(mean(x²) + eps) · (1 + weight))` over the last dimension, in f32 until the end (Gemma):
    /// `output = x.float(); output = output * torch.rsqrt(output.pow(2).mean(-1, keepdim=True) + eps); (output
    /// * (1.0 + weight.float())).type_as(x)`. Nine ops, with the saved tensors of each.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn centred_rms_norm(&mut self, input: &Tensor, weight: &Tensor, eps: f64) -> OpResult<Tensor> {
        let dtype = input.dtype();
        let normalised = {
            let x = self.in_f32(input, "norm input in f32")?;
            self.normalised_rows(&x, eps)?
        };
        let output = {
            let weight = self.in_f32(weight, "weight in f32")?;
            let shifted = self.add_number(&weight, 1.0)?;
            drop(weight);
            self.scale_columns(&normalised, &shifted, WeightSide::Second)?
        };
        drop(normalised);
        if output.dtype() == dtype { Ok(output) } else { self.cast(&output, dtype, "norm output") }
    }

    /// `x · rsqrt(mean(x²) + eps)` over the last dimension, in f32, cast back: there is no weight (Llama 4's queries and keys):
    /// `x = input.float(); (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)).type_as(input)`. Six ops, with the saved
    /// tensors of each.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn plain_rms_norm(&mut self, input: &Tensor, eps: f64) -> OpResult<Tensor> {
        let dtype = input.dtype();
        let normalised = {
            let x = self.in_f32(input, "norm input in f32")?;
            self.normalised_rows(&x, eps)?
        };
        if normalised.dtype() == dtype { Ok(normalised) } else { self.cast(&normalised, dtype, "norm output") }
    }

    /// The same times `weight`, in the type of the input: `norm(x) * weight` (Llama 4).
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn weighted_plain_rms_norm(&mut self, input: &Tensor, weight: &Tensor, eps: f64) -> OpResult<Tensor> {
        if self.fused && input.dtype() == weight.dtype() {
            return self.fused_rms_norm(input, weight, eps);
        }
        let normalised = self.plain_rms_norm(input, eps)?;
        self.scale_columns(&normalised, weight, WeightSide::Second)
    }

    /// A tensor in f32, or itself if it is as wide already.
    fn in_f32(&mut self, tensor: &Tensor, what: &'static str) -> OpResult<Tensor> {
        match tensor.dtype() {
            DType::F16 | DType::Bf16 => self.cast(tensor, DType::F32, what),
            _ => Ok(tensor.clone()),
        }
    }

    /// `x · rsqrt(mean(x²) + eps)` over the last dimension, in the type of `x`.
    fn normalised_rows(&mut self, x: &Tensor, eps: f64) -> OpResult<Tensor> {
        let square = self.square(x)?;
        let last = square.shape().dims().len().saturating_sub(1);
        let variance = self.mean(&square, last..last + 1)?;
        drop(square);
        let shifted = self.add_number(&variance, eps)?;
        drop(variance);
        let factors = self.rsqrt(&shifted)?;
        drop(shifted);
        self.scale_rows(x, &factors)
    }

    /// [`Self::rms_norm`] as one op, which saves its arguments and the reciprocal root of every row.
    fn fused_rms_norm(&mut self, input: &Tensor, weight: &Tensor, eps: f64) -> OpResult<Tensor> {
        self.op("rms_norm", |cx| {
            let differentiates = cx.differentiates(&[input, weight]);
            let saved = if differentiates { Some((cx.save(input)?, cx.save(weight)?)) } else { None };
            let cols = input.shape().last();
            let statistics = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            let rows_together = cx.contiguous(input, "contiguous input")?;
            let output = cx.activation(input.shape(), input.dtype(), "norm output")?;
            let rstd = cx.activation(Shape::new(&[input.shape().rows()]), statistics, "rstd")?;
            #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
            let eps = eps as f32;
            let [src, dst] = [&rows_together, &output].map(Tensor::operand);
            cx.launch(kernels::RmsNorm::Forward {
                src,
                weight: weight.operand(),
                dst,
                rstd: rstd.operand(),
                cols,
                eps,
            })?;
            let Some((saved_input, saved_weight)) = saved else { return Ok(output) };
            let saved_rstd = cx.save(&rstd)?;
            let source = cx.record("rms_normBackward", [Some(weight), Some(input), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (input, weight, rstd) = (saved_input.unpack(cx)?, saved_weight.unpack(cx)?, saved_rstd.unpack(cx)?);
                let input = cx.contiguous(&input, "contiguous input")?;
                let grad = cx.contiguous(&grad, "contiguous gradient")?;
                let dsrc = cx.temporary(input.shape(), input.dtype(), "input gradient")?;
                let dweight = cx.temporary(weight.shape(), weight.dtype(), "weight gradient")?;
                cx.launch(kernels::RmsNorm::Backward {
                    grad: grad.operand(),
                    src: input.operand(),
                    rstd: rstd.operand(),
                    weight: weight.operand(),
                    dsrc: dsrc.operand(),
                    dweight: dweight.operand(),
                    cols,
                })?;
                Ok([Some(dweight), Some(dsrc), None])
            });
            Ok(output.with_source(source))
        })
    }

    /// `input²`. Saves its input; backward computes the first power and twice that before the product with the gradient.
    pub(super) fn square(&mut self, input: &Tensor) -> OpResult<Tensor> {
        self.op("pow", |cx| {
            let saved = if cx.differentiates(&[input]) { Some(cx.save(input)?) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), "square")?;
            let rows = cx.in_rows(input, &output)?;
            cx.launch(kernels::Elementwise::Mul { a: rows.operand(), b: rows.operand(), dst: output.operand() })?;
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("powBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let input = saved.unpack(cx)?;
                let power = cx.temporary(grad.shape(), grad.dtype(), "power of 1")?;
                let rows = cx.in_rows(&input, &power)?;
                cx.launch(kernels::Elementwise::Cast { src: rows.operand(), dst: power.operand() })?;
                drop(rows);
                let double = cx.temporary(grad.shape(), grad.dtype(), "slope")?;
                cx.launch(kernels::Elementwise::Scale { src: power.operand(), dst: double.operand(), factor: 2.0 })?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "input gradient")?;
                cx.launch(kernels::Elementwise::Mul { a: grad.operand(), b: double.operand(), dst: dst.operand() })?;
                drop(double);
                drop(power);
                drop(grad);
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// `1 / √input`. Saves its output; backward is `−½ · grad · output³`.
    pub(super) fn rsqrt(&mut self, input: &Tensor) -> OpResult<Tensor> {
        self.op("rsqrt", |cx| {
            let output = cx.activation(input.shape(), input.dtype(), "reciprocal root")?;
            cx.launch(kernels::Elementwise::Rsqrt { src: input.operand(), dst: output.operand() })?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let saved = cx.save(&output)?;
            let source = cx.record("rsqrtBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let output = saved.unpack(cx)?;
                let cube = cx.temporary(grad.shape(), grad.dtype(), "cube")?;
                cx.launch(kernels::Elementwise::Mul { a: output.operand(), b: output.operand(), dst: cube.operand() })?;
                cx.launch(kernels::Elementwise::Mul { a: cube.operand(), b: output.operand(), dst: cube.operand() })?;
                let half = cx.temporary(grad.shape(), grad.dtype(), "half of the gradient")?;
                cx.launch(kernels::Elementwise::Scale { src: grad.operand(), dst: half.operand(), factor: -0.5 })?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "input gradient")?;
                cx.launch(kernels::Elementwise::Mul { a: half.operand(), b: cube.operand(), dst: dst.operand() })?;
                drop(half);
                drop(cube);
                drop(grad);
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// Every row of `input` times its own factor; `factors` has the shape of `input` without the last dimension. Saves both.
    pub(super) fn scale_rows(&mut self, input: &Tensor, factors: &Tensor) -> OpResult<Tensor> {
        self.op("mul", |cx| {
            let differentiates = cx.differentiates(&[input, factors]);
            let saved = if differentiates { Some((cx.save(input)?, cx.save(factors)?)) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), "normalised")?;
            let cols = input.shape().last();
            let rows = cx.in_rows(input, &output)?;
            cx.launch(kernels::Elementwise::MulRows {
                a: rows.operand(),
                b: factors.operand(),
                dst: output.operand(),
                cols,
            })?;
            let Some((saved_input, saved_factors)) = saved else { return Ok(output) };
            let source = cx.record("mulBackward", [Some(input), Some(factors), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // The second argument and its gradient come first: its name (other) sorts before self.
                let factors = saved_factors.unpack(cx)?;
                let input = saved_input.unpack(cx)?;
                let products = cx.temporary(grad.shape(), grad.dtype(), "gradient times input")?;
                let rows = cx.in_rows(&input, &products)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "input gradient")?;
                let of_grad = cx.in_rows(&grad, &dst)?;
                cx.launch(kernels::Elementwise::Mul {
                    a: of_grad.operand(),
                    b: rows.operand(),
                    dst: products.operand(),
                })?;
                drop(rows);
                cx.launch(kernels::Elementwise::MulRows {
                    a: of_grad.operand(),
                    b: factors.operand(),
                    dst: dst.operand(),
                    cols,
                })?;
                drop(of_grad);
                let of_factors = factors.shape();
                // Recomputed tensors of a checkpoint are freed after the products; sums come after the node.
                drop((input, factors));
                let to_factors = cx.temporary(of_factors, grad.dtype(), "factor gradient")?;
                let (src, sums) = (products.operand(), to_factors.operand());
                // The sum of a row is its mean times the number of elements.
                cx.launch(kernels::Sums::Mean { src, dst: sums, outer: of_factors.numel(), middle: cols, inner: 1 })?;
                #[expect(clippy::cast_precision_loss, reason = "the width of a model")]
                cx.launch(kernels::Elementwise::Scale { src: sums, dst: sums, factor: cols as f64 })?;
                drop(products);
                drop(grad);
                Ok([Some(dst), Some(to_factors), None])
            });
            Ok(output.with_source(source))
        })
    }

    /// Every row of `input` times `weight`, element by element. Saves each argument if the other requires a gradient.
    pub(super) fn scale_columns(&mut self, input: &Tensor, weight: &Tensor, place: WeightSide) -> OpResult<Tensor> {
        self.op("mul", |cx| {
            let differentiates = cx.differentiates(&[input, weight]);
            let saved_input = if differentiates && weight.requires_grad() { Some(cx.save(input)?) } else { None };
            let saved_weight = if differentiates && input.requires_grad() { Some(cx.save(weight)?) } else { None };
            // PyTorch promotes to the wider of both types.
            let dtype = if weight.dtype().size() > input.dtype().size() { weight.dtype() } else { input.dtype() };
            let output = cx.activation(input.shape(), dtype, "norm output")?;
            cx.launch(kernels::Elementwise::Mul { a: input.operand(), b: weight.operand(), dst: output.operand() })?;
            if !differentiates {
                return Ok(output);
            }
            let (of_input, of_weight) = (input.dtype(), (weight.shape(), weight.dtype()));
            let source = cx.record("mulBackward", [Some(weight), Some(input), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let mut unpacked =
                    |saved: &Option<SavedVariable>| saved.as_ref().map(|saved| saved.unpack(cx)).transpose();
                // The second argument is unpacked first.
                let (input, weight) = match place {
                    WeightSide::First => {
                        let input = unpacked(&saved_input)?;
                        (input, unpacked(&saved_weight)?)
                    }
                    WeightSide::Second => {
                        let weight = unpacked(&saved_weight)?;
                        (unpacked(&saved_input)?, weight)
                    }
                };
                let product = |factor: &Option<Tensor>, what| {
                    factor.as_ref().map(|factor| cx.row_major_product(&grad, factor, what)).transpose()
                };
                // The second argument's gradient comes first.
                let (dst, products) = match place {
                    WeightSide::First => {
                        let dst = product(&weight, "input gradient")?;
                        (dst, product(&input, "gradient times input")?)
                    }
                    WeightSide::Second => {
                        let products = product(&input, "gradient times input")?;
                        (product(&weight, "input gradient")?, products)
                    }
                };
                let rows = grad.shape().rows();
                // Recomputed tensors of a checkpoint are freed after the products.
                drop((input, weight));
                let sum = |products: Tensor| cx.sum_rows(&products, rows, of_weight.0, "weight gradient");
                let to_weight = products.map(sum).transpose()?;
                let to_weight = to_weight.map(|sum| cx.cast_gradient(&sum, of_weight.1)).transpose()?;
                let dst = dst.map(|dst| cx.cast_gradient(&dst, of_input)).transpose()?;
                // The incoming gradient is freed after the casts.
                drop(grad);
                Ok([to_weight, dst, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// `a · b` without a gradient; `b` may lack leading dimensions.
    pub(super) fn product_of(&self, a: &Tensor, b: &Tensor, what: &'static str) -> OpResult<Tensor> {
        let output = self.temporary(a.shape(), a.dtype(), what)?;
        self.launch(kernels::Elementwise::Mul { a: a.operand(), b: b.operand(), dst: output.operand() })?;
        Ok(output)
    }

    /// The same for any strides of `b`, which has the shape of `a`.
    fn product_of_rows(&self, a: &Tensor, b: &Tensor, what: &'static str) -> OpResult<Tensor> {
        let output = self.temporary(a.shape(), a.dtype(), what)?;
        let b = self.in_rows(b, &output)?;
        self.launch(kernels::Elementwise::Mul { a: a.operand(), b: b.operand(), dst: output.operand() })?;
        Ok(output)
    }

    /// The same with a row-major result, for any strides of `a`.
    fn row_major_product(&self, a: &Tensor, b: &Tensor, what: &'static str) -> OpResult<Tensor> {
        if a.is_contiguous() {
            return self.product_of(a, b, what);
        }
        let output = self.temporary(a.shape(), a.dtype(), what)?;
        self.copy(a, &output)?;
        self.launch(kernels::Elementwise::Mul { a: output.operand(), b: b.operand(), dst: output.operand() })?;
        Ok(output)
    }

    /// `a · b` of tensors of one shape, one of which may have any strides, in the wider of their types. Saves each argument if
    /// the other requires a gradient.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn mul(&mut self, a: &Tensor, b: &Tensor) -> OpResult<Tensor> {
        self.op("mul", |cx| {
            let differentiates = cx.differentiates(&[a, b]);
            let saved_a = if differentiates && b.requires_grad() { Some(cx.save(a)?) } else { None };
            let saved_b = if differentiates && a.requires_grad() { Some(cx.save(b)?) } else { None };
            let (of_a, of_b) = (a.dtype(), b.dtype());
            let wider = if of_a.size() >= of_b.size() { of_a } else { of_b };
            let output = cx.activation(a.shape(), wider, "product")?;
            let (strided, other) = if b.is_contiguous() { (a, b) } else { (b, a) };
            let rows = cx.in_rows(strided, &output)?;
            cx.launch(kernels::Elementwise::Mul { a: rows.operand(), b: other.operand(), dst: output.operand() })?;
            if !differentiates {
                return Ok(output);
            }
            let source = cx.record("mulBackward", [Some(a), Some(b), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let b = saved_b.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                let a = saved_a.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                let product = |factor: &Option<Tensor>| {
                    let product = |factor| cx.product_of_rows(&grad, factor, "product gradient");
                    factor.as_ref().map(product).transpose()
                };
                let to_b = product(&a)?;
                let to_a = product(&b)?;
                let to_b = to_b.map(|to_b| cx.cast_gradient(&to_b, of_b)).transpose()?;
                let to_a = to_a.map(|to_a| cx.cast_gradient(&to_a, of_a)).transpose()?;
                drop(grad);
                Ok([to_a, to_b, None])
            });
            Ok(output.with_source(source))
        })
    }
}
