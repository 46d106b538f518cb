//! A model as a `config.json` of Hugging Face describes it.

use std::collections::BTreeMap;

use serde::Deserialize;

use vramlab_device::DType;

use super::super::bounds::{Extent, Repeats};
use super::super::quantization::{BitsAndBytesConfig, Quantization};
use super::super::unread::Unread;
use super::sizes::{DecoderSizes, Llama3Scaling, SlidingWindows, SoftCaps, Style};

/// The families that there are, by `model_type`.
const FAMILIES: [&str; 5] = ["gemma2", "llama", "mistral", "qwen2", "qwen3"];
/// Keys that change neither memory nor arithmetic of a training step.
const HARMLESS: [&str; 30] = [
    "_attn_implementation",
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "auto_map",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "eos_token_id",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "layer_types",
    "max_length",
    "max_position_embeddings",
    "max_window_layers",
    "output_attentions",
    "output_hidden_states",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "rope_interleaved",
    "temperature",
    "tokenizer_class",
    "top_p",
    "transformers_version",
    "unsloth_fixed",
    "use_cache",
];

/// A `config.json`: its keys are Hugging Face's, and so are the values where one is missing.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ModelConfig {
    /// The family: `llama`.
    pub model_type: String,
    hidden_size: Extent,
    intermediate_size: Extent,
    num_hidden_layers: Repeats,
    num_attention_heads: Extent,
    num_key_value_heads: Option<Extent>,
    head_dim: Option<Extent>,
    vocab_size: Extent,
    tie_word_embeddings: Option<bool>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    attention_dropout: Option<f64>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    hidden_activation: Option<String>,
    query_pre_attn_scalar: Option<f64>,
    pad_token_id: Option<i64>,
    attn_logit_softcapping: Option<f64>,
    final_logit_softcapping: Option<f64>,
    /// The type of its weights: `bfloat16` or `float32`.
    #[serde(alias = "torch_dtype")]
    pub dtype: Option<String>,
    quantization_config: Option<BitsAndBytesConfig>,
    #[serde(flatten)]
    rest: BTreeMap<String, Unread>,
}

/// How positions become rotations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Rope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

impl ModelConfig {
    /// The sizes of the model that it describes, for samples of `seq` positions; `layers` and `vocab` replace its own.
    ///
    /// # Errors
    /// A sentence: the key that asks for something that is not there, and what it may be.
    pub fn sizes(&self, seq: Extent, layers: Option<Repeats>, vocab: Option<Extent>) -> Result<DecoderSizes, String> {
        let family = &*self.model_type;
        if !FAMILIES.contains(&family) {
            return Err(format!("model_type '{family}' is not there; there are {}", FAMILIES.join(", ")));
        }
        self.refuse_what_is_not_there()?;
        let gemma = family == "gemma2";
        let heads = self.num_attention_heads.get();
        let own_heads = match family {
            "gemma2" => 4,
            "mistral" => 8,
            "qwen2" | "qwen3" => 32,
            _ => heads,
        };
        let own_size = match family {
            "gemma2" => 256,
            "qwen3" => 128,
            _ => self.hidden_size.get() / heads,
        };
        Ok(DecoderSizes {
            vocab: vocab.unwrap_or(self.vocab_size).get(),
            width: self.hidden_size.get(),
            hidden: self.intermediate_size.get(),
            layers: layers.unwrap_or(self.num_hidden_layers).get(),
            heads,
            kv_heads: self.num_key_value_heads.map_or(own_heads, Extent::get),
            head_size: self.head_dim.map_or(own_size, Extent::get),
            tied: self.tie_word_embeddings.unwrap_or(gemma),
            eps: self.rms_norm_eps.unwrap_or(1e-6),
            theta: self.theta(),
            scaling: self.scaling()?,
            seq: seq.get(),
            weights: self.weights()?,
            style: Style { norms_heads: family == "qwen3", biases: family == "qwen2", gemma },
            padding: self.pad_token_id.or(gemma.then_some(0)).and_then(|token| usize::try_from(token).ok()),
            query_scalar: self.query_pre_attn_scalar.or(gemma.then_some(256.0)),
            caps: SoftCaps {
                scores: self.attn_logit_softcapping.or(gemma.then_some(50.0)),
                logits: self.final_logit_softcapping.or(gemma.then_some(30.0)),
            },
            windows: self.windows(),
            lora: None,
        })
    }

