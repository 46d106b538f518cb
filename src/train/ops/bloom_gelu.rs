//! `x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))` as a function with a backward of its own.

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::kernels;

impl Context {
    /// GELU in its tanh form as BLOOM writes it: it saves its input alone, and both passes are expressions of many ops, whose blocks
    /// are asked for here. One kernel computes each.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn bloom_gelu(&mut self, input: &Tensor) -> OpResult<Tensor> {
        self.op("bloom_gelu", |cx| {
            let saved = if cx.differentiates(&[input]) { Some(cx.save(input)?) } else { None };
            let like = |what| cx.temporary(input.shape(), input.dtype(), what);
            let half = like("half of the input")?;
            let tanh = cx.tanh_of_bloom(input)?;
            let opened = like("tanh and 1")?;
            drop(tanh);
            let output = cx.activation(input.shape(), input.dtype(), "gelu output")?;
            drop((half, opened));
            cx.launch(kernels::Elementwise::Gelu { src: input.operand(), dst: output.operand(), tanh: true })?;
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("GeLUFunctionBackward", [Some(input), None, None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                let input = saved.unpack(cx)?;
                let like = |cx: &Self, what| cx.temporary(input.shape(), input.dtype(), what);
                let tanh = cx.tanh_of_bloom(&input)?;
                let half = like(cx, "half of the input")?;
                let slope = {
                    let square = like(cx, "square of tanh")?;
                    let rest = like(cx, "1 less the square")?;
                    drop(square);
                    let part = like(cx, "part of the input")?;
                    let squared = like(cx, "times the input")?;
                    drop(part);
                    let inner = like(cx, "slope within tanh")?;
                    drop(squared);
                    let slope = like(cx, "slope of tanh")?;
                    drop((rest, inner));
                    slope
                };
                let first = like(cx, "half of it")?;
                drop((half, slope));
                let opened = like(cx, "tanh and 1")?;
                let second = like(cx, "half of both")?;
                drop(opened);
                let factor = like(cx, "slope of gelu")?;
                drop((first, second));
                let dst = like(cx, "gelu gradient")?;
                drop((tanh, factor));
                cx.launch(kernels::Elementwise::GeluBackward {
                    src: input.operand(),
                    grad: grad.operand(),
                    dst: dst.operand(),
                    tanh: true,
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// The blocks of `tanh(0.79788456 * x * (1 + 0.044715 * x * x))`, the last of which is returned.
    fn tanh_of_bloom(&self, input: &Tensor) -> OpResult<Tensor> {
        let like = |what| self.temporary(input.shape(), input.dtype(), what);
        let times = like("times the root")?;
        let part = like("part of the input")?;
        let square = like("part of the square")?;
        drop(part);
        let sum = like("1 and that")?;
        drop(square);
        let argument = like("argument of tanh")?;
        drop((times, sum));
        let tanh = like("tanh")?;
        drop(argument);
        Ok(tanh)
    }
}
