//! LoRA as in peft: a frozen linear layer with two narrow ones beside it, whose product is added.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::base::Base;
use super::bounds::Extent;
use super::dora::{LowRank, Magnitude};
use super::modules::Linear;
use super::parameters::Parameters;
use super::quantization::{Preparation, Quantization};
use super::unread::Unread;
use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, Tensor};

/// A linear layer of a decoder that may have an adapter, by its name in transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The projection to queries.
    Query,
    /// The projection to keys.
    Key,
    /// The projection to values.
    Value,
    /// The projection of attention's output.
    Output,
    /// The MLP's gate.
    Gate,
    /// The MLP's up projection, which the gate is multiplied with.
    Up,
    /// The MLP's down projection.
    Down,
    /// The one projection to queries, keys and values (Phi-3).
    QueryKeyValue,
    /// The one layer for the MLP's gate and up projection (Phi-3).
    GateUp,
    /// The gate of the shared expert (Qwen1.5-MoE).
    SharedGate,
    /// The first layer of an MLP without a gate (StarCoder 2).
    First,
    /// The second layer of such an MLP, and the projection of attention's output if that has the same name (GPT-2).
    Second,
    /// The one projection to queries, keys and values, side by side in each head (GPT-NeoX).
    WholeQueryKeyValue,
    /// The projection of attention's output, under another name (GPT-NeoX).
    Dense,
    /// The first layer of an MLP without a gate, by another name (GPT-NeoX).
    Widening,
    /// The second layer of such an MLP.
    Narrowing,
    /// The one projection to queries, keys and values, by yet another name (GPT-2).
    WholeAttention,
    /// The first layer of an MLP without a gate, by yet another name (Phi).
    Wider,
    /// The second layer of such an MLP.
    Narrower,
    /// The projection of attention's output in a vision tower.
    OutputOfTower,
    /// The one layer for the MLP's gate and up projection, under another name (Granite 4).
    Inner,
    /// The down projection of such an MLP.
    Outer,
    /// The layer that merges neighbouring patches of an image (Mistral 3).
    Merging,
    /// The first layer of the projector of a vision tower's output.
    FirstProjecting,
    /// The second layer of that projector.
    SecondProjecting,
    /// The projection to the latent vector of queries (DeepSeek).
    LatentQuery,
    /// The projection from there to queries.
    FromLatentQuery,
    /// The projection to the latent vector of keys and values.
    Latent,
    /// The projection from there to keys and values.
    FromLatent,
}

impl Target {
    /// All: those of most models in the order in which a layer has them, then those of a few.
    pub const ALL: [Self; 29] = [
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Output,
        Self::Gate,
        Self::Up,
        Self::Down,
        Self::QueryKeyValue,
        Self::GateUp,
        Self::SharedGate,
        Self::First,
        Self::Second,
        Self::WholeQueryKeyValue,
        Self::Dense,
        Self::Widening,
        Self::Narrowing,
        Self::WholeAttention,
        Self::Wider,
        Self::Narrower,
        Self::OutputOfTower,
        Self::Inner,
        Self::Outer,
        Self::Merging,
        Self::FirstProjecting,
        Self::SecondProjecting,
        Self::LatentQuery,
        Self::FromLatentQuery,
        Self::Latent,
        Self::FromLatent,
    ];

    /// Its name in transformers.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Query => "q_proj",
            Self::Key => "k_proj",
            Self::Value => "v_proj",
            Self::Output => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
            Self::QueryKeyValue => "qkv_proj",
            Self::GateUp => "gate_up_proj",
            Self::SharedGate => "shared_expert_gate",
            Self::First => "c_fc",
            Self::Second => "c_proj",
            Self::WholeQueryKeyValue => "query_key_value",
            Self::Dense => "dense",
            Self::Widening => "dense_h_to_4h",
            Self::Narrowing => "dense_4h_to_h",
            Self::WholeAttention => "c_attn",
            Self::Wider => "fc1",
            Self::Narrower => "fc2",
            Self::OutputOfTower => "out_proj",
            Self::Inner => "input_linear",
            Self::Outer => "output_linear",
            Self::Merging => "merging_layer",
            Self::FirstProjecting => "linear_1",
            Self::SecondProjecting => "linear_2",
            Self::LatentQuery => "q_a_proj",
            Self::FromLatentQuery => "q_b_proj",
            Self::Latent => "kv_a_proj_with_mqa",
            Self::FromLatent => "kv_b_proj",
        }
    }
}

