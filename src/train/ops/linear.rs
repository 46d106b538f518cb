//! Linear layers: `y = x Wᵀ (+ b)`.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::{GradientTarget, Tensor};
use vramlab_device::{DType, MatrixView, kernels};

/// The order of a weight's dimensions in memory.
#[derive(Clone, Copy)]
enum Lies {
    /// Outputs, then inputs.
    OutIn,
    /// Inputs, then outputs.
    InOut,
}

impl Context {
    /// `input` (…, in) times `weight` (out, in) transposed, plus `bias` (out). Runs in 16 bits under autocast.
    ///
    /// Saves the input if the weight requires a gradient, and the weight if the input does.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn linear(&mut self, input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> OpResult<Tensor> {
        if bias.is_none() && self.pads_logits(weight) {
            return self.padded_logits(input, weight);
        }
        // Autocast casts arguments from the last to the first.
        let bias = bias.map(|b| self.cast_to_lower(b, "bias copy")).transpose()?;
        let weight = self.cast_to_lower(weight, "weight copy")?;
        let input = self.cast_to_lower(input, "input copy")?;
        match bias {
            Some(bias) => self.biased_product(&input, &weight, &bias, (Lies::OutIn, 1)),
            None => self.mm(&input, &weight),
        }
    }

    /// `input @ weight.T` without a bias: the product of a view, of which autocast keeps no copy.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn product_of_transposed(&mut self, input: &Tensor, weight: &Tensor) -> OpResult<Tensor> {
        // Autocast casts arguments from the last to the first.
        let weight = match self.autocast.dtype().filter(|_| weight.dtype() == DType::F32) {
            Some(dtype) => &self.cast(weight, dtype, "weight copy")?,
            None => weight,
        };
        let input = self.cast_to_lower(input, "input copy")?;
        self.mm(&input, weight)
    }

    /// The same with a rank's part of the inputs, and a bias that all ranks have: each rank adds its share of the bias, so that
    /// the sum over the ranks contains it once. DTensor divides it outside of autograd, and its gradient is that of the whole
    /// bias.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn linear_of_part(&mut self, input: &Tensor, weight: &Tensor, bias: &Tensor, ranks: usize) -> OpResult<Tensor> {
        let bias = self.cast_to_lower(bias, "bias copy")?;
        let weight = self.cast_to_lower(weight, "weight copy")?;
        let input = self.cast_to_lower(input, "input copy")?;
        self.biased_product(&input, &weight, &bias, (Lies::OutIn, ranks))
    }

    /// `torch.addmm(bias, input, weight)`: `input` (…, in) times `weight` (in, out), plus `bias` (out), as transformers'
    /// `Conv1D`. Saves the same as [`Context::linear`].
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn addmm(&mut self, bias: &Tensor, input: &Tensor, weight: &Tensor) -> OpResult<Tensor> {
        // Autocast casts arguments from the last to the first.
        let weight = self.cast_to_lower(weight, "weight copy")?;
        let input = self.cast_to_lower(input, "input copy")?;
        let bias = self.cast_to_lower(bias, "bias copy")?;
        self.biased_product(&input, &weight.transpose(), &bias, (Lies::InOut, 1))
    }

    /// `weight` is (out, in), in either layout (`lies`). The bias is divided by `shares`.
    fn biased_product(
        &mut self,
        input: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        (lies, shares): (Lies, usize),
    ) -> OpResult<Tensor> {
        self.op("linear", |cx| {
            let differentiates = cx.differentiates(&[input, weight, bias]);
            let saved_input = save_if(cx, differentiates && weight.requires_grad(), input)?;
            let saved_weight = save_if(cx, differentiates && input.requires_grad(), &weight.transpose())?;
            let share = (shares > 1).then(|| cx.share_of_bias(bias, shares)).transpose()?;
            let output = cx.product(input, weight, Some(share.as_ref().unwrap_or(bias)))?;
            drop(share);
            if !differentiates {
                return Ok(output);
            }
            let (shape, rows) = (input.shape(), input.shape().rows());
            let bias_shape = bias.requires_grad().then(|| bias.shape());
            let to_parameters = cx.gradient_type(weight);
            // An input of more than two dimensions is a view that was recorded before the transpose of the weight: the gradient
            // that passes it is added last. Otherwise it is added at once.
            let late = shape.dims().len() > 2;
            let [first, last] = if late { [bias, input] } else { [input, bias] };
            let source = cx.record("linearBackward", [Some(first), Some(weight), Some(last)], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let x = saved_input.map(|s| s.unpack(cx).map(|x| (x, s))).transpose()?;
                let w = saved_weight.map(|s| s.unpack(cx).map(|w| (w, s))).transpose()?;
                let to_input = match &w {
                    Some((w, _)) => Some(viewed(shape, cx.input_gradient(&grad, w, shape)?)),
                    None => None,
                };
                let to_weight = match &x {
                    Some((x, _)) => Some(match lies {
                        Lies::OutIn => cx.weight_gradient(&grad, x, to_parameters)?,
                        Lies::InOut => cx.weight_gradient(x, &grad, to_parameters)?,
                    }),
                    None => None,
                };
                // Tensors that a checkpoint recomputed have no other owner and are freed here; tensors that the node
                // saved are freed with the node.
                let (_x, _w) = (x.map(|(_, saved)| saved), w.map(|(_, saved)| saved));
                let to_bias =
                    bias_shape.map(|shape| cx.bias_gradient(to_parameters, &grad, rows, shape)).transpose()?;
                Ok(if late { [to_bias, to_weight, to_input] } else { [to_input, to_weight, to_bias] })
            });
            Ok(output.with_source(source))
        })
    }

    fn share_of_bias(&self, bias: &Tensor, shares: usize) -> OpResult<Tensor> {
        let share = self.temporary(bias.shape(), bias.dtype(), "share of the bias")?;
        #[expect(clippy::cast_precision_loss, reason = "ranks of a world")]
        let factor = 1.0 / shares as f64;
        self.launch(kernels::Elementwise::Scale { src: bias.operand(), dst: share.operand(), factor })?;
        Ok(share)
    }

    /// GELU of [`Context::linear`] with a bias: in backward one kernel computes the gradients of the sum and of the bias.
    /// For fused mode.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn linear_gelu(&mut self, input: &Tensor, weight: &Tensor, bias: &Tensor, tanh: bool) -> OpResult<Tensor> {
        let bias = self.cast_to_lower(bias, "bias copy")?;
        let weight = self.cast_to_lower(weight, "weight copy")?;
        let input = self.cast_to_lower(input, "input copy")?;
        self.op("linear_gelu", |cx| {
            let hidden = cx.product(&input, &weight, Some(&bias))?;
            let output = cx.activation(hidden.shape(), hidden.dtype(), "gelu output")?;
            cx.launch(kernels::Elementwise::Gelu { src: hidden.operand(), dst: output.operand(), tanh })?;
            if !cx.differentiates(&[&input, &weight, &bias]) {
                return Ok(output);
            }
            let saved = [cx.save(&input)?, cx.save(&weight.transpose())?, cx.save(&hidden)?];
            let (shape, bias_shape, to_parameters) = (input.shape(), bias.shape(), cx.gradient_type(&weight));
            let wanted = [&input, &weight].map(Tensor::requires_grad);
            let inputs = [Some(&input), Some(&weight), Some(&bias)];
            let source = cx.record("linear_geluBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let [x, w, hidden] = saved;
                let (src, sums) = (hidden.unpack(cx)?, cx.temporary(bias_shape, to_parameters, "bias gradient")?);
                let dst = if grad.is_exclusive() {
                    grad.clone()
                } else {
                    cx.temporary(grad.shape(), grad.dtype(), "gelu gradient")?
                };
                cx.launch(kernels::Elementwise::GeluBackwardSum {
                    src: src.operand(),
                    grad: grad.operand(),
                    dst: dst.operand(),
                    sums: sums.operand(),
                    cols: bias_shape.numel(),
                    tanh,
                })?;
                drop((src, hidden, grad));
                let (w, x) = (w.unpack(cx)?, x.unpack(cx)?);
                let [to_input, to_weight] = wanted;
                let to_input = to_input.then(|| cx.input_gradient(&dst, &w, shape)).transpose()?;
                let to_weight = to_weight.then(|| cx.weight_gradient(&dst, &x, to_parameters)).transpose()?;
                Ok([to_input, to_weight, Some(sums)])
            });
            Ok(output.with_source(source))
        })
    }

    fn mm(&mut self, input: &Tensor, weight: &Tensor) -> OpResult<Tensor> {
        self.op("matmul", |cx| {
            let differentiates = cx.differentiates(&[input, weight]);
            let saved_input = save_if(cx, differentiates && weight.requires_grad(), input)?;
            let saved_weight = save_if(cx, differentiates && input.requires_grad(), &weight.transpose())?;
            let output = cx.product(input, weight, None)?;
            if !differentiates {
                return Ok(output);
            }
            let (shape, to_parameters) = (input.shape(), cx.gradient_type(weight));
            let source = cx.record("matmulBackward", [Some(input), Some(weight), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // The second argument's gradient comes first: its name (mat2) sorts before self.
                let w = saved_weight.map(|s| s.unpack(cx).map(|w| (w, s))).transpose()?;
                let x = saved_input.map(|s| s.unpack(cx).map(|x| (x, s))).transpose()?;
                let to_weight = match &x {
                    Some((x, _)) => Some(cx.weight_gradient(&grad, x, to_parameters)?.marked_as_view()),
                    None => None,
                };
                let to_input = w.as_ref().map(|(w, _)| cx.input_gradient(&grad, w, shape)).transpose()?;
                Ok([to_input.map(|to_input| viewed(shape, to_input)), to_weight, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// `x Wᵀ (+ b)`. With a bias it is one cuBLASLt call, except for shapes that cuBLASLt does not take.
    pub(super) fn product(&mut self, input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> OpResult<Tensor> {
        let (m, k, n) = (input.shape().rows(), input.shape().last(), weight.shape().dims()[0]);
        let output = self.activation(input.shape().with_last(n), input.dtype(), "output")?;
        let memory = self.memory().clone();
        if bias.is_some() && k > 1 && n > 1 {
            self.workspaces.gemm_with_bias(&memory)?;
        } else {
            self.workspaces.gemm(&memory)?;
        }
        self.gemm([m, n, k], input.matrix(), weight.transpose().strided_matrix(), &output, bias)?;
        Ok(output)
    }

    /// `weight` is transposed: (in, out).
    pub(super) fn input_gradient(&mut self, grad: &Tensor, weight: &Tensor, shape: Shape) -> OpResult<Tensor> {
        let (m, n, k) = (grad.shape().rows(), grad.shape().last(), shape.last());
        let output = self.temporary(shape, grad.dtype(), "input gradient")?;
        let memory = self.memory().clone();
        self.workspaces.gemm(&memory)?;
        self.gemm([m, k, n], grad.matrix(), weight.transpose().strided_matrix(), &output, None)?;
        Ok(output)
    }

    /// The type of parameter gradients. Gradients of 16-bit copies are cast to f32 later; fused ops write f32 directly.
    fn gradient_type(&self, weight: &Tensor) -> DType {
        let is_copy =
            matches!(weight.dtype(), DType::F16 | DType::Bf16) && !matches!(weight.source(), GradientTarget::Leaf(_));
        if self.fused && is_copy { DType::F32 } else { weight.dtype() }
    }

    /// If backward runs within an autocast region, sums come out in f32 and are cast back.
    fn bias_gradient(&mut self, dtype: DType, grad: &Tensor, rows: usize, shape: Shape) -> OpResult<Tensor> {
        if !self.autocasts_backward || dtype == DType::F32 {
            return self.sum_rows_as(dtype, grad, rows, shape, "bias gradient");
        }
        let sum = self.sum_rows_as(DType::F32, grad, rows, shape, "bias gradient in f32")?;
        self.cast_gradient(&sum, dtype)
    }

    pub(super) fn weight_gradient(&mut self, grad: &Tensor, input: &Tensor, dtype: DType) -> OpResult<Tensor> {
        let (m, n, k) = (grad.shape().rows(), grad.shape().last(), input.shape().last());
        let output = self.temporary(Shape::new(&[n, k]), dtype, "weight gradient")?;
        let memory = self.memory().clone();
        self.workspaces.gemm(&memory)?;
        self.gemm([n, k, m], grad.transposed(), input.matrix(), &output, None)?;
        Ok(output)
    }

    fn gemm(
        &self,
        [m, n, k]: [usize; 3],
        a: MatrixView,
        b: MatrixView,
        c: &Tensor,
        bias: Option<&Tensor>,
    ) -> OpResult<()> {
        let c = c.matrix();
        let bias = bias.map(Tensor::operand);
        self.launch(kernels::Gemm { m, n, k, batch: 1, a, b, c, bias, alpha: 1.0, beta: 0.0 })
    }
}

/// The gradient of an input of this shape. The product is one of matrices; with more dimensions the input's gradient is a view,
/// to which autograd does not add in place.
pub(super) fn viewed(shape: Shape, to_input: Tensor) -> Tensor {
    if shape.dims().len() > 2 { to_input.marked_as_view() } else { to_input }
}

fn save_if(cx: &mut Context, condition: bool, tensor: &Tensor) -> OpResult<Option<SavedVariable>> {
    condition.then(|| cx.save(tensor)).transpose()
}
