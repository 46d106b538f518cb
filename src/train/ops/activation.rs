//! Activation functions.

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{Operand, kernels};
use vramlab_model::Category;

impl Context {
    /// `max(input, 0)` in a new tensor. Saves its output.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn relu(&mut self, input: &Tensor) -> OpResult<Tensor> {
        self.op("relu", |cx| {
            let output = cx.laid_out_as(input, input.dtype(), "relu output")?;
            cx.launch(kernels::Elementwise::Relu { src: input.flat(), dst: output.flat() })?;
            let output = output.with_source(input.source());
            cx.output_of_activation(output, "reluBackward", |output, grad, dst| kernels::Elementwise::ReluBackward {
                output,
                grad,
                dst,
            })
        })
    }

    /// `torch.square(relu(input))`. Saves the output of `relu` twice. `torch.square` is a `pow`, which autocast runs in f32.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn squared_relu(&mut self, input: &Tensor) -> OpResult<Tensor> {
        let positive = self.relu(input)?;
        let wide = self.cast_to_f32(&positive, "input of pow")?;
        self.square(&wide)
    }

    /// `max(input, 0)` as a `torch.autograd.Function` that saves its input too: `ctx.save_for_backward(x, y)`. Backward reads
    /// only the output.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn relu_saving_input(&mut self, input: &Tensor) -> OpResult<Tensor> {
        let output = self.no_grad(|cx| cx.relu(input))?;
        if !self.differentiates(&[input]) {
            return Ok(output);
        }
        let (unread, saved) = (self.save(input)?, self.save(&output)?);
        let source = self.record("reluBackward", [Some(input), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let _unread = unread.unpack(cx)?;
            let output = saved.unpack(cx)?;
            let dst = cx.temporary_in(grad.shape(), grad.layout(), grad.dtype(), "input gradient")?;
            cx.launch(kernels::Elementwise::ReluBackward {
                output: output.flat(),
                grad: grad.flat(),
                dst: dst.flat(),
            })?;
            Ok([Some(dst), None, None])
        });
        Ok(output.detach().with_source(source))
    }

    /// `max(input, 0)` in place. Saves its result, which is the input's memory.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn relu_in_place(&mut self, input: Tensor) -> OpResult<Tensor> {
        self.op("relu_", |cx| {
            cx.launch(kernels::Elementwise::Relu { src: input.flat(), dst: input.flat() })?;
            cx.output_of_activation(input, "relu_Backward", |output, grad, dst| kernels::Elementwise::ReluBackward {
                output,
                grad,
                dst,
            })
        })
    }

    /// `input` where it is positive, `slope · input` elsewhere, in place. Saves its result, which is the input's
    /// memory.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn leaky_relu_in_place(&mut self, input: Tensor, slope: f32) -> OpResult<Tensor> {
        self.op("leaky_relu_", |cx| {
            cx.launch(kernels::Elementwise::LeakyRelu { src: input.flat(), dst: input.flat(), slope })?;
            cx.output_of_activation(input, "leaky_relu_Backward", move |output, grad, dst| {
                kernels::Elementwise::LeakyReluBackward { output, grad, dst, slope }
            })
        })
    }

    /// Hyperbolic tangent of every element, in a new tensor. Saves its output.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn tanh(&mut self, input: &Tensor) -> OpResult<Tensor> {
        self.op("tanh", |cx| {
            let output = cx.laid_out_as(input, input.dtype(), "tanh output")?;
            cx.launch(kernels::Elementwise::Tanh { src: input.flat(), dst: output.flat() })?;
            let output = output.with_source(input.source());
            cx.output_of_activation(output, "tanhBackward", |output, grad, dst| kernels::Elementwise::TanhBackward {
                output,
                grad,
                dst,
            })
        })
    }

    /// `1 / (1 + exp(−input))` of every element, in a new tensor. Saves its output.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn sigmoid(&mut self, input: &Tensor) -> OpResult<Tensor> {
        self.op("sigmoid", |cx| {
            let output = cx.laid_out_as(input, input.dtype(), "sigmoid output")?;
            cx.launch(kernels::Elementwise::Sigmoid { src: input.flat(), dst: output.flat() })?;
            let output = output.with_source(input.source());
            cx.output_of_activation(output, "sigmoidBackward", |output, grad, dst| {
                kernels::Elementwise::SigmoidBackward { output, grad, dst }
            })
        })
    }

    /// Records an activation that saves its output; `output` has the source of the input.
    fn output_of_activation(
        &mut self,
        output: Tensor,
        backward: &'static str,
        kernel: impl FnOnce(Operand, Operand, Operand) -> kernels::Elementwise + 'static,
    ) -> OpResult<Tensor> {
        if !self.differentiates(&[&output]) {
            return Ok(output);
        }
        let (saved, strides) = (self.save(&output)?, output.layout());
        let source = self.record(backward, [Some(&output), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let output = saved.unpack(cx)?;
            let output = cx.arranged(&output, strides, "output copy")?;
            let grad = cx.arranged(&grad, strides, "contiguous gradient")?;
            let dst = cx.temporary_in(grad.shape(), strides, grad.dtype(), "input gradient")?;
            cx.launch(kernel(output.flat(), grad.flat(), dst.flat()))?;
            Ok([Some(dst), None, None])
        });
        Ok(output.with_source(source))
    }

    /// `input / (1 + exp(−input))` (SiLU, also called swish). Saves its input.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn silu(&mut self, input: &Tensor) -> OpResult<Tensor> {
        self.op("silu", |cx| {
            let saved = if cx.differentiates(&[input]) { Some(cx.save(input)?) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), "silu output")?;
            let src = cx.in_rows(input, &output)?;
            cx.launch(kernels::Elementwise::Silu { src: src.operand(), dst: output.operand() })?;
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("siluBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let input = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "silu gradient")?;
                let src = cx.in_rows(&input, &dst)?;
                cx.launch(kernels::Elementwise::SiluBackward {
                    src: src.operand(),
                    grad: grad.operand(),
                    dst: dst.operand(),
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// `silu(gate) · up` as one op, which saves both arguments. For fused mode.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn gated_silu(&mut self, gate: &Tensor, up: &Tensor) -> OpResult<Tensor> {
        self.op("gated_silu", |cx| {
            let saved = if cx.differentiates(&[gate, up]) { Some((cx.save(gate)?, cx.save(up)?)) } else { None };
            let output = cx.activation(gate.shape(), gate.dtype(), "gated")?;
            cx.launch(kernels::Elementwise::GatedSilu {
                gate: gate.operand(),
                up: up.operand(),
                dst: output.operand(),
            })?;
            let Some((saved_gate, saved_up)) = saved else { return Ok(output) };
            let source = cx.record("gated_siluBackward", [Some(gate), Some(up), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (gate, up) = (saved_gate.unpack(cx)?, saved_up.unpack(cx)?);
                drop((saved_gate, saved_up));
                let grad = cx.contiguous(&grad, "contiguous gradient")?;
                // Gradients overwrite saved tensors that have no other owner, as in Liger's kernel.
                let in_place = |cx: &Self, saved: &Tensor, what| {
                    if saved.is_exclusive() && saved.is_contiguous() {
                        cx.memory().relabel(saved, Category::Temporary, cx.memory().name_here(what));
                        return Ok(saved.clone());
                    }
                    cx.temporary(saved.shape(), saved.dtype(), what)
                };
                let dgate = in_place(cx, &gate, "gate gradient")?;
                let dup = in_place(cx, &up, "up gradient")?;
                cx.launch(kernels::Elementwise::GatedSiluBackward {
                    grad: grad.operand(),
                    gate: gate.operand(),
                    up: up.operand(),
                    dgate: dgate.operand(),
                    dup: dup.operand(),
                })?;
                Ok([Some(dgate), Some(dup), None])
            });
            Ok(output.with_source(source))
        })
    }

    /// GELU of every element, by the error function or by its tanh approximation. Saves its input.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn gelu(&mut self, input: &Tensor, tanh: bool) -> OpResult<Tensor> {
        self.op("gelu", |cx| {
            let differentiates = cx.differentiates(&[input]);
            let saved = if differentiates { Some(cx.save(input)?) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), "gelu output")?;
            cx.launch(kernels::Elementwise::Gelu { src: input.operand(), dst: output.operand(), tanh })?;
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("geluBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let input = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "gelu gradient")?;
                cx.launch(kernels::Elementwise::GeluBackward {
                    src: input.operand(),
                    grad: grad.operand(),
                    dst: dst.operand(),
                    tanh,
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
