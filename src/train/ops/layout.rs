//! Layouts: copies between them, and views that reorder dimensions.

use crate::device::{DType, Kernel};
use crate::train::context::Context;
use crate::train::error::OpResult;
use crate::train::tape::Gradients;
use crate::train::tensor::{Shape, Tensor};

/// A shape and strides with dimensions of 1 in front.
fn padded(shape: Shape, strides: &[usize]) -> ([usize; 4], [usize; 4]) {
    let (mut sizes, mut steps) = ([1; 4], [0; 4]);
    let front = 4 - strides.len();
    sizes[front..].copy_from_slice(shape.dims());
    steps[front..].copy_from_slice(strides);
    (sizes, steps)
}

impl Context {
    /// `tensor` itself where its elements follow each other in the order of its shape, else a copy in which they do.
    pub(super) fn contiguous(&self, tensor: &Tensor, what: &'static str) -> OpResult<Tensor> {
        if tensor.is_contiguous() {
            return Ok(tensor.clone());
        }
        let copy = self.temporary(tensor.shape(), tensor.dtype(), what)?;
        self.arrange(tensor, &copy)?;
        Ok(copy)
    }

    /// An activation of the shape and layout of `tensor`, whose elements fill their memory.
    pub(crate) fn laid_out_as(&self, tensor: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let output = self.activation(tensor.shape(), dtype, what)?;
        if tensor.is_contiguous() {
            return Ok(output);
        }
        let mut strides = [0; 4];
        strides[..tensor.strides().len()].copy_from_slice(tensor.strides());
        Ok(output.restrided(strides))
    }

    /// Writes `from` to `to` in the layout and type of `to`; leading dimensions that `from` lacks repeat it.
    pub(super) fn arrange(&self, from: &Tensor, to: &Tensor) -> OpResult<()> {
        let ((shape, dst_strides), (_, src_strides)) =
            (padded(to.shape(), to.strides()), padded(from.shape(), from.strides()));
        self.launch(&Kernel::CastStrided {
            src: from.address(),
            src_dtype: from.dtype(),
            dst: to.address(),
            dst_dtype: to.dtype(),
            shape,
            src_strides,
            dst_strides,
        })
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
