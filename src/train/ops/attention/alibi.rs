//! Attention with a bias that grows with positions in place of rotations (ALiBi), op by op as BLOOM writes it.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use super::eager::EagerScores;
use super::math::matrices;

/// A bias, and the mask that its positions were counted from.
pub struct CountedBias {
    /// (batch, heads, keys): each position times the slope of a head.
    pub bias: Tensor,
    /// The mask that was passed, or ones in f32.
    pub mask: Tensor,
}

/// What attention with a bias returns.
pub struct BiasedAttention {
    /// Heads side by side: (batch, rows, width).
    pub output: Tensor,
    /// The weights, which the caller holds as long as transformers' caller does.
    pub weights: Tensor,
    /// Variables that live until the caller's function returns.
    pub variables: [Tensor; 5],
}

/// The slopes of `heads`: powers of a root of a half, and those between them where the heads are no power of 2.
#[expect(clippy::cast_precision_loss, reason = "heads are few")]
fn slopes(heads: usize) -> Vec<f64> {
    let first = 1 << heads.max(1).ilog2();
    let base = |count: usize| 2_f64.powf(-8.0 / count as f64);
    let whole = (1..=first).map(|power| base(first).powf(power as f64));
    let between = (0..heads - first).map(|place| base(2 * first).powf(2.0 * place as f64 + 1.0));
    whole.chain(between).collect()
}

