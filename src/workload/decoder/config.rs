//! A model as a `config.json` of Hugging Face describes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use vramlab_device::DType;
use vramlab_train::RouterRule;

use super::super::bounds::{Extent, Repeats};
use super::super::llama::NormKind;
use super::super::quantization::{BitsAndBytesConfig, Quantization};
use super::super::unread::Unread;
use super::family::{FAMILIES, Family, OwnExperts, Windows};
use super::gpt2::Gpt2Keys;
use super::harmless::HARMLESS;
use super::names::Names;
use super::pattern::LayerPattern;
use super::rope::{Rope, RopeKeys};
use super::sizes::{
    Biases, DecoderSizes, DropoutPlace, Dropouts, ExpertSizes, Gelu, HeadNorms, Multipliers, NormPlaces,
    SlidingWindows, SoftCaps, Style,
};
use super::tower::TowerKeys;

/// A `config.json`: its keys are Hugging Face's, and so are the values where one is missing.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ModelConfig {
    /// The family: `llama`.
    pub model_type: String,
    /// The language model's own keys, where there is a vision tower beside it.
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
    /// GPT-NeoX's word for the same, and for the part of a head that is rotated.
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
    attention_dropout: Option<f64>,
    /// Of the output, where it is not meant with the others (Seed-OSS).
    attention_out_bias: Option<bool>,
    residual_dropout: Option<f64>,
    embedding_dropout: Option<f64>,
    /// Of both (GPT-NeoX), or of the second alone (StableLM).
    hidden_dropout: Option<f64>,
    /// What GPT-2 and Phi call the other two.
    embd_pdrop: Option<f64>,
    resid_pdrop: Option<f64>,
    use_parallel_residual: Option<bool>,
    /// Of queries, keys and values (StableLM).
    use_qkv_bias: Option<bool>,
    /// What others call `rms_norm_eps` (StarCoder 2).
    norm_epsilon: Option<f64>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    hidden_activation: Option<String>,
    query_pre_attn_scalar: Option<f64>,
    /// Given, and then perhaps as none.
    #[serde(default, deserialize_with = "given")]
    pad_token_id: Option<Option<i64>>,
    /// Queries, keys and values are kept within it.
    clip_qkv: Option<f64>,
    attn_logit_softcapping: Option<f64>,
    final_logit_softcapping: Option<f64>,
    layer_types: Option<Vec<String>>,
    max_window_layers: Option<usize>,
    #[serde(alias = "_sliding_window_pattern")]
    sliding_window_pattern: Option<usize>,
    no_rope_layers: Option<Vec<u8>>,
    no_rope_layer_interval: Option<usize>,
    rope_local_base_freq: Option<f64>,
    partial_rotary_factor: Option<f64>,
    embedding_multiplier: Option<f64>,
    attention_multiplier: Option<f64>,
    residual_multiplier: Option<f64>,
    logits_scaling: Option<f64>,
    /// Of queries, keys and values (Qwen1.5-MoE).
    qkv_bias: Option<bool>,
    layer_norm_eps: Option<f64>,
    logit_scale: Option<f64>,
    use_qk_norm: Option<bool>,
    /// Of heads; StableLM's have a weight each.
    qk_layernorm: Option<bool>,
    num_experts: Option<Extent>,
    /// Mixtral's word for the same.
    num_local_experts: Option<Extent>,
    num_experts_per_tok: Option<Extent>,
    moe_intermediate_size: Option<Extent>,
    shared_expert_intermediate_size: Option<Extent>,
    norm_topk_prob: Option<bool>,
    decoder_sparse_step: Option<usize>,
    mlp_only_layers: Option<Vec<usize>>,
    /// The type of its weights: `bfloat16`, `float16` or `float32`.
    #[serde(alias = "torch_dtype")]
    pub dtype: Option<String>,
    quantization_config: Option<BitsAndBytesConfig>,
    #[serde(flatten)]
    tower: TowerKeys,
    #[serde(flatten)]
    gpt2: Gpt2Keys,
    #[serde(flatten)]
    rest: BTreeMap<String, Unread>,
}

