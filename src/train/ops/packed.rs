//! Projections that make several things at once, and what is cut out of them, op for op as Phi-3 does it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::Kernel;

use super::rotary::RotaryTables;

/// The gradient of heads that were joined: what was not rotated of them holds it, though it has no elements.
type Held = Rc<RefCell<Option<Tensor>>>;

impl Context {
    /// Columns of `packed` (batch, rows, columns), a view: `packed[..., start : start + width]`. Backward makes zeros of the whole and
    /// copies the gradient into them.
    #[must_use]
    pub fn columns(&mut self, packed: &Tensor, start: usize, width: usize) -> Tensor {
        let (shape, dtype) = (packed.shape(), packed.dtype());
        let view = packed.strided(shape.with_last(width), packed.layout(), start);
        if !self.differentiates(&[packed]) {
            return view;
        }
        let strides = shape.contiguous_strides();
        let source = self.record("sliceBackward", [Some(packed), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let whole = cx.temporary(shape, dtype, "gradient of the whole")?;
            cx.launch(&Kernel::Fill { dst: whole.operand(), value: 0.0 })?;
            cx.copy(&grad, &whole.strided(grad.shape(), strides, start))?;
            Ok([Some(whole), None, None])
        });
        view.with_source(source)
    }

    /// Both halves of the last dimension, views: `packed.chunk(2, dim=-1)`. Backward puts their gradients side by side.
    #[must_use]
    pub fn halves(&mut self, packed: &Tensor) -> [Tensor; 2] {
        let (shape, dtype) = (packed.shape(), packed.dtype());
        let half = shape.last() / 2;
        let [first, second] = [0, half].map(|start| packed.strided(shape.with_last(half), packed.layout(), start));
        if !self.differentiates(&[packed]) {
            return [first, second];
        }
        let strides = shape.contiguous_strides();
        let source = self.record("splitBackward", [Some(packed), None, None], move |cx, grads| {
            let whole = cx.temporary(shape, dtype, "gradients side by side")?;
            for (grad, start) in grads.iter().zip([0, half]) {
                if let Some(grad) = grad {
                    cx.copy(grad, &whole.strided(grad.shape(), strides, start))?;
                }
            }
            Ok([Some(whole), None, None])
        });
        [first.with_source(source), second.with_source(source).with_slot(1)]
    }

    /// `up · silu(gate)` of both halves of `packed`, which hold it as long as they live.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn packed_gate(&mut self, packed: Tensor) -> OpResult<(Tensor, Tensor)> {
        let [gate, up] = self.halves(&packed);
        drop(packed);
        let activated = self.silu(&gate)?;
        Ok((self.mul(&up, &activated)?, gate))
    }

    /// Queries and keys (batch, heads, rows, head size) rotated as [`Context::rotary`] does it, where the program leaves room for a part of
    /// each head that is not: `torch.cat([rotated, rest], dim=-1)` with a rest of no elements. The results lie head by head.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_with_rest(&mut self, parts: [&Tensor; 2], tables: &RotaryTables) -> OpResult<[Tensor; 2]> {
        let [(q, of_q), (k, of_k)] = parts.map(|part| self.with_rest(part));
        Ok([self.rotated_and_rest(&q, tables, of_q)?, self.rotated_and_rest(&k, tables, of_k)?])
    }

    /// Heads before the rest is cut off: its gradient, zeros of the whole, is there before that of what was rotated.
    fn with_rest(&mut self, input: &Tensor) -> (Tensor, Held) {
        let (held, shape, dtype) = (Held::default(), input.shape(), input.dtype());
        if !self.differentiates(&[input]) {
            return (input.clone(), held);
        }
        let kept = Rc::clone(&held);
        let source = self.record("sliceBackward", [Some(input), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let whole = cx.temporary(shape, dtype, "gradient of the rest")?;
            kept.take();
            cx.copy(&grad, &whole)?;
            Ok([Some(whole), None, None])
        });
        (input.clone().with_source(source), held)
    }

    fn rotated_and_rest(&mut self, input: &Tensor, tables: &RotaryTables, held: Held) -> OpResult<Tensor> {
        let rotated = self.rotary(input, tables)?;
        let is_narrow = input.dtype() == rotated.dtype();
        self.op("cat", |cx| {
            let output = cx.activation(rotated.shape(), rotated.dtype(), "rotated and rest")?;
            cx.copy(&rotated, &output)?;
            if !cx.differentiates(&[&rotated]) {
                return Ok(output);
            }
            let source = cx.record("catBackward", [Some(&rotated), None, None], move |_, [grad, ..]| {
                // In another type the rest's gradient is a tensor of its own.
                if is_narrow {
                    held.replace(grad.clone());
                }
                Ok([grad, None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
