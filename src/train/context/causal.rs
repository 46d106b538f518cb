//! How transformers' models are called: where their loss is computed, and what they return or take besides tokens.

use super::{CausalChoice, Context};
use crate::config::{Float8Recipe, LossHead};

impl Context {
    /// Where the loss of transformers' models is computed.
    #[must_use]
    pub const fn loss_head(&self) -> LossHead {
        self.causal.head
    }

    /// Whether transformers' models return a cache of keys and values (`use_cache=True`).
    #[must_use]
    pub const fn uses_cache(&self) -> bool {
        self.causal.use_cache
    }

    /// Chooses how transformers' models are called from now on.
    pub const fn choose_causal(&mut self, head: LossHead, use_cache: bool) {
        self.causal = CausalChoice { head, use_cache, ..self.causal };
    }

    /// Whether MLPs of such models run tile by tile.
    #[must_use]
    pub const fn tiles_mlps(&self) -> bool {
        self.causal.tiled_mlp
    }

    /// Chooses whether MLPs run tile by tile from now on.
    pub const fn tile_mlps(&mut self, tiles: bool) {
        self.causal.tiled_mlp = tiles;
    }

    /// The 8-bit float recipe with which linear layers of such models multiply.
    #[must_use]
    pub(crate) const fn float8_recipe(&self) -> Float8Recipe {
        self.causal.float8
    }

    /// Chooses the 8-bit float recipe from now on.
    pub(crate) const fn choose_float8(&mut self, recipe: Float8Recipe) {
        self.causal.float8 = recipe;
    }

    /// Whether token batches that are made from now on come with a mask of padding.
    #[must_use]
    pub const fn passes_attention_mask(&self) -> bool {
        self.causal.attention_mask
    }

    /// Chooses whether token batches come with a mask of padding.
    pub(crate) const fn pass_attention_mask(&mut self, passes: bool) {
        self.causal.attention_mask = passes;
    }
}
