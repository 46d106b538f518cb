//! The vision tower beside a language model, and what projects its output (Gemma 3): a model that is trained on text alone has their weights in
//! memory, runs none of them, and they get no gradients and no state of an optimizer.

use serde::Deserialize;
use serde::de::IgnoredAny;
use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{Context, OpResult, Shape};

use super::super::bounds::{Extent, Repeats};
use super::super::lora::{Adaptable, Lora, Target};
use super::super::parameters::Parameters;
use super::names::Names;
use super::sizes::{DecoderSizes, Style, TowerSizes};

/// The keys of a `config.json` beside those that its language model has under a key of their own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct TowerKeys {
    vision_config: Option<VisionKeys>,
    /// What images become in a text is read by what prepares one.
    #[serde(rename = "mm_tokens_per_image")]
    _tokens: Option<IgnoredAny>,
    #[serde(rename = "boi_token_index")]
    _begin: Option<IgnoredAny>,
    #[serde(rename = "eoi_token_index")]
    _end: Option<IgnoredAny>,
    #[serde(rename = "image_token_index")]
    _image: Option<IgnoredAny>,
}

/// The keys of SigLIP's `vision_config`; where one is missing its value is that of `SiglipVisionConfig`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct VisionKeys {
    model_type: Option<String>,
    hidden_size: Option<Extent>,
    intermediate_size: Option<Extent>,
    num_hidden_layers: Option<Repeats>,
    num_channels: Option<Extent>,
    image_size: Option<Extent>,
    patch_size: Option<Extent>,
    vision_use_head: Option<bool>,
}

impl TowerKeys {
    /// The language model of these sizes beside the tower; `tied` is what the file says of its head.
    pub fn beside(&self, text: DecoderSizes, tied: Option<bool>) -> Result<DecoderSizes, String> {
        let style = Style { names: Names::BESIDE_TOWER, ..text.style };
        Ok(DecoderSizes { tower: Some(self.sizes()?), tied: tied.unwrap_or(true), style, ..text })
    }

    fn sizes(&self) -> Result<TowerSizes, String> {
        let keys = self.vision_config.clone().unwrap_or_default();
        if let Some(other) = keys.model_type.filter(|kind| kind != "siglip_vision_model") {
            return Err(format!("a vision tower of type '{other}' is not there; there is siglip_vision_model"));
        }
        if keys.vision_use_head != Some(false) {
            return Err("vision_use_head is on unless a file says otherwise, which is not there; give false".to_owned());
        }
        let size = |given: Option<Extent>, own| given.map_or(own, Extent::get);
        let (image, patch) = (size(keys.image_size, 224), size(keys.patch_size, 16));
        Ok(TowerSizes {
            width: size(keys.hidden_size, 768),
            hidden: size(keys.intermediate_size, 3072),
            layers: keys.num_hidden_layers.map_or(12, Repeats::get),
            channels: size(keys.num_channels, 3),
            patch,
            positions: (image / patch).pow(2),
        })
    }
}

/// The linear layers of one of its layers, beside which adapters may stand, by their modules.
struct Layer([(&'static str, Target, Adaptable); 6]);

/// The tower and the projector.
pub(super) struct Tower {
    layers: Vec<Layer>,
    /// The shape of the positions of patches.
    positions: Shape,
}

/// The tower's module.
const NAME: &str = "model.vision_tower";

impl Tower {
    /// Makes them, before the language model of this `width`.
    pub fn make(cx: &mut Context, all: &mut Parameters, sizes: &TowerSizes, width: usize) -> OpResult<Self> {
        let norm = |cx: &Context, all: &mut Parameters, name: &str| {
            all.weight(cx, &format!("{name}.weight"), &[sizes.width])?;
            all.bias(cx, &format!("{name}.bias"), sizes.width).map(drop)
        };
        let embeddings = format!("{NAME}.embeddings");
        let pixels = [sizes.width, sizes.channels, sizes.patch, sizes.patch];
        all.weight(cx, &format!("{embeddings}.patch_embedding.weight"), &pixels)?;
        all.bias(cx, &format!("{embeddings}.patch_embedding.bias"), sizes.width)?;
        all.weight(cx, &format!("{embeddings}.position_embedding.weight"), &[sizes.positions, sizes.width])?;
        let positions = Shape::new(&[1, sizes.positions]);
        if !all.loads() {
            Self::place(cx, positions)?;
        }
        let layer = |cx: &mut Context, all: &mut Parameters, number: usize| {
            let name = Self::layer(number);
            norm(cx, all, &format!("{name}.layer_norm1"))?;
            let (width, hidden) = (sizes.width, sizes.hidden);
            let linear = |cx: &mut Context, all: &mut Parameters, module: &'static str, target: Target, ends| {
                let layer = Adaptable::biased(cx, all, &format!("{name}.{module}.{}", target.word()), ends)?;
                OpResult::Ok((module, target, layer))
            };
            let [key, value, query, output] = [Target::Key, Target::Value, Target::Query, Target::OutputOfTower]
                .map(|target| linear(cx, all, "self_attn", target, [width, width]));
            let attention = [key?, value?, query?, output?];
            norm(cx, all, &format!("{name}.layer_norm2"))?;
            let first = linear(cx, all, "mlp", Target::Wider, [width, hidden])?;
            let second = linear(cx, all, "mlp", Target::Narrower, [hidden, width])?;
            let [key, value, query, output] = attention;
            OpResult::Ok(Layer([key, value, query, output, first, second]))
        };
        let layers = (0..sizes.layers).map(|number| layer(cx, all, number)).collect::<OpResult<_>>()?;
        norm(cx, all, &format!("{NAME}.post_layernorm"))?;
        // The positions are made anew when the tower is there.
        if !all.loads() {
            drop(cx.memory().tensor(positions, DType::I64, Category::Temporary, "positions of patches")?);
        }
        let projector = "model.multi_modal_projector";
        all.weight(cx, &format!("{projector}.mm_input_projection_weight"), &[sizes.width, width])?;
        all.centred(cx, &format!("{projector}.mm_soft_emb_norm.weight"), sizes.width)?;
        Ok(Self { layers, positions })
    }

    /// What is not in a file comes to the device behind what is.
    pub fn loaded(&self, cx: &mut Context) -> OpResult<()> {
        Self::place(cx, self.positions)
    }

    fn place(cx: &mut Context, positions: Shape) -> OpResult<()> {
        cx.buffer(&format!("{NAME}.embeddings.position_ids"), positions, DType::I64, 0.0).map(drop)
    }

    /// Puts adapters beside its layers, which peft does wherever a module has the name of a target.
    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, lora: Lora) -> OpResult<()> {
        for (number, Layer(linears)) in self.layers.iter_mut().enumerate() {
            for (module, target, linear) in linears {
                linear.adapt(cx, all, &format!("{}.{module}", Self::layer(number)), lora, *target)?;
            }
        }
        Ok(())
    }

    fn layer(number: usize) -> String {
        format!("{NAME}.encoder.layers.{number}")
    }
}
