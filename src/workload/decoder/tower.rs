//! The vision tower beside a language model, and the projector of its output (Gemma 3, Mistral 3). A model that is trained on
//! text alone has their weights in memory, but does not run them; they get no gradients and no optimizer state.

use serde::Deserialize;
use serde::de::IgnoredAny;
use vramlab_train::{Context, OpResult};

use super::super::bounds::{Extent, Repeats};
use super::super::lora::Lora;
use super::super::parameters::Parameters;
use super::names::Names;
use super::pixtral::Pixtral;
use super::siglip::Siglip;
use super::sizes::{DecoderSizes, PixtralSizes, TowerKind, TowerSizes};
use super::style::Style;

/// The keys of a `config.json` beside its `text_config`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct TowerKeys {
    vision_config: Option<VisionKeys>,
    /// Patches of each side that are merged into one (Mistral 3).
    spatial_merge_size: Option<Extent>,
    multimodal_projector_bias: Option<bool>,
    /// One layer, or a list of them.
    vision_feature_layer: Option<Features>,
    /// Part of a projector that is not run.
    #[serde(rename = "projector_hidden_act")]
    _activation: Option<IgnoredAny>,
    /// Only read by programs that prepare texts with images.
    #[serde(rename = "mm_tokens_per_image")]
    _tokens: Option<IgnoredAny>,
    #[serde(rename = "boi_token_index")]
    _begin: Option<IgnoredAny>,
    #[serde(rename = "eoi_token_index")]
    _end: Option<IgnoredAny>,
    #[serde(rename = "image_token_index", alias = "image_token_id")]
    _image: Option<IgnoredAny>,
}

/// The layers of a tower whose output is projected.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Features {
    One(i64),
    Several(Vec<i64>),
}

/// The keys of a `vision_config`; missing ones have the defaults of `SiglipVisionConfig` or `PixtralVisionConfig`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct VisionKeys {
    model_type: Option<String>,
    hidden_size: Option<Extent>,
    intermediate_size: Option<Extent>,
    num_hidden_layers: Option<Repeats>,
    num_attention_heads: Option<Extent>,
    num_channels: Option<Extent>,
    image_size: Option<Extent>,
    patch_size: Option<Extent>,
    vision_use_head: Option<bool>,
}

impl TowerKeys {
    /// The supported files with a tower: their `model_type`, and that of the tower.
    const KNOWN: [(&str, &str); 2] = [("gemma3", "siglip_vision_model"), ("mistral3", "pixtral")];

    /// Files with a tower that `AutoModelForCausalLM` leaves out: it makes the language model alone.
    const LEFT_OUT: &str = "llama4";

    /// Whether files of a `model_type` have a supported tower, or one that is left out.
    pub fn knows(model_type: &str) -> bool {
        model_type == Self::LEFT_OUT || Self::KNOWN.iter().any(|(known, _)| *known == model_type)
    }

    /// The language model of these sizes with the tower of a `model_type`, unless that is left out; `tied` is the file's key for its head.
    pub fn beside(&self, model_type: &str, text: DecoderSizes, tied: Option<bool>) -> Result<DecoderSizes, String> {
        if model_type == Self::LEFT_OUT {
            return Ok(text);
        }
        let style = Style { names: Names::BESIDE_TOWER, ..text.style };
        Ok(DecoderSizes { tower: Some(self.sizes(model_type)?), tied: tied.unwrap_or(true), style, ..text })
    }

    fn sizes(&self, model_type: &str) -> Result<TowerSizes, String> {
        let keys = self.vision_config.clone().unwrap_or_default();
        let own = Self::KNOWN.iter().find(|(known, _)| *known == model_type).map_or("none", |(_, own)| own);
        if let Some(other) = keys.model_type.as_deref().filter(|kind| *kind != own) {
            return Err(format!("a vision tower of type '{other}' is not there; there is {own}"));
        }
        let size = |given: Option<Extent>, own| given.map_or(own, Extent::get);
        let layers = |own| keys.num_hidden_layers.map_or(own, Repeats::get);
        let channels = size(keys.num_channels, 3);
        if own == "pixtral" {
            let (width, heads) = (size(keys.hidden_size, 1024), size(keys.num_attention_heads, 16));
            let kind = TowerKind::Pixtral(PixtralSizes {
                frequencies: width / heads / 2,
                merged: size(self.spatial_merge_size, 2).saturating_pow(2),
                biased: self.multimodal_projector_bias == Some(true),
                features: match &self.vision_feature_layer {
                    Some(Features::Several(layers)) => layers.len(),
                    _ => 1,
                },
            });
            let hidden = size(keys.intermediate_size, 4096);
            return Ok(TowerSizes {
                kind,
                width,
                hidden,
                layers: layers(24),
                channels,
                patch: size(keys.patch_size, 16),
            });
        }
        if keys.vision_use_head != Some(false) {
            return Err("vision_use_head is on unless a file says otherwise, which is not there; give false".to_owned());
        }
        let (image, patch) = (size(keys.image_size, 224), size(keys.patch_size, 16));
        Ok(TowerSizes {
            kind: TowerKind::Siglip { positions: (image / patch).saturating_pow(2) },
            width: size(keys.hidden_size, 768),
            hidden: size(keys.intermediate_size, 3072),
            layers: layers(12),
            channels,
            patch,
        })
    }
}

/// A tower and its projector.
pub(super) enum Tower {
    Siglip(Siglip),
    Pixtral(Box<Pixtral>),
}

impl Tower {
    /// Makes the tower and the projector, before the language model of this `width`.
    pub fn make(cx: &mut Context, all: &mut Parameters, sizes: &TowerSizes, width: usize) -> OpResult<Self> {
        Ok(match sizes.kind {
            TowerKind::Siglip { positions } => Self::Siglip(Siglip::make(cx, all, (sizes, positions), width)?),
            TowerKind::Pixtral(own) => Self::Pixtral(Box::new(Pixtral::make(cx, all, (sizes, own), width)?)),
        })
    }

    /// Tensors that are not in the file come to the device after those that are.
    pub fn loaded(&self, cx: &mut Context) -> OpResult<()> {
        match self {
            Self::Siglip(tower) => tower.loaded(cx),
            Self::Pixtral(tower) => tower.loaded(cx),
        }
    }

    /// Puts adapters on its layers: peft does so for every module with a target's name.
    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, lora: Lora) -> OpResult<()> {
        match self {
            Self::Siglip(tower) => tower.adapt(cx, all, lora),
            Self::Pixtral(tower) => tower.adapt(cx, all, lora),
        }
    }
}
