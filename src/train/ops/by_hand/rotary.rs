//! Rotary positions by eight elementary ops: each two neighbouring elements are a pair, and the results are the two halves of a head.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

/// The first or the second elements of all pairs of heads (batch, heads, rows, head size).
fn of_pairs(heads: &Tensor, second: bool) -> Tensor {
    let &[batch, count, rows, head_size] = heads.shape().dims() else { return heads.clone() };
    let [by_batch, by_head, by_row, by_element] = heads.layout();
    let shape = Shape::new(&[batch, count, rows, head_size / 2]);
    heads.strided(shape, [by_batch, by_head, by_row, 2 * by_element], if second { by_element } else { 0 })
}

/// The first or the second half of each head.
fn half(heads: &Tensor, second: bool) -> Tensor {
    let &[batch, count, rows, head_size] = heads.shape().dims() else { return heads.clone() };
    let shape = Shape::new(&[batch, count, rows, head_size / 2]);
    heads.strided(shape, heads.layout(), if second { head_size / 2 } else { 0 })
}

impl Context {
    /// `x1, x2 = pairs(input); concat((cos * x1 - sin * x2, sin * x1 + cos * x2), dim=-1)` with tables (rows, head size / 2) in
    /// f32, which get no gradient.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_by_hand(&mut self, input: &Tensor, [cos, sin]: [&Tensor; 2]) -> OpResult<Tensor> {
        self.op("rotary by hand", |cx| {
            let low = input.dtype();
            let wide = if low == DType::F64 { low } else { DType::F32 };
            let [x1, x2] = [false, true].map(|second| of_pairs(input, second));
            let times = |cx: &Self, x: &Tensor, table: &Tensor, what| {
                let product = cx.temporary(x.shape(), wide, what)?;
                cx.arrange(x, &product)?;
                let (a, b) = (product.operand(), table.operand());
                cx.launch(kernels::Elementwise::Mul { a, b, dst: a })?;
                OpResult::Ok(product)
            };
            let (a, b) = (times(cx, &x1, cos, "cosine part")?, times(cx, &x2, sin, "sine part")?);
            let first = cx.temporary(x1.shape(), wide, "first half")?;
            cx.launch(kernels::Elementwise::Sub { a: a.operand(), b: b.operand(), dst: first.operand() })?;
            drop((a, b));
            let (a, b) = (times(cx, &x1, sin, "sine part")?, times(cx, &x2, cos, "cosine part")?);
            let second = cx.temporary(x1.shape(), wide, "second half")?;
            cx.launch(kernels::Elementwise::Add { a: a.operand(), b: b.operand(), dst: second.operand() })?;
            drop((a, b));
            let output = cx.activation(input.shape(), wide, "rotated")?;
            cx.copy(&first, &half(&output, false))?;
            cx.copy(&second, &half(&output, true))?;
            drop((first, second));
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let tables = [cos, sin].map(Tensor::detach);
            let source = cx.record("rotary by handBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                Ok([Some(cx.rotary_by_hand_backward(grad, &tables, low)?), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    fn rotary_by_hand_backward(&mut self, grad: Tensor, [cos, sin]: &[Tensor; 2], low: DType) -> OpResult<Tensor> {
        let (shape, wide) = (grad.shape(), grad.dtype());
        let times = |cx: &Self, of: &Tensor, table: &Tensor, what| {
            let product = cx.temporary(of.shape(), wide, what)?;
            cx.arrange(of, &product)?;
            let (a, b) = (product.operand(), table.operand());
            cx.launch(kernels::Elementwise::Mul { a, b, dst: a })?;
            if wide == low { OpResult::Ok(product) } else { cx.elementwise(&product, low, "gradient copy") }
        };
        let (first, second) = (half(&grad, false), half(&grad, true));
        let to_x2 = times(self, &second, cos, "gradient of second elements")?;
        let to_x1 = times(self, &second, sin, "gradient of first elements")?;
        let negative = self.temporary(first.shape(), wide, "negative gradient")?;
        self.arrange(&first, &negative)?;
        self.launch(kernels::Elementwise::Scale { src: negative.operand(), dst: negative.operand(), factor: -1.0 })?;
        let more = times(self, &negative, sin, "gradient of second elements")?;
        drop(negative);
        self.launch(kernels::Elementwise::Add { a: to_x2.operand(), b: more.operand(), dst: to_x2.operand() })?;
        drop(more);
        let more = times(self, &first, cos, "gradient of first elements")?;
        drop((first, second, grad));
        self.launch(kernels::Elementwise::Add { a: to_x1.operand(), b: more.operand(), dst: to_x1.operand() })?;
        drop(more);
        let stacked = self.temporary(shape, low, "gradients of pairs")?;
        let (pairs, count) = (to_x1.shape(), to_x1.numel());
        let parts = [stacked.window(pairs, 0), stacked.window(pairs, count)];
        self.copy(&to_x1, &parts[0])?;
        self.copy(&to_x2, &parts[1])?;
        drop((to_x1, to_x2));
        let dst = self.temporary(shape, low, "input gradient")?;
        self.copy(&parts[0], &of_pairs(&dst, false))?;
        self.copy(&parts[1], &of_pairs(&dst, true))?;
        Ok(dst)
    }
}
