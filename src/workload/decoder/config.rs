//! A model described by a `config.json` of Hugging Face.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use vramlab_device::DType;

use super::super::bounds::{Extent, Repeats};
use super::super::quantization::{BitsAndBytesConfig, Quantization};
use super::super::unread::Unread;
use super::dropout_keys::DropoutKeys;
use super::expert_keys::ExpertKeys;
use super::falcon::FalconKeys;
use super::family::{EpsKey, Family, HiddenRule};
use super::gpt2::Gpt2Keys;
use super::granite4::Granite4Keys;
use super::harmless::HARMLESS;
use super::latent_keys::LatentKeys;
use super::llama4::Llama4Keys;
use super::multiplier_keys::MultiplierKeys;
use super::opt::OptKeys;
use super::pattern::LayerPattern;
use super::rope::{Rope, RopeKeys};
use super::sizes::{DecoderSizes, SlidingWindows, SoftCaps};
use super::style::{Biases, HeadNorms, MlpActivation, NormPlaces, Rotation, Style};
use super::tower::TowerKeys;
use super::windows::{WindowKeys, given};

/// A `config.json`: keys are Hugging Face's, and so are the values of missing keys.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ModelConfig {
    /// The family: `llama`.
    pub model_type: String,
    /// The language model's own keys, if there is a vision tower too.
    text_config: Option<Box<Self>>,
    hidden_size: Option<Extent>,
    intermediate_size: Option<Extent>,
    num_hidden_layers: Option<Repeats>,
    num_attention_heads: Option<Extent>,
    num_key_value_heads: Option<Extent>,
    head_dim: Option<Extent>,
    vocab_size: Option<Extent>,
    tie_word_embeddings: Option<bool>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    /// GPT-NeoX's keys for `rope_theta` and for the rotated part of a head.
    rotary_emb_base: Option<f64>,
    rotary_pct: Option<f64>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>,
    max_position_embeddings: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    /// Of attention and MLP alike (ERNIE 4.5).
    use_bias: Option<bool>,
    /// The bias of the output, if `attention_bias` does not cover it (Seed-OSS).
    attention_out_bias: Option<bool>,
    use_parallel_residual: Option<bool>,
    /// Biases of queries, keys and values (StableLM).
    use_qkv_bias: Option<bool>,
    /// StarCoder 2's key for `rms_norm_eps`.
    norm_epsilon: Option<f64>,
    /// Nemotron's key for the same.
    norm_eps: Option<f64>,
    hidden_activation: Option<String>,
    query_pre_attn_scalar: Option<f64>,
    /// The key is there, perhaps with `null`.
    #[serde(default, deserialize_with = "given")]
    pad_token_id: Option<Option<i64>>,
    /// The bound on queries, keys and values.
    clip_qkv: Option<f64>,
    /// The key is there, perhaps with `null`, which is no bound; so is the next.
    #[serde(default, deserialize_with = "given")]
    attn_logit_softcapping: Option<Option<f64>>,
    #[serde(default, deserialize_with = "given")]
    final_logit_softcapping: Option<Option<f64>>,
    rope_local_base_freq: Option<f64>,
    partial_rotary_factor: Option<f64>,
    /// Biases of queries, keys and values (Qwen1.5-MoE).
    qkv_bias: Option<bool>,
    layer_norm_eps: Option<f64>,
    logit_scale: Option<f64>,
    use_qk_norm: Option<bool>,
    /// Norms of heads; StableLM has a weight for each.
    qk_layernorm: Option<bool>,
    /// The type of its weights: `bfloat16`, `float16` or `float32`.
    #[serde(alias = "torch_dtype")]
    pub dtype: Option<String>,
    quantization_config: Option<BitsAndBytesConfig>,
    #[serde(flatten)]
    dropouts: DropoutKeys,
    #[serde(flatten)]
    multipliers: MultiplierKeys,
    #[serde(flatten)]
    windows: WindowKeys,
    #[serde(flatten)]
    experts: ExpertKeys,
    #[serde(flatten)]
    granite4: Granite4Keys,
    #[serde(flatten)]
    tower: TowerKeys,
    #[serde(flatten)]
    gpt2: Gpt2Keys,
    #[serde(flatten)]
    opt: OptKeys,
    #[serde(flatten)]
    falcon: FalconKeys,
    #[serde(flatten)]
    latent: LatentKeys,
    #[serde(flatten)]
    llama4: Llama4Keys,
    #[serde(flatten)]
    rest: BTreeMap<String, Unread>,
}

