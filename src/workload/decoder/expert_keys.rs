//! How a `config.json` says which experts its layers have.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use vramlab_train::RouterRule;

use super::super::bounds::Extent;
use super::family::{Family, OwnExperts};
use super::pattern::LayerPattern;
use super::sizes::ExpertSizes;

/// The keys of experts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct ExpertKeys {
    num_experts: Option<Extent>,
    /// Mixtral's word for the same; none where there are none (Granite 4).
    #[serde(default, deserialize_with = "or_none")]
    num_local_experts: Option<Option<Extent>>,
    #[serde(default, deserialize_with = "or_none")]
    num_experts_per_tok: Option<Option<Extent>>,
    moe_intermediate_size: Option<Extent>,
    shared_expert_intermediate_size: Option<Extent>,
    norm_topk_prob: Option<bool>,
    decoder_sparse_step: Option<usize>,
    mlp_only_layers: Option<Vec<usize>>,
}

impl ExpertKeys {
    /// Those that are there and mean nothing elsewhere.
    pub fn asked(&self) -> [(&'static str, bool); 8] {
        [
            ("num_experts", self.num_experts.is_some()),
            ("num_local_experts", self.num_local_experts.is_some()),
            ("num_experts_per_tok", self.num_experts_per_tok.is_some()),
            ("moe_intermediate_size", self.moe_intermediate_size.is_some()),
            ("shared_expert_intermediate_size", self.shared_expert_intermediate_size.is_some()),
            ("norm_topk_prob", self.norm_topk_prob.is_some()),
            ("decoder_sparse_step", self.decoder_sparse_step.is_some()),
            ("mlp_only_layers", self.mlp_only_layers.as_ref().is_some_and(|layers| !layers.is_empty())),
        ]
    }

    /// It says that there are no experts.
    pub const fn are_none(&self) -> bool {
        matches!(self.num_local_experts, Some(None))
    }

    /// The experts of so many `layers`; `hidden` is the width of an MLP.
    pub fn sizes(
        &self,
        family: &Family,
        layers: usize,
        hidden: impl FnOnce() -> Result<usize, String>,
    ) -> Result<Option<ExpertSizes>, String> {
        let Some(own) = family.experts else { return Ok(None) };
        let some = |key: &str, given: Option<Option<Extent>>| match given {
            Some(None) => Err(format!("{key} is 0; use 1 at least")),
            given => Ok(given.flatten().map(Extent::get)),
        };
        let local = some("num_local_experts", self.num_local_experts)?;
        let count = self.num_experts.map(Extent::get).or(local).unwrap_or(own.count);
        let chosen = some("num_experts_per_tok", self.num_experts_per_tok)?.unwrap_or(own.chosen);
        if chosen > count {
            return Err(format!("num_experts_per_tok is {chosen} of {count} experts; use {count} at most"));
        }
        let hidden = match own.hidden {
            Some(own) => self.moe_intermediate_size.map_or(own, Extent::get),
            None => hidden()?,
        };
        let normalises = own.normalises || self.norm_topk_prob == Some(true);
        let dense = self.mlp_only_layers.as_deref().unwrap_or_default();
        let step = self.decoder_sparse_step.unwrap_or(1).max(1);
        let sparse = |layer: usize| !dense.contains(&layer) && (layer + 1).is_multiple_of(step);
        let listed: Vec<_> = (0..layers).map(sparse).collect();
        let layers = LayerPattern::under("mlp_only_layers", &listed)?;
        let OwnExperts { narrows, widens, of_chosen, router_first, clamped, .. } = own;
        let rule = RouterRule { chosen, normalises, narrows, widens, of_chosen };
        let shared = own.shared.map(|own| self.shared_expert_intermediate_size.map_or(own, Extent::get));
        Ok(Some(ExpertSizes { count, hidden, rule, router_first, shared, clamped, layers }))
    }
}

/// A size that is there, and perhaps 0.
fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Extent>>, D::Error> {
    let size = |number: i64| match number {
        0 => Ok(None),
        number => Extent::try_from(number).map(Some).map_err(D::Error::custom),
    };
    Option::deserialize(deserializer)?.map(size).transpose()
}
