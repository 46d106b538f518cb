//! Memory-efficient attention: first choice for f32.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{AttentionShape, DType, FusedAttention};

use super::heads::{FusedOutput, Heads};

impl Context {
    pub(super) fn efficient_attention(
        &mut self,
        parts: &Heads,
        shape: AttentionShape,
        bias: Option<Tensor>,
    ) -> OpResult<Tensor> {
        let AttentionShape { batch, heads, rows, head_size, value_size, .. } = shape;
        let dtype = parts.q.dtype();
        // The kernel aligns each head's statistics.
        let lse_stride = rows.next_multiple_of(32);
        self.op("attention", |cx| {
            let bias = bias.map(|bias| cx.aligned_mask(bias)).transpose()?;
            let differentiates = cx.differentiates(&parts.all());
            let saved =
                if differentiates { Some([cx.save(&parts.q)?, cx.save(&parts.k)?, cx.save(&parts.v)?]) } else { None };
            let output = cx.activation(Shape::new(&[batch, rows, heads * value_size]), dtype, "attention output")?;
            let out = Self::by_heads(&output, shape.of_result(), value_size);
            let Some([q, k, v]) = saved else {
                cx.efficient_accumulator(&output, shape.widest())?;
                cx.fused_inference(FusedAttention::Efficient, shape, parts, &out)?;
                return Ok(out);
            };
            let logsumexp = cx.activation(Shape::new(&[batch, heads, lse_stride]), DType::F32, "logsumexp")?;
            cx.efficient_accumulator(&output, shape.widest())?;
            let computed = FusedOutput { out, logsumexp, lse_stride };
            cx.fused(FusedAttention::Efficient, shape, parts, &computed)?;
            let results = [cx.save(&computed.out)?, cx.save(&computed.logsumexp)?];
            let bias = bias.map(|bias| cx.save(&bias)).transpose()?;
            let inputs = [Some(&parts.q), Some(&parts.k), Some(&parts.v)];
            let source = cx.record("attentionBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let _bias = bias.as_ref().map(|bias| bias.unpack(cx)).transpose()?;
                // In PyTorch's order of unpacking, which is alphabetical.
                let (k, q, v) = (k.unpack(cx)?, q.unpack(cx)?, v.unpack(cx)?);
                let parts = Heads { q, k, v };
                // Keys and values that were repeated for a mask lie head by head, and so do their gradients.
                let by_head = bias.is_some() && parts.k.is_row_major();
                let [out, logsumexp] = &results;
                let logsumexp = logsumexp.unpack(cx)?;
                let computed = FusedOutput { out: out.unpack(cx)?, logsumexp, lse_stride };
                let side_by_side = |size: usize| grad.shape().with_last(heads * size);
                let of_part = |part: &Tensor| if by_head { part.shape() } else { side_by_side(part.shape().last()) };
                let layouts = [side_by_side(head_size), of_part(&parts.k), of_part(&parts.v)];
                let gradients = cx.part_gradients(layouts, dtype)?;
                // Row sums of gradient · output: in f32 by two ops and a copy into the layout that the kernel reads, in
                // 16-bit types by the kernel itself.
                let per_row = Shape::new(&[batch, heads, rows]);
                let by_ops = if dtype == DType::F32 {
                    let product = cx.temporary(grad.shape(), DType::F32, "gradient times output")?;
                    Some((cx.temporary(per_row, DType::F32, "row sums")?, product))
                } else {
                    None
                };
                let delta = match by_ops {
                    // With one head, the sums already have the layout that the kernel reads.
                    Some((sums, product)) if heads == 1 => {
                        drop(product);
                        sums
                    }
                    by_ops => {
                        let delta = cx.temporary(per_row, DType::F32, "row sums by head")?;
                        drop(by_ops);
                        delta
                    }
                };
                drop(cx.scratch(efficient_workspace(shape, dtype), "attention workspace")?);
                drop(delta);
                let views = gradients.each_ref().map(|gradient| match gradient.shape().dims().len() {
                    4 => gradient.clone(),
                    _ => Self::heads_of_width(gradient, shape),
                });
                let grad = Self::by_heads(&grad, shape.of_result(), value_size);
                cx.attend_backward(
                    (FusedAttention::Efficient, shape),
                    &parts,
                    &computed,
                    &grad,
                    views.each_ref().map(Tensor::heads),
                )?;
                Ok(gradients.map(Some))
            });
            Ok(computed.out.with_source(source))
        })
    }

    /// Heads too large for registers are accumulated in f32 in memory; an f32 output needs no extra memory for that.
    fn efficient_accumulator(&self, output: &Tensor, head_size: usize) -> OpResult<()> {
        if output.dtype().size() < 4 && head_size > 128 {
            drop(self.scratch(4 * output.numel(), "attention accumulator")?);
        }
        Ok(())
    }
}

/// Bytes in which PyTorch's memory-efficient kernel accumulates gradients: a lock, a counter and a tile of f32 for every
/// 64 columns of a head and every 64 queries, or 128 for larger heads. In 16-bit types with heads too large for
/// registers, the gradients of each split of the keys are accumulated in f32 too.
fn efficient_workspace(shape: AttentionShape, dtype: DType) -> usize {
    const COLUMNS: usize = 64;
    const KEYS: usize = 64;
    let AttentionShape { batch, heads, rows, head_size, .. } = shape;
    let queries = if head_size <= 64 { 64 } else { 128 };
    let tile = 16 + 4 * queries * COLUMNS;
    let of_queries = rows.div_ceil(queries) * head_size.div_ceil(COLUMNS) * tile;
    let of_keys = if dtype.size() >= 4 || head_size <= 128 {
        0
    } else {
        // Enough heads keep the GPU busy without splitting the keys.
        let enough = batch * heads >= 256 && rows <= 2 * KEYS;
        let splits = if enough { 1 } else { rows.div_ceil(KEYS).min(200 / (batch * heads).max(1)).max(1) };
        2 * 4 * splits * KEYS * head_size.next_multiple_of(queries)
    };
    batch * heads * (of_queries + of_keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_device::Earlier;

    /// Read from histories of PyTorch 2.11 on an H200: 2 sequences, 3 heads.
    #[test]
    fn workspaces_are_what_pytorch_asked_for() {
        let shape = |rows, head_size| AttentionShape {
            batch: 2,
            heads: 3,
            group: 1,
            rows,
            head_size,
            value_size: head_size,
            causal: true,
            earlier: Earlier::All,
            masked: false,
            scale: 1.0,
            dropout: None,
        };
        for (rows, head_size, bytes) in [
            (130, 64, 295_200),
            (64, 64, 98_400),
            (130, 68, 786_816),
            (64, 128, 393_408),
            (130, 160, 1_180_224),
            (64, 256, 786_816),
            (130, 320, 1_967_040),
        ] {
            assert_eq!(efficient_workspace(shape(rows, head_size), DType::F32), bytes, "{rows} × {head_size}");
        }
        assert_eq!(efficient_workspace(shape(40, 264), DType::F16), 2_163_168);
        // Of gpt-mini, GPT-2 and BERT in bf16.
        let shape = |batch, heads, rows, head_size| AttentionShape { batch, heads, rows, ..shape(0, head_size) };
        assert_eq!(efficient_workspace(shape(4, 4, 32, 8), DType::Bf16), 262_400);
        assert_eq!(efficient_workspace(shape(16, 12, 1024, 64), DType::Bf16), 50_380_800);
        assert_eq!(efficient_workspace(shape(4, 16, 512, 64), DType::Bf16), 8_396_800);
    }
}
