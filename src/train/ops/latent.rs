//! Attention over keys and values that are expanded from a latent vector for each position (multi-head latent attention), op by op as
//! in DeepSeek: how projections are cut apart, and how keys are put together.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;

/// Heads as (batch, heads, rows, head size); gradients from fused kernels have the layout of a projection.
fn by_heads(grad: Tensor, shape: Shape) -> Tensor {
    match (grad.shape().dims().len(), shape.dims()) {
        (3, &[_, heads, rows, size]) => grad.strided(shape, [rows * heads * size, size, heads * size, 1], 0),
        _ => grad,
    }
}

impl Context {
    /// Columns of `packed` (batch, rows, columns) up to `first`, and the others as one head (batch, 1, rows, others), views:
    /// `split([first, …], dim=-1)`. Backward puts their gradients side by side.
    #[must_use]
    pub fn latent_and_rest(&mut self, packed: &Tensor, first: usize) -> [Tensor; 2] {
        let &[batch, rows, columns] = packed.shape().dims() else { return [packed.clone(), packed.clone()] };
        let of_rest = Shape::new(&[batch, 1, rows, columns - first]);
        let by_rest = [rows * columns, rows * columns, columns, 1];
        let (shape, dtype) = (packed.shape(), packed.dtype());
        let of_latent = shape.with_last(first);
        let parts = [packed.strided(of_latent, packed.layout(), 0), packed.strided(of_rest, by_rest, first)];
        if !self.differentiates(&[packed]) {
            return parts;
        }
        let source = self.record("splitBackward", [Some(packed), None, None], move |cx, [latent, rest, _]| {
            let whole = cx.temporary(shape, dtype, "gradients side by side")?;
            if let Some(latent) = latent {
                cx.copy(&latent, &whole.strided(of_latent, shape.contiguous_strides(), 0))?;
            }
            if let Some(rest) = rest {
                cx.copy(&rest, &whole.strided(of_rest, by_rest, first))?;
            }
            Ok([Some(whole), None, None])
        });
        let mut slots = 0..;
        parts.map(|part| part.with_source(source).with_slot(slots.next().unwrap_or_default()))
    }

    /// The first `first` elements of every head of `projected` (batch, rows, heads × head size) and the others, views of (batch, heads,
    /// rows, …): `view(…).transpose(1, 2).split([first, …], dim=-1)`. Backward joins their gradients, and lays them side by side.
    #[must_use]
    pub fn heads_in_two(&mut self, projected: &Tensor, head_size: usize, first: usize) -> [Tensor; 2] {
        let &[batch, rows, width] = projected.shape().dims() else { return [projected.clone(), projected.clone()] };
        let heads = width / head_size.max(1);
        let whole = Shape::new(&[batch, heads, rows, head_size]);
        let side_by_side = [rows * width, head_size, width, 1];
        let shapes = [first, head_size - first].map(|size| whole.with_last(size));
        let parts = [(shapes[0], 0), (shapes[1], first)];
        let parts = parts.map(|(shape, start)| projected.strided(shape, side_by_side, start));
        if !self.differentiates(&[projected]) {
            return parts;
        }
        let (shape, dtype) = (projected.shape(), projected.dtype());
        let source = self.record("splitBackward", [Some(projected), None, None], move |cx, [of_first, of_rest, _]| {
            let joined = cx.temporary(whole, dtype, "gradients of both parts")?;
            for ((grad, part), start) in [of_first, of_rest].into_iter().zip(shapes).zip([0, first]) {
                if let Some(grad) = grad {
                    cx.copy(&by_heads(grad, part), &joined.strided(part, whole.contiguous_strides(), start))?;
                }
            }
            // Rows that follow each other already lie side by side.
            if heads == 1 || rows == 1 {
                return Ok([Some(joined.window(shape, 0)), None, None]);
            }
            let copy = cx.temporary(shape, dtype, "gradient side by side")?;
            cx.copy(&joined, &copy.strided(whole, side_by_side, 0))?;
            Ok([Some(copy), None, None])
        });
        let mut slots = 0..;
        parts.map(|part| part.with_source(source).with_slot(slots.next().unwrap_or_default()))
    }