impl ModelConfig {
    /// The sizes of the model that it describes, for samples of `seq` positions; `layers` and `vocab` replace its own.
    ///
    /// # Errors
    /// A sentence: the key that asks for something that is not there, and what it may be.
    pub fn sizes(&self, seq: Extent, layers: Option<Repeats>, vocab: Option<Extent>) -> Result<DecoderSizes, String> {
        let family = self.family()?;
        if let Some(text) = &self.text_config {
            self.refuse_unread(None)?;
            let sizes = self.tower.beside(text.sizes(seq, layers, vocab)?, self.tie_word_embeddings)?;
            return Ok(DecoderSizes {
                weights: if self.dtype.is_some() { self.weights()? } else { sizes.weights },
                ..sizes
            });
        }
        self.refuse_what_is_not_there(family)?;
        let gemma2 = family.name == "gemma2";
        let positions = self.learned_positions();
        if let Some(most) = positions.filter(|most| seq.get() > *most) {
            return Err(format!("n_positions is {most}, and samples have {}; use --seq {most} at most", seq.get()));
        }
        let heads = needed("num_attention_heads", self.num_attention_heads.or(self.gpt2.n_head), family.heads)?;
        let width = self.width()?;
        if positions.is_some() && !width.is_multiple_of(heads) {
            return Err(format!("n_embd is {width}, which {heads} heads do not divide; use a multiple of n_head"));
        }
        let unrotated = self.unrotated(family)?;
        let windows = self.windows(family, unrotated)?;
        // Cohere 2 rotates where a window is.
        let unrotated = if family.name == "cohere2" {
            let layers = (0..self.layers()?).map(|layer| !windows.has(layer)).collect();
            pattern("layer_types", layers)?
        } else {
            unrotated
        };
        let head_size = self.head_dim.map_or(family.head_size.unwrap_or(width / heads), Extent::get);
        let rotations = self.rotations();
        let rotated = rotations.rotated(family, head_size)?;
        Ok(DecoderSizes {
            vocab: needed("vocab_size", vocab.or(self.vocab_size), family.vocab)?,
            width,
            hidden: match positions {
                Some(_) => self.gpt2.n_inner.map_or(4 * width, Extent::get),
                None => self.hidden()?,
            },
            layers: layers.map_or_else(|| self.layers(), |layers| Ok(layers.get()))?,
            heads,
            kv_heads: self.num_key_value_heads.map_or(family.kv_heads.unwrap_or(heads), Extent::get),
            head_size,
            rotated: (rotated < head_size).then_some(rotated),
            tied: self.tie_word_embeddings.unwrap_or(family.tied),
            eps: self.eps(family),
            theta: rotations.theta(family),
            scaling: rotations.scaling(family, rotated)?,
            local_theta: rotations.local_theta(family),
            positions,
            position_scale: rotations.position_scale(family)?,
            unrotated,
            seq: seq.get(),
            weights: self.weights()?,
            style: self.style(family),
            padding: self.padding(family),
            clip: self.clip_qkv,
            query_scalar: self
                .query_pre_attn_scalar
                .or(family.own_keys.contains(&"query_pre_attn_scalar").then_some(256.0)),
            caps: SoftCaps {
                scores: self.attn_logit_softcapping.or(gemma2.then_some(50.0)),
                logits: self.final_logit_softcapping.or(gemma2.then_some(30.0)),
            },
            logit_scale: family.own_keys.contains(&"logit_scale").then(|| self.logit_scale.unwrap_or(0.0625)),
            dropouts: self.dropouts(family)?,
            multipliers: self.multipliers(family),
            windows,
            experts: self.experts(family)?,
            tower: None,
            lora: None,
        })
    }

    /// Its attention has sinks, which transformers knows op by op alone: no kernel of SDPA has them.
    #[must_use]
    pub fn attends_eagerly(&self) -> bool {
        self.family().is_ok_and(|family| family.style.sinks)
    }

