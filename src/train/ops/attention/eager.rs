//! Attention op for op, as transformers writes it (`eager_attention_forward`): products, a mask, a softmax in f32.

use crate::config::AttentionKernel;
use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

/// The steps from scores to weights.
#[derive(Clone, Copy, Debug)]
pub struct EagerScores<'a> {
    /// The factor on scores.
    pub scale: f64,
    /// Bound on the scores' magnitude, applied by a tanh (Gemma 2).
    pub cap: Option<f64>,
    /// The mask that is added to the scores of every head: [`Context::attention_mask`].
    pub mask: &'a Tensor,
    /// The share of weights that dropout leaves out.
    pub dropout: f64,
    /// The softmax runs in the type of the scores, unless autocast runs it in f32 (GPT-2, Llama 4).
    pub plain: bool,
    /// Keys are used as the projection has them (GPT-2).
    pub turned: bool,
}

impl Context {
    /// Whether transformers' models attend op by op.
    #[must_use]
    pub fn attends_eagerly(&self) -> bool {
        self.attention.kernel == AttentionKernel::Eager
    }

    /// Queries (batch, heads, rows, head size) over keys and values with as many heads or fewer. Returns the heads side by side,
    /// and the weights, which the caller holds as long as transformers' caller does.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn eager_attention(&mut self, [q, k, v]: [&Tensor; 3], by: EagerScores<'_>) -> OpResult<(Tensor, Tensor)> {
        self.attention.ran = Some("eager");
        let heads = |tensor: &Tensor| tensor.shape().dims().get(1).copied().unwrap_or(1);
        let group = heads(q) / heads(k).max(1);
        let k = self.repeat_kv(k, group, "keys of every head")?;
        let v = self.repeat_kv(v, group, "values of every head")?;
        let masked = {
            let scores = self.eager_scores(q, &k, by.scale, by.turned && group <= 1)?;
            let scores = match by.cap {
                Some(cap) => self.capped(scores, cap)?,
                None => scores,
            };
            // The mask is the same for all sequences.
            let [.., rows, columns] = *by.mask.shape().dims() else { return Ok((q.clone(), q.clone())) };
            self.add(&scores, &by.mask.window(Shape::new(&[rows, columns]), 0))?
        };
        let weights = if by.plain && !self.autocasts() {
            self.softmax(&masked, masked.dtype())?
        } else {
            self.softmax_in_f32(&masked)?
        };
        // Without `plain`, a separate line converts the weights, and the variable of the scores already holds the weights then.
        let masked = Some(masked).filter(|_| !by.plain);
        let weights = self.converted(weights, q.dtype(), "attention weights")?;
        drop(masked);
        let weights = {
            let whole = weights;
            self.dropout(&whole, by.dropout)?
        };
        let output = {
            let v = self.cast_to_lower(&v, "values copy")?;
            let weights = self.cast_to_lower(&weights, "weights copy")?;
            let v = self.by_head(&v, "values")?;
            self.weighted(&weights, &v)?
        };
        let merged = self.merge_heads(&output)?;
        drop((output, k, v));
        Ok((merged, weights))
    }

    pub(super) fn eager_scores(&mut self, q: &Tensor, k: &Tensor, scale: f64, turned: bool) -> OpResult<Tensor> {
        let scores = {
            // Autocast casts arguments from the last to the first.
            let k = self.cast_to_lower(k, "keys copy")?;
            let q = self.cast_to_lower(q, "queries copy")?;
            self.op("matmul", |cx| {
                let (q, k) = (cx.by_head(&q, "queries")?, cx.by_head(&k, "keys")?);
                cx.scores(&q, &k, turned)
            })?
        };
        self.scale(&scores, scale, "scaled scores")
    }

    /// `tanh(input / cap) · cap`.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn capped(&mut self, input: Tensor, cap: f64) -> OpResult<Tensor> {
        let divided = self.scale(&input, 1.0 / cap, "divided by the cap")?;
        drop(input);
        let within = self.tanh(&divided)?;
        drop(divided);
        self.scale(&within, cap, "capped")
    }

    /// `input` in another type, or itself if it already has that type.
    pub(in crate::ops) fn converted(&mut self, input: Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        if input.dtype() == dtype { Ok(input) } else { self.cast(&input, dtype, what) }
    }

    /// `softmax(input, -1, dtype=float32)`. Saves its result. PyTorch's kernel for fp16 widens its input itself, and its backward
    /// kernel narrows (`half_to_float`); ours cast within the same blocks. For bf16 separate casts do it.
    pub(in crate::ops) fn softmax_in_f32(&mut self, input: &Tensor) -> OpResult<Tensor> {
        let wide = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let widens = input.dtype() == DType::F16;
        let input = if widens { input.clone() } else { self.converted(input.clone(), wide, "scores in f32")? };
        self.softmax(&input, wide)
    }

    /// `softmax(input, -1)` with a result in f32 or in the type of the input.
    pub(in crate::ops) fn softmax(&mut self, input: &Tensor, wide: DType) -> OpResult<Tensor> {
        let narrow = input.dtype();
        let widens = narrow != wide;
        self.op("softmax", |cx| {
            let cols = input.shape().last();
            let output = cx.activation(input.shape(), wide, "softmax output")?;
            let src = if widens {
                cx.launch(kernels::Elementwise::Cast { src: input.operand(), dst: output.operand() })?;
                &output
            } else {
                input
            };
            cx.launch(kernels::Softmax::Forward { src: src.operand(), dst: output.operand(), cols })?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let saved = cx.save(&output)?;
            let source = cx.record("softmaxBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let output = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), narrow, "scores gradient")?;
                let by_output = cx.temporary(grad.shape(), grad.dtype(), "gradient times output")?;
                let wide = if widens { &by_output } else { &dst }.operand();
                let (output, grad) = (output.operand(), grad.operand());
                cx.launch(kernels::Softmax::Backward { output, grad, dst: wide, cols })?;
                if widens {
                    cx.launch(kernels::Elementwise::Cast { src: wide, dst: dst.operand() })?;
                }
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
