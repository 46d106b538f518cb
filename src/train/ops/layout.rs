//! Layouts: copies between them, and views that reorder dimensions.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

/// A shape and strides with dimensions of 1 in front.
fn padded(shape: Shape, strides: &[usize]) -> ([usize; 4], [usize; 4]) {
    let (mut sizes, mut steps) = ([1; 4], [0; 4]);
    let front = 4 - strides.len();
    sizes[front..].copy_from_slice(shape.dims());
    steps[front..].copy_from_slice(strides);
    (sizes, steps)
}

impl Context {
    /// `tensor` itself if it is contiguous, else a contiguous copy.
    pub(super) fn contiguous(&self, tensor: &Tensor, what: &'static str) -> OpResult<Tensor> {
        if tensor.is_contiguous() {
            return Ok(tensor.clone());
        }
        let copy = self.temporary(tensor.shape(), tensor.dtype(), what)?;
        self.arrange(tensor, &copy)?;
        Ok(copy)
    }

    /// `tensor` itself if it is contiguous, else `room` with a copy of its elements: elementwise kernels may write where they
    /// read.
    pub(super) fn in_rows(&self, tensor: &Tensor, room: &Tensor) -> OpResult<Tensor> {
        if tensor.is_contiguous() {
            return Ok(tensor.clone());
        }
        self.copy(tensor, room)?;
        Ok(room.clone())
    }

    /// `tensor` itself if it has these strides, which leave no gaps, else a copy with them.
    pub(super) fn arranged(&self, tensor: &Tensor, strides: [usize; 4], what: &'static str) -> OpResult<Tensor> {
        if tensor.layout() == strides {
            return Ok(tensor.clone());
        }
        let copy = self.temporary(tensor.shape(), tensor.dtype(), what)?.restrided(strides);
        self.arrange(tensor, &copy)?;
        Ok(copy)
    }

    /// A copy of images or weights with the channels last, in 16 bits under autocast; tensors in that layout stay as
    /// they are. Convolutions, norms, activations and pooling after it keep the layout.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn channels_last(&mut self, input: &Tensor, what: &'static str) -> OpResult<Tensor> {
        let Some(strides) = input.shape().channels_last_strides() else { return Ok(input.clone()) };
        if input.is_channels_last() {
            return Ok(input.clone());
        }
        let dtype = self.autocast.dtype().filter(|_| input.dtype() == DType::F32).unwrap_or(input.dtype());
        self.op("channels_last", |cx| {
            let output = cx.activation(input.shape(), dtype, what)?.restrided(strides);
            cx.arrange(input, &output)?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let (original, strides) = (input.dtype(), input.layout());
            let source = cx.record("channels_lastBackward", [Some(input), None, None], move |cx, [gradient, ..]| {
                let Some(gradient) = gradient else { return Ok(Gradients::default()) };
                let copy = cx.temporary(gradient.shape(), original, "gradient copy")?.restrided(strides);
                cx.arrange(&gradient, &copy)?;
                Ok([Some(copy), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// A tensor of the backward pass with these strides, which leave no gaps.
    pub(super) fn temporary_in(
        &self,
        shape: Shape,
        strides: [usize; 4],
        dtype: DType,
        what: &'static str,
    ) -> OpResult<Tensor> {
        Ok(self.temporary(shape, dtype, what)?.restrided(strides))
    }

    /// An activation with the shape and layout of `tensor`, whose elements fill their memory.
    pub(crate) fn laid_out_as(&self, tensor: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let output = self.activation(tensor.shape(), dtype, what)?;
        if tensor.is_contiguous() {
            return Ok(output);
        }
        let mut strides = [0; 4];
        strides[..tensor.strides().len()].copy_from_slice(tensor.strides());
        Ok(output.restrided(strides))
    }

    /// Writes `from` to `to` in the layout and type of `to`; `from` is repeated over leading dimensions that it lacks.
    pub(super) fn arrange(&self, from: &Tensor, to: &Tensor) -> OpResult<()> {
        let ((shape, dst_strides), (_, src_strides)) =
            (padded(to.shape(), to.strides()), padded(from.shape(), from.strides()));
        self.launch(kernels::Strided::Cast {
            src: from.address(),
            src_dtype: from.dtype(),
            dst: to.address(),
            dst_dtype: to.dtype(),
            shape,
            src_strides,
            dst_strides,
        })
    }

    /// Copies elements between two layouts of one shape.
    pub(crate) fn copy(&self, from: &Tensor, to: &Tensor) -> OpResult<()> {
        let ((shape, src_strides), (_, dst_strides)) =
            (padded(from.shape(), from.strides()), padded(to.shape(), to.strides()));
        self.launch(kernels::Strided::Copy {
            src: from.address(),
            dst: to.address(),
            dtype: from.dtype(),
            shape,
            src_strides,
            dst_strides,
        })
    }

    /// `input.view(shape)`, of equal size. Its gradient is a view too, to which autograd never adds in place.
    #[must_use]
    pub fn view(&mut self, input: &Tensor, shape: Shape) -> Tensor {
        let (view, original) = (input.reshaped(shape), input.shape());
        if !self.differentiates(&[input]) {
            return view;
        }
        let source = self.record("viewBackward", [Some(input), None, None], move |_, [grad, ..]| {
            Ok([grad.map(|grad| grad.reshaped(original)), None, None])
        });
        view.with_source(source)
    }

    /// An image (batch, channels, height, width) as rows (batch, height · width, channels): `flatten(2).transpose(1, 2)`, a
    /// view.
    pub fn pixels_as_rows(&mut self, image: &Tensor) -> Tensor {
        let (&[batch, channels, height, width], &[by_batch, by_channel, _, by_pixel]) =
            (image.shape().dims(), image.strides())
        else {
            return image.clone();
        };
        let rows = Shape::new(&[batch, height * width, channels]);
        let view = image.strided(rows, [by_batch, by_pixel, by_channel, 0], 0);
        if !self.differentiates(&[image]) {
            return view;
        }
        let shape = image.shape();
        let source = self.record("transposeBackward", [Some(image), None, None], move |_, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let &[by_batch, by_row, by_channel] = grad.strides() else { return Ok([Some(grad), None, None]) };
            let view = grad.strided(shape, [by_batch, by_channel, by_row * width, by_row], 0);
            Ok([Some(view), None, None])
        });
        view.with_source(source)
    }
}