    /// Both parts of heads (batch, heads, rows, …), in the wider of their types, head by head: `cat((first, second), dim=-1)`.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn joined_heads(&mut self, first: &Tensor, second: &Tensor) -> OpResult<Tensor> {
        let (of_first, of_second) = (first.shape(), second.shape());
        let whole = of_first.with_last(of_first.last() + of_second.last());
        let types = [first.dtype(), second.dtype()];
        let wide = if types[0].size() >= types[1].size() { types[0] } else { types[1] };
        self.op("cat", |cx| {
            let output = cx.activation(whole, wide, "both parts of heads")?;
            let strides = whole.contiguous_strides();
            cx.arrange(first, &output.strided(of_first, strides, 0))?;
            cx.arrange(second, &output.strided(of_second, strides, of_first.last()))?;
            if !cx.differentiates(&[first, second]) {
                return Ok(output);
            }
            let source = cx.record("catBackward", [Some(first), Some(second), None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                let grad = by_heads(grad, whole);
                let part = |shape, start| grad.strided(shape, grad.layout(), start);
                let to_first = cx.cast_gradient(&part(of_first, 0), types[0])?;
                let to_second = cx.cast_gradient(&part(of_second, of_first.last()), types[1])?;
                Ok([Some(to_first), Some(to_second), None])
            });
            Ok(output.with_source(source))
        })
    }

    /// Keys of every head: `plain` (batch, heads, rows, …), and behind it `shared` (batch, 1, rows, …), which all heads have. Both are
    /// written into a new tensor of the type of `plain`: two `copy_`, whose gradients are copies too.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn keys_of_latent(&mut self, plain: &Tensor, shared: &Tensor) -> OpResult<Tensor> {
        let &[batch, heads, rows, size] = plain.shape().dims() else { return Ok(plain.clone()) };
        let (of_plain, of_one, dtype) = (plain.shape(), shared.shape(), plain.dtype());
        let of_shared = Shape::new(&[batch, heads, rows, of_one.last()]);
        let whole = of_plain.with_last(size + of_one.last());
        let strides = whole.contiguous_strides();
        self.op("copy_", |cx| {
            let keys = cx.activation(whole, dtype, "keys")?;
            cx.arrange(plain, &keys.strided(of_plain, strides, 0))?;
            let [by_batch, _, by_row, by_element] = shared.layout();
            let every = shared.strided(of_shared, [by_batch, 0, by_row, by_element], 0);
            cx.arrange(&every, &keys.strided(of_shared, strides, size))?;
            if !cx.differentiates(&[plain, shared]) {
                return Ok(keys);
            }
            let of_type = shared.dtype();
            let expanded = cx.record("expandBackward", [Some(shared), None, None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                if heads == 1 {
                    return Ok([Some(grad), None, None]);
                }
                Ok([Some(cx.summed_over_groups(&grad, [batch, 1, rows, of_one.last()])?), None, None])
            });
            let first = cx.record("CopySlices", [Some(plain), None, None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                let (copy, own) = cx.gradient_of_slice(&grad, whole, (of_plain, 0))?;
                drop((copy, grad));
                Ok([Some(own), None, None])
            });
            let (base, every) = (keys.clone().with_source(first), every.with_source(expanded));
            let source = cx.record("CopySlices", [Some(&base), Some(&every), None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                let (copy, own) = cx.gradient_of_slice(&grad, whole, (of_shared, size))?;
                // What was overwritten gets no gradient; nothing reads that part of the copy.
                let overwritten = cx.temporary(of_shared, dtype, "gradient of what was overwritten")?;
                let to_shared = cx.cast_gradient(&own, of_type)?;
                drop((overwritten, own, grad));
                Ok([Some(copy), Some(to_shared), None])
            });
            Ok(keys.with_source(source))
        })
    }

    /// A copy of `grad`, and one of its slice of this shape, which begins at an element of each head.
    fn gradient_of_slice(
        &self,
        grad: &Tensor,
        whole: Shape,
        (slice, start): (Shape, usize),
    ) -> OpResult<(Tensor, Tensor)> {
        let grad = by_heads(grad.clone(), whole);
        let copy = self.temporary(whole, grad.dtype(), "copy of the gradient")?;
        self.copy(&grad, &copy)?;
        let own = self.temporary(slice, grad.dtype(), "gradient of a slice")?;
        self.copy(&copy.strided(slice, whole.contiguous_strides(), start), &own)?;
        Ok((copy, own))
    }
}
