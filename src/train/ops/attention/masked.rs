//! `scaled_dot_product_attention` with a mask, as transformers calls it: keys and values are repeated for every head of queries,
//! because `enable_gqa` and a mask would leave only matrix products, and the mask of yes and no becomes one of numbers in every call.

use crate::context::Context;
use crate::error::OpResult;
use crate::ops::masks::SdpaMask;
use crate::shape::Shape;
use crate::tensor::Tensor;

use super::Scores;
use super::backend::Backend;
use super::heads::Heads;

/// Strides that the memory-efficient kernel takes of a mask are multiples of this.
const ALIGNMENT: usize = 8;

impl Context {
    /// Queries (batch, heads, rows, head size) over keys and values of as many heads or of fewer, which see what `mask` lets them;
    /// products are multiplied by `scale`, and a share of weights is left out by `dropout`. Runs in 16 bit under autocast. The result is (batch, rows, width): heads side by side.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn masked_attention(
        &mut self,
        [q, k, v]: [&Tensor; 3],
        mask: &SdpaMask,
        scale: f32,
        dropout: f64,
    ) -> OpResult<Tensor> {
        let heads = |tensor: &Tensor| tensor.shape().dims().get(1).copied().unwrap_or(1);
        let group = heads(q) / heads(k).max(1);
        // Variables of transformers' function, which live until it returns.
        let k = self.repeat_kv(k, group, "keys of every head")?;
        let v = self.repeat_kv(v, group, "values of every head")?;
        let output = {
            // Autocast visits arguments from the last to the first.
            let v = self.cast_to_lower(&v, "values copy")?;
            let k = self.cast_to_lower(&k, "keys copy")?;
            let q = self.cast_to_lower(q, "queries copy")?;
            let differentiates = self.differentiates(&[&q, &k, &v]);
            let parts = Heads { q, k, v };
            let backend = self.backend_of(&parts, differentiates, true)?;
            let bias = self.op("mask", |cx| cx.added_mask(mask, parts.q.dtype(), backend == Backend::Math))?;
            let scores = Scores { causal: true, scale: Some(scale), bias: Some(bias), window: mask.window(), dropout };
            self.attend(backend, &parts, scores)?
        };
        self.merge_heads(&output)
    }

    /// A mask whose rows begin where the memory-efficient kernel can read them: `pad_bias`.
    pub(super) fn aligned_mask(&self, bias: Tensor) -> OpResult<Tensor> {
        let [batch, rows, columns] = *bias.shape().dims() else { return Ok(bias) };
        if columns.is_multiple_of(ALIGNMENT) {
            return Ok(bias);
        }
        let padded = Shape::new(&[batch, rows, columns.next_multiple_of(ALIGNMENT)]);
        self.temporary(padded, bias.dtype(), "padded mask")
    }
}