/// The layers that get an adapter: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets([bool; Target::ALL.len()]);

impl Targets {
    /// The word for every linear layer but the head.
    pub const ALL_LINEAR: &'static str = "all-linear";

    /// These.
    #[must_use]
    pub fn of<const N: usize>(targets: [Target; N]) -> Self {
        const { assert!(N > 0) };
        Self(Target::ALL.map(|target| targets.contains(&target)))
    }

    /// Whether it is one of them.
    #[must_use]
    pub const fn has(self, target: Target) -> bool {
        self.0[target as usize]
    }

    fn read<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut targets = Self([false; Target::ALL.len()]);
        for word in words {
            if word == Self::ALL_LINEAR {
                return Ok(Self([true; Target::ALL.len()]));
            }
            let Some(target) = Target::ALL.into_iter().find(|target| target.word() == word) else {
                let known = Target::ALL.map(Target::word).join(", ");
                return Err(format!("LoRA has no target '{word}'; use {}, or some of {known}", Self::ALL_LINEAR));
            };
            targets.0[target as usize] = true;
        }
        if targets.0.contains(&true) {
            Ok(targets)
        } else {
            Err("LoRA needs a target; name q_proj, for one".to_owned())
        }
    }
}

impl FromStr for Targets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text.split(',').map(str::trim).filter(|word| !word.is_empty()))
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.contains(&false) {
            return f.write_str(Self::ALL_LINEAR);
        }
        let words: Vec<_> = Target::ALL.into_iter().filter(|target| self.has(*target)).map(Target::word).collect();
        f.write_str(&words.join(","))
    }
}

impl<'de> Deserialize<'de> for Targets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Words {
            One(String),
            Several(Vec<String>),
        }
        let read = match Words::deserialize(deserializer)? {
            Words::One(text) => text.parse(),
            Words::Several(words) => Self::read(words.iter().map(String::as_str)),
        };
        read.map_err(serde::de::Error::custom)
    }
}

