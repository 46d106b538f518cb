//! What goes into the first layer: embeddings of tokens, and of positions if these are learned.

use vramlab_model::NameId;
use vramlab_train::{Checkpointing, Context, OpResult, Shape, Tensor};

use super::opt::OptKeys;
use super::sizes::Multipliers;

/// The tables, and what is done with their rows.
pub(super) struct Embeddings {
    /// The model's module.
    pub scope: NameId,
    pub tokens: (NameId, Tensor),
    /// The table of positions, if they are learned.
    pub positions: Option<(NameId, Tensor)>,
    /// The token of padding, which gets no gradient.
    pub padding: Option<usize>,
    /// Each rank has some rows of the table of tokens.
    pub splits: bool,
    /// The factor on embeddings, if there is one.
    pub scale: Option<Tensor>,
    pub multipliers: Option<Multipliers>,
    /// Positions are computed from a mask.
    pub counts_mask: bool,
}

impl Embeddings {
    /// The input of the layers.
    pub fn of_tokens(&self, cx: &mut Context, tokens: &Tensor, checkpointing: Checkpointing) -> OpResult<Tensor> {
        let (scope, table) = &self.tokens;
        let scaled = |cx: &mut Context, embedded: Tensor| {
            let Some(factor) = &self.scale else { return Ok(embedded) };
            let dtype = embedded.dtype();
            let factor = if factor.dtype() == dtype { factor } else { &cx.cast(factor, dtype, "embed_scale")? };
            cx.multiply(&embedded, factor, "scaled embedding")
        };
        let embedded = if self.splits {
            let look_up = |cx: &mut Context| cx.split_embedding(table, tokens, scaled);
            cx.module(*scope, |cx| cx.with_parameters([table], look_up))?
        } else {
            let look_up = |cx: &mut Context| cx.padded_embedding(table, tokens, self.padding);
            let embedded = cx.module(*scope, |cx| cx.with_parameters([table], look_up))?;
            cx.within(*scope, |cx| scaled(cx, embedded))?
        };
        // A hook on a frozen embedding (`enable_input_require_grads`): a checkpoint only recomputes tensors that get gradients.
        let mut embedded = embedded;
        if checkpointing.is_on() {
            embedded = cx.want_gradient(&embedded);
        }
        if let Some(Multipliers { embedding, late: false, .. }) = self.multipliers {
            embedded = cx.within(self.scope, |cx| cx.scale(&embedded, embedding, "scaled embedding"))?;
        }
        Ok(embedded)
    }

    /// Embeddings of tokens plus those of their positions, and the latter, if positions are learned.
    pub fn placed(&self, cx: &mut Context, embedded: &Tensor, positions: &Tensor) -> OpResult<Option<[Tensor; 2]>> {
        let Some((scope, table)) = &self.positions else { return Ok(None) };
        if self.counts_mask {
            let look_up = |cx: &mut Context| {
                let rows = cx.shifted_positions(positions, OptKeys::BEFORE)?;
                cx.with_parameters([table], |cx| cx.embedding(table, &rows))
            };
            let placed = cx.module(*scope, look_up)?;
            return Ok(Some([cx.within(self.scope, |cx| cx.add(embedded, &placed))?, placed]));
        }
        // The embeddings of positions are a batch of one: the gradient of a single sample is theirs unchanged.
        let single = embedded.shape().dims().first() == Some(&1);
        let row = positions.window(Shape::new(&[1, positions.numel()]), 0);
        let positions = if single { &row } else { positions };
        let look_up = |cx: &mut Context| cx.embedding(table, positions);
        let placed = cx.module(*scope, |cx| cx.with_parameters([table], look_up))?;
        Ok(Some([cx.within(self.scope, |cx| cx.add(embedded, &placed))?, placed]))
    }
}
