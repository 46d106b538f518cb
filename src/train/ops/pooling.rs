//! Pooling of images.

use crate::context::Context;
use crate::error::{OpResult, TrainError};
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, PoolShape, kernels};

impl Context {
    /// The largest element of each square window of side `kernel` in the planes of `input` (batch, channels, height,
    /// width). Runs in the input's type. Saves the input, and the place of each maximum in its plane (i64).
    ///
    /// # Errors
    /// Out of memory, a failed kernel, an input that has no window.
    pub fn max_pool2d(&mut self, input: &Tensor, kernel: usize, stride: usize, padding: usize) -> OpResult<Tensor> {
        let refused = || {
            TrainError::Workload(format!(
                "windows of side {kernel} do not fit into an input of {:?}; choose larger images",
                input.shape()
            ))
        };
        let &[batch, channels, in_height, in_width] = input.shape().dims() else { return Err(refused().into()) };
        let side = |side: usize| Some((side + 2 * padding).checked_sub(kernel)? / stride.max(1) + 1);
        let (Some(out_height), Some(out_width)) = (side(in_height), side(in_width)) else {
            return Err(refused().into());
        };
        let planes = batch * channels;
        let interleaved = if input.is_channels_last() { channels } else { 1 };
        let shape =
            PoolShape { planes, in_height, in_width, out_height, out_width, kernel, stride, padding, interleaved };
        self.op("max_pool2d", |cx| {
            let differentiates = cx.differentiates(&[input]);
            let saved_input = if differentiates { Some(cx.save(input)?) } else { None };
            let pooled = Shape::new(&[batch, channels, out_height, out_width]);
            let last = pooled.channels_last_strides().filter(|_| input.is_channels_last());
            let strides = last.unwrap_or_else(|| pooled.contiguous_strides());
            let output = cx.activation(pooled, input.dtype(), "max_pool2d output")?.restrided(strides);
            let indices = cx.activation(pooled, DType::I64, "max_pool2d indices")?.restrided(strides);
            cx.launch(kernels::Pool::Max { src: input.flat(), dst: output.flat(), indices: indices.flat(), shape })?;
            let Some(saved_input) = saved_input else { return Ok(output) };
            let saved_indices = cx.save(&indices)?;
            let in_strides = input.layout();
            let source = cx.record("max_pool2dBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // The gradient gets the shape and layout of the input, so the input is saved.
                let (input, indices) = (saved_input.unpack(cx)?, saved_indices.unpack(cx)?);
                let indices = cx.arranged(&indices, strides, "indices copy")?;
                let grad = cx.arranged(&grad, strides, "contiguous gradient")?;
                let dst = cx.temporary_in(input.shape(), in_strides, grad.dtype(), "input gradient")?;
                cx.launch(kernels::Pool::MaxBackward {
                    grad: grad.flat(),
                    indices: indices.flat(),
                    dst: dst.flat(),
                    shape,
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
