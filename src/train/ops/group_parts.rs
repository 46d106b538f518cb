//! A projection in which the queries of each group lie beside the key and the value that they share, as Falcon cuts it.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::{GradientTarget, Tensor};
use vramlab_device::{DType, kernels};

/// Sizes of such a projection.
#[derive(Clone, Copy)]
struct GroupSizes {
    batch: usize,
    rows: usize,
    head_size: usize,
    /// Heads of keys.
    groups: usize,
    /// Heads of queries in a group.
    queries: usize,
}

impl GroupSizes {
    /// Columns of the projection.
    const fn columns(self) -> usize {
        self.groups * self.of_group()
    }

    /// Columns of a group.
    const fn of_group(self) -> usize {
        (self.queries + 2) * self.head_size
    }

    /// The shape of `heads` of each group, and where the first of them lie in the projection.
    fn heads(self, heads: usize) -> (Shape, [usize; 4]) {
        let Self { batch, rows, head_size, .. } = self;
        (Shape::new(&[batch, heads, rows, head_size]), [rows * self.columns(), head_size, self.columns(), 1])
    }

    /// The shape of one head of each group, and where the first of them lie in the projection.
    fn one_of_each(self) -> (Shape, [usize; 4]) {
        let Self { batch, rows, head_size, groups, .. } = self;
        let strides = [rows * self.columns(), self.of_group(), self.columns(), 1];
        (Shape::new(&[batch, groups, rows, head_size]), strides)
    }
}

/// Heads as (batch, heads, rows, head size); gradients from fused kernels have the layout of a projection.
fn by_heads(grad: &Tensor, shape: Shape) -> Tensor {
    let [_, heads, rows, size] = *shape.dims() else { return grad.clone() };
    match grad.shape().dims().len() {
        3 => grad.strided(shape, [rows * heads * size, size, heads * size, 1], 0),
        _ => grad.clone(),
    }
}

