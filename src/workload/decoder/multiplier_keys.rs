//! The keys of a `config.json` for Granite's multipliers.

use serde::Deserialize;

use super::family::Family;
use super::sizes::Multipliers;

/// The keys of multipliers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct MultiplierKeys {
    embedding_multiplier: Option<f64>,
    attention_multiplier: Option<f64>,
    residual_multiplier: Option<f64>,
    logits_scaling: Option<f64>,
}

impl MultiplierKeys {
    /// The keys that are given and that other families don't read.
    pub fn asked(&self) -> [(&'static str, bool); 4] {
        [
            ("attention_multiplier", self.attention_multiplier.is_some()),
            ("embedding_multiplier", self.embedding_multiplier.is_some()),
            ("logits_scaling", self.logits_scaling.is_some()),
            ("residual_multiplier", self.residual_multiplier.is_some()),
        ]
    }

    /// The multipliers, if the family has them.
    pub fn multipliers(&self, family: &Family) -> Option<Multipliers> {
        family.own_keys.contains(&"residual_multiplier").then(|| Multipliers {
            embedding: self.embedding_multiplier.unwrap_or(1.0),
            late: family.late_embedding,
            attention: self.attention_multiplier.unwrap_or(1.0),
            residual: self.residual_multiplier.unwrap_or(1.0),
            logits: self.logits_scaling.unwrap_or(1.0),
        })
    }
}
