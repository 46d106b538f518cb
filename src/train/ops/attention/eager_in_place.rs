//! Attention op for op as Falcon writes it: keys and values are not repeated before the products, scores are divided in place, and
//! the softmax is in the type of the layer's input.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use super::eager::EagerScores;

impl Context {
    /// Queries (batch, heads, rows, head size) over keys and values with as many heads or one; the softmax returns `dtype`, which is
    /// the type of the masked scores or a wider one. Returns the heads side by side, and the weights, which the caller holds as long
    /// as transformers' caller does. There is no dropout and no cap.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn eager_attention_in_place(
        &mut self,
        [q, k, v]: [&Tensor; 3],
        by: EagerScores<'_>,
        dtype: DType,
    ) -> OpResult<(Tensor, Tensor)> {
        self.attention.ran = Some("eager");
        let heads = |tensor: &Tensor| tensor.shape().dims().get(1).copied().unwrap_or(1);
        let group = heads(q) / heads(k).max(1);
        let scores = {
            // Autocast casts arguments from the last to the first.
            let k = self.cast_to_lower(k, "keys copy")?;
            let q = self.cast_to_lower(q, "queries copy")?;
            self.op("matmul", |cx| {
                let q = cx.by_head(&q, "queries")?;
                let k = cx.broadcast_heads(&k, group, "keys of every head")?;
                let k = cx.by_head(&k, "keys")?;
                cx.scores(&q, &k, false)
            })?
        };
        let scores = self.scale_in_place(scores, by.scale)?;
        let weights = {
            // The mask is the same for all sequences.
            let [.., rows, columns] = *by.mask.shape().dims() else { return Ok((q.clone(), q.clone())) };
            let masked = self.add(&scores, &by.mask.window(Shape::new(&[rows, columns]), 0))?;
            self.softmax(&masked, dtype)?
        };
        // The weights replace the scores in their variable.
        drop(scores);
        let output = {
            let v = self.cast_to_lower(v, "values copy")?;
            let weights = self.cast_to_lower(&weights, "weights copy")?;
            let v = self.broadcast_heads(&v, group, "values of every head")?;
            let v = self.by_head(&v, "values")?;
            self.weighted(&weights, &v)?
        };
        Ok((self.merge_heads(&output)?, weights))
    }

    /// `scores *= factor`; backward does the same with the gradient, in a tensor of its own. Saves nothing.
    fn scale_in_place(&mut self, scores: Tensor, factor: f64) -> OpResult<Tensor> {
        self.op("div_", |cx| {
            cx.launch(kernels::Elementwise::Scale { src: scores.operand(), dst: scores.operand(), factor })?;
            if !cx.differentiates(&[&scores]) {
                return Ok(scores);
            }
            let source = cx.record("div_Backward", [Some(&scores), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let dst = cx.temporary(grad.shape(), grad.dtype(), "scaled gradient")?;
                cx.launch(kernels::Elementwise::Scale { src: grad.operand(), dst: dst.operand(), factor })?;
                Ok([Some(dst), None, None])
            });
            Ok(scores.with_source(source))
        })
    }
}
