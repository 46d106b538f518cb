//! Scaled dot-product attention by PyTorch's choice of kernel or by a chosen kernel, with that kernel's blocks.
//!
//! The arithmetic of all fused kernels is one kernel here; they differ in what is saved, copied and requested.

mod alibi;
mod backend;
mod cache;
mod cudnn;
mod eager;
mod eager_in_place;
mod efficient;
mod flash;
mod grouped;
mod heads;
mod masked;
mod math;
mod sinks;

pub use alibi::{BiasedAttention, CountedBias};
pub use eager::EagerScores;
pub use grouped::SideBySide;

pub(super) use math::{evenly_spaced, matrices};

use backend::{Backend, Inputs, KeysOf};
use heads::{FusedOutput, Heads};

use crate::config::AttentionKernel;
use crate::context::{AttentionChoice, Context};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::{GradientTarget, Tensor};
use vramlab_device::{AttentionShape, DType, Earlier, FusedAttention, HeadView, kernels};

/// How the scores are computed from the products of queries and keys.
struct Scores {
    /// A position sees only itself and those before it.
    causal: bool,
    /// The factor on products; `None` divides them by the root of the head size.
    scale: Option<f32>,
    /// A mask (batch, rows, rows) in the type of the scores, added to those of every head.
    bias: Option<Tensor>,
    /// Which of those before it the mask lets through.
    earlier: Earlier,
    /// The share of weights that dropout leaves out.
    dropout: f64,
    /// Products repeat a single head of keys and of values for all heads of queries.
    broadcasts: bool,
}

impl Scores {
    const fn plain(causal: bool) -> Self {
        Self { causal, scale: None, bias: None, earlier: Earlier::All, dropout: 0.0, broadcasts: false }
    }
}

impl Backend {
    /// Which of the three gradients lie head by head, so that they must be copied on their way to the packed projection.
    const fn copied_gradients(self, head_size: usize) -> [bool; 3] {
        match self {
            // If its inputs lie head by head, so do its gradients.
            Self::CuDnn => [true, true, true],
            Self::Efficient => [false, false, false],
            Self::Flash => [!head_size.is_multiple_of(8); 3],
            Self::Math => [true, false, true],
        }
    }
}

impl Context {
    /// Self-attention of `heads` heads over `qkv` (batch, rows, 3 × width), with the three parts side by side; if `causal`,
    /// a position sees only itself and earlier ones. The result is (batch, heads, rows, head size), in the layout that the
    /// kernel leaves; see [`Context::merge_heads`].
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn attention(&mut self, qkv: &Tensor, heads: usize, causal: bool) -> OpResult<Tensor> {
        let [_, _, packed] = *qkv.shape().dims() else { return Ok(qkv.clone()) };
        if let Some(cache) = self.cache.take() {
            return self.cached_attention(cache, qkv, heads, causal);
        }
        let head_size = packed / 3 / heads.max(1);
        let (keys, differentiates) = (qkv.shape().dims()[1], self.differentiates(&[qkv]));
        let (dtype, libraries) = (qkv.dtype(), self.workspaces.policy);
        let value_size = head_size;
        let inputs = Inputs {
            dtype,
            head_size,
            value_size,
            keys,
            keys_of: KeysOf::Each,
            masked: false,
            differentiates,
            libraries,
        };
        let backend = self.attention_backend(inputs)?;
        let parts = self.split_heads(qkv, heads, Some(backend));
        self.attend(backend, &parts, Scores::plain(causal))
    }

    /// Queries, keys and values of a packed projection (batch, rows, 3 × width), as views of (batch, heads, rows, head
    /// size); for models that cache keys and values. Nothing is differentiated.
    #[must_use]
    pub fn heads_of(&mut self, qkv: &Tensor, heads: usize) -> [Tensor; 3] {
        let Heads { q, k, v } = self.split_heads(&qkv.detach(), heads, None);
        [q, k, v]
    }

