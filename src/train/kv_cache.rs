//! Keys and values of the positions so far, kept from one forward pass to the next.

use super::tensor::Tensor;

/// Where keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheKind {
    /// In tensors that are as long as they need be: each pass concatenates them with its own keys and values into new
    /// ones (`torch.cat`), and drops the old ones layer by layer.
    #[default]
    Growing,
    /// In tensors of so many positions, made once.
    Preallocated {
        /// Positions that there is room for.
        positions: usize,
    },
}

/// The keys and values of a model's attention layers.
#[derive(Debug, Default)]
pub struct KvCache {
    pub(super) kind: CacheKind,
    pub(super) layers: Vec<[Tensor; 2]>,
    /// The layer whose turn it is in the present forward pass.
    pub(super) next: usize,
    /// Positions that every layer holds from earlier passes.
    pub(super) positions: usize,
}

impl KvCache {
    /// An empty cache.
    #[must_use]
    pub fn new(kind: CacheKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Positions that it holds.
    #[must_use]
    pub const fn positions(&self) -> usize {
        self.positions
    }
}
