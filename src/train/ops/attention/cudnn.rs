//! cuDNN's fused attention: first choice for 16-bit types on data-centre Hopper and Blackwell.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_allocator::units::Bytes;
use vramlab_device::{AttentionShape, DType, FusedAttention};

use super::heads::{FusedOutput, Heads};

impl Context {
    pub(super) fn cudnn_attention(
        &mut self,
        parts: &Heads,
        shape: AttentionShape,
        bias: Option<Tensor>,
    ) -> OpResult<Tensor> {
        let AttentionShape { batch, heads, rows, head_size, value_size, .. } = shape;
        let dtype = parts.q.dtype();
        self.op("attention", |cx| {
            let differentiates = cx.differentiates(&parts.all());
            let saved =
                if differentiates { Some([cx.save(&parts.q)?, cx.save(&parts.k)?, cx.save(&parts.v)?]) } else { None };
            let seed = cx.activation(Shape::new(&[]), DType::I64, "seed")?;
            let offset = cx.activation(Shape::new(&[]), DType::I64, "offset")?;
            // The output has the layout of the queries.
            let out = if parts.q.is_row_major() {
                cx.activation(parts.q.shape().with_last(value_size), dtype, "attention output")?
            } else {
                let output =
                    cx.activation(Shape::new(&[batch, rows, heads * value_size]), dtype, "attention output")?;
                Self::by_heads(&output, shape.of_result(), value_size)
            };
            let Some([q, k, v]) = saved else {
                drop(cx.scratch(256, "attention workspace")?);
                cx.fused_inference(FusedAttention::CuDnn, shape, parts, &out)?;
                return Ok(out);
            };
            let logsumexp = cx.activation(Shape::new(&[batch, heads, rows]), DType::F32, "logsumexp")?;
            drop(cx.scratch(256, "attention workspace")?);
            let computed = FusedOutput { out, logsumexp, lse_stride: rows };
            cx.fused(FusedAttention::CuDnn, shape, parts, &computed)?;
            let results = [cx.save(&computed.out)?, cx.save(&computed.logsumexp)?, cx.save(&seed)?, cx.save(&offset)?];
            let bias = bias.map(|bias| cx.save(&bias)).transpose()?;
            let inputs = [Some(&parts.q), Some(&parts.k), Some(&parts.v)];
            let source = cx.record("attentionBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let _bias = bias.as_ref().map(|bias| bias.unpack(cx)).transpose()?;
                // In PyTorch's order of unpacking, which is alphabetical.
                let (k, q, v) = (k.unpack(cx)?, q.unpack(cx)?, v.unpack(cx)?);
                let parts = Heads { q, k, v };
                let [out, logsumexp, seed, offset] = &results;
                let logsumexp = logsumexp.unpack(cx)?;
                let computed = FusedOutput { out: out.unpack(cx)?, logsumexp, lse_stride: rows };
                let _generator = (seed.unpack(cx)?, offset.unpack(cx)?);
                // A gradient has the layout of its part: head by head if the part comes from page-locked memory, from a cache or
                // from a concatenation.
                let group = parts.group();
                let queries = parts.q.is_row_major();
                let layouts = [(&parts.q, 1), (&parts.k, group), (&parts.v, group)].map(|(part, group)| {
                    let side_by_side = grad.shape().with_last(heads / group * part.shape().last());
                    if part.is_row_major() { part.shape() } else { side_by_side }
                });
                // Gradients can be packed only if the parts come from one packed projection.
                let together = cx.fused && !queries && parts.are_packed();
                let gradients =
                    if together { cx.packed_gradients(shape, dtype)? } else { cx.part_gradients(layouts, dtype)? };
                let elements = batch * heads * rows;
                let own = 4 * elements * head_size + 4 * elements + 256;
                let grad = Self::by_heads(&grad, shape.of_result(), value_size);
                let by = FusedAttention::CuDnn;
                if group > 1 {
                    // A gradient for every head of queries, before those of heads with shared keys are summed.
                    let expanded = 2 * elements * head_size;
                    let workspace = cx.shared_scratch(own, own + 2 * expanded, "attention workspace")?;
                    let places = [own, own + expanded].map(|at| workspace.address().offset(Bytes(at as u64)));
                    cx.grouped_backward((by, shape), &parts, &computed, &grad, gradients.each_ref(), places)?;
                    return Ok(gradients.map(Some));
                }
                drop(cx.scratch(own, "attention workspace")?);
                let views = gradients.each_ref().map(|gradient| match gradient.shape().dims().len() == 4 {
                    true => gradient.clone(),
                    false if together => Self::packed_heads(gradient, shape),
                    false => Self::heads_of_width(gradient, shape),
                });
                cx.attend_backward((by, shape), &parts, &computed, &grad, views.each_ref().map(Tensor::heads))?;
                Ok(gradients.map(Some))
            });
            Ok(computed.out.with_source(source))
        })
    }
}