    /// Positions that have embeddings of their own, where they do.
    #[must_use]
    pub fn learned_positions(&self) -> Option<usize> {
        let learned = self.family().is_ok_and(|family| family.style.names == Names::GPT2);
        learned.then(|| self.gpt2.positions(self.max_position_embeddings))
    }

    /// The token whose embedding learns nothing; those of GPT-2 and GPT-NeoX learn all.
    fn padding(&self, family: &Family) -> Option<usize> {
        let all_learn = [Names::GPT2, Names::NEOX].contains(&family.style.names);
        let token = self.pad_token_id.unwrap_or(family.padding).filter(|_| !all_learn);
        token.and_then(|token| usize::try_from(token).ok())
    }

    fn width(&self) -> Result<usize, String> {
        needed("hidden_size", self.hidden_size.or(self.gpt2.n_embd), None)
    }

    fn hidden(&self) -> Result<usize, String> {
        needed("intermediate_size", self.intermediate_size, None)
    }

    fn layers(&self) -> Result<usize, String> {
        let layers = self.num_hidden_layers.or(self.gpt2.n_layer).map(Repeats::get);
        layers.ok_or_else(|| "num_hidden_layers is missing; a config.json has it".to_owned())
    }

    fn family(&self) -> Result<&'static Family, String> {
        // `AutoModelForCausalLM` makes Gemma 3 with its vision tower, and Mistral 3 not at all.
        if let Some(text) = &self.text_config {
            if self.model_type == "gemma3" {
                return text.family();
            }
            return Err(format!(
                "{} has a vision tower, which is not there; put what its text_config holds into a config.json of its own",
                self.model_type
            ));
        }
        // As `AutoConfig` has it.
        let name = match &*self.model_type {
            "mistral" if self.layer_types.is_some() => "ministral",
            name => name,
        };
        FAMILIES.iter().find(|family| family.name == name).ok_or_else(|| {
            let known: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
            format!("model_type '{}' is not there; there are {}", self.model_type, known.join(", "))
        })
    }

    fn eps(&self, family: &Family) -> f64 {
        let given = match family.style.norm {
            NormKind::Bare => None,
            NormKind::Layer if family.style.names == Names::GPT2 => self.gpt2.layer_norm_epsilon,
            NormKind::Layer => self.norm_epsilon.or(self.layer_norm_eps),
            NormKind::Unbiased => self.layer_norm_eps,
            NormKind::Plain | NormKind::Late | NormKind::Centred => self.rms_norm_eps,
        };
        given.unwrap_or(family.eps)
    }

    fn dropouts(&self, family: &Family) -> Result<Dropouts, String> {
        // The first that is given.
        let share = |keys: &[(&str, Option<f64>)], own: f64| {
            let given = keys.iter().find_map(|(key, share)| Some((key, (*share)?)));
            match given {
                Some((key, share)) if !(0.0..1.0).contains(&share) => {
                    Err(format!("{key} is {share}; use a number from 0 on, below 1"))
                }
                given => Ok(given.map_or(own, |(_, share)| share)),
            }
        };
        let hidden = share(&[("hidden_dropout", self.hidden_dropout)], 0.0)?;
        let (place, hidden) = match family.name {
            "gpt_neox" | "phi" => (DropoutPlace::Behind, hidden),
            "stablelm" => (DropoutPlace::BehindMlp, 0.0),
            "gpt2" => (DropoutPlace::Within, family.dropout),
            _ => (DropoutPlace::Within, 0.0),
        };
        let attention = [("attention_dropout", self.attention_dropout), ("attn_pdrop", self.gpt2.attn_pdrop)];
        let embedding = [("embedding_dropout", self.embedding_dropout), ("embd_pdrop", self.embd_pdrop)];
        let residual = [
            ("residual_dropout", self.residual_dropout),
            ("hidden_dropout", self.hidden_dropout),
            ("resid_pdrop", self.resid_pdrop),
        ];
        Ok(Dropouts {
            attention: share(&attention, family.dropout)?,
            embedding: share(&embedding, hidden)?,
            replaces: family.name == "phi",
            residual: share(&residual, family.dropout)?,
            place,
        })
    }

    fn style(&self, family: &Family) -> Style {
        let heads = match (self.use_qk_norm, self.qk_layernorm) {
            (Some(true), _) => HeadNorms::Each,
            (_, Some(true)) if family.name == "phi" => HeadNorms::Each,
            (_, Some(true)) => HeadNorms::Apart,
            _ => family.style.heads,
        };
        let (on, meant) = family.attention_bias;
        let everywhere = self.use_bias.unwrap_or(family.name == "starcoder2");
        // Qwen2 has its own biases, whatever it says.
        let biases = match family.style.biases {
            Biases::Inputs if self.qkv_bias == Some(false) => Biases::None,
            Biases::None if everywhere => Biases::All,
            Biases::None if self.use_qkv_bias == Some(true) => Biases::Inputs,
            Biases::None if self.attention_bias.unwrap_or(on) && self.attention_out_bias == Some(true) => Biases::All,
            Biases::None if self.attention_bias.unwrap_or(on) => meant,
            own => own,
        };
        let mlp_biases = self.mlp_bias == Some(true) || everywhere || family.style.mlp_biases;
        // Gemma's files of the first day say so.
        let asks = family.own_keys.contains(&"gelu") && self.hidden_act.as_deref() == Some("gelu");
        let gelu = if asks { Gelu::Exact } else { family.style.gelu };
        let places = match family.style.places {
            NormPlaces::Beside if self.use_parallel_residual == Some(false) => NormPlaces::Before,
            NormPlaces::Before if self.use_parallel_residual == Some(true) => NormPlaces::Once,
            own => own,
        };
        Style { biases, mlp_biases, gelu, heads, places, ..family.style }
    }

    fn multipliers(&self, family: &Family) -> Option<Multipliers> {
        family.own_keys.contains(&"residual_multiplier").then(|| Multipliers {
            embedding: self.embedding_multiplier.unwrap_or(1.0),
            attention: self.attention_multiplier.unwrap_or(1.0),
            residual: self.residual_multiplier.unwrap_or(1.0),
            logits: self.logits_scaling.unwrap_or(1.0),
        })
    }

    /// The experts of its layers.
    fn experts(&self, family: &Family) -> Result<Option<ExpertSizes>, String> {
        let Some(own) = family.experts else { return Ok(None) };
        let count = self.num_experts.or(self.num_local_experts).map_or(own.count, Extent::get);
        let chosen = self.num_experts_per_tok.map_or(own.chosen, Extent::get);
        if chosen > count {
            return Err(format!("num_experts_per_tok is {chosen} of {count} experts; use {count} at most"));
        }
        let hidden = match own.hidden {
            Some(own) => self.moe_intermediate_size.map_or(own, Extent::get),
            None => self.hidden()?,
        };
        let normalises = own.normalises || self.norm_topk_prob == Some(true);
        let dense = self.mlp_only_layers.as_deref().unwrap_or_default();
        let step = self.decoder_sparse_step.unwrap_or(1).max(1);
        let sparse = |layer: usize| !dense.contains(&layer) && (layer + 1).is_multiple_of(step);
        let layers = pattern("mlp_only_layers", (0..self.layers()?).map(sparse).collect())?;
        let rule = RouterRule { chosen, normalises, narrows: own.narrows, of_chosen: own.clamped };
        let shared = own.shared.map(|own| self.shared_expert_intermediate_size.map_or(own, Extent::get));
        let OwnExperts { router_first, clamped, .. } = own;
        Ok(Some(ExpertSizes { count, hidden, rule, router_first, shared, clamped, layers }))
    }

    /// The layers whose queries and keys are not rotated.
    fn unrotated(&self, family: &Family) -> Result<LayerPattern, String> {
        if !family.own_keys.contains(&"no_rope_layers") {
            return Ok(LayerPattern::NONE);
        }
        // A 1 in the list is a layer that is rotated.
        let layers = match &self.no_rope_layers {
            Some(layers) => layers.iter().map(|&rotated| rotated == 0).collect(),
            None => {
                let interval = self.no_rope_layer_interval.unwrap_or(4).max(1);
                (1..=self.layers()?).map(|layer| layer.is_multiple_of(interval)).collect()
            }
        };
        pattern("no_rope_layers", layers)
    }

    /// How its linear layers are quantised, where they are.
    ///
    /// # Errors
    /// A sentence: the key of its `quantization_config` that asks for something that is not there.
    pub fn quantization(&self) -> Result<Option<Quantization>, String> {
        let read = self.quantization_config.as_ref().filter(|_| !self.comes_dequantized());
        let quantization = read.map(BitsAndBytesConfig::quantization).transpose();
        quantization.map_err(|why| format!("quantization_config: {why}"))
    }

    /// Files have its experts in MXFP4, in which nothing is trained: it is loaded in 16 bits (`Mxfp4Config(dequantize=True)`).
    fn comes_dequantized(&self) -> bool {
        let packed = self.quantization_config.as_ref().is_some_and(BitsAndBytesConfig::is_mxfp4);
        packed && self.family().is_ok_and(|family| family.name == "gpt_oss")
    }

    fn windows(&self, family: &Family, unrotated: LayerPattern) -> Result<SlidingWindows, String> {
        let asked = self.use_sliding_window == Some(true);
        let wanted = self.sliding_window.filter(|_| asked);
        let window = match family.windows {
            Windows::Never => None,
            Windows::All => return Ok(self.sliding_window.map_or(SlidingWindows::NONE, SlidingWindows::every)),
            Windows::AllWhereAsked => {
                let window = asked.then(|| self.sliding_window.unwrap_or(4096));
                return Ok(window.map_or(SlidingWindows::NONE, SlidingWindows::every));
            }
            Windows::AllButEvery(_) if family.style.sinks => Some(self.sliding_window.unwrap_or(128)),
            Windows::AllButEvery(_) | Windows::AllOrListed => Some(self.sliding_window.unwrap_or(4096)),
            Windows::Early => Some(if asked { self.sliding_window.unwrap_or(4096) } else { 0 }),
            Windows::Late | Windows::Unrotated => wanted,
        };
        let Some(window) = window else { return Ok(SlidingWindows::NONE) };
        let layers = match (&self.layer_types, family.windows) {
            (Some(types), _) => types.iter().map(|kind| has_window(kind)).collect::<Result<_, _>>()?,
            (None, Windows::AllButEvery(own)) => {
                // Gemma 3 alone reads another.
                let reads = family.own_keys.contains(&"sliding_window_pattern");
                let every = self.sliding_window_pattern.filter(|_| reads).unwrap_or(own).max(1);
                (1..=self.layers()?).map(|layer| !layer.is_multiple_of(every)).collect()
            }
            (None, Windows::AllOrListed) => vec![true],
            (None, Windows::Early) => {
                let most = self.max_window_layers.unwrap_or(28);
                let has = |layer: usize| asked && layer.is_multiple_of(2) && layer < most;
                (0..self.layers()?).map(has).collect()
            }
            (None, Windows::Late) => {
                (0..self.layers()?).map(|layer| layer >= self.max_window_layers.unwrap_or(28)).collect()
            }
            (None, _) => (0..self.layers()?).map(|layer| unrotated.has(layer)).collect(),
        };
        let layers = pattern("layer_types", layers)?;
        // Where no layer has one, some families make no mask for them.
        let always = matches!(family.windows, Windows::AllButEvery(_) | Windows::AllOrListed | Windows::Early);
        let some = SlidingWindows::some(window, layers);
        Ok(match layers {
            LayerPattern::NONE if !always => SlidingWindows::NONE,
            _ if always => some.with_both_masks(),
            _ => some,
        })
    }

    /// What it says of rotations.
    fn rotations(&self) -> RopeKeys<'_> {
        // Others have the key and do not read it.
        let reads = self.model_type == "gpt_neox";
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
        // The older key of Gemma 2 and 3 says something else and is not read.
        let newer = family.own_keys.contains(&"hidden_activation");
        let given = match family.name {
            "gpt2" => &self.gpt2.activation_function,
            _ if newer => &self.hidden_activation,
            _ => &self.hidden_act,
        };
        let known = |act: &str| act == family.activation || family.own_keys.contains(&act);
        if let Some(other) = given.as_deref().filter(|act| !known(act)) {
            return Err(format!(
                "the activation '{other}' of {} is not there; there is {}",
                family.name, family.activation
            ));
        }
        if self.attention_out_bias == Some(true) && self.attention_bias == Some(false) {
            return missing("attention_out_bias", "a bias of the output alone");
        }
        if self.qk_layernorm == Some(true) && !family.own_keys.contains(&"qk_layernorm") {
            return missing("qk_layernorm", "norms of heads");
        }
        if self.rotations().rotates_a_part() && !family.own_keys.contains(&"partial_rotary_factor") {
            return missing("partial_rotary_factor", "heads that are rotated in part");
        }
        let own = [
            ("attention_bias", self.attention_bias == Some(true) && family.attention_bias.1 == Biases::None),
            ("attention_out_bias", self.attention_out_bias == Some(true)),
            (
                "attention_dropout",
                matches!(family.name, "ernie4_5" | "gpt2") && self.attention_dropout.is_some_and(|share| share != 0.0),
            ),
            ("residual_dropout", self.residual_dropout.is_some_and(|share| share != 0.0)),
            ("embedding_dropout", self.embedding_dropout.is_some_and(|share| share != 0.0)),
            ("hidden_dropout", self.hidden_dropout.is_some_and(|share| share != 0.0)),
            ("embd_pdrop", self.embd_pdrop.is_some_and(|share| share != 0.0)),
            ("resid_pdrop", self.resid_pdrop.is_some_and(|share| share != 0.0)),
            ("use_parallel_residual", self.use_parallel_residual == Some(true)),
            ("use_qkv_bias", self.use_qkv_bias == Some(true)),
            ("rotary_emb_base", self.rotary_emb_base.is_some()),
            ("norm_epsilon", self.norm_epsilon.is_some()),
            ("mlp_bias", self.mlp_bias == Some(true)),
            ("use_bias", self.use_bias == Some(true)),
            ("embedding_multiplier", self.embedding_multiplier.is_some()),
            ("attention_multiplier", self.attention_multiplier.is_some()),
            ("residual_multiplier", self.residual_multiplier.is_some()),
            ("logits_scaling", self.logits_scaling.is_some()),
            ("no_rope_layers", self.no_rope_layers.is_some()),
            ("num_experts", self.num_experts.is_some()),
            ("num_local_experts", self.num_local_experts.is_some()),
            ("num_experts_per_tok", self.num_experts_per_tok.is_some()),
            ("moe_intermediate_size", self.moe_intermediate_size.is_some()),
            ("layer_norm_eps", self.layer_norm_eps.is_some()),
            ("logit_scale", self.logit_scale.is_some()),
            ("use_qk_norm", self.use_qk_norm == Some(true)),
            ("qkv_bias", self.qkv_bias.is_some()),
            ("shared_expert_intermediate_size", self.shared_expert_intermediate_size.is_some()),
            ("norm_topk_prob", self.norm_topk_prob.is_some()),
            ("decoder_sparse_step", self.decoder_sparse_step.is_some()),
            ("mlp_only_layers", self.mlp_only_layers.as_ref().is_some_and(|layers| !layers.is_empty())),
            ("clip_qkv", self.clip_qkv.is_some()),
            ("query_pre_attn_scalar", self.query_pre_attn_scalar.is_some()),
            ("rope_local_base_freq", self.rope_local_base_freq.is_some()),
            ("attn_logit_softcapping", self.attn_logit_softcapping.is_some()),
            ("final_logit_softcapping", self.final_logit_softcapping.is_some()),
        ];
        let mut own = own.into_iter().chain(self.gpt2.asked());
        if let Some((key, _)) = own.find(|(key, asks)| *asks && !family.own_keys.contains(key)) {
            return Err(format!("{key} asks for something that {} does not have; leave it out", family.name));
        }
        self.refuse_unread(self.gpt2.missing().filter(|_| family.name == "gpt2"))
    }

    /// Refuses a key that is `missing`, or that nobody reads and that says something.
    fn refuse_unread(&self, missing: Option<&str>) -> Result<(), String> {
        let asks = |(key, value): &(&String, &Unread)| !HARMLESS.contains(&key.as_str()) && !value.is_off();
        match missing.or_else(|| self.rest.iter().find(asks).map(|(key, _)| key.as_str())) {
            Some(key) => Err(format!("{key} asks for something that is not there; leave it out")),
            None => Ok(()),
        }
    }
}