    /// Attention of queries (batch, heads, rows, head size) over keys and values of as many positions or more; `causal`
    /// needs as many. Nothing is differentiated.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn attention_over(&mut self, q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> OpResult<Tensor> {
        let parts = Heads { q: q.detach(), k: k.detach(), v: v.detach() };
        let keys_of = KeysOf::group(parts.group());
        let backend = self.backend_of(&parts, keys_of, (false, false))?;
        self.attend(backend, &parts, Scores::plain(causal))
    }

    /// Chooses the attention kernel from now on.
    pub fn choose_attention(&mut self, kernel: AttentionKernel) {
        self.attention = AttentionChoice { kernel, ran: None };
    }

    /// The attention kernel of the last pass, as a value of the switch.
    #[must_use]
    pub const fn attention_ran(&self) -> Option<&'static str> {
        self.attention.ran
    }

    /// The kernel for separate queries, keys and values.
    fn backend_of(
        &mut self,
        parts: &Heads,
        keys_of: KeysOf,
        (differentiates, masked): (bool, bool),
    ) -> OpResult<Backend> {
        self.attention_backend(Inputs {
            dtype: parts.q.dtype(),
            head_size: parts.q.shape().last(),
            value_size: parts.v.shape().last(),
            keys: parts.keys(),
            keys_of,
            masked,
            differentiates,
            libraries: self.workspaces.policy,
        })
    }

    fn attention_backend(&mut self, inputs: Inputs) -> OpResult<Backend> {
        let backend = Backend::choose(self.attention.kernel, inputs)?;
        self.attention.ran = Some(backend.word());
        Ok(backend)
    }

    fn attend(&mut self, backend: Backend, parts: &Heads, scores: Scores) -> OpResult<Tensor> {
        let [batch, heads, rows, head_size] = *parts.q.shape().dims() else { return Ok(parts.q.clone()) };
        let Scores { causal, scale, bias, earlier, dropout: share, broadcasts } = scores;
        #[expect(clippy::cast_precision_loss, reason = "head sizes are small")]
        let scale = scale.unwrap_or(1.0 / (head_size as f32).sqrt());
        let group = parts.group().max(1);
        let masked = bias.is_some();
        // With matrix products, dropout is an op of its own.
        let dropout = if backend == Backend::Math { None } else { self.dropout_mask(share) };
        let value_size = parts.v.shape().last();
        let shape = AttentionShape {
            batch,
            heads,
            group,
            rows,
            head_size,
            value_size,
            causal,
            earlier,
            masked,
            scale,
            dropout,
        };
        match backend {
            Backend::CuDnn => self.cudnn_attention(parts, shape, bias),
            Backend::Efficient => self.efficient_attention(parts, shape, bias),
            Backend::Flash => self.flash_attention(parts, shape),
            Backend::Math => self.math_attention(parts, shape, bias, (share, broadcasts)),
        }
    }

    /// Heads side by side, as `transpose(1, 2).contiguous().view(batch, rows, width)`: a view if the layout permits it.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn merge_heads(&mut self, input: &Tensor) -> OpResult<Tensor> {
        let [batch, heads, rows, head_size] = *input.shape().dims() else { return Ok(input.clone()) };
        let width = heads * head_size;
        let shape = Shape::new(&[batch, rows, width]);
        let &[by_batch, by_head, by_row, by_element] = input.strides() else { return Ok(input.clone()) };
        if [by_batch, by_head, by_row, by_element] == [rows * width, head_size, width, 1] {
            return Ok(input.reshaped(shape));
        }
        self.op("contiguous", |cx| {
            let output = cx.activation(shape, input.dtype(), "attention output")?;
            let side_by_side = [rows * width, head_size, width, 1];
            cx.copy(input, &output.strided(input.shape(), side_by_side, 0))?;
            Ok(output.with_source(input.source()))
        })
    }

    /// Views of a packed projection as (batch, heads, rows, head size); backward packs the three gradients.
    fn split_heads(&mut self, qkv: &Tensor, heads: usize, backend: Option<Backend>) -> Heads {
        let [batch, rows, packed] = *qkv.shape().dims() else {
            return Heads { q: qkv.clone(), k: qkv.clone(), v: qkv.clone() };
        };
        let width = packed / 3;
        let head_size = width / heads;
        let copied = backend.map_or([false; 3], |backend| backend.copied_gradients(head_size));
        let source = if self.differentiates(&[qkv]) {
            let (shape, dtype) = (qkv.shape(), qkv.dtype());
            self.record("splitBackward", [Some(qkv), None, None], move |cx, gradients| {
                if let Some(packed) = Self::packed(&gradients, shape) {
                    return Ok([Some(packed), None, None]);
                }
                let output = cx.temporary(shape, dtype, "packed gradient")?;
                for (part, gradient) in gradients.iter().flatten().enumerate() {
                    // Gradients lie side by side or head by head.
                    let layout = match gradient.shape().dims().len() {
                        4 => [rows * packed, head_size, packed, 1],
                        _ => [rows * packed, packed, 1, 0],
                    };
                    let destination = output.strided(gradient.shape(), layout, part * width);
                    cx.copy(gradient, &destination)?;
                }
                Ok([Some(output), None, None])
            })
        } else {
            GradientTarget::Constant
        };
        let mut part = |slot: u8| {
            let view = qkv
                .strided(
                    Shape::new(&[batch, heads, rows, head_size]),
                    [rows * packed, head_size, packed, 1],
                    usize::from(slot) * width,
                )
                .with_source(source)
                .with_slot(slot);
            if !copied[usize::from(slot)] || !self.differentiates(&[&view]) {
                return view;
            }
            let source = self.record("viewBackward", [Some(&view), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let fits = backend == Some(Backend::CuDnn) && grad.shape().dims().len() == 3;
                if fits {
                    return Ok([Some(grad), None, None]);
                }
                let copy = cx.temporary(Shape::new(&[batch, rows, width]), grad.dtype(), "gradient side by side")?;
                let by_heads = [rows * width, head_size, width, 1];
                match grad.shape().dims().len() {
                    4 => cx.copy(&grad, &copy.strided(grad.shape(), by_heads, 0))?,
                    _ => cx.copy(&grad, &copy)?,
                }
                Ok([Some(copy), None, None])
            });
            view.with_source(source)
        };
        Heads { q: part(0), k: part(1), v: part(2) }
    }

    /// A (batch, heads, rows, head size) view of a contiguous (batch, rows, heads × head size) tensor.
    fn by_heads(tensor: &Tensor, shape: AttentionShape, head_size: usize) -> Tensor {
        let width = shape.heads * head_size;
        tensor.strided(
            Shape::new(&[shape.batch, shape.heads, shape.rows, shape.head_size]),
            [shape.rows * width, head_size, width, 1],
            0,
        )
    }

    /// A (batch, heads, rows, …) view of a contiguous (batch, rows, width) tensor, whatever the size of its heads.
    fn heads_of_width(tensor: &Tensor, shape: AttentionShape) -> Tensor {
        let head_size = tensor.shape().last() / shape.heads.max(1);
        Self::by_heads(tensor, AttentionShape { head_size, ..shape }, head_size)
    }

    /// Runs the fused kernel, with results for a backward pass.
    fn fused(&self, by: FusedAttention, shape: AttentionShape, parts: &Heads, computed: &FusedOutput) -> OpResult<()> {
        self.launch(kernels::Attention::Forward {
            by,
            shape,
            q: parts.q.heads(),
            k: parts.k.heads(),
            v: parts.v.heads(),
            out: computed.out.heads(),
            logsumexp: computed.logsumexp.operand(),
            lse_stride: computed.lse_stride,
        })
    }

    /// Runs the fused kernel without results for a backward pass.
    fn fused_inference(&self, by: FusedAttention, shape: AttentionShape, parts: &Heads, out: &Tensor) -> OpResult<()> {
        let (keys, out) = (parts.keys(), out.heads());
        let [q, k, v] = parts.all().map(Tensor::heads);
        self.launch(kernels::Attention::Inference { by, shape, keys, q, k, v, out })
    }

    fn attend_backward(
        &self,
        (by, shape): (FusedAttention, AttentionShape),
        parts: &Heads,
        computed: &FusedOutput,
        grad: &Tensor,
        [dq, dk, dv]: [HeadView; 3],
    ) -> OpResult<()> {
        self.launch(kernels::Attention::Backward {
            by,
            shape,
            q: parts.q.heads(),
            k: parts.k.heads(),
            v: parts.v.heads(),
            out: computed.out.heads(),
            logsumexp: computed.logsumexp.operand(),
            lse_stride: computed.lse_stride,
            grad: grad.heads(),
            dq,
            dk,
            dv,
        })
    }

    /// Gradients of queries, keys and values as parts of one tensor, in the layout of a packed projection.
    fn packed_gradients(&self, shape: AttentionShape, dtype: DType) -> OpResult<[Tensor; 3]> {
        let AttentionShape { batch, heads, rows, head_size, .. } = shape;
        let width = heads * head_size;
        let packed = self.temporary(Shape::new(&[batch, rows, 3 * width]), dtype, "packed gradient")?;
        let part = Shape::new(&[batch, rows, width]);
        Ok([0, 1, 2].map(|place| packed.strided(part, [rows * 3 * width, 3 * width, 1, 0], place * width)))
    }

    /// A part of [`Context::packed_gradients`] as (batch, heads, rows, head size).
    fn packed_heads(part: &Tensor, shape: AttentionShape) -> Tensor {
        let AttentionShape { batch, heads, rows, head_size, .. } = shape;
        let packed = 3 * heads * head_size;
        part.strided(Shape::new(&[batch, heads, rows, head_size]), [rows * packed, head_size, packed, 1], 0)
    }

    /// The tensor of `shape` of which the three `gradients` are the parts, if they are.
    fn packed(gradients: &Gradients, shape: Shape) -> Option<Tensor> {
        let [Some(first), Some(second), Some(third)] = gradients else { return None };
        let &[_, rows, packed] = shape.dims() else { return None };
        let width = packed / 3;
        let lies_at = |part: &Tensor, place: usize| {
            part.storage().number() == first.storage().number()
                && part.shape().rows() * packed == shape.numel()
                && part.shape().last() == width
                && part.strides() == [rows * packed, packed, 1]
                && part.address() == first.address().offset(first.dtype().bytes(place * width))
        };
        let all = lies_at(first, 0) && lies_at(second, 1) && lies_at(third, 2);
        all.then(|| first.strided(shape, shape.contiguous_strides(), 0))
    }

    /// Gradients of queries, keys and values: three separate tensors, requested in this order.
    fn part_gradients(&self, [queries, keys, values]: [Shape; 3], dtype: DType) -> OpResult<[Tensor; 3]> {
        Ok([
            self.temporary(queries, dtype, "query gradient")?,
            self.temporary(keys, dtype, "key gradient")?,
            self.temporary(values, dtype, "value gradient")?,
        ])
    }
}
