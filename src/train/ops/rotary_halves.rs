//! Rotary position embeddings by halves, op by op as in gpt-oss.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use super::rotary::RotaryTables;

/// The two halves of heads (batch, heads, rows, head size), views.
fn halves(whole: &Tensor) -> [Tensor; 2] {
    let shape = whole.shape();
    let half = shape.last() / 2;
    [0, half].map(|start| whole.strided(shape.with_last(half), whole.layout(), start))
}

/// What a table of one half is to PyTorch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TableKind {
    /// A tensor of its own.
    Whole,
    /// The first half of each row of a table of both.
    Slice,
}

impl Context {
    /// Queries or keys (batch, heads, rows, head size) rotated by their positions, in the wider of their type and the tables',
    /// which cover one half ([`Context::rotary_tables_of_half`]): `cat(first · cos − second · sin, second · cos + first · sin)`,
    /// head by head. Saves both tables for each half.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rotary_by_halves(&mut self, input: &Tensor, tables: &RotaryTables) -> OpResult<Tensor> {
        let halves = self.halves(input);
        self.rotated_halves(&halves, tables, TableKind::Whole)
    }

    /// The same for two halves (batch, heads, rows, half of a head) that were cut apart before.
    pub(super) fn rotated_halves(
        &mut self,
        [first, second]: &[Tensor; 2],
        RotaryTables { cos, sin }: &RotaryTables,
        kind: TableKind,
    ) -> OpResult<Tensor> {
        let (narrow, half) = (first.dtype(), first.shape());
        let wide = if cos.dtype().size() > narrow.size() { cos.dtype() } else { narrow };
        let whole = half.with_last(2 * half.last());
        self.op("rotary", |cx| {
            let differentiates = cx.differentiates(&[first, second]);
            let save = |cx: &mut Self, table: &Tensor| {
                let saved = differentiates.then(|| match kind {
                    TableKind::Whole => cx.save(table),
                    TableKind::Slice => cx.save_slice(table),
                });
                saved.transpose()
            };
            let (turned, for_first) = {
                let of_cos = save(cx, cos)?;
                let a = cx.half_times(first, cos, (half, wide))?;
                let of_sin = save(cx, sin)?;
                let b = cx.half_times(second, sin, (half, wide))?;
                let turned = cx.temporary(half, wide, "rotated first half")?;
                cx.launch(kernels::Elementwise::Sub { a: a.operand(), b: b.operand(), dst: turned.operand() })?;
                (turned, [of_cos, of_sin])
            };
            let (other, for_second) = {
                let of_cos = save(cx, cos)?;
                let a = cx.half_times(second, cos, (half, wide))?;
                let of_sin = save(cx, sin)?;
                let b = cx.half_times(first, sin, (half, wide))?;
                let other = cx.temporary(half, wide, "rotated second half")?;
                cx.launch(kernels::Elementwise::Add { a: a.operand(), b: b.operand(), dst: other.operand() })?;
                (other, [of_cos, of_sin])
            };
            let output = cx.activation(whole, wide, "rotated")?;
            let [to_first, to_second] = halves(&output);
            cx.copy(&turned, &to_first)?;
            cx.copy(&other, &to_second)?;
            drop((to_first, to_second, turned, other));
            let ([Some(first_cos), Some(first_sin)], [Some(second_cos), Some(second_sin)]) = (for_first, for_second)
            else {
                return Ok(output);
            };
            let source = cx.record("rotaryBackward", [Some(first), Some(second), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // The gradient lies side by side, or head by head.
                let grad = match (grad.shape().dims().len(), whole.dims()) {
                    (3, &[_, heads, rows, size]) => {
                        grad.strided(whole, [rows * heads * size, size, heads * size, 1], 0)
                    }
                    _ => grad,
                };
                let [of_first, of_second] = halves(&grad);
                // The gradient of a product is cast to the type of its factor within the product's node.
                let times = |cx: &Self, part: &Tensor, table: &Tensor| {
                    let product = cx.half_times(part, table, (half, wide))?;
                    cx.cast_gradient(&product, narrow)
                };
                let to_first = {
                    let sin = second_sin.unpack(cx)?;
                    times(cx, &of_second, &sin)?
                };
                drop(second_sin);
                let to_second = {
                    let cos = second_cos.unpack(cx)?;
                    times(cx, &of_second, &cos)?
                };
                drop((second_cos, of_second));
                {
                    let negated = cx.temporary(half, wide, "negative gradient")?;
                    cx.copy(&of_first, &negated)?;
                    let factor = -1.0;
                    cx.launch(kernels::Elementwise::Scale { src: negated.operand(), dst: negated.operand(), factor })?;
                    let sin = first_sin.unpack(cx)?;
                    let product = times(cx, &negated, &sin)?;
                    drop((sin, negated));
                    let sum = to_second.operand();
                    cx.launch(kernels::Elementwise::Add { a: sum, b: product.operand(), dst: sum })?;
                }
                drop(first_sin);
                {
                    let cos = first_cos.unpack(cx)?;
                    let product = times(cx, &of_first, &cos)?;
                    drop((cos, of_first, grad));
                    let sum = to_first.operand();
                    cx.launch(kernels::Elementwise::Add { a: sum, b: product.operand(), dst: sum })?;
                }
                drop(first_cos);
                Ok([Some(to_first), Some(to_second), None])
            });
            Ok(output.with_source(source))
        })
    }

    /// Half of each head times a table, which is the same for all heads.
    fn half_times(&self, part: &Tensor, table: &Tensor, (half, wide): (Shape, DType)) -> OpResult<Tensor> {
        let product = self.temporary(half, wide, "half times a table")?;
        self.arrange(part, &product)?;
        self.launch(kernels::Elementwise::Mul { a: product.operand(), b: table.operand(), dst: product.operand() })?;
        Ok(product)
    }
}