impl ModelConfig {
    /// The sizes of the model for samples of `seq` positions; `layers` and `vocab` replace the file's own.
    ///
    /// # Errors
    /// A sentence: the key that asks for something unsupported, and the values it may have.
    pub fn sizes(&self, seq: Extent, layers: Option<Repeats>, vocab: Option<Extent>) -> Result<DecoderSizes, String> {
        let family = self.family()?;
        if let Some(text) = &self.text_config {
            self.refuse_unread(family, None)?;
            let text = text.sizes(seq, layers, vocab)?;
            let sizes = self.tower.beside(&self.model_type, text, self.tie_word_embeddings)?;
            return Ok(DecoderSizes {
                weights: if self.dtype.is_some() { self.weights()? } else { sizes.weights },
                ..sizes
            });
        }
        self.refuse_what_is_not_there(family)?;
        let positions = self.learned_positions();
        if let (Some(most), Some(own)) = (positions, family.positions)
            && seq.get() > most
        {
            let (key, given) = (own.key, seq.get());
            return Err(format!("{key} is {most}, and samples have {given}; use --seq {most} at most"));
        }
        let heads = needed("num_attention_heads", self.num_attention_heads.or(self.gpt2.n_head), family.heads)?;
        let width = self.width()?;
        if let Some([key, of_heads]) = family.divided.filter(|_| !width.is_multiple_of(heads)) {
            return Err(format!("{key} is {width}, which {heads} heads do not divide; use a multiple of {of_heads}"));
        }
        let unrotated = self.llama4.unrotated(family, self.layers()?)?;
        let windows = self.windows.windows(family, self.layers()?, unrotated)?;
        let unrotated = if family.turns_in_windows && (self.windows.are_given() || windows != SlidingWindows::NONE) {
            let layers: Vec<_> = (0..self.layers()?).map(|layer| !windows.has(layer)).collect();
            LayerPattern::under("layer_types", &layers)?
        } else {
            unrotated
        };
        let rotations = self.rotations(family);
        let latent = self.latent.sizes(family);
        let (head_size, rotated) = match latent {
            // A key for the size of heads is not read.
            Some((latent, rotated)) => (latent.plain + rotated, rotated),
            None => {
                let size = self.head_dim.map_or(family.head_size.unwrap_or(width / heads), Extent::get);
                (size, rotations.rotated(family, size)?)
            }
        };
        if !rotated.is_multiple_of(2) && latent.is_some() {
            return Err(format!("qk_rope_head_dim is {rotated}; use an even number"));
        }
        Ok(DecoderSizes {
            vocab: needed("vocab_size", vocab.or(self.vocab_size), family.vocab)?,
            width,
            hidden: self.hidden(family)?,
            layers: layers.map_or_else(|| self.layers(), |layers| Ok(layers.get()))?,
            heads,
            kv_heads: match family.name {
                "falcon" => self.falcon.kv_heads(heads)?,
                // Keys and values of all heads are expanded.
                _ if latent.is_some() => heads,
                _ => self.num_key_value_heads.map_or(family.kv_heads.unwrap_or(heads), Extent::get),
            },
            head_size,
            latent: latent.map(|(sizes, _)| sizes),
            rotated: (rotated < head_size).then_some(rotated),
            tied: self.tie_word_embeddings.unwrap_or(family.tied),
            eps: self.eps(family),
            theta: rotations.theta(family),
            scaling: rotations.scaling(family, rotated)?,
            local_theta: rotations.local_theta(family),
            positions,
            position_scale: rotations.position_scale(family)?.or(self.llama4.position_scale(family)),
            unrotated,
            seq: seq.get(),
            weights: self.weights()?,
            style: self.style(family),
            padding: self.padding(family),
            clip: self.clip_qkv,
            query_scalar: self
                .query_pre_attn_scalar
                .or(family.own_keys.contains(&"query_pre_attn_scalar").then_some(256.0))
                .or(latent.map(|_| head_size as f64 / rotations.product_scale().powi(2))),
            caps: SoftCaps {
                scores: self.attn_logit_softcapping.unwrap_or(family.caps.scores),
                logits: self.final_logit_softcapping.unwrap_or(family.caps.logits),
            },
            logit_scale: family.own_keys.contains(&"logit_scale").then(|| self.logit_scale.unwrap_or(0.0625)),
            dropouts: self.dropouts.shares(family)?,
            multipliers: self.multipliers.multipliers(family),
            windows,
            experts: self.experts.sizes(
                family,
                self.layers()?,
                || match family.hidden {
                    HiddenRule::IntermediateSizeMlp => needed("intermediate_size", self.intermediate_size, Some(8192)),
                    _ => self.hidden(family),
                },
                self.granite4.beside_experts(),
            )?,
            tower: None,
            lora: None,
        })
    }

