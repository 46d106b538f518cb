//! The modules that Llama and similar models share, as transformers writes them.

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, Tensor};

use super::lora::{Adaptable, Lora, Target};
use super::parameters::Parameters;

/// The kinds of norms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormKind {
    /// The mean square only; the result is multiplied by the weight in the type of the input (Llama).
    #[default]
    Plain,
    /// The weight is multiplied before the cast to that type (OLMo 2).
    Late,
    /// The same with the weight cast to f32 first (Helium).
    LateCast,
    /// The same with a weight that is added to 1 (Gemma).
    Centred,
    /// The mean is subtracted first, and a bias is added (StarCoder 2).
    Layer,
    /// The same with a weight that is added to 1 (Nemotron).
    CentredLayer,
    /// As `Plain`, but nothing within outlives its use, and the weight is the second factor (Llama 4).
    Brief,
    /// The mean square only, in f32; there is no weight (Llama 4's heads).
    Square,
    /// The mean is subtracted first, in f32; there is neither weight nor bias (OLMo 1).
    Bare,
    /// The mean is subtracted first, op by op in f32; there is no bias (Cohere).
    Unbiased,
}

/// Divides the last dimension by the root of its mean square.
pub(super) struct Norm {
    scope: NameId,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    eps: f64,
    kind: NormKind,
    /// It normalises this rank's part of the heads: the gradients of its weight are summed over the ranks.
    of_part: bool,
}

impl Norm {
    /// The default addition to the mean square.
    pub const EPS: f64 = 1e-6;

    /// A norm of `width` values that adds `eps` to their mean square.
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        width: usize,
        (kind, eps): (NormKind, f64),
    ) -> OpResult<Self> {
        let weight = format!("{name}.weight");
        let weight = match kind {
            NormKind::Centred | NormKind::CentredLayer => Some(all.centred(cx, &weight, width)?),
            NormKind::Plain
            | NormKind::Late
            | NormKind::LateCast
            | NormKind::Layer
            | NormKind::Unbiased
            | NormKind::Brief => Some(all.weight(cx, &weight, &[width])?),
            NormKind::Bare | NormKind::Square => None,
        };
        let biased = matches!(kind, NormKind::Layer | NormKind::CentredLayer);
        let bias = biased.then(|| all.bias(cx, &format!("{name}.bias"), width)).transpose()?;
        Ok(Self { scope: cx.memory().name(name), weight, bias, eps, kind, of_part: false })
    }
}

impl Norm {
    /// The same for heads, of which a rank has only some if they are `split`.
    pub fn of_split_heads(self, split: bool) -> Self {
        Self { of_part: split, ..self }
    }

    /// A norm for each head, with its own weight.
    pub fn of_heads(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        dims: [usize; 2],
        (kind, eps): (NormKind, f64),
    ) -> OpResult<Self> {
        let weight = Some(all.weight(cx, &format!("{name}.weight"), &dims)?);
        Ok(Self { scope: cx.memory().name(name), weight, bias: None, eps, kind, of_part: false })
    }
}

impl Repeatable for Norm {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        #[expect(clippy::cast_possible_truncation, reason = "f32 as the kernel wants it")]
        let eps = self.eps as f32;
        let run = |cx: &mut Context, input: &Tensor| {
            if self.kind == NormKind::Square {
                return cx.plain_rms_norm(input, self.eps);
            }
            let Some(weight) = &self.weight else {
                let dtype = input.dtype();
                let output = {
                    let wide = if dtype == DType::F32 { input } else { &cx.cast(input, DType::F32, "in f32")? };
                    cx.plain_layer_norm(wide, eps)?
                };
                return if output.dtype() == dtype { Ok(output) } else { cx.cast(&output, dtype, "normalised") };
            };
            match (self.kind, &self.bias) {
                (NormKind::Layer, Some(bias)) => cx.layer_norm(input, weight, bias, eps),
                (NormKind::CentredLayer, Some(bias)) => cx.centred_layer_norm(input, weight, bias, eps),
                (NormKind::Unbiased, _) => cx.wide_layer_norm(input, weight, eps),
                (NormKind::Late, _) => cx.late_rms_norm(input, weight, self.eps),
                (NormKind::LateCast, _) => cx.late_rms_norm_of_cast(input, weight, self.eps),
                (NormKind::Brief, _) => cx.weighted_plain_rms_norm(input, weight, self.eps),
                (NormKind::Centred, _) => cx.centred_rms_norm(input, weight, self.eps),
                (NormKind::Plain | NormKind::Layer | NormKind::CentredLayer | NormKind::Bare | NormKind::Square, _) => {
                    cx.rms_norm(input, weight, self.eps)
                }
            }
        };
        let run = |cx: &mut Context| match &self.weight {
            Some(weight) if self.of_part => cx.with_summed_gradient(input, weight, run),
            _ => run(cx, input),
        };
        cx.module(self.scope, |cx| cx.with_parameters(self.weight.iter().chain(&self.bias), run))
    }
}

