//! The modules that Llama and its kin share, as transformers writes them.

use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, Tensor};

use super::hash::Parameters;
use super::modules::Linear;

/// Divides the last dimension by the root of its mean square.
pub(super) struct RmsNorm {
    scope: NameId,
    weight: Tensor,
    eps: f64,
}

impl RmsNorm {
    /// What is added to the mean square, unless a model says otherwise.
    pub const EPS: f64 = 1e-6;

    /// A norm of `width` values that adds `eps` to their mean square.
    pub fn make(cx: &mut Context, all: &mut Parameters, name: &str, width: usize, eps: f64) -> OpResult<Self> {
        Ok(Self { scope: cx.memory().name(name), weight: all.weight(cx, &format!("{name}.weight"), &[width])?, eps })
    }
}

impl Repeatable for RmsNorm {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let run = |cx: &mut Context| cx.rms_norm(input, &self.weight, self.eps);
        cx.module(self.scope, |cx| cx.with_parameters([&self.weight], run))
    }
}

/// `down(silu(gate(x)) · up(x))`.
pub(super) struct GatedMlp {
    scope: NameId,
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl GatedMlp {
    pub fn make(cx: &mut Context, all: &mut Parameters, name: &str, [width, hidden]: [usize; 2]) -> OpResult<Self> {
        Ok(Self {
            scope: cx.memory().name(name),
            gate: Linear::plain(cx, all, &format!("{name}.gate_proj"), [width, hidden])?,
            up: Linear::plain(cx, all, &format!("{name}.up_proj"), [width, hidden])?,
            down: Linear::plain(cx, all, &format!("{name}.down_proj"), [hidden, width])?,
        })
    }
}

impl Repeatable for GatedMlp {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        // What goes into a product is an argument: it lives until that has returned.
        let output = {
            let hidden = {
                let activated = {
                    let gate = self.gate.forward(cx, input)?;
                    cx.within(self.scope, |cx| cx.silu(&gate))?
                };
                let up = self.up.forward(cx, input)?;
                cx.within(self.scope, |cx| cx.mul(&activated, &up))?
            };
            self.down.forward(cx, &hidden)?
        };
        cx.put_out(self.scope, &output);
        Ok(output)
    }
}
