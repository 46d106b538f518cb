//! The modules that Llama and its kin share, as transformers writes them.

use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, Tensor};

use super::hash::Parameters;
use super::lora::{Adaptable, Lora, Target};

/// Divides the last dimension by the root of its mean square.
pub(super) struct RmsNorm {
    scope: NameId,
    weight: Tensor,
    eps: f64,
    /// The weight is added to 1 (Gemma).
    centred: bool,
}

impl RmsNorm {
    /// What is added to the mean square, unless a model says otherwise.
    pub const EPS: f64 = 1e-6;

    /// A norm of `width` values that adds `eps` to their mean square.
    pub fn make(cx: &mut Context, all: &mut Parameters, name: &str, width: usize, eps: f64) -> OpResult<Self> {
        let weight = all.weight(cx, &format!("{name}.weight"), &[width])?;
        Ok(Self { scope: cx.memory().name(name), weight, eps, centred: false })
    }

    /// The same with a weight that is added to 1.
    pub fn centred(cx: &mut Context, all: &mut Parameters, name: &str, width: usize, eps: f64) -> OpResult<Self> {
        let weight = all.centred(cx, &format!("{name}.weight"), width)?;
        Ok(Self { scope: cx.memory().name(name), weight, eps, centred: true })
    }
}

impl Repeatable for RmsNorm {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let run = |cx: &mut Context| match self.centred {
            true => cx.centred_rms_norm(input, &self.weight, self.eps),
            false => cx.rms_norm(input, &self.weight, self.eps),
        };
        cx.module(self.scope, |cx| cx.with_parameters([&self.weight], run))
    }
}

/// What a gate goes through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// SwiGLU.
    Silu,
    /// GeGLU, by the tanh form.
    Gelu,
}

/// `down(silu(gate(x)) · up(x))`, or the same with GELU.
pub(super) struct GatedMlp {
    scope: NameId,
    function: Gate,
    gate: Adaptable,
    up: Adaptable,
    down: Adaptable,
}

impl GatedMlp {
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        [width, hidden]: [usize; 2],
        function: Gate,
    ) -> OpResult<Self> {
        Ok(Self {
            scope: cx.memory().name(name),
            function,
            gate: Adaptable::plain(cx, all, &format!("{name}.gate_proj"), [width, hidden])?,
            up: Adaptable::plain(cx, all, &format!("{name}.up_proj"), [width, hidden])?,
            down: Adaptable::plain(cx, all, &format!("{name}.down_proj"), [hidden, width])?,
        })
    }

    /// Puts adapters beside its layers.
    pub fn adapt(&mut self, cx: &Context, all: &mut Parameters, name: &str, lora: Lora) -> OpResult<()> {
        self.gate.adapt(cx, all, name, lora, Target::Gate)?;
        self.up.adapt(cx, all, name, lora, Target::Up)?;
        self.down.adapt(cx, all, name, lora, Target::Down)
    }
}

impl Repeatable for GatedMlp {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        // What goes into a product is an argument: it lives until that has returned.
        let output = {
            let hidden = if cx.is_fused() && self.function == Gate::Silu {
                let gate = self.gate.forward(cx, input)?;
                let up = self.up.forward(cx, input)?;
                cx.within(self.scope, |cx| cx.gated_silu(&gate, &up))?
            } else {
                let activated = {
                    let gate = self.gate.forward(cx, input)?;
                    cx.within(self.scope, |cx| match self.function {
                        Gate::Silu => cx.silu(&gate),
                        Gate::Gelu => cx.gelu(&gate, true),
                    })?
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
