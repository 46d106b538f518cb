//! Inputs and outputs of attention.

use crate::tensor::Tensor;

/// Queries, keys and values of one attention, each (batch, heads, rows, head size); keys and values may have more rows.
#[derive(Clone)]
pub(super) struct Heads {
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
}

impl Heads {
    /// Queries, keys and values.
    pub fn all(&self) -> [&Tensor; 3] {
        [&self.q, &self.k, &self.v]
    }

    /// Whether they are parts of one projection.
    pub fn are_packed(&self) -> bool {
        self.q.storage().number() == self.k.storage().number()
    }

    /// How many heads of queries share one head of keys and values.
    pub fn group(&self) -> usize {
        let heads = |tensor: &Tensor| tensor.shape().dims().get(1).copied().unwrap_or(1);
        heads(&self.q) / heads(&self.k).max(1)
    }

    /// Positions of keys and values.
    pub fn keys(&self) -> usize {
        self.k.shape().dims().get(2).copied().unwrap_or(0)
    }
}

/// The output of a fused kernel, and what its backward needs.
pub(super) struct FusedOutput {
    pub out: Tensor,
    pub logsumexp: Tensor,
    pub lse_stride: usize,
}
