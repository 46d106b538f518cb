//! A part of a model that runs over tiles of the positions, as DeepSpeed's `TiledMLP`.
//!
//! Forward runs each tile without a graph, and keeps the whole input. Backward runs each tile again with a graph, and
//! backpropagates through it before the next tile: the saved tensors and gradients of only one tile exist at a time. Gradients of
//! weights are summed over tiles as over passes. Within a checkpoint a tile's forward runs three times.

use std::rc::Rc;

use vramlab_device::kernels;

use crate::context::{Context, Repeatable, SavedTensorHooks};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;

impl Context {
    /// Runs `part`, which keeps the shape of its `input` (batch, positions, width), over as many tiles as the width goes into the
    /// positions. Saves the input. As in the original, it is only differentiated if the input is: a weight alone gets no
    /// gradient. Tiles of several samples are copied, while PyTorch multiplies them in place.
    ///
    /// # Errors
    /// What `part` returns; out of memory, a failed kernel.
    pub fn tiled(&mut self, part: &Rc<dyn Repeatable>, input: &Tensor) -> OpResult<Tensor> {
        let (shape, all, width) = (input.shape(), input.shape().rows(), input.shape().last());
        let rows = shape.dims().iter().rev().nth(1).copied().unwrap_or(1);
        let (batch, tiles) = (all / rows.max(1), rows.div_ceil(width.max(1)).max(1));
        let size = rows.div_ceil(tiles).max(1);
        let differentiates = self.differentiates(&[input]);
        let strides = [rows * width, width, 1, 0];
        let outputs = self.no_grad(|cx| {
            let tile = |first: usize| {
                let shape = Shape::new(&[batch, size.min(rows - first), width]);
                if batch == 1 {
                    return part.forward(cx, &input.window(shape, first * width).detach());
                }
                let tile = input.strided(shape, strides, first * width).detach();
                let tile = cx.contiguous(&tile, "positions of a tile")?;
                part.forward(cx, &tile)
            };
            (0..rows).step_by(size).map(tile).collect::<OpResult<Vec<_>>>()
        })?;
        let output = self.op("cat", |cx| {
            let dtype = outputs.first().map_or(input.dtype(), Tensor::dtype);
            let output = cx.activation(shape, dtype, "output of all tiles")?;
            for (number, tile) in outputs.iter().enumerate() {
                cx.copy(tile, &output.strided(tile.shape(), strides, number * size * width))?;
            }
            Ok(output)
        })?;
        drop(outputs);
        if !differentiates {
            return Ok(output);
        }
        let (saved, part) = (self.save_within_function(input)?, Rc::clone(part));
        let source = self.record("TiledMLPBackward", [Some(input), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let input = saved.unpack(cx)?;
            Ok([Some(cx.tiles_backward(&part, &input, &grad, tiles)?), None, None])
        });
        Ok(output.with_source(source))
    }

    /// The gradient of `input`; the positions of all samples are cut into `tiles` here.
    fn tiles_backward(
        &mut self,
        part: &Rc<dyn Repeatable>,
        input: &Tensor,
        grad: &Tensor,
        tiles: usize,
    ) -> OpResult<Tensor> {
        let (all, width) = (input.shape().rows(), input.shape().last());
        let size = all.div_ceil(tiles).max(1);
        let to_input = self.temporary(input.shape(), input.dtype(), "gradient of all tiles")?;
        self.launch(kernels::Elementwise::Fill { dst: to_input.operand(), value: 0.0 })?;
        let grad = self.contiguous(grad, "contiguous gradient")?;
        let saving = std::mem::replace(&mut self.saving, SavedTensorHooks::Keep);
        // A variable of the loop: it lives until the next tile's output replaces it.
        let mut output: Option<Tensor> = None;
        let ran = (0..all).step_by(size).try_for_each(|first| {
            let shape = Shape::new(&[size.min(all - first), width]);
            let of_tile = |tensor: &Tensor| tensor.window(shape, first * width);
            let kept = self.tape.len();
            let sum = of_tile(&to_input);
            let leaf = self.record("AccumulateGrad", [None, None, None], move |cx, [grad, ..]| {
                if let Some(grad) = grad {
                    let (a, dst) = (sum.operand(), sum.operand());
                    cx.launch(kernels::Elementwise::Add { a, b: grad.operand(), dst })?;
                }
                Ok(Gradients::default())
            });
            let made = part.forward(self, &of_tile(input).detach().with_source(leaf))?;
            output = Some(made.detach());
            let grad = self.cast_gradient(&of_tile(&grad), made.dtype())?;
            self.backward_within(kept, [(&made, &grad)])
        });
        self.saving = saving;
        ran.map(|()| to_input)
    }
}
