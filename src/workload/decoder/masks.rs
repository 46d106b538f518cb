//! The masks that a decoder's layers get, and what a forward pass gets besides the tokens.

use vramlab_device::{DType, Earlier};
use vramlab_train::{Batch, Context, MaskShape, OpResult, Tensor};

use super::attention_inputs::Mask;
use super::sizes::{DecoderSizes, SlidingWindows};
use super::style::PositionUse;

/// Inputs of a forward pass besides the tokens.
#[derive(Clone, Copy)]
pub(super) struct ForwardInputs<'a> {
    /// Samples, and tokens per sample.
    pub tokens: [usize; 2],
    /// The program's mask of padding, if it passes one.
    pub mask: Option<&'a Tensor>,
    /// Whether there is padding.
    pub pads: bool,
}

impl<'a> ForwardInputs<'a> {
    /// Tokens, or hidden states, without padding.
    pub fn whole(batch: &Tensor) -> Self {
        let dims = batch.shape();
        let [samples, tokens] = [0, 1].map(|dim| dims.dims().get(dim).copied().unwrap_or(1));
        Self { tokens: [samples, tokens], mask: None, pads: false }
    }

    /// A batch and its padding.
    pub fn of(batch: &'a Batch) -> Self {
        Self { mask: batch.mask.as_ref(), pads: batch.lengths.is_some(), ..Self::whole(&batch.input) }
    }
}

/// When a model makes masks, and which.
pub(super) struct MaskMaker {
    windows: SlidingWindows,
    /// Attention is always eager.
    pub eager: bool,
    /// SDPA always gets a mask.
    always: bool,
    /// Masks are looked up in positions: packed samples begin anew.
    finds_samples: bool,
    /// The model is part of a larger one, which makes the masks before there are positions.
    pub within_another: bool,
}

impl MaskMaker {
    /// That of a model.
    pub fn new(sizes: &DecoderSizes) -> Self {
        let DecoderSizes { style, windows, .. } = *sizes;
        let within_another = sizes.tower.is_some_and(|tower| tower.kind.makes_masks());
        Self {
            windows,
            eager: style.sinks || style.alibi,
            always: style.always_masks,
            finds_samples: style.told == PositionUse::Both && !within_another,
            within_another,
        }
    }

    /// Whether layers get masks whatever the samples are.
    pub fn is_eager(&self, cx: &Context) -> bool {
        self.eager || cx.attends_eagerly()
    }

    /// That of a layer.
    pub fn of(&self, masks: &[(Earlier, Mask)], layer: usize) -> Option<Mask> {
        masks.iter().find(|(earlier, _)| *earlier == self.windows.of(layer)).map(|(_, mask)| mask.clone())
    }

    /// The masks of the layers by what positions see: none if SDPA needs none.
    pub fn make(
        &self,
        cx: &mut Context,
        ForwardInputs { tokens: [batch, rows], mask, pads }: ForwardInputs<'_>,
        dtype: DType,
        caches: bool,
    ) -> OpResult<Vec<(Earlier, Mask)>> {
        let mut masks = Vec::new();
        for earlier in self.windows.kinds() {
            let with_token = mask.map(|mask| cx.boolean_mask(mask)).transpose()?;
            if !caches && mask.is_none() && self.finds_samples {
                cx.find_sequences([batch, rows])?;
            }
            let chunked = matches!(earlier, Earlier::Chunk(_));
            let _begins = chunked.then(|| cx.begins_of_tokens(batch, with_token.as_ref())).transpose()?;
            let shape = MaskShape { batch, rows, earlier, padding: mask.is_some() };
            if self.is_eager(cx) {
                masks.push((earlier, Mask::Added(cx.attention_mask(shape, dtype)?)));
                continue;
            }
            let mut needed = self.always || earlier.most().is_some_and(|most| most <= rows);
            if let (Some(with_token), false) = (&with_token, needed) {
                cx.find_padding(with_token, pads)?;
                needed = pads;
            }
            if needed {
                masks.push((earlier, Mask::Sdpa(cx.sdpa_mask(shape)?)));
            }
        }
        Ok(masks)
    }
}
