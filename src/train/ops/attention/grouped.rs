//! Attention in which several heads of queries share one head of keys and values.
//!
//! The gradients of keys and values are computed for every head of queries and summed.

use std::cell::Cell;
use std::rc::Rc;

use crate::context::Context;
use crate::error::{OpResult, TrainError};
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_allocator::units::Address;
use vramlab_device::{AttentionShape, DType, FusedAttention, HeadView, Operand, kernels};
use vramlab_model::Category;

use super::Scores;
use super::backend::KeysOf;
use super::heads::{FusedOutput, Heads};

/// The gradients of keys (or of values) for every head of queries: head by head, or side by side like a projection.
fn of_every_head(shape: AttentionShape, by_head: bool, address: Address, dtype: DType) -> HeadView {
    let AttentionShape { heads, rows, head_size, .. } = shape;
    let (head_stride, row_stride) =
        if by_head { (rows * head_size, head_size) } else { (head_size, heads * head_size) };
    HeadView { address, dtype, batch_stride: heads * rows * head_size, head_stride, row_stride }
}

/// Whether the gradient of the heads lies side by side, like a projection.
#[derive(Clone, Debug, Default)]
pub struct SideBySide(Rc<Cell<bool>>);

impl SideBySide {
    /// What backward has told.
    pub(in crate::ops) fn is_told(&self) -> bool {
        self.0.get()
    }
}

impl Context {
    /// Queries (batch, heads, rows, head size) over keys and values with as many heads or fewer, which groups of queries share;
    /// causal. Scores are multiplied by `scale`, or divided by the root of the head size; `dropout` is the share of weights that
    /// is left out. Runs in 16 bits under autocast. The result is like that of [`Context::attention`].
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn grouped_attention(&mut self, [q, k, v]: [&Tensor; 3], scale: Option<f32>, dropout: f64) -> OpResult<Tensor> {
        // Autocast casts arguments from the last to the first.
        let v = self.cast_to_lower(v, "values copy")?;
        let k = self.cast_to_lower(k, "keys copy")?;
        let q = self.cast_to_lower(q, "queries copy")?;
        let differentiates = self.differentiates(&[&q, &k, &v]);
        let parts = Heads { q, k, v };
        let backend = self.backend_of(&parts, KeysOf::group(parts.group()), (differentiates, false))?;
        self.attend(backend, &parts, Scores { scale, dropout, ..Scores::plain(true) })
    }

    /// A projection (batch, rows, heads × head size), or its view with separate heads, as (batch, heads, rows, head
    /// size): `view(…).transpose(1, 2)`. Backward lays the gradient side by side again.
    pub fn by_head_size(&mut self, input: &Tensor, head_size: usize) -> Tensor {
        self.by_head_size_told(input, head_size, &SideBySide::default())
    }

    /// The same after a norm of heads from [`Context::heads_apart`]: backward sets `told` to whether their gradient lies side by side.
    pub fn by_head_size_told(&mut self, input: &Tensor, head_size: usize, told: &SideBySide) -> Tensor {
        let told = told.clone();
        let shape = input.shape();
        let [batch, rows, ..] = *shape.dims() else { return input.clone() };
        let heads = shape.numel() / (batch * rows * head_size).max(1);
        let strides = [rows * heads * head_size, head_size, heads * head_size, 1];
        // Rows of a view into a wider projection are further apart.
        let [by_batch, by_row, ..] = input.layout();
        let lies = [by_batch, head_size, by_row, 1];
        let view = input.strided(Shape::new(&[batch, heads, rows, head_size]), lies, 0);
        if !self.differentiates(&[input]) {
            return view;
        }
        let source = self.record("transposeBackward", [Some(input), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            // Gradients from kernels lie side by side already, or have strides that say so.
            told.0.set(grad.shape().dims().len() == 3 || grad.has_layout(strides));
            if told.0.get() {
                return Ok([Some(grad.strided(shape, shape.contiguous_strides(), 0)), None, None]);
            }
            // Heads that follow each other like their elements allow a view too.
            let &[by_batch, by_head, by_row, by_element] = &grad.layout();
            if shape.dims().len() == 3 && heads > 1 && by_head == head_size * by_element {
                return Ok([Some(grad.strided(shape, [by_batch, by_row, by_element, 0], 0)), None, None]);
            }
            if shape.dims().len() == 4 {
                let &[by_batch, by_head, by_row, by_element] = grad.strides() else {
                    return Ok([Some(grad), None, None]);
                };
                return Ok([Some(grad.strided(shape, [by_batch, by_row, by_head, by_element], 0)), None, None]);
            }
            let copy = cx.temporary(shape, grad.dtype(), "gradient side by side")?;
            cx.copy(&grad, &copy.strided(grad.shape(), strides, 0))?;
            drop(grad);
            Ok([Some(copy), None, None])
        });
        view.with_source(source)
    }