    /// Whether its attention has sinks or a bias of positions, which transformers only supports op by op: no SDPA kernel takes them.
    #[must_use]
    pub fn attends_eagerly(&self) -> bool {
        self.family().is_ok_and(|family| family.style.sinks || family.style.alibi)
    }

    /// The number of positions with learned embeddings, if the model has them.
    #[must_use]
    pub fn learned_positions(&self) -> Option<usize> {
        let own = self.family().ok()?.positions?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positions of a sample")]
        let given = self.max_position_embeddings.map(|most| most as usize);
        Some(self.gpt2.n_positions.map(Extent::get).or(given).unwrap_or(own.most))
    }

    /// The token whose embedding gets no gradient.
    fn padding(&self, family: &Family) -> Option<usize> {
        let token = self.pad_token_id.unwrap_or(family.padding).filter(|_| !family.trains_padding);
        token.and_then(|token| usize::try_from(token).ok())
    }

    fn width(&self) -> Result<usize, String> {
        needed("hidden_size", self.hidden_size.or(self.gpt2.n_embd).or(self.gpt2.n_embed), None)
    }

    fn hidden(&self, family: &Family) -> Result<usize, String> {
        match family.hidden {
            HiddenRule::IntermediateSize => needed("intermediate_size", self.intermediate_size, None),
            HiddenRule::IntermediateSizeMlp => Ok(self.llama4.hidden()),
            HiddenRule::FfnDim => needed("ffn_dim", self.opt.ffn_dim, None),
            HiddenRule::SharedIntermediateSize => Ok(self.granite4.hidden()),
            HiddenRule::FourTimesWidth => {
                let given = self.gpt2.n_inner.or(self.falcon.ffn_hidden_size).map(Extent::get);
                given.map_or_else(|| Ok(4 * self.width()?), Ok)
            }
        }
    }

    fn layers(&self) -> Result<usize, String> {
        let layers = self.num_hidden_layers.or(self.gpt2.n_layer).map(Repeats::get);
        layers.ok_or_else(|| "num_hidden_layers is missing; a config.json has it".to_owned())
    }

