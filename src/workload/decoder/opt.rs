//! The keys of OPT's `config.json`.

use serde::Deserialize;

use super::super::bounds::Extent;

/// Keys of OPT alone.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct OptKeys {
    /// `intermediate_size`.
    pub ffn_dim: Option<Extent>,
    do_layer_norm_before: Option<bool>,
    word_embed_proj_dim: Option<Extent>,
    enable_bias: Option<bool>,
    layer_norm_elementwise_affine: Option<bool>,
    layerdrop: Option<f64>,
    #[serde(rename = "_remove_final_layer_norm")]
    remove_final_layer_norm: Option<bool>,
}

impl OptKeys {
    /// The keys that OPT reads.
    pub const OWN: &[&str] = &[
        "_remove_final_layer_norm",
        "do_layer_norm_before",
        "dropout",
        "enable_bias",
        "ffn_dim",
        "layer_norm_elementwise_affine",
        "layerdrop",
        "word_embed_proj_dim",
    ];
    /// Rows of the table of positions before the first position's.
    pub const BEFORE: usize = 2;
    /// The keys that are given and that other families don't read.
    pub fn asked(&self) -> [(&'static str, bool); 7] {
        let drops_layers = self.layerdrop.is_some_and(|share| share != 0.0);
        [
            ("_remove_final_layer_norm", self.remove_final_layer_norm == Some(true)),
            ("do_layer_norm_before", self.do_layer_norm_before == Some(true)),
            ("enable_bias", self.enable_bias == Some(true)),
            ("ffn_dim", self.ffn_dim.is_some()),
            ("layer_norm_elementwise_affine", self.layer_norm_elementwise_affine == Some(true)),
            ("layerdrop", drops_layers),
            ("word_embed_proj_dim", self.word_embed_proj_dim.is_some()),
        ]
    }

    /// The key that asks OPT, with this `width`, for something unsupported, such as norms after layers and projections of
    /// embeddings (OPT-350m).
    pub fn missing(&self, width: usize) -> Option<&'static str> {
        let asks = [
            ("do_layer_norm_before", self.do_layer_norm_before == Some(false)),
            ("word_embed_proj_dim", self.word_embed_proj_dim.is_some_and(|own| own.get() != width)),
            ("enable_bias", self.enable_bias == Some(false)),
            ("layer_norm_elementwise_affine", self.layer_norm_elementwise_affine == Some(false)),
            ("layerdrop", self.layerdrop.is_some_and(|share| share != 0.0)),
            ("_remove_final_layer_norm", self.remove_final_layer_norm == Some(true)),
        ];
        asks.into_iter().find(|(_, asks)| *asks).map(|(key, _)| key)
    }
}