    /// How its linear layers are quantised, where they are.
    ///
    /// # Errors
    /// A sentence: the key of its `quantization_config` that asks for something that is not there.
    pub fn quantization(&self) -> Result<Option<Quantization>, String> {
        let quantization = self.quantization_config.as_ref().map(BitsAndBytesConfig::quantization).transpose();
        quantization.map_err(|why| format!("quantization_config: {why}"))
    }

    fn windows(&self) -> SlidingWindows {
        match (&*self.model_type, self.sliding_window) {
            ("gemma2", window) => SlidingWindows::Alternate(window.unwrap_or(4096)),
            ("mistral", Some(window)) => SlidingWindows::Every(window),
            _ => SlidingWindows::None,
        }
    }

    fn rope(&self) -> impl Iterator<Item = &Rope> {
        self.rope_parameters.iter().chain(&self.rope_scaling)
    }

    fn theta(&self) -> f64 {
        self.rope().find_map(|rope| rope.rope_theta).or(self.rope_theta).unwrap_or(10_000.0)
    }

    fn scaling(&self) -> Result<Option<Llama3Scaling>, String> {
        let Some((rope, kind)) = self.rope().find_map(|rope| Some((rope, rope.rope_type.as_deref()?))) else {
            return Ok(None);
        };
        let need = |value: Option<f64>, key: &str| {
            value.filter(|value| *value > 0.0).ok_or_else(|| format!("rope_type 'llama3' needs a {key} above 0"))
        };
        match kind {
            "default" => Ok(None),
            "llama3" => Ok(Some(Llama3Scaling {
                factor: need(rope.factor, "factor")?,
                low: need(rope.low_freq_factor, "low_freq_factor")?,
                high: need(rope.high_freq_factor, "high_freq_factor")?,
                original: need(rope.original_max_position_embeddings, "original_max_position_embeddings")?,
            })),
            other => Err(format!("rope_type '{other}' is not there; there are default and llama3")),
        }
    }

    fn weights(&self) -> Result<DType, String> {
        match self.dtype.as_deref() {
            None | Some("float32") => Ok(DType::F32),
            Some("bfloat16") => Ok(DType::Bf16),
            Some(other) => Err(format!("dtype '{other}' is not there; there are bfloat16 and float32")),
        }
    }

    fn refuse_what_is_not_there(&self) -> Result<(), String> {
        let missing = |key: &str, what: &str| Err(format!("{key} asks for {what}, which is not there; leave it out"));
        let own = if self.model_type == "gemma2" { "gelu_pytorch_tanh" } else { "silu" };
        // Gemma's older key says something else and is not read.
        let given = if self.model_type == "gemma2" { &self.hidden_activation } else { &self.hidden_act };
        if let Some(other) = given.as_deref().filter(|act| *act != own) {
            return Err(format!("the activation '{other}' of {} is not there; there is {own}", self.model_type));
        }
        if self.attention_bias == Some(true) {
            return missing("attention_bias", "biases of all four projections");
        }
        if self.mlp_bias == Some(true) {
            return missing("mlp_bias", "biases within the MLP");
        }
        if self.attention_dropout.is_some_and(|share| share != 0.0) {
            return missing("attention_dropout", "dropout of attention weights");
        }
        if self.use_sliding_window == Some(true) && self.sliding_window.is_some() {
            return missing("use_sliding_window", "windows of some layers");
        }
        let asks = |(key, value): &(&String, &Unread)| !HARMLESS.contains(&key.as_str()) && !value.is_off();
        match self.rest.iter().find(asks) {
            Some((key, _)) => Err(format!("{key} asks for something that is not there; leave it out")),
            None => Ok(()),
        }
    }
}
