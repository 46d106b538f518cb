//! Flash attention: first choice for 16-bit types where cuDNN's is not.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{AttentionShape, DType, FusedAttention, kernels};

use super::heads::{FusedOutput, Heads};

/// What flash attention's backward needs besides queries, keys and values.
struct FlashSaved {
    results: [SavedVariable; 4],
    shape: AttentionShape,
    padded_size: usize,
}

impl Context {
    pub(super) fn flash_attention(&mut self, parts: &Heads, shape: AttentionShape) -> OpResult<Tensor> {
        let padded_size = shape.head_size.next_multiple_of(8);
        if padded_size == shape.head_size {
            return self.flash_attention_over(parts, shape, padded_size);
        }
        let q = self.pad_heads(&parts.q, padded_size, "padded queries")?;
        let k = self.pad_heads(&parts.k, padded_size, "padded keys")?;
        let v = self.pad_heads(&parts.v, padded_size, "padded values")?;
        let output = self.flash_attention_over(&Heads { q, k, v }, shape, padded_size)?;
        Ok(self.unpad_heads(&output, shape, padded_size))
    }

    /// Attention over heads padded to `padded_size` elements; the result is padded too.
    fn flash_attention_over(&mut self, parts: &Heads, shape: AttentionShape, padded_size: usize) -> OpResult<Tensor> {
        let AttentionShape { batch, heads, rows, .. } = shape;
        let dtype = parts.q.dtype();
        self.op("attention", |cx| {
            let differentiates = cx.differentiates(&parts.all());
            let saved =
                if differentiates { Some([cx.save(&parts.q)?, cx.save(&parts.k)?, cx.save(&parts.v)?]) } else { None };
            // The output has the layout of the queries.
            let by_head = parts.q.is_row_major() && padded_size == shape.head_size;
            let whole = if by_head { parts.q.shape() } else { Shape::new(&[batch, rows, heads * padded_size]) };
            let output = cx.activation(whole, dtype, "attention output")?;
            let logsumexp = cx.activation(Shape::new(&[batch, heads, rows]), DType::F32, "logsumexp")?;
            let splits = match shape.dropout {
                Some(_) => 1,
                None => flash_splits(shape, parts.keys(), cx.workspaces.policy.multiprocessors),
            };
            let partial = if splits > 1 {
                let elements = splits * batch * heads * rows;
                let sums = cx.scratch(4 * elements, "logsumexp of splits")?;
                Some((sums, cx.scratch(4 * elements * rounded_head(padded_size), "output of splits")?))
            } else {
                None
            };
            let mut seed = cx.activation(Shape::new(&[2]), DType::I64, "generator state")?;
            let unused = cx.activation(Shape::new(&[]), DType::I64, "generator offset")?;
            if shape.dropout.is_some() {
                // Without dropout PyTorch creates one generator state before the one that is read.
                seed = cx.activation(Shape::new(&[2]), DType::I64, "generator state")?;
            }
            let out = if by_head { output.clone() } else { Self::by_heads(&output, shape, padded_size) };
            let Some([q, k, v]) = saved else {
                cx.fused_inference(FusedAttention::Flash, shape, parts, &out)?;
                return Ok(out);
            };
            let computed = FusedOutput { out, logsumexp, lse_stride: rows };
            cx.fused(FusedAttention::Flash, shape, parts, &computed)?;
            drop(partial);
            let results = [cx.save(&output)?, cx.save(&computed.logsumexp)?, cx.save(&seed)?, cx.save(&unused)?];
            let kept = FlashSaved { results, shape, padded_size };
            let inputs = [Some(&parts.q), Some(&parts.k), Some(&parts.v)];
            let source = cx.record("attentionBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // In PyTorch's order of unpacking, which is alphabetical.
                let (k, q, v) = (k.unpack(cx)?, q.unpack(cx)?, v.unpack(cx)?);
                let parts = Heads { q, k, v };
                kept.backward(cx, &parts, &grad)
            });
            Ok(computed.out.with_source(source))
        })
    }

    /// A copy of queries, keys or values with heads padded to `padded_size` elements; backward copies the used elements
    /// out again, head by head, as PyTorch's padding lies.
    fn pad_heads(&mut self, part: &Tensor, padded_size: usize, what: &'static str) -> OpResult<Tensor> {
        let [batch, heads, rows, head_size] = *part.shape().dims() else { return Ok(part.clone()) };
        let side_by_side = move |size: usize| [rows * heads * size, size, heads * size, 1];
        self.op("pad", |cx| {
            let output = cx.activation(Shape::new(&[batch, heads, rows, padded_size]), part.dtype(), what)?;
            let output = output.strided(output.shape(), side_by_side(padded_size), 0);
            cx.copy(part, &output.strided(part.shape(), side_by_side(padded_size), 0))?;
            if !cx.differentiates(&[part]) {
                return Ok(output);
            }
            let source = cx.record("padBackward", [Some(part), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let shape = Shape::new(&[batch, heads, rows, head_size]);
                let output = cx.temporary(shape, grad.dtype(), "part gradient")?;
                cx.copy(&grad.strided(shape, side_by_side(padded_size), 0), &output)?;
                Ok([Some(output), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// The used elements of padded heads: a view; backward gives the padding a gradient of zero.
    fn unpad_heads(&mut self, padded: &Tensor, shape: AttentionShape, padded_size: usize) -> Tensor {
        let view = Self::by_heads(padded, shape, padded_size);
        if !self.differentiates(&[padded]) {
            return view;
        }
        let padded_shape = Shape::new(&[shape.batch, shape.rows, shape.heads * padded_size]);
        let source = self.record("sliceBackward", [Some(padded), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let output = cx.temporary(padded_shape, grad.dtype(), "padded gradient")?;
            cx.launch(kernels::Elementwise::Fill { dst: output.operand(), value: 0.0 })?;
            cx.copy(&Self::by_heads(&grad, shape, shape.head_size), &Self::by_heads(&output, shape, padded_size))?;
            Ok([Some(output), None, None])
        });
        view.with_source(source)
    }
}

impl FlashSaved {
    fn backward(&self, cx: &mut Context, parts: &Heads, grad: &Tensor) -> OpResult<Gradients> {
        let Self { results: [out, logsumexp, seed, unused], shape, padded_size } = self;
        let AttentionShape { batch, heads, rows, .. } = *shape;
        // Heads that share keys sum their gradients with the padding.
        let grouped = parts.group() > 1;
        let kernel_shape = if grouped { AttentionShape { head_size: *padded_size, ..*shape } } else { *shape };
        let out = out.unpack(cx)?;
        let by_head = out.shape().dims().len() == 4;
        let out = if by_head { out } else { Context::by_heads(&out, kernel_shape, *padded_size) };
        let computed = FusedOutput { out, logsumexp: logsumexp.unpack(cx)?, lse_stride: rows };
        let _generator = (seed.unpack(cx)?, unused.unpack(cx)?);
        // A padded tensor is no longer contiguous to PyTorch, nor is an output that lies head by head.
        let copy = |what| cx.temporary(grad.shape(), grad.dtype(), what);
        let gradient_copy = (*padded_size != shape.head_size).then(|| copy("gradient copy")).transpose()?;
        let copies = match by_head || gradient_copy.is_some() {
            true => (gradient_copy, Some(copy("output copy")?)),
            false => (None, None),
        };
        let keys = grad.shape().with_last(grad.shape().last() / parts.group());
        let gradients = cx.part_gradients([grad.shape(), keys, keys], grad.dtype())?;
        let padded_rows = batch * heads * rows.next_multiple_of(128);
        let sums = cx.scratch(4 * padded_rows, "row sums")?;
        let partial = cx.scratch(4 * padded_rows * rounded_head(*padded_size), "query gradient partials")?;
        let expanded = if grouped {
            let expanded = |what| cx.temporary(grad.shape(), grad.dtype(), what);
            Some([expanded("key gradient by query head")?, expanded("value gradient by query head")?])
        } else {
            None
        };
        drop((partial, sums, copies));
        let by = FusedAttention::Flash;
        let grad = Context::by_heads(grad, kernel_shape, *padded_size);
        if let Some(expanded) = expanded {
            let places = expanded.each_ref().map(Tensor::address);
            cx.grouped_backward((by, kernel_shape), parts, &computed, &grad, gradients.each_ref(), places)?;
        } else {
            let views = gradients.each_ref().map(|g| Context::by_heads(g, *shape, *padded_size));
            cx.attend_backward((by, *shape), parts, &computed, &grad, views.each_ref().map(Tensor::heads))?;
        }
        Ok(gradients.map(Some))
    }
}

/// Columns of the kernel's partial results.
const fn rounded_head(padded_size: usize) -> usize {
    padded_size.next_multiple_of(if padded_size <= 128 { 32 } else { 64 })
}

/// How many parts the kernel cuts the keys into, so that few queries still keep a GPU of `multiprocessors` busy. The
/// results of the parts are kept in memory until all are there. Flash attention 2's rule: the smallest number of parts
/// whose last wave is at least 85 % as full as that of the best number.
fn flash_splits(shape: AttentionShape, keys: usize, multiprocessors: usize) -> usize {
    const QUERIES: usize = 64;
    const MOST: usize = 128;
    let AttentionShape { batch, heads, rows, head_size, .. } = shape;
    let keys_per_block = match head_size.next_multiple_of(8) {
        ..=64 => 256,
        65..=128 => 128,
        _ => 64,
    };
    // Two thread blocks run on a multiprocessor at a time.
    let (slots, blocks) = (2 * multiprocessors, keys.div_ceil(keys_per_block));
    let work = batch * heads * rows.div_ceil(QUERIES);
    if 10 * work >= 8 * slots {
        return 1;
    }
    let most = MOST.min(slots).min(blocks);
    // A number with parts as long as those of the number before gains nothing.
    let candidates = || (1..=most).filter(|&n| n == 1 || blocks.div_ceil(n) != blocks.div_ceil(n - 1));
    #[expect(clippy::cast_precision_loss, reason = "counts of blocks")]
    let efficiency = |n: usize| {
        let waves = (work * n) as f64 / slots as f64;
        waves / waves.ceil()
    };
    let best = candidates().map(efficiency).fold(0.0, f64::max);
    candidates().find(|&n| efficiency(n) >= 0.85 * best).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_device::Earlier;

    /// Read from a history of PyTorch 2.11 on an H200.
    #[test]
    fn the_accumulator_is_what_pytorch_asked_for() {
        assert_eq!(4 * 2 * 3 * 128 * rounded_head(16), 98_304);
        assert_eq!([64, 96, 104, 136, 200].map(rounded_head), [64, 96, 128, 192, 256]);
    }

    #[test]
    fn keys_are_split_where_queries_are_few() {
        let shape = |batch, rows| AttentionShape {
            batch,
            heads: 12,
            group: 1,
            rows,
            head_size: 64,
            value_size: 64,
            causal: false,
            earlier: Earlier::All,
            masked: false,
            scale: 1.0,
            dropout: None,
        };
        // Sixteen GPT-2 sequences fill the GPU; one of them, in one piece, does not.
        assert_eq!(flash_splits(shape(16, 1024), 1024, 132), 1);
        assert_eq!(flash_splits(shape(1, 1024), 1024, 132), 4);
        // One token over 1,024 positions has four blocks of keys; short caches have one.
        assert_eq!(flash_splits(shape(1, 1), 1024, 132), 4);
        assert_eq!(flash_splits(shape(1, 1), 256, 132), 1);
    }
}
