//! The keys of Llama 4's `config.json` beside those of its chunks and experts.

use serde::Deserialize;

use vramlab_train::{PositionCount, PositionScale};

use super::super::bounds::Extent;
use super::family::Family;
use super::pattern::LayerPattern;

/// Keys of Llama 4; SmolLM3 has some of them too.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Llama4Keys {
    /// Hidden values of an MLP, as `intermediate_size` is the size of experts.
    intermediate_size_mlp: Option<Extent>,
    /// Queries of layers that are not rotated are scaled by position.
    attn_temperature_tuning: Option<bool>,
    floor_scale: Option<Extent>,
    attn_scale: Option<f64>,
    /// A 1 for each layer that is rotated, a 0 for each that is not.
    no_rope_layers: Option<Vec<u8>>,
    no_rope_layer_interval: Option<usize>,
}

impl Llama4Keys {
    /// The keys that are given and that other families don't read.
    pub fn asked(&self) -> [(&'static str, bool); 5] {
        [
            ("intermediate_size_mlp", self.intermediate_size_mlp.is_some()),
            ("attn_temperature_tuning", self.attn_temperature_tuning.is_some()),
            ("floor_scale", self.floor_scale.is_some()),
            ("attn_scale", self.attn_scale.is_some()),
            ("no_rope_layers", self.no_rope_layers.is_some()),
        ]
    }

    /// Hidden values of an MLP.
    pub fn hidden(&self) -> usize {
        self.intermediate_size_mlp.map_or(16_384, Extent::get)
    }

    /// Which of so many layers do not rotate queries and keys.
    pub fn unrotated(&self, family: &Family, layers: usize) -> Result<LayerPattern, String> {
        if !family.own_keys.contains(&"no_rope_layers") {
            return Ok(LayerPattern::NONE);
        }
        let layers: Vec<_> = match &self.no_rope_layers {
            Some(layers) if !layers.is_empty() => layers.iter().map(|&rotated| rotated == 0).collect(),
            _ => {
                let interval = self.no_rope_layer_interval.unwrap_or(4).max(1);
                (1..=layers).map(|layer| layer.is_multiple_of(interval)).collect()
            }
        };
        LayerPattern::under("no_rope_layers", &layers)
    }

    /// How queries are scaled by position, if the family has these keys.
    #[expect(clippy::cast_precision_loss, reason = "positions of a sample")]
    pub fn position_scale(&self, family: &Family) -> Option<PositionScale> {
        let has = family.own_keys.contains(&"attn_temperature_tuning");
        (has && self.attn_temperature_tuning != Some(false)).then(|| PositionScale {
            count: PositionCount::Layer,
            beta: self.attn_scale.unwrap_or(0.1),
            original: self.floor_scale.map_or(8192, Extent::get) as f64,
        })
    }
}