/// The activation of a gate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// SwiGLU.
    Silu,
    /// GeGLU.
    Gelu {
        /// In the tanh form.
        tanh: bool,
    },
}

/// `down(silu(gate(x)) · up(x))`, or the same with GELU.
pub(super) struct GatedMlp {
    scope: NameId,
    function: Gate,
    opening: GateLayers,
    down: Adaptable,
}

/// The layers that a gated MLP begins with.
enum GateLayers {
    /// Gate and up projections.
    Apart(Box<[Adaptable; 2]>),
    /// Both as one (Phi-3).
    Packed(Box<Adaptable>, PackedMlp),
}

/// The form of an MLP with one layer for gate and up projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedMlp {
    /// That layer, and the down projection.
    layers: [Target; 2],
    /// The activated gate is the first factor of the product.
    gate_first: bool,
}

impl PackedMlp {
    /// Phi-3's.
    pub const PHI: Self = Self { layers: [Target::GateUp, Target::Down], gate_first: false };
    /// Granite 4's.
    pub const GRANITE: Self = Self { layers: [Target::Inner, Target::Outer], gate_first: true };
}

impl Default for PackedMlp {
    fn default() -> Self {
        Self::PHI
    }
}

impl GatedMlp {
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        [width, hidden]: [usize; 2],
        function: Gate,
        biases: bool,
    ) -> OpResult<Self> {
        let make = if biases { Adaptable::biased } else { Adaptable::plain };
        let gate = make(cx, all, &format!("{name}.gate_proj"), [width, hidden])?;
        let up = make(cx, all, &format!("{name}.up_proj"), [width, hidden])?;
        let opening = GateLayers::Apart(Box::new([gate, up]));
        let down = make(cx, all, &format!("{name}.down_proj"), [hidden, width])?;
        Ok(Self { scope: cx.memory().name(name), function, opening, down })
    }

    /// With one layer for gate and up projection.
    pub fn packed(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        [width, hidden]: [usize; 2],
        form: PackedMlp,
    ) -> OpResult<Self> {
        let [first, second] = form.layers.map(Target::word);
        let both = Adaptable::plain(cx, all, &format!("{name}.{first}"), [width, 2 * hidden])?;
        let down = Adaptable::plain(cx, all, &format!("{name}.{second}"), [hidden, width])?;
        let opening = GateLayers::Packed(Box::new(both), form);
        Ok(Self { scope: cx.memory().name(name), function: Gate::Silu, opening, down })
    }

    /// Puts adapters on its layers.
    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, name: &str, lora: Lora) -> OpResult<()> {
        let last = match &mut self.opening {
            GateLayers::Apart(layers) => {
                let [gate, up] = &mut **layers;
                gate.adapt(cx, all, name, lora, Target::Gate)?;
                up.adapt(cx, all, name, lora, Target::Up)?;
                Target::Down
            }
            GateLayers::Packed(both, PackedMlp { layers: [first, last], .. }) => {
                both.adapt(cx, all, name, lora, *first)?;
                *last
            }
        };
        self.down.adapt(cx, all, name, lora, last)
    }

    /// The input of the last layer, and a tensor that lives until that layer has returned.
    fn hidden(&self, cx: &mut Context, input: &Tensor) -> OpResult<(Tensor, Option<Tensor>)> {
        let [gate, up] = match &self.opening {
            GateLayers::Apart(layers) => &**layers,
            GateLayers::Packed(both, PackedMlp { gate_first, .. }) => {
                let both = both.forward(cx, input)?;
                let (hidden, gate) = cx.within(self.scope, |cx| cx.packed_gate(both, *gate_first))?;
                return Ok((hidden, Some(gate)));
            }
        };
        if cx.fuses_gates() && self.function == Gate::Silu {
            let gate = gate.forward(cx, input)?;
            let up = up.forward(cx, input)?;
            return Ok((cx.within(self.scope, |cx| cx.gated_silu(&gate, &up))?, None));
        }
        let activated = {
            let gate = gate.forward(cx, input)?;
            cx.within(self.scope, |cx| match self.function {
                Gate::Silu => cx.silu(&gate),
                Gate::Gelu { tanh } => cx.gelu(&gate, tanh),
            })?
        };
        let up = up.forward(cx, input)?;
        Ok((cx.within(self.scope, |cx| cx.mul(&activated, &up))?, None))
    }
}

impl Repeatable for GatedMlp {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        // The argument of a product lives until it has returned.
        let output = {
            let (hidden, _local) = self.hidden(cx, input)?;
            self.down.forward(cx, &hidden)?
        };
        cx.put_out(self.scope, &output);
        Ok(output)
    }
}