/// A dropout rate: at least 0 and below 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Share(f64);

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(share: f64) -> Result<Self, String> {
        if (0.0..1.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(format!("{share} is no share to leave out; choose a number from 0 on, below 1"))
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<f64>().map_err(|_| format!("'{text}' is no number; 0.05 is one"))?.try_into()
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What LoRA trains.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lora {
    /// Rows of an adapter's first matrix, columns of its second.
    pub rank: Extent,
    /// The product of both is multiplied by this divided by the rank; twice the rank by default.
    pub alpha: Option<f64>,
    /// The layers that get an adapter; those that peft chooses for the model if none are named.
    pub targets: Option<Targets>,
    /// The dropout rate of an adapter's input.
    #[serde(default)]
    pub dropout: Share,
    /// The lengths of the rows of adapted weights are trained separately (DoRA).
    #[serde(default)]
    pub dora: bool,
    /// How the frozen linear layers are quantised, if they are (QLoRA).
    #[serde(default, rename = "quantize")]
    pub quantization: Option<Quantization>,
    /// What happens to the layers that are not quantised then.
    #[serde(default)]
    pub prepare: Preparation,
}

impl Lora {
    /// Adapters of this rank at peft's default targets.
    #[must_use]
    pub fn of_rank(rank: Extent) -> Self {
        let (alpha, targets, dropout) = (None, None, Share::default());
        Self { rank, alpha, targets, dropout, dora: false, quantization: None, prepare: Preparation::Kbit }
    }

    /// The same for a model whose default in peft is `own`: these are the targets unless some are named. None if that leaves none.
    #[must_use]
    pub(super) fn of_model(self, own: &[Target]) -> Option<Self> {
        let of_peft = || (!own.is_empty()).then(|| Targets(Target::ALL.map(|target| own.contains(&target))));
        let targets = self.targets.or_else(of_peft)?;
        Some(Self { targets: Some(targets), ..self })
    }

    /// Whether layers of this kind are named as targets.
    #[must_use]
    pub(super) fn names(self, target: Target) -> bool {
        self.targets.is_some_and(|targets| targets.has(target))
    }

    #[expect(clippy::cast_precision_loss, reason = "ranks are small")]
    fn scaling(self) -> f64 {
        let rank = self.rank.get() as f64;
        self.alpha.unwrap_or(2.0 * rank) / rank
    }
}

/// Keys of an `adapter_config.json` that change neither memory nor arithmetic of a training step, first values aside.
const HARMLESS: [&str; 11] = [
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "init_lora_weights",
    "loftq_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// An `adapter_config.json`: keys are peft's, and so are the values of missing keys.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AdapterConfig {
    peft_type: Option<String>,
    r: Option<Extent>,
    lora_alpha: Option<f64>,
    target_modules: Option<Targets>,
    lora_dropout: Option<Share>,
    bias: Option<String>,
    use_rslora: Option<bool>,
    use_dora: Option<bool>,
    rank_pattern: Option<BTreeMap<String, IgnoredAny>>,
    alpha_pattern: Option<BTreeMap<String, IgnoredAny>>,
    #[serde(flatten)]
    rest: BTreeMap<String, Unread>,
}

impl AdapterConfig {
    /// The adapters that it describes.
    ///
    /// # Errors
    /// A sentence: the key that asks for something unsupported.
    #[expect(clippy::cast_precision_loss, reason = "ranks are small")]
    pub fn lora(&self) -> Result<Lora, String> {
        if let Some(other) = self.peft_type.as_deref().filter(|kind| *kind != "LORA") {
            return Err(format!("peft_type '{other}' is not there; there is LORA"));
        }
        let patterns = [("rank_pattern", &self.rank_pattern), ("alpha_pattern", &self.alpha_pattern)];
        let pattern = patterns.iter().find(|(_, pattern)| pattern.as_ref().is_some_and(|pattern| !pattern.is_empty()));
        let biases = self.bias.as_deref().filter(|bias| *bias != "none").map(|_| "bias");
        let asks = |(key, value): &(&String, &Unread)| !HARMLESS.contains(&key.as_str()) && !value.is_off();
        let other = self.rest.iter().find(asks).map(|(key, _)| key.as_str());
        if let Some(key) = pattern.map(|(key, _)| *key).or(biases).or(other) {
            return Err(format!("{key} asks for something that is not there; leave it out"));
        }
        let rank = self.r.unwrap_or(Extent::nearest(8));
        let alpha = self.lora_alpha.unwrap_or(8.0);
        // Scaling by the root of the rank is the same as scaling by the rank with a larger alpha.
        let factor = if self.use_rslora == Some(true) { (rank.get() as f64).sqrt() } else { 1.0 };
        let targets = self.target_modules;
        let dropout = self.lora_dropout.unwrap_or_default();
        let dora = self.use_dora == Some(true);
        Ok(Lora {
            rank,
            alpha: Some(alpha * factor),
            targets,
            dropout,
            dora,
            quantization: None,
            prepare: Preparation::Kbit,
        })
    }
}

/// A linear layer, with an adapter if LoRA targets it: `base(x) + B(A(x)) · scaling` in the type of `base(x)`.
pub(super) struct Adaptable {
    base: Base,
    adapter: Option<Adapter>,
}

/// Two matrices in f32, whatever the type of the layer's weight.
struct Adapter {
    scope: NameId,
    a: Linear,
    b: Linear,
    scaling: f64,
    dropout: f64,
    /// DoRA's magnitudes.
    magnitude: Option<Magnitude>,
}

impl Adaptable {
    /// A layer without a bias, in 4 bits if the model's layers are.
    pub fn plain(cx: &mut Context, all: &mut Parameters, name: &str, ends: [usize; 2]) -> OpResult<Self> {
        let base = Base::plain(cx, all, name, ends)?;
        Ok(Self { base, adapter: None })
    }

    /// The same with a bias.
    pub fn biased(cx: &mut Context, all: &mut Parameters, name: &str, ends: [usize; 2]) -> OpResult<Self> {
        let base = Base::biased(cx, all, name, ends)?;
        Ok(Self { base, adapter: None })
    }

    /// `Conv1D` of transformers in place of a linear layer.
    pub fn conv1d(cx: &mut Context, all: &mut Parameters, name: &str, ends: [usize; 2]) -> OpResult<Self> {
        let base = Base::conv1d(cx, all, name, ends)?;
        Ok(Self { base, adapter: None })
    }

    /// A layer of Falcon's own, without a bias.
    pub fn product(cx: &mut Context, all: &mut Parameters, name: &str, ends: [usize; 2]) -> OpResult<Self> {
        let base = Base::product(cx, all, name, ends)?;
        Ok(Self { base, adapter: None })
    }

    /// Puts an adapter on the layer `name` if `target` is one of the targets of `lora`; like the layer, it gets its
    /// values later.
    pub fn adapt(
        &mut self,
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        lora: Lora,
        target: Target,
    ) -> OpResult<()> {
        if lora.names(target) {
            let name = format!("{name}.{}", target.word());
            let ([outputs, inputs], rank) = (self.base.sizes(), lora.rank.get());
            let mut part = |part: &str, dims: [usize; 2], first| {
                let name = format!("{name}.lora_{part}");
                OpResult::Ok(Linear::tied(cx, &name, all.adapter(cx, &format!("{name}.weight"), &dims, first)?))
            };
            let a = part("A", [rank, inputs], true)?;
            let b = part("B", [outputs, rank], false)?;
            let (scope, dropout, scaling) = (cx.memory().name(&name), lora.dropout.0, lora.scaling());
            let magnitude = if lora.dora {
                let name = format!("{name}.lora_magnitude_vector");
                Some(Magnitude::make(cx, all, &name, &self.base, LowRank { a: &a, b: &b, scaling })?)
            } else {
                None
            };
            self.adapter = Some(Adapter { scope, a, b, scaling, dropout, magnitude });
        }
        Ok(())
    }
}

impl Adapter {
    /// `B(A(x)) · scaling`, in f32 or in autocast's type.
    fn forward(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let high = {
            let low = {
                let x = cx.within(self.scope, |cx| cx.dropout(x, self.dropout))?;
                self.a.forward(cx, &x)?
            };
            self.b.forward(cx, &low)?
        };
        cx.within(self.scope, |cx| cx.scale(&high, self.scaling, "adapter output"))
    }

    /// The sum of a layer's `result` and DoRA's addition.
    fn with_magnitude(
        &self,
        cx: &mut Context,
        magnitude: &Magnitude,
        base: &Base,
        x: &Tensor,
        result: &Tensor,
    ) -> OpResult<Tensor> {
        let drops = cx.drops_out(self.dropout);
        let x = cx.within(self.scope, |cx| cx.dropout(x, self.dropout))?;
        let adapter = LowRank { a: &self.a, b: &self.b, scaling: self.scaling };
        let added = magnitude.forward(cx, &x, base, (!drops).then_some(result), adapter)?;
        cx.within(self.scope, |cx| cx.add(result, &added))
    }

    /// For a layer with an unquantised weight: the sum is cast to the type of the layer's output.
    fn beside_whole(&self, cx: &mut Context, base: &Base, input: &Tensor, result: Tensor) -> OpResult<Tensor> {
        let (scope, dtype) = (self.scope, result.dtype());
        // A variable of the layer's forward: it lives until the forward returns.
        let x = match input.dtype() {
            present if present == self.a.dtype() => input.clone(),
            DType::F16 | DType::Bf16 => cx.within(scope, |cx| cx.cast(input, DType::F32, "adapter input"))?,
            _ => input.clone(),
        };
        let sum = match &self.magnitude {
            Some(magnitude) => self.with_magnitude(cx, magnitude, base, &x, &result)?,
            None => {
                let scaled = self.forward(cx, &x)?;
                cx.within(scope, |cx| cx.add(&result, &scaled))?
            }
        };
        drop(result);
        if sum.dtype() == dtype { Ok(sum) } else { cx.within(scope, |cx| cx.cast(&sum, dtype, "adapted output")) }
    }

    /// For a layer in 4 bits, whose output peft copies first; outside of autocast the addition is cast to its type.
    fn beside_four_bit(&self, cx: &mut Context, base: &Base, input: &Tensor, result: Tensor) -> OpResult<Tensor> {
        let (scope, converts) = (self.scope, !cx.autocasts());
        let result = {
            let copy = cx.within(scope, |cx| cx.clone_of(&result, "copy of the output"))?;
            drop(result);
            copy
        };
        let x = match self.a.dtype() {
            own if converts && input.dtype() != own => cx.within(scope, |cx| cx.cast(input, own, "adapter input"))?,
            _ => input.clone(),
        };
        if let Some(magnitude) = &self.magnitude {
            let sum = self.with_magnitude(cx, magnitude, base, &x, &result)?;
            let dtype = result.dtype();
            drop(result);
            return if converts && sum.dtype() != dtype {
                cx.within(scope, |cx| cx.cast(&sum, dtype, "adapted output"))
            } else {
                Ok(sum)
            };
        }
        let mut scaled = self.forward(cx, &x)?;
        if converts && scaled.dtype() != result.dtype() {
            scaled = cx.within(scope, |cx| cx.cast(&scaled, result.dtype(), "adapter output in the layer's type"))?;
        }
        let sum = cx.within(scope, |cx| cx.add(&result, &scaled))?;
        // The sum replaces the copy in its variable, so the copy is freed first.
        drop(result);
        drop(scaled);
        Ok(sum)
    }
}

impl Repeatable for Adaptable {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let Some(adapter) = &self.adapter else { return self.base.converted_forward(cx, input) };
        let result = self.base.forward(cx, input)?;
        let output = match self.base {
            Base::Whole(_) => adapter.beside_whole(cx, &self.base, input, result)?,
            Base::FourBit(_) => adapter.beside_four_bit(cx, &self.base, input, result)?,
        };
        cx.put_out(adapter.scope, &output);
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_they_are_written() {
        for text in ["q_proj,v_proj", "q_proj,k_proj,v_proj,o_proj", "all-linear", "down_proj"] {
            assert_eq!(text.parse::<Targets>().unwrap().to_string(), text);
        }
        let all = Target::ALL.map(Target::word).join(", ");
        assert_eq!(all.parse::<Targets>().unwrap().to_string(), "all-linear");
        let refused = "q_proj,lm_head".parse::<Targets>().unwrap_err();
        assert_eq!(refused, format!("LoRA has no target 'lm_head'; use all-linear, or some of {all}"));
        assert!(all.starts_with("q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, "), "{all}");
        assert!("".parse::<Targets>().is_err());
    }

    #[test]
    fn an_adapter_config_is_lora_or_a_sentence() {
        let read = |text: &str| -> Result<Lora, String> {
            serde_json::from_str::<AdapterConfig>(text).map_err(|error| error.to_string())?.lora()
        };
        let text = |more: &str| {
            format!(
                r#"{{"peft_type": "LORA", "r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "bias": "none", "task_type": "CAUSAL_LM",
                "target_modules": ["q_proj", "v_proj"], "init_lora_weights": true, "loftq_config": {{}}, "rank_pattern": {{}},
                "modules_to_save": null, "fan_in_fan_out": false, "base_model_name_or_path": "meta-llama/Llama-3.2-1B"{more}}}"#
            )
        };
        let lora = read(&text("")).unwrap();
        let targets = lora.targets.map(|targets| targets.to_string());
        assert_eq!((lora.rank.get(), lora.scaling(), targets.as_deref()), (16, 2.0, Some("q_proj,v_proj")));
        assert_eq!(read(&text(r#", "use_rslora": true"#)).unwrap().scaling(), 8.0);
        assert!(
            read(&text(r#", "use_dora": true"#)).unwrap().dora && !read(&text(r#", "use_dora": false"#)).unwrap().dora
        );
        assert_eq!(read(r#"{"target_modules": "all-linear"}"#).unwrap().targets, Some(Targets::of(Target::ALL)));
        assert_eq!(read("{}").unwrap().targets, None, "the family's own");
        for (more, key) in [
            (r#", "lora_bias": true"#, "lora_bias"),
            (r#", "layers_to_transform": [1]"#, "layers_to_transform"),
            (r#", "alpha_pattern": {"q_proj": 4}"#, "alpha_pattern"),
        ] {
            assert_eq!(read(&text(more)), Err(format!("{key} asks for something that is not there; leave it out")));
        }
        assert_eq!(read(r#"{"lora_dropout": 0.1}"#).unwrap().dropout, Share(0.1));
        assert!(read(r#"{"lora_dropout": 1.0}"#).unwrap_err().starts_with("1 is no share to leave out"));
        assert!(read(r#"{"peft_type": "IA3"}"#).unwrap_err().contains("there is LORA"));
        assert!(read(r#"{"target_modules": ["lm_head"]}"#).unwrap_err().contains("no target 'lm_head'"));
    }
}
