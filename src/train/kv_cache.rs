//! Keys and values of the positions so far, kept from one forward pass to the next.

use super::tensor::Tensor;

/// Where keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheKind {
    /// In tensors that are exactly as long as needed: each pass concatenates them with its own keys and values into
    /// new tensors (`torch.cat`), and drops the old ones layer by layer.
    #[default]
    Growing,
    /// In tensors for this many positions, created once.
    Preallocated {
        /// Positions that the tensors have room for.
        positions: usize,
    },
}

/// The keys and values of a model's attention layers.
#[derive(Debug, Default)]
pub struct KvCache {
    pub(super) kind: CacheKind,
    pub(super) layers: Vec<[Tensor; 2]>,
    /// The next layer of the current forward pass.
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

    /// Positions that the cache holds.
    #[must_use]
    pub const fn positions(&self) -> usize {
        self.positions
    }
}
