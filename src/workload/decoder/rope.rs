//! How a `config.json` says that positions become rotations.

use serde::Deserialize;

use super::sizes::YarnScaling;

/// How positions become rotations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Rope {
    rope_type: Option<String>,
    /// The older word for it; some files have both.
    #[serde(rename = "type")]
    older_type: Option<String>,
    pub rope_theta: Option<f64>,
    pub partial_rotary_factor: Option<f64>,
    pub factor: Option<f64>,
    pub low_freq_factor: Option<f64>,
    pub high_freq_factor: Option<f64>,
    pub original_max_position_embeddings: Option<f64>,
    pub short_factor: Option<Vec<f32>>,
    pub long_factor: Option<Vec<f32>>,
    pub attention_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    pub llama_4_scaling_beta: Option<f64>,
    /// Of layers without a window, where the two kinds differ.
    pub full_attention: Option<Box<Self>>,
    /// Of layers with one.
    pub sliding_attention: Option<Box<Self>>,
}

impl Rope {
    /// Its type.
    pub fn kind(&self) -> Option<&str> {
        self.rope_type.as_deref().or(self.older_type.as_deref())
    }

    /// Only the older word says its type.
    pub const fn has_older_type_alone(&self) -> bool {
        self.rope_type.is_none() && self.older_type.is_some()
    }

    /// Frequencies that are `factor` times longer than those first learned with `original` positions, as transformers makes them.
    pub fn yarn(&self, factor: f64, original: f64) -> YarnScaling {
        // A key of 0 is as none.
        let given = |value: Option<f64>| value.filter(|value| *value != 0.0);
        let wider = |part: f64| if factor <= 1.0 { 1.0 } else { 0.1 * part * factor.ln() + 1.0 };
        let own = match (given(self.mscale), given(self.mscale_all_dim)) {
            (Some(some), Some(all)) => wider(some) / wider(all),
            _ => wider(1.0),
        };
        YarnScaling {
            factor,
            fast: given(self.beta_fast).unwrap_or(32.0),
            slow: given(self.beta_slow).unwrap_or(1.0),
            truncates: self.truncate.unwrap_or(true),
            original,
            attention: self.attention_factor.unwrap_or(own),
        }
    }
}
