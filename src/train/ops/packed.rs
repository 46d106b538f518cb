//! Projections that compute several things at once, and how they are cut apart, op by op as in Phi-3.

use std::cell::RefCell;
use std::rc::Rc;

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::kernels;

use super::rotary::{RotaryTables, Turn};

/// The gradient of joined heads: the gradient of the part that is not rotated refers to it, even if that part has no elements.
type JoinedGradient = Rc<RefCell<Option<Tensor>>>;

/// Heads cut into two parts.
struct HeadSplit {
    /// The part that is rotated.
    first: Tensor,
    /// The part that is not rotated, if there is one.
    rest: Option<Tensor>,
    held: JoinedGradient,
}

/// Strides of heads (batch, heads, rows, head size) that lie side by side, like a projection.
fn side_by_side(shape: Shape) -> [usize; 4] {
    let [_, heads, rows, size] = *shape.dims() else { return shape.contiguous_strides() };
    [rows * heads * size, size, heads * size, 1]
}

impl Context {
    /// Columns of `packed` (batch, rows, columns), a view: `packed[..., start : start + width]`. Backward allocates zeros of the
    /// whole shape and copies the gradient into them.
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
            cx.launch(kernels::Elementwise::Fill { dst: whole.operand(), value: 0.0 })?;
            cx.copy(&grad, &whole.strided(grad.shape(), strides, start))?;
            Ok([Some(whole), None, None])
        });
        view.with_source(source)
    }

    /// Both halves of the last dimension, views: `packed.chunk(2, dim=-1)`. Backward puts their gradients side by side.
    #[must_use]
    pub fn halves(&mut self, packed: &Tensor) -> [Tensor; 2] {
        self.equal_parts(packed)
    }

    /// The thirds of the last dimension, views: `packed.split(width, dim=-1)`. Backward puts their gradients side by side.
    #[must_use]
    pub fn thirds(&mut self, packed: &Tensor) -> [Tensor; 3] {
        self.equal_parts(packed)
    }

    fn equal_parts<const PARTS: usize>(&mut self, packed: &Tensor) -> [Tensor; PARTS] {
        let (shape, dtype) = (packed.shape(), packed.dtype());
        let width = shape.last() / PARTS;
        let starts: [usize; PARTS] = std::array::from_fn(|part| part * width);
        let parts = starts.map(|start| packed.strided(shape.with_last(width), packed.layout(), start));
        if !self.differentiates(&[packed]) {
            return parts;
        }
        let strides = shape.contiguous_strides();
        let source = self.record("splitBackward", [Some(packed), None, None], move |cx, grads| {
            let whole = cx.temporary(shape, dtype, "gradients side by side")?;
            for (grad, start) in grads.iter().zip(starts) {
                if let Some(grad) = grad {
                    cx.copy(grad, &whole.strided(grad.shape(), strides, start))?;
                }
            }
            Ok([Some(whole), None, None])
        });
        let mut slots = 0..;
        parts.map(|part| part.with_source(source).with_slot(slots.next().unwrap_or_default()))
    }

    /// Queries, keys and values (batch, heads, rows, head size) of a projection that has the three side by side in each head,
    /// views: `view(batch, rows, heads, 3 · head size).transpose(1, 2).chunk(3, dim=-1)`. Backward puts their gradients side by
    /// side in each head, in the layout of the projection.
    #[must_use]
    pub fn thirds_of_heads(&mut self, packed: &Tensor, head_size: usize) -> [Tensor; 3] {
        let heads = self.by_head_size(packed, 3 * head_size);
        let (shape, dtype) = (heads.shape(), heads.dtype());
        let parts = [0, 1, 2].map(|part| heads.strided(shape.with_last(head_size), heads.layout(), part * head_size));
        if !self.differentiates(&[&heads]) {
            return parts;
        }
        let (strides, of_part) = (shape.contiguous_strides(), shape.with_last(head_size));
        let side_by_side = side_by_side(of_part);
        let source = self.record("splitBackward", [Some(&heads), None, None], move |cx, grads| {
            let whole = cx.temporary(shape, dtype, "gradients side by side")?;
            for (grad, part) in grads.iter().zip(0..) {
                let Some(grad) = grad else { continue };
                // Gradients from fused kernels have the layout of a projection.
                let grad = if grad.shape().dims().len() == 3 { &grad.strided(of_part, side_by_side, 0) } else { grad };
                cx.copy(grad, &whole.strided(of_part, strides, part * head_size))?;
            }
            Ok([Some(whole), None, None])
        });
        let mut slots = 0..;
        parts.map(|part| part.with_source(source).with_slot(slots.next().unwrap_or_default()))
    }

    /// `up · silu(gate)` of the two halves of `packed`, which keep it alive; `gate_first` says that the gate is the first half.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn packed_gate(&mut self, packed: Tensor, gate_first: bool) -> OpResult<(Tensor, Tensor)> {
        let [gate, up] = self.halves(&packed);
        drop(packed);
        let activated = self.silu(&gate)?;
        let both = if gate_first { [&activated, &up] } else { [&up, &activated] };
        Ok((self.mul(both[0], both[1])?, gate))
    }

    /// Rotates the first elements of each head of queries and keys (batch, heads, rows, head size), as many as the tables have,
    /// like [`Context::rotary`]: `torch.cat([rotated, rest], dim=-1)`, where the rest may have no elements. The results lie head
    /// by head.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_with_rest(&mut self, parts: [&Tensor; 2], tables: &RotaryTables) -> OpResult<[Tensor; 2]> {
        let [q, k] = parts.map(|part| self.with_rest(part, tables.width()));
        let whole = |cx: &mut Self, cut: HeadSplit| {
            let rotated = cx.rotary(&cut.first, tables, Turn::default())?;
            cx.joined(rotated, cut)
        };
        Ok([whole(self, q)?, whole(self, k)?])
    }

    /// The same, but both are rotated before either is joined with its rest, as in GPT-NeoX; GLM does it too, with pairs of
    /// neighbours and `tables` for them.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_before_rest(
        &mut self,
        parts: [&Tensor; 2],
        tables: &RotaryTables,
        turn: Turn,
    ) -> OpResult<[Tensor; 2]> {
        let [q, k] = parts.map(|part| self.with_rest(part, tables.width()));
        let (of_q, of_k) = (self.rotary(&q.first, tables, turn)?, self.rotary(&k.first, tables, turn)?);
        Ok([self.joined(of_q, q)?, self.joined(of_k, k)?])
    }

    /// The same, and also returns the rotated parts, which are variables in the program (StableLM, Nemotron).
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_with_parts(&mut self, parts: [&Tensor; 2], tables: &RotaryTables) -> OpResult<[[Tensor; 2]; 2]> {
        let [q, k] = parts.map(|part| self.with_rest(part, tables.width()));
        let (of_q, of_k) =
            (self.rotary(&q.first, tables, Turn::default())?, self.rotary(&k.first, tables, Turn::default())?);
        let whole = [self.joined(of_q.clone(), q)?, self.joined(of_k.clone(), k)?];
        Ok([whole, [of_q, of_k]])
    }

    /// Heads cut into two views: backward computes the gradient of the rest, padded with zeros, before that of the rotated part.
    fn with_rest(&mut self, input: &Tensor, rotated: usize) -> HeadSplit {
        let (held, shape, dtype) = (JoinedGradient::default(), input.shape(), input.dtype());
        let has_rest = rotated < shape.last();
        let part = |start, width| input.strided(shape.with_last(width), input.layout(), start);
        let rest = has_rest.then(|| part(rotated, shape.last() - rotated));
        // A slice of the whole tensor would be no slice.
        let first = if has_rest { part(0, rotated) } else { input.clone() };
        if !self.differentiates(&[input]) {
            return HeadSplit { first, rest, held };
        }
        let kept = Rc::clone(&held);
        let strides = shape.contiguous_strides();
        let source = self.record("sliceBackward", [Some(input), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let whole = cx.temporary(shape, dtype, "gradient of the rest")?;
            if let Some(rest) = kept.take().filter(|_| has_rest) {
                cx.copy(&rest, &whole.strided(rest.shape(), strides, rotated))?;
            }
            // In PyTorch both gradients are whole tensors that are added; here the rotated part is copied into its place.
            let other = has_rest.then(|| cx.temporary(shape, dtype, "gradient of what was rotated")).transpose()?;
            cx.copy(&grad, &whole.strided(grad.shape(), strides, 0))?;
            drop(other);
            Ok([Some(whole), None, None])
        });
        HeadSplit { first: first.with_source(source), rest, held }
    }

    /// The rotated part of heads, joined with the rest.
    fn joined(&mut self, rotated: Tensor, HeadSplit { first, rest, held }: HeadSplit) -> OpResult<Tensor> {
        let (narrow, wide) = (first.dtype(), rotated.dtype());
        let width = first.shape().last();
        let shape = first.shape().with_last(width + rest.as_ref().map_or(0, |rest| rest.shape().last()));
        self.op("cat", |cx| {
            let output = cx.activation(shape, wide, "rotated and rest")?;
            let strides = shape.contiguous_strides();
            cx.copy(&rotated, &output.strided(rotated.shape(), strides, 0))?;
            if let Some(rest) = &rest {
                cx.arrange(rest, &output.strided(rest.shape(), strides, width))?;
            }
            if !cx.differentiates(&[&rotated]) {
                return Ok(output);
            }
            let side_by_side = side_by_side(shape);
            let of_rest = rest.map(|rest| rest.shape());
            let rotated_shape = rotated.shape();
            let source = cx.record("catBackward", [Some(&rotated), None, None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                // Gradients from fused kernels have the layout of a projection.
                let grad = if grad.shape().dims().len() == 3 { grad.strided(shape, side_by_side, 0) } else { grad };
                let part = |shape, start| grad.strided(shape, grad.layout(), start);
                let rest = of_rest.map(|shape| part(shape, width));
                // In another type the rest's gradient is a separate tensor.
                let rest = match rest {
                    _ if narrow == wide => Some(rest.unwrap_or_else(|| grad.clone())),
                    Some(rest) => {
                        let cast = cx.temporary(rest.shape(), narrow, "gradient of the rest in the narrower type")?;
                        cx.arrange(&rest, &cast)?;
                        Some(cast)
                    }
                    None => None,
                };
                held.replace(rest);
                let rotated = if of_rest.is_some() { part(rotated_shape, 0) } else { grad };
                Ok([Some(rotated), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