    fn family(&self) -> Result<&'static Family, String> {
        // `AutoModelForCausalLM` makes Gemma 3 with its vision tower and Llama 4 without, `AutoModelForImageTextToText` makes
        // Mistral 3 with its own.
        if let Some(text) = &self.text_config {
            if TowerKeys::knows(&self.model_type) {
                return text.family();
            }
            return Err(Self::no_tower(&self.model_type, &text.model_type));
        }
        // The mapping of `AutoConfig`.
        match &*self.model_type {
            "mistral" if self.windows.layer_types.is_some() => Family::named("ministral"),
            name => Family::named(name),
        }
    }

    /// The message for a file of an unsupported family, with any other content.
    #[must_use]
    pub fn unknown_family(text: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Kind {
            model_type: String,
            text_config: Option<Value>,
        }
        let Kind { model_type, text_config } = serde_json::from_str(text).ok()?;
        match text_config {
            Some(text) => (!TowerKeys::knows(&model_type)).then(|| {
                let text = text.get("model_type").and_then(Value::as_str);
                Self::no_tower(&model_type, text.unwrap_or_default())
            }),
            None => Family::named(&model_type).err(),
        }
    }

    /// The message for a family with an unsupported tower, whose `text_config` has type `text`.
    fn no_tower(model_type: &str, text: &str) -> String {
        match Family::named(text) {
            Ok(_) => format!(
                "{model_type} has a vision tower, which is not there; put what its text_config holds into a config.json of its own"
            ),
            Err(_) => format!(
                "{model_type} has a vision tower, which is not there, and its text_config is of no family that is; write the sizes of that \
                 into a config.json of the nearest: {}",
                Family::known()
            ),
        }
    }

    fn eps(&self, family: &Family) -> f64 {
        let given = match family.eps_key {
            EpsKey::RmsNormEps => self.rms_norm_eps,
            EpsKey::LayerNormEps => self.layer_norm_eps,
            EpsKey::LayerNormEpsilon => self.gpt2.layer_norm_epsilon,
            EpsKey::NormEps => self.norm_eps,
            EpsKey::NormEpsilon => self.norm_epsilon,
            EpsKey::Fixed => None,
        };
        given.unwrap_or(family.eps)
    }

    fn style(&self, family: &Family) -> Style {
        let asked = self.use_qk_norm == Some(true) || self.qk_layernorm == Some(true);
        let heads = match family.style.heads {
            HeadNorms::Turned => HeadNorms::Turned,
            HeadNorms::TurnedSquare if self.use_qk_norm == Some(false) => HeadNorms::None,
            own => {
                if asked {
                    family.asked_norms
                } else {
                    own
                }
            }
        };
        let (on, meant) = family.attention_bias;
        let everywhere = self.use_bias.unwrap_or(family.biased);
        // Qwen2 always has its own biases.
        let biases = match family.style.biases {
            Biases::Inputs if self.qkv_bias == Some(false) => Biases::None,
            Biases::None if everywhere => Biases::All,
            Biases::None if self.use_qkv_bias == Some(true) => Biases::Inputs,
            Biases::None if self.attention_bias.unwrap_or(on) && self.attention_out_bias == Some(true) => Biases::All,
            Biases::None if self.attention_bias.unwrap_or(on) => meant,
            own => own,
        };
        let mlp_biases = self.mlp_bias == Some(true) || everywhere || family.style.mlp_biases;
        // The first published files of Gemma have this value.
        let asks = family.own_keys.contains(&"gelu") && self.hidden_act.as_deref() == Some("gelu");
        let activation = if asks { MlpActivation::Gelu } else { family.style.activation };
        let places = match family.style.places {
            NormPlaces::Beside if self.use_parallel_residual == Some(false) => NormPlaces::Before,
            NormPlaces::Before if self.use_parallel_residual == Some(true) => NormPlaces::Once,
            own => own,
        };
        let rotation = match family.name {
            "granitemoehybrid" if !self.granite4.rotates() => Rotation::Never,
            _ => family.style.rotation,
        };
        let style = Style { biases, mlp_biases, activation, heads, places, rotation, ..family.style };
        if family.name == "falcon" { self.falcon.style(style) } else { style }
    }

    /// How its linear layers are quantised, where they are.
    ///
    /// # Errors
    /// A sentence: the key of its `quantization_config` that asks for something unsupported.
    pub fn quantization(&self) -> Result<Option<Quantization>, String> {
        let read = self.quantization_config.as_ref().filter(|_| !self.comes_dequantized());
        let quantization = read.map(BitsAndBytesConfig::quantization).transpose();
        quantization.map_err(|why| format!("quantization_config: {why}"))
    }

    /// Files have the experts in MXFP4, or all layers in FP8, which can't be trained: they are loaded in 16 bits
    /// (`Mxfp4Config(dequantize=True)`, `FineGrainedFP8Config(dequantize=True)`).
    fn comes_dequantized(&self) -> bool {
        let packed = self.quantization_config.as_ref().and_then(BitsAndBytesConfig::method);
        packed.is_some() && self.family().is_ok_and(|family| family.dequantized == packed)
    }

    /// The keys about rotations.
    fn rotations(&self, family: &Family) -> RopeKeys<'_> {
        // Other families have the key but don't read it.
        let reads = family.own_keys.contains(&"rotary_pct");
        RopeKeys {
            parameters: self.rope_parameters.as_ref(),
            scaling: self.rope_scaling.as_ref(),
            theta: self.rotary_emb_base.or(self.rope_theta),
            local_theta: self.rope_local_base_freq,
            rotated: self.partial_rotary_factor.or(self.rotary_pct.filter(|_| reads)),
            most: self.max_position_embeddings,
            original: self.original_max_position_embeddings,
        }
    }

    fn weights(&self) -> Result<DType, String> {
        match self.dtype.as_deref() {
            None if self.comes_dequantized() => Ok(DType::Bf16),
            None | Some("float32") => Ok(DType::F32),
            Some("bfloat16") => Ok(DType::Bf16),
            Some("float16") => Ok(DType::F16),
            Some(other) => Err(format!("dtype '{other}' is not there; there are bfloat16, float16 and float32")),
        }
    }

    fn refuse_what_is_not_there(&self, family: &Family) -> Result<(), String> {
        let missing = |key: &str, what: &str| Err(format!("{key} asks for {what}, which is not there; leave it out"));
        let (key, known) = family.activation;
        // Families whose key is another have `hidden_act` too, with any value.
        let given = match key {
            "activation_function" => &self.gpt2.activation_function,
            "activation" => &self.falcon.activation,
            "hidden_activation" => &self.hidden_activation,
            _ => &self.hidden_act,
        };
        let is_there = |act: &str| act == known || family.own_keys.contains(&act);
        if let Some(other) = given.as_deref().filter(|act| !is_there(act)) {
            let name = family.name;
            return Err(format!("the activation '{other}' of {name} is not there; there is {known}"));
        }
        if self.attention_out_bias == Some(true) && self.attention_bias == Some(false) {
            return missing("attention_out_bias", "a bias of the output alone");
        }
        if self.qk_layernorm == Some(true) && !family.own_keys.contains(&"qk_layernorm") {
            return missing("qk_layernorm", "norms of heads");
        }
        if self.rotations(family).rotates_a_part() && !family.own_keys.contains(&"partial_rotary_factor") {
            return missing("partial_rotary_factor", "heads that are rotated in part");
        }
        let own = [
            ("attention_bias", self.attention_bias == Some(true) && family.attention_bias.1 == Biases::None),
            ("attention_out_bias", self.attention_out_bias == Some(true)),
            ("use_parallel_residual", self.use_parallel_residual == Some(true)),
            ("use_qkv_bias", self.use_qkv_bias == Some(true)),
            ("rotary_emb_base", self.rotary_emb_base.is_some()),
            ("norm_epsilon", self.norm_epsilon.is_some()),
            ("norm_eps", self.norm_eps.is_some()),
            ("mlp_bias", self.mlp_bias == Some(true)),
            ("use_bias", self.use_bias == Some(true)),
            ("attention_chunk_size", self.windows.has_chunks()),
            ("layer_norm_eps", self.layer_norm_eps.is_some()),
            ("logit_scale", self.logit_scale.is_some()),
            ("use_qk_norm", self.use_qk_norm == Some(true)),
            ("qkv_bias", self.qkv_bias.is_some()),
            ("clip_qkv", self.clip_qkv.is_some()),
            ("query_pre_attn_scalar", self.query_pre_attn_scalar.is_some()),
            ("rope_local_base_freq", self.rope_local_base_freq.is_some()),
            ("attn_logit_softcapping", self.attn_logit_softcapping.flatten().is_some()),
            ("final_logit_softcapping", self.final_logit_softcapping.flatten().is_some()),
        ];
        let own = own.into_iter().chain(self.dropouts.asked(family)).chain(self.multipliers.asked());
        let own = own.chain(self.experts.asked()).chain(self.gpt2.asked());
        let mut own = own
            .chain(self.opt.asked())
            .chain(self.falcon.asked())
            .chain(self.latent.asked())
            .chain(self.llama4.asked());
        if let Some((key, _)) =
            own.find(|(key, asks)| *asks && !family.own_keys.contains(key) && !family.harmless.contains(key))
        {
            return Err(format!("{key} asks for something that {} does not have; leave it out", family.name));
        }
        if family.name == "granitemoehybrid" {
            self.granite4.refuse_what_is_not_there(self.windows.layer_types.as_deref(), self.experts.are_none())?;
        }
        let missing = match family.name {
            "gpt2" => self.gpt2.missing(),
            "falcon" => self.falcon.missing(),
            "deepseek_v2" | "deepseek_v3" => self.latent.missing(),
            "opt" => self.opt.missing(self.width()?),
            _ => None,
        };
        self.refuse_unread(family, missing)
    }

    /// Refuses a key that is `missing` here, or a key that is not read but would change the model.
    fn refuse_unread(&self, family: &Family, missing: Option<&str>) -> Result<(), String> {
        let harmless = |key: &str| HARMLESS.contains(&key) || family.harmless.contains(&key);
        let asks = |(key, value): &(&String, &Unread)| !harmless(key) && !value.is_off();
        match missing.or_else(|| self.rest.iter().find(asks).map(|(key, _)| key.as_str())) {
            Some(key) => Err(format!("{key} asks for something that is not there; leave it out")),
            None => Ok(()),
        }
    }
}

/// A size, or the family's default if it is left out.
fn needed(key: &str, given: Option<Extent>, own: Option<usize>) -> Result<usize, String> {
    given.map(Extent::get).or(own).ok_or_else(|| format!("{key} is missing; a config.json of this family has it"))
}
