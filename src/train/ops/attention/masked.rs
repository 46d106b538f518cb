//! `scaled_dot_product_attention` with a mask, as transformers calls it. Keys and values are repeated for every head of queries,
//! because `enable_gqa` with a mask would leave only matrix products. Every call converts the boolean mask to numbers.

use crate::context::Context;
use crate::error::OpResult;
use crate::ops::masks::SdpaMask;
use crate::shape::Shape;
use crate::tensor::Tensor;

use super::Scores;
use super::backend::{Backend, KeysOf};
use super::heads::Heads;

/// The memory-efficient kernel takes mask strides that are multiples of this.
const ALIGNMENT: usize = 8;

impl Context {
    /// Queries (batch, heads, rows, head size) over keys and values with as many heads or fewer; `mask` says which positions a
    /// query sees. Scores are multiplied by `scale`; `dropout` is the share of weights that is left out. Runs in 16 bits under
    /// autocast. The result is (batch, rows, width): heads side by side.
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
        self.attention_with_mask([q, &k, &v], (mask, KeysOf::Each), scale, dropout)
    }

    /// The same over a single head of keys and values for all heads of queries, as a program passes them that does not repeat
    /// them (Falcon): PyTorch has no fused kernel for that, and its products repeat the head.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn masked_attention_of_one_key(
        &mut self,
        parts: [&Tensor; 3],
        mask: &SdpaMask,
        scale: f32,
    ) -> OpResult<Tensor> {
        self.attention_with_mask(parts, (mask, KeysOf::All), scale, 0.0)
    }

    fn attention_with_mask(
        &mut self,
        [q, k, v]: [&Tensor; 3],
        (mask, keys_of): (&SdpaMask, KeysOf),
        scale: f32,
        dropout: f64,
    ) -> OpResult<Tensor> {
        let output = {
            // Autocast casts arguments from the last to the first.
            let v = self.cast_to_lower(v, "values copy")?;
            let k = self.cast_to_lower(k, "keys copy")?;
            let q = self.cast_to_lower(q, "queries copy")?;
            let differentiates = self.differentiates(&[&q, &k, &v]);
            let parts = Heads { q, k, v };
            let backend = self.backend_of(&parts, keys_of, (differentiates, true))?;
            let bias = self.op("mask", |cx| cx.added_mask(mask, parts.q.dtype(), backend == Backend::Math))?;
            let scores = Scores {
                causal: true,
                scale: Some(scale),
                bias: Some(bias),
                earlier: mask.earlier(),
                dropout,
                broadcasts: keys_of == KeysOf::All,
            };
            self.attend(backend, &parts, scores)?
        };
        self.merge_heads(&output)
    }

    /// The mask with rows that begin where the memory-efficient kernel can read them: `pad_bias`.
    pub(super) fn aligned_mask(&self, bias: Tensor) -> OpResult<Tensor> {
        let [batch, rows, columns] = *bias.shape().dims() else { return Ok(bias) };
        if columns.is_multiple_of(ALIGNMENT) {
            return Ok(bias);
        }
        let padded = Shape::new(&[batch, rows, columns.next_multiple_of(ALIGNMENT)]);
        self.temporary(padded, bias.dtype(), "padded mask")
    }
}