    /// A projection (batch, rows, heads × head size) as (batch, rows, heads, head size): a view. Ops on each head that follow
    /// have gradients that lie head by head in PyTorch, so they are copied on their way to the projection, unless `told` says
    /// that they lie side by side.
    pub fn heads_apart(&mut self, input: &Tensor, head_size: usize, told: &SideBySide) -> Tensor {
        let told = told.clone();
        let shape = input.shape();
        let [batch, rows, width] = *shape.dims() else { return input.clone() };
        let view = input.reshaped(Shape::new(&[batch, rows, width / head_size.max(1), head_size]));
        if !self.differentiates(&[input]) {
            return view;
        }
        let source = self.record("viewBackward", [Some(input), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let [_, rows, heads, _] = *grad.shape().dims() else { return Ok([Some(grad), None, None]) };
            if rows == 1 || heads == 1 || told.0.get() {
                return Ok([Some(grad.reshaped(shape)), None, None]);
            }
            let copy = cx.temporary(shape, grad.dtype(), "gradient side by side")?;
            cx.launch(kernels::Elementwise::Cast { src: grad.operand(), dst: copy.operand() })?;
            drop(grad);
            Ok([Some(copy), None, None])
        });
        view.with_source(source)
    }

    /// Heads (batch, heads, rows, head size) that lie side by side, as (batch, rows, heads, head size): a view in which each head
    /// is a row.
    pub fn rows_of_heads(&mut self, heads: &Tensor) -> Tensor {
        let shape = heads.shape();
        let &[batch, count, rows, head_size] = shape.dims() else { return heads.clone() };
        let turned = |[by_batch, by_one, by_other, by_element]: [usize; 4]| [by_batch, by_other, by_one, by_element];
        let view = heads.strided(Shape::new(&[batch, rows, count, head_size]), turned(heads.layout()), 0);
        if !self.differentiates(&[heads]) {
            return view;
        }
        let source = self.record("transposeBackward", [Some(heads), None, None], move |_, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            Ok([Some(grad.strided(shape, turned(grad.layout()), 0)), None, None])
        });
        view.with_source(source)
    }

    /// Keys or values (batch, heads, rows, head size) in a cache that was empty: a `torch.cat` of nothing and them, head by head,
    /// in `dtype`, the type of the keys. The cache lives as long as the model's output.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn cached(&mut self, input: &Tensor, dtype: DType) -> OpResult<Tensor> {
        let cached = self.op("cat", |cx| {
            let output = cx.activation(input.shape(), dtype, "cached")?;
            cx.arrange(input, &output)?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let original = input.dtype();
            let source = cx.record("catBackward", [Some(input), None, None], move |cx, [grad, ..]| {
                Ok([grad.map(|grad| cx.cast_gradient(&grad, original)).transpose()?, None, None])
            });
            Ok(output.with_source(source))
        })?;
        self.keep_in_output(cached.detach());
        Ok(cached)
    }

    /// The length of a sliding window as its cache stores it (`DynamicSlidingWindowLayer`).
    ///
    /// # Errors
    /// Out of memory.
    pub fn cache_of_window(&mut self) -> OpResult<()> {
        let length = self.activation(Shape::new(&[]), DType::I64, "length of a window")?;
        self.keep_in_output(length);
        Ok(())
    }

    /// `repeat_kv` of transformers.
    pub(super) fn repeat_kv(&mut self, input: &Tensor, group: usize, what: &'static str) -> OpResult<Tensor> {
        if self.in_parts && group > 1 && input.shape().dims().get(1) == Some(&1) {
            // For a single head PyTorch returns a view.
            let text = "tp does not repeat a single head of keys for all heads of a rank, as masks and eager attention want it; use fewer ranks";
            return Err(TrainError::Workload(text.into()).into());
        }
        self.repeat_heads(input, group, what)
    }

    /// Repeats every head `group` times: `repeat_kv` of transformers, `repeat_interleave` of PyTorch. The result lies head by head.
    pub(super) fn repeat_heads(&mut self, input: &Tensor, group: usize, what: &'static str) -> OpResult<Tensor> {
        let [batch, heads, rows, size] = *input.shape().dims() else { return Ok(input.clone()) };
        if group <= 1 {
            return Ok(input.clone());
        }
        self.op("repeat", |cx| {
            let output = cx.activation(Shape::new(&[batch, heads * group, rows, size]), input.dtype(), what)?;
            for place in 0..group {
                let strides = [heads * group * rows * size, group * rows * size, size, 1];
                cx.copy(input, &output.strided(input.shape(), strides, place * rows * size))?;
            }
            Ok(cx.repeated_from(input, output))
        })
    }

    /// The same for an operand of a product, which repeats it: the single head of one sequence is a view.
    pub(super) fn broadcast_heads(&mut self, input: &Tensor, group: usize, what: &'static str) -> OpResult<Tensor> {
        let (&[1, 1, rows, size], [.., by_row, by_element]) = (input.shape().dims(), input.layout()) else {
            return self.repeat_heads(input, group, what);
        };
        if group <= 1 {
            return Ok(input.clone());
        }
        let view = input.strided(Shape::new(&[1, group, rows, size]), [0, 0, by_row, by_element], 0);
        Ok(self.repeated_from(input, view))
    }

    /// `output` as `input` repeated: backward sums over each group.
    fn repeated_from(&mut self, input: &Tensor, output: Tensor) -> Tensor {
        if !self.differentiates(&[input]) {
            return output;
        }
        let shape = input.shape();
        let source = self.record("repeatBackward", [Some(input), None, None], move |cx, grads| {
            let ([Some(grad), ..], &[batch, heads, rows, size]) = (grads, shape.dims()) else {
                return Ok(Gradients::default());
            };
            Ok([Some(cx.summed_over_groups(&grad, [batch, heads, rows, size])?), None, None])
        });
        output.with_source(source)
    }

    /// The sum over each group of heads of a gradient that lies head by head or, with three dimensions or strides that say so, side
    /// by side: (batch, heads, rows, head size) with the `heads` of keys, in the same layout.
    pub(in crate::ops) fn summed_over_groups(
        &mut self,
        grad: &Tensor,
        [batch, heads, rows, size]: [usize; 4],
    ) -> OpResult<Tensor> {
        let (dtype, shape) = (grad.dtype(), Shape::new(&[batch, heads, rows, size]));
        let all = grad.numel() / (batch * rows * size).max(1);
        let group = all / heads.max(1);
        // If backward runs within an autocast region, sums come out in f32 and are cast back.
        let summed_in = if self.autocasts_backward { DType::F32 } else { dtype };
        let side_by_side = grad.shape().dims().len() == 3
            || !grad.is_contiguous() && grad.has_layout([rows * all * size, size, all * size, 1]);
        let sum = self.temporary(shape, summed_in, "sum over a group")?;
        let sum = if side_by_side {
            self.sum_groups(grad.flat(), &sum, [batch * rows * heads, group, size])?;
            sum.strided(shape, [rows * heads * size, size, heads * size, 1], 0)
        } else {
            let grad = self.contiguous(grad, "gradient by head")?;
            self.sum_groups(grad.operand(), &sum, [batch * heads, group, rows * size])?;
            sum
        };
        self.cast_gradient(&sum, dtype)
    }

    /// `dst[o,i] = Σ_m src[o,m,i]`.
    fn sum_groups(&self, src: Operand, dst: &Tensor, [outer, middle, inner]: [usize; 3]) -> OpResult<()> {
        let sums = Operand { len: outer * inner, ..dst.flat() };
        // The sum is the mean times the number of terms.
        self.launch(kernels::Sums::Mean { src, dst: sums, outer, middle, inner })?;
        #[expect(clippy::cast_precision_loss, reason = "a handful of heads")]
        self.launch(kernels::Elementwise::Scale { src: sums, dst: sums, factor: middle as f64 })
    }

    /// A library's workspace of which the following kernels may use only the first `own` bytes.
    pub(super) fn shared_scratch(&self, own: usize, bytes: usize, what: &'static str) -> OpResult<Tensor> {
        let scratch = self.memory().tensor(Shape::new(&[bytes]), DType::U8, Category::Workspace, what)?;
        let lent = scratch.window(Shape::new(&[own]), 0).operand();
        self.memory().with_device(|device| device.lend_workspace(lent));
        Ok(scratch)
    }

    /// Gradients of a grouped attention. Those of keys and values are computed for every head of queries at `expanded`, then summed.
    pub(super) fn grouped_backward(
        &self,
        (by, shape): (FusedAttention, AttentionShape),
        parts: &Heads,
        computed: &FusedOutput,
        grad: &Tensor,
        [dq, dk, dv]: [&Tensor; 3],
        expanded: [Address; 2],
    ) -> OpResult<()> {
        let AttentionShape { batch, heads, group, rows, head_size, .. } = shape;
        let by_head = |part: &Tensor| part.shape().dims().len() == 4;
        let of_queries = if by_head(dq) { dq.clone() } else { Self::by_heads(dq, shape, head_size) };
        let views = [(dk, expanded[0]), (dv, expanded[1])]
            .map(|(part, address)| of_every_head(shape, by_head(part), address, part.dtype()));
        let [of_keys, of_values] = views;
        self.attend_backward((by, shape), parts, computed, grad, [of_queries.heads(), of_keys, of_values])?;
        for (sum, address) in [dk, dv].into_iter().zip(expanded) {
            // The number of consecutive groups, and the elements of one head in each.
            let [groups, elements] = if by_head(sum) {
                [batch * heads / group, rows * head_size]
            } else {
                [batch * rows * heads / group, head_size]
            };
            let all = Operand { address, dtype: sum.dtype(), len: groups * group * elements };
            self.sum_groups(all, sum, [groups, group, elements])?;
        }
        Ok(())
    }
}
