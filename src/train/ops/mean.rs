//! Means over dimensions.

use std::ops::Range;

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::kernels;

impl Context {
    /// The mean over the adjacent dimensions `dims`, which the result lacks: (batch, channels, height, width) over
    /// 2..4 gives (batch, channels). Runs in the input's type. Saves nothing.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn mean(&mut self, input: &Tensor, dims: Range<usize>) -> OpResult<Tensor> {
        self.op("mean", |cx| {
            let shape = input.shape();
            let all = shape.dims();
            let (front, rest) = all.split_at(dims.start.min(all.len()));
            let (over, back) = rest.split_at(dims.len().min(rest.len()));
            let [outer, middle, inner] = [front, over, back].map(|part| part.iter().product());
            // For a mean over planes: with the channels last, pixels come before channels in memory.
            let channels = all.get(1).copied().filter(|_| input.is_channels_last() && dims == (2..4));
            let [outer, inner] = channels.map_or([outer, inner], |channels| [outer / channels.max(1), channels]);
            let (strides, dense) = (input.layout(), channels.is_some());
            let kept = shape.without(dims);
            let output = cx.activation(kept, input.dtype(), "mean")?;
            let src = if dense { input.flat() } else { input.operand() };
            cx.launch(kernels::Sums::Mean { src, dst: output.operand(), outer, middle, inner })?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let source = cx.record("meanBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let dst = cx.temporary_in(shape, strides, grad.dtype(), "mean gradient")?;
                cx.launch(kernels::Sums::MeanBackward { grad: grad.operand(), dst: dst.flat(), outer, middle, inner })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
