//! Norms with a separate weight for each head (StableLM).

use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Tensor};

use super::super::parameters::Parameters;

/// Subtracts the mean of every head and divides by its deviation, with a weight for each head and no bias.
pub(super) struct NormsOfHeads {
    scope: NameId,
    weights: Vec<Tensor>,
    eps: f64,
}

impl NormsOfHeads {
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        [heads, head_size]: [usize; 2],
        eps: f64,
    ) -> OpResult<Self> {
        let weight = |number: usize| all.weight(cx, &format!("{name}.norms.{number}.weight"), &[head_size]);
        let weights = (0..heads).map(weight).collect::<OpResult<_>>()?;
        Ok(Self { scope: cx.memory().name(name), weights, eps })
    }

    /// Normalises heads (batch, heads, rows, head size), which are freed after that.
    pub fn forward(&self, cx: &mut Context, heads: Tensor) -> OpResult<Tensor> {
        #[expect(clippy::cast_possible_truncation, reason = "f32 as the kernel wants it")]
        let eps = self.eps as f32;
        let run = |cx: &mut Context| cx.norms_of_heads(&heads, &self.weights, eps);
        let made = cx.module(self.scope, |cx| cx.with_parameters(&self.weights, run))?;
        drop(heads);
        Ok(made)
    }
}