impl Context {
    /// Queries, keys and values (batch, heads, rows, head size) of `packed` (batch, rows, columns), which has `groups` groups of
    /// heads: the queries of a group, then their key, then their value. The key and the value of the only group are copies, and its
    /// queries are a view. If there are several groups, all three are copied, with as many heads of keys as of queries.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn parts_of_groups(&mut self, packed: &Tensor, head_size: usize, groups: usize) -> OpResult<[Tensor; 3]> {
        let &[batch, rows, columns] = packed.shape().dims() else { return Ok([0; 3].map(|_| packed.clone())) };
        let queries = (columns / (groups * head_size).max(1)).saturating_sub(2);
        let sizes = GroupSizes { batch, rows, head_size, groups, queries };
        let source = self.slice_of_queries(packed, sizes);
        // Lists of one index: `[..., [-2], :]` and `[..., [-1], :]`.
        let k = self.indexed_head(packed, sizes, queries, "keys")?;
        let v = self.indexed_head(packed, sizes, queries + 1, "values")?;
        if groups == 1 {
            let (shape, strides) = sizes.heads(queries);
            return Ok([packed.strided(shape, strides, 0).with_source(source), k, v]);
        }
        let q = self.op("flatten", |cx| {
            let heads = groups * queries;
            let whole = cx.activation(Shape::new(&[batch, rows, heads * head_size]), packed.dtype(), "queries")?;
            let positions = Shape::new(&[batch * rows, groups, queries * head_size]);
            let (all, own) = (sizes.of_group(), queries * head_size);
            cx.copy(
                &packed.strided(positions, [columns, all, 1, 0], 0),
                &whole.strided(positions, [heads * head_size, own, 1, 0], 0),
            )?;
            let shape = Shape::new(&[batch, heads, rows, head_size]);
            Ok(by_heads(&whole, shape).with_source(source))
        })?;
        let repeated = [self.flat_repeated(&k, queries, "keys")?, self.flat_repeated(&v, queries, "values")?];
        drop((k, v));
        let [k, v] = repeated;
        Ok([q, k, v])
    }

    /// The node of the slice of queries; backward puts their gradient among zeros.
    fn slice_of_queries(&mut self, packed: &Tensor, sizes: GroupSizes) -> GradientTarget {
        if !self.differentiates(&[packed]) {
            return GradientTarget::Constant;
        }
        let (of_packed, dtype) = (packed.shape(), packed.dtype());
        self.record("sliceBackward", [Some(packed), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let GroupSizes { groups, queries, .. } = sizes;
            let (of_all, _) = sizes.heads(groups * queries);
            let grad = by_heads(&grad, of_all);
            let whole = cx.temporary(of_packed, dtype, "gradient of the whole")?;
            cx.launch(kernels::Elementwise::Fill { dst: whole.operand(), value: 0.0 })?;
            let (of_one, strides) = sizes.heads(queries);
            let [_, by_head, ..] = grad.layout();
            for group in 0..groups {
                let own = grad.strided(of_one, grad.layout(), group * queries * by_head);
                cx.copy(&own, &whole.strided(of_one, strides, group * sizes.of_group()))?;
            }
            Ok([Some(whole), None, None])
        })
    }

    /// A copy of head `place` of each group, by a list of one index that the program makes on the device. Saves the list. Backward
    /// sorts it, as for any number of indices.
    fn indexed_head(
        &mut self,
        packed: &Tensor,
        sizes: GroupSizes,
        place: usize,
        what: &'static str,
    ) -> OpResult<Tensor> {
        self.op("index", |cx| {
            let (shape, strides) = sizes.one_of_each();
            let index = cx.activation(Shape::new(&[1]), DType::I64, "index of a head")?;
            let differentiates = cx.differentiates(&[packed]);
            let saved = if differentiates { Some(cx.save(&index)?) } else { None };
            let GroupSizes { batch, rows, head_size, groups, .. } = sizes;
            let copy = cx.activation(Shape::new(&[batch, rows, groups * head_size]), packed.dtype(), what)?;
            let head = by_heads(&copy, shape);
            cx.copy(&packed.strided(shape, strides, place * head_size), &head)?;
            let Some(saved) = saved else { return Ok(head) };
            let (of_packed, dtype) = (packed.shape(), packed.dtype());
            let source = cx.record("indexBackward", [Some(packed), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let _index = saved.unpack(cx)?;
                let whole = cx.temporary(of_packed, dtype, "gradient of the whole")?;
                cx.launch(kernels::Elementwise::Fill { dst: whole.operand(), value: 0.0 })?;
                let number = |what| cx.temporary(Shape::new(&[1]), DType::I64, what);
                let signed = number("index")?;
                let within = number("index within the heads")?;
                drop(signed);
                let sorted = [number("linear index")?, number("places")?, number("sorted index")?];
                drop((cx.temporary(Shape::new(&[1]), DType::U8, "sort storage")?, sorted, within));
                cx.copy(&by_heads(&grad, shape), &whole.strided(shape, strides, place * head_size))?;
                Ok([Some(whole), None, None])
            });
            Ok(head.with_source(source))
        })
    }

    /// Every head of (batch, heads, rows, head size) repeated `times` times, copied side by side like a projection:
    /// `broadcast_to(…).flatten(2, 3)`.
    fn flat_repeated(&mut self, heads: &Tensor, times: usize, what: &'static str) -> OpResult<Tensor> {
        let &[batch, count, rows, size] = heads.shape().dims() else { return Ok(heads.clone()) };
        self.op("flatten", |cx| {
            let all = count * times;
            let whole = cx.activation(Shape::new(&[batch, rows, all * size]), heads.dtype(), what)?;
            let of_one = [rows * all * size, times * size, all * size, 1];
            for time in 0..times {
                cx.copy(heads, &whole.strided(heads.shape(), of_one, time * size))?;
            }
            let output = by_heads(&whole, Shape::new(&[batch, all, rows, size]));
            if !cx.differentiates(&[heads]) {
                return Ok(output);
            }
            let source = cx.record("expandBackward", [Some(heads), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let summed = cx.summed_over_groups(&grad, [batch, count, rows, size])?;
                Ok([Some(summed), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