/// A size, or the family's where it is left out.
fn needed(key: &str, given: Option<Extent>, own: Option<usize>) -> Result<usize, String> {
    given.map(Extent::get).or(own).ok_or_else(|| format!("{key} is missing; a config.json of this family has it"))
}

/// A key that is there, whatever it says.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Whether layers of a type have a window.
fn has_window(kind: &str) -> Result<bool, String> {
    match kind {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        other => Err(format!(
            "layer_types has '{other}', which is not there; there are full_attention and sliding_attention"
        )),
    }
}

/// A list of layers under a key, as a pattern.
fn pattern(key: &str, layers: Vec<bool>) -> Result<LayerPattern, String> {
    LayerPattern::of(&layers).ok_or_else(|| {
        let most = LayerPattern::LONGEST;
        format!("{key} is a list without a pattern that begins again after {most} layers; use a list that repeats")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sizes::RotaryScaling;
    use super::*;

    /// As `Phi3RotaryEmbedding` of transformers 5.17 has them before and behind the positions first learned.
    #[test]
    fn frequencies_of_longrope_are_those_of_transformers() {
        let mut config = json!({
            "model_type": "phi3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": 512, "max_position_embeddings": 2048, "original_max_position_embeddings": 1024,
            "partial_rotary_factor": 0.75, "rope_scaling": {
                "type": "su", "short_factor": [1.0, 1.05, 1.1, 1.2, 1.35, 1.5], "long_factor": [1.0, 1.25, 2.0, 4.5, 9.0, 18.0],
            },
        });
        let sizes = |config: &serde_json::Value| {
            let config: ModelConfig = serde_json::from_value(config.clone()).unwrap();
            config.sizes(Extent::nearest(64), None, None).unwrap()
        };
        let near = |ours: &[f32], theirs: [f32; 6]| {
            assert!(ours.iter().zip(theirs).all(|(ours, theirs)| (ours / theirs - 1.0).abs() < 1e-6), "{ours:?}");
            assert_eq!(ours.len(), 6);
        };
        let made = sizes(&config);
        assert_eq!(made.rotated, Some(12));
        let short = [1.0, 0.205_184_27, 0.042_196_255, 0.008_333_333, 0.001_595_877_2, 0.000_309_439_32];
        near(&made.frequencies(false), short);
        let Some(RotaryScaling::Long(scaling)) = made.scaling else { panic!("{:?}", made.scaling) };
        let long = [1.0, 0.172_354_76, 0.023_207_942, 0.002_222_222_3, 0.000_239_381_6, 0.000_025_786_61];
        near(&made.divided(&scaling.long), long);
        assert_eq!(scaling.original, 1024);
        assert!((scaling.attention - 1.048_808_848_170_151_6).abs() < 1e-12, "{}", scaling.attention);

        config["rope_scaling"]["attention_factor"] = json!(1.25);
        let Some(RotaryScaling::Long(scaling)) = sizes(&config).scaling else { panic!("{config}") };
        assert_eq!(scaling.attention, 1.25);
    }

    /// As `ROPE_INIT_FUNCTIONS["yarn"]` of transformers 5.17 has them.
    #[test]
    fn frequencies_of_yarn_are_those_of_transformers() {
        let check = |rope: serde_json::Value, theirs: [f32; 8], attention: f64| {
            let config = json!({
                "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                "num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": 32768, "rope_theta": 1e6, "rope_scaling": rope,
            });
            let config: ModelConfig = serde_json::from_value(config).unwrap();
            let made = config.sizes(Extent::nearest(64), None, None).unwrap();
            let ours = made.frequencies(false);
            assert!(ours.iter().zip(theirs).all(|(ours, theirs)| (ours / theirs - 1.0).abs() < 1e-6), "{ours:?}");
            assert_eq!(ours.len(), 8);
            let ours = made.scaling.as_ref().map_or(0.0, RotaryScaling::attention);
            assert!((ours - attention).abs() < 1e-12, "{ours}");
        };
        let theirs =
            [1.0, 0.177_827_94, 0.031_622_78, 0.004_217_56, 5e-4, 4.445_698_5e-5, 7.905_694e-6, 1.405_853_4e-6];
        let rope = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192});
        check(rope, theirs, 1.138_629_436_111_989);
        let theirs =
            [1.0, 0.169_884_46, 0.005_589_444, 3.514_633_3e-4, 6.25e-5, 1.111_424_6e-5, 1.976_423_4e-6, 3.514_633_4e-7];
        let rope = json!({
            "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 512, "beta_fast": 16.0, "beta_slow": 2.0,
            "mscale": 0.707, "mscale_all_dim": 1.0, "truncate": false,
        });
        check(rope, theirs, 0.936_397_506_153_020_4);
    }

    /// As `GptOssConfig` of transformers 5.17 fills in what a file leaves out.
    #[test]
    fn gpt_oss_is_yarn_in_16_bits_unless_a_file_says_otherwise() {
        let mut config = json!({
            "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "quantization_config":
            {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
        });
        let sizes = |config: &serde_json::Value| {
            let config: ModelConfig = serde_json::from_value(config.clone()).unwrap();
            config.sizes(Extent::nearest(64), None, None).unwrap()
        };
        let short = sizes(&config);
        assert_eq!(short.weights, DType::Bf16);
        assert_eq!([0, 1].map(|layer| short.windows.of(layer)), [Some(128), None]);
        config["rope_scaling"] = json!({
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096,
        });
        assert_eq!(short, sizes(&config));
        config["rope_scaling"] = json!({"rope_type": "default"});
        config["dtype"] = json!("float32");
        let plain = sizes(&config);
        assert_eq!((plain.scaling, plain.theta, plain.weights), (None, 150_000.0, DType::F32));
    }

    /// As `ROPE_INIT_FUNCTIONS["dynamic"]` of transformers 5.17 has them for a sample of 100 positions.
    #[test]
    fn frequencies_that_follow_samples_are_those_of_transformers() {
        let config = json!({
            "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": 512, "max_position_embeddings": 32, "rope_scaling": {"type": "dynamic", "factor": 2.0},
        });
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        let made = config.sizes(Extent::nearest(64), None, None).unwrap();
        let Some(RotaryScaling::Dynamic(scaling)) = made.scaling else { panic!("{:?}", made.scaling) };
        let theirs = [
            1.0,
            0.249_528_47,
            0.062_264_454,
            0.015_536_753,
            0.003_876_862_8,
            9.673_875e-4,
            2.413_907_4e-4,
            6.023_386_2e-5,
        ];
        let ours = made.followed(scaling, 100);
        assert!(ours.iter().zip(theirs).all(|(ours, theirs)| (ours / theirs - 1.0_f32).abs() < 1e-6), "{ours:?}");
        assert_eq!(made.frequencies(false)[1], 1.0 / 10_000.0_f32.powf(0.125));
    }
}
