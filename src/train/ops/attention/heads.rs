//! What attention is computed of, and what it leaves.

use crate::tensor::Tensor;

/// Queries, keys and values of one attention, (batch, heads, rows, head size) each; keys and values may have more rows.
#[derive(Clone)]
pub(super) struct Heads {
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
}

impl Heads {
    /// All three.
    pub fn all(&self) -> [&Tensor; 3] {
        [&self.q, &self.k, &self.v]
    }

    /// They are parts of one projection.
    pub fn are_packed(&self) -> bool {
        self.q.storage().number() == self.k.storage().number()
    }

    /// Heads of queries that share one of keys and values.
    pub fn group(&self) -> usize {
        let heads = |tensor: &Tensor| tensor.shape().dims().get(1).copied().unwrap_or(1);
        heads(&self.q) / heads(&self.k).max(1)
    }

    /// Positions that keys and values have.
    pub fn keys(&self) -> usize {
        self.k.shape().dims().get(2).copied().unwrap_or(0)
    }
}

/// What a fused kernel leaves for its backward.
pub(super) struct FusedOutput {
    pub out: Tensor,
    pub logsumexp: Tensor,
    pub lse_stride: usize,
}