impl Context {
    /// The bias of samples of `[samples, rows]` in `dtype`, from a mask of padding, or from a mask of ones in f32 if there is none:
    /// `slopes[:, None] * ((mask.cumsum(-1) - 1) * mask)`.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    pub fn bias_of_positions(
        &mut self,
        mask: Option<&Tensor>,
        ([samples, rows], heads): ([usize; 2], usize),
        dtype: DType,
    ) -> OpResult<CountedBias> {
        let first = 1 << heads.max(1).ilog2();
        self.op("alibi", |cx| {
            let mask = match mask {
                Some(mask) => mask.clone(),
                None => cx.activation(Shape::new(&[samples, rows]), DType::F32, "mask of ones")?,
            };
            let list = |len: usize, dtype, what| cx.temporary(Shape::new(&[len]), dtype, what);
            let scalar = |what| cx.temporary(Shape::new(&[]), DType::F32, what);
            let powers_of_base = (scalar("base of slopes")?, list(first, DType::I32, "powers of the base")?);
            let whole = list(first, DType::F32, "slopes")?;
            let (all, between) = if first == heads {
                (whole, None)
            } else {
                let base = (scalar("base between")?, list(heads - first, DType::I32, "powers between")?);
                let slopes = list(heads - first, DType::F32, "slopes between")?;
                let all = list(heads, DType::F32, "all slopes")?;
                drop((slopes, whole));
                (all, Some(base))
            };
            let number = |what| cx.temporary(mask.shape(), mask.dtype(), what);
            let counted = cx.tokens_so_far(&mask)?;
            let from_0 = number("tokens before")?;
            drop(counted);
            let of_tokens = number("positions of tokens")?;
            drop(from_0);
            let shape = Shape::new(&[samples, heads, rows]);
            let wide = cx.activation(shape, DType::F32, "bias of positions")?;
            cx.write_bias(&wide, &slopes(heads))?;
            let bias = if dtype == DType::F32 {
                wide
            } else {
                let bias = cx.activation(shape, dtype, "bias of positions")?;
                cx.launch(kernels::Elementwise::Cast { src: wide.operand(), dst: bias.operand() })?;
                bias
            };
            drop((of_tokens, between, all, powers_of_base));
            Ok(CountedBias { bias, mask })
        })
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "f32 as in PyTorch")]
    fn write_bias(&self, to: &Tensor, slopes: &[f64]) -> OpResult<()> {
        let rows = to.shape().last().max(1);
        self.memory().fill(to, |begin, bytes| {
            for (i, element) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                let at = begin + i;
                let slope = slopes.get(at / rows % slopes.len().max(1)).copied().unwrap_or(0.0);
                *element = (slope as f32 * (at % rows) as f32).to_le_bytes();
            }
        })
    }

    /// Queries, keys and values (batch, heads, rows, head size) of a projection that has the three side by side in each head, views:
    /// `view(batch, rows, heads, 3, head size)[..., part, :].transpose(1, 2)`. The gradient of each is as large as the projection.
    #[must_use]
    pub fn selected_thirds(&mut self, packed: &Tensor, head_size: usize) -> [Tensor; 3] {
        let &[batch, rows, width] = packed.shape().dims() else { return [0; 3].map(|_| packed.clone()) };
        let (of_packed, dtype) = (packed.shape(), packed.dtype());
        let shape = Shape::new(&[batch, width / (3 * head_size).max(1), rows, head_size]);
        let strides = [rows * width, 3 * head_size, width, 1];
        [0, 1, 2].map(|part| {
            let view = packed.strided(shape, strides, part * head_size);
            if !self.differentiates(&[packed]) {
                return view;
            }
            let source = self.record("selectBackward", [Some(packed), None, None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                let whole = cx.temporary(of_packed, dtype, "gradient of the whole")?;
                cx.launch(kernels::Elementwise::Fill { dst: whole.operand(), value: 0.0 })?;
                cx.copy(&grad, &whole.strided(shape, strides, part * head_size))?;
                drop(grad);
                Ok([Some(whole), None, None])
            });
            view.with_source(source)
        })
    }

    /// Queries, keys and values (batch, heads, rows, head size), all with as many heads; `bias` is added to their products. There is
    /// no cap.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn biased_attention(
        &mut self,
        [q, k, v]: [&Tensor; 3],
        by: EagerScores<'_>,
        bias: &Tensor,
    ) -> OpResult<BiasedAttention> {
        self.attention.ran = Some("eager");
        let (q, k, v) = (self.by_head(q, "queries")?, self.by_head(k, "keys")?, self.by_head(v, "values")?);
        let scores = {
            let bias = self.cast_to_lower(bias, "bias copy")?;
            self.biased_scores([&q, &k], &bias, by.scale)?
        };
        let [.., rows, columns] = *by.mask.shape().dims() else {
            return Ok(BiasedAttention {
                output: q.clone(),
                weights: q.clone(),
                variables: [scores.clone(), scores, q, k, v],
            });
        };
        // The mask is the same for all sequences.
        let masked = self.add(&scores, &by.mask.window(Shape::new(&[rows, columns]), 0))?;
        let weights = {
            let wide = self.softmax_in_f32(&masked)?;
            self.converted(wide, q.dtype(), "attention weights")?
        };
        let weights = {
            let whole = weights;
            self.dropout(&whole, by.dropout)?
        };
        let output = {
            let apart = self.weighted(&weights, &v)?;
            self.merge_heads(&apart)?
        };
        Ok(BiasedAttention { output, weights, variables: [scores, masked, q, k, v] })
    }

    /// `bias.baddbmm(q, kᵀ, alpha=scale)`. Saves queries and keys.
    #[expect(clippy::cast_possible_truncation, reason = "f32 as the kernel wants it")]
    fn biased_scores(&mut self, [q, k]: [&Tensor; 2], bias: &Tensor, scale: f64) -> OpResult<Tensor> {
        let &[batch, heads, rows, head_size] = q.shape().dims() else { return Ok(q.clone()) };
        let keys = k.shape().dims()[2];
        let of_scores = Shape::new(&[batch, heads, rows, keys]);
        self.op("baddbmm", |cx| {
            let saved = if cx.differentiates(&[q, k]) { Some([cx.save(q)?, cx.save(k)?]) } else { None };
            let output = cx.activation(of_scores, q.dtype(), "attention scores")?;
            cx.copy(&bias.strided(of_scores, [heads * keys, keys, 0, 1], 0), &output)?;
            let memory = cx.memory().clone();
            cx.workspaces.gemm(&memory)?;
            cx.launch(kernels::Gemm {
                m: rows,
                n: keys,
                k: head_size,
                batch: batch * heads,
                a: matrices(q, false),
                b: matrices(k, true),
                c: matrices(&output, false),
                bias: None,
                alpha: scale as f32,
                beta: 1.0,
            })?;
            let Some([saved_q, saved_k]) = saved else { return Ok(output) };
            let (of_q, of_k, dtype) = (q.shape(), k.shape(), q.dtype());
            let source = cx.record("baddbmmBackward", [Some(q), Some(k), None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                let (q, k) = (saved_q.unpack(cx)?, saved_k.unpack(cx)?);
                let product = |cx: &mut Self, of: Shape, sizes, a, b| {
                    let dst = cx.temporary(of, dtype, "gradient before the factor")?;
                    cx.head_products(sizes, a, b, &dst)?;
                    let scaled = cx.temporary(of, dtype, "gradient of a factor")?;
                    let (src, dst) = (dst.operand(), scaled.operand());
                    cx.launch(kernels::Elementwise::Scale { src, dst, factor: scale })?;
                    OpResult::Ok(scaled)
                };
                let (of_grad, by_k) = (matrices(&grad, false), matrices(&k, false));
                let dq = product(cx, of_q, [rows, head_size, keys], of_grad, by_k)?;
                let (of_grad, by_q) = (matrices(&grad, true), matrices(&q, false));
                let dk = product(cx, of_k, [keys, head_size, rows], of_grad, by_q)?;
                Ok([Some(dq), Some(dk), None])
            });
            Ok(output.with_source(source))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::slopes;

    #[test]
    fn slopes_are_those_of_the_paper() {
        assert_eq!(slopes(8), [0.5, 0.25, 0.125, 0.0625, 0.031_25, 0.015_625, 0.007_812_5, 0.003_906_25]);
        let six = slopes(6);
        assert_eq!(six[..4], [0.25, 0.0625, 0.015_625, 0.003_906_25]);
        assert!((six[4] - 0.5).abs() < 1e-12 && (six[5] - 0.125).abs() < 1e-12, "{six:?}");
    }
}
