//! The keys of a `config.json` for the experts of its layers.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use vramlab_train::{ExpertScores, GroupRule, RouterRule};

use super::super::bounds::Extent;
use super::family::{Family, OwnExperts};
use super::pattern::LayerPattern;
use super::sizes::ExpertSizes;

/// The keys of experts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct ExpertKeys {
    num_experts: Option<Extent>,
    /// Mixtral's key for the same; 0 means no experts (Granite 4).
    #[serde(default, deserialize_with = "or_none")]
    num_local_experts: Option<Option<Extent>>,
    #[serde(default, deserialize_with = "or_none")]
    num_experts_per_tok: Option<Option<Extent>>,
    moe_intermediate_size: Option<Extent>,
    shared_expert_intermediate_size: Option<Extent>,
    norm_topk_prob: Option<bool>,
    decoder_sparse_step: Option<usize>,
    mlp_only_layers: Option<Vec<usize>>,
    /// `sparse` or `dense` for each layer (GLM-4.7-Flash).
    mlp_layer_types: Option<Vec<String>>,
    /// The key for `num_experts` in families with groups of experts.
    n_routed_experts: Option<Extent>,
    /// Number of shared experts, which see every position; they are built as one.
    n_shared_experts: Option<Extent>,
    n_group: Option<Extent>,
    topk_group: Option<Extent>,
    routed_scaling_factor: Option<f64>,
    /// Layers with an MLP before those with experts.
    first_k_dense_replace: Option<usize>,
    /// The layers with experts, or of how many layers the last has them (Llama 4).
    moe_layers: Option<Vec<usize>>,
    interleave_moe_layer_step: Option<usize>,
    /// ERNIE 4.5's keys for the same, for the layers with experts and for the least sum of weights.
    moe_num_experts: Option<Extent>,
    moe_k: Option<Extent>,
    moe_num_shared_experts: Option<usize>,
    moe_layer_start_index: Option<usize>,
    moe_layer_end_index: Option<i64>,
    moe_layer_interval: Option<usize>,
    moe_norm_min: Option<f64>,
    /// How experts are chosen (DeepSeek-V2); other families have this key but don't read it.
    topk_method: Option<String>,
}

/// Whether layers of a type have experts.
fn has_experts(kind: &str) -> Result<bool, String> {
    match kind {
        "sparse" => Ok(true),
        "dense" => Ok(false),
        other => Err(format!("mlp_layer_types has '{other}', which is not there; there are sparse and dense")),
    }
}

impl ExpertKeys {
    /// The keys that are given and that other families don't have.
    pub fn asked(&self) -> [(&'static str, bool); 24] {
        [
            ("num_experts", self.num_experts.is_some()),
            ("num_local_experts", self.num_local_experts.is_some()),
            ("num_experts_per_tok", self.num_experts_per_tok.is_some()),
            ("moe_intermediate_size", self.moe_intermediate_size.is_some()),
            ("shared_expert_intermediate_size", self.shared_expert_intermediate_size.is_some()),
            ("norm_topk_prob", self.norm_topk_prob.is_some()),
            ("decoder_sparse_step", self.decoder_sparse_step.is_some()),
            ("mlp_only_layers", self.mlp_only_layers.as_ref().is_some_and(|layers| !layers.is_empty())),
            ("mlp_layer_types", self.mlp_layer_types.is_some()),
            ("n_routed_experts", self.n_routed_experts.is_some()),
            ("n_shared_experts", self.n_shared_experts.is_some()),
            ("n_group", self.n_group.is_some()),
            ("topk_group", self.topk_group.is_some()),
            ("routed_scaling_factor", self.routed_scaling_factor.is_some()),
            ("first_k_dense_replace", self.first_k_dense_replace.is_some()),
            ("moe_layers", self.moe_layers.is_some()),
            ("moe_num_experts", self.moe_num_experts.is_some()),
            ("moe_k", self.moe_k.is_some()),
            ("moe_num_shared_experts", self.moe_num_shared_experts.is_some()),
            ("moe_layer_start_index", self.moe_layer_start_index.is_some()),
            ("moe_layer_end_index", self.moe_layer_end_index.is_some()),
            ("moe_layer_interval", self.moe_layer_interval.is_some()),
            ("moe_norm_min", self.moe_norm_min.is_some()),
            ("interleave_moe_layer_step", self.interleave_moe_layer_step.is_some()),
        ]
    }

    /// Whether it says that there are no experts.
    pub const fn are_none(&self) -> bool {
        matches!(self.num_local_experts, Some(None))
    }

    /// The experts of a model with this many `layers`; `hidden` is the width of an MLP, `of_layer` that of one that the file has beside experts.
    pub fn sizes(
        &self,
        family: &Family,
        layers: usize,
        hidden: impl FnOnce() -> Result<usize, String>,
        of_layer: Option<usize>,
    ) -> Result<Option<ExpertSizes>, String> {
        let Some(own) = family.experts else { return Ok(None) };
        let some = |key: &str, given: Option<Option<Extent>>| match given {
            Some(None) => Err(format!("{key} is 0; use 1 at least")),
            given => Ok(given.flatten().map(Extent::get)),
        };
        let local = some("num_local_experts", self.num_local_experts)?;
        let routed = self.num_experts.or(self.n_routed_experts).or(self.moe_num_experts).map(Extent::get);
        let count = routed.or(local).unwrap_or(own.count);
        let chosen = some("num_experts_per_tok", self.num_experts_per_tok)?;
        let chosen = chosen.or(self.moe_k.map(Extent::get)).unwrap_or(own.chosen);
        if chosen > count {
            return Err(format!("num_experts_per_tok is {chosen} of {count} experts; use {count} at most"));
        }
        let hidden = match own.hidden {
            Some(own) => self.moe_intermediate_size.map_or(own, Extent::get),
            None => hidden()?,
        };
        let in_groups = own.in_groups.map(|own| self.in_groups(own, [count, chosen])).transpose()?;
        let sigmoid = in_groups.is_some_and(|rule| rule.scores == ExpertScores::Sigmoid);
        let normalises =
            own.normalises || self.norm_topk_prob.unwrap_or(own.norm_topk_prob) && (sigmoid || in_groups.is_none());
        let first = self.first_k_dense_replace.filter(|_| family.own_keys.contains(&"first_k_dense_replace"));
        let first = self.moe_layer_start_index.or(first).unwrap_or(own.dense);
        // A negative number is no end.
        let end = self.moe_layer_end_index.and_then(|end| usize::try_from(end).ok()).unwrap_or(usize::MAX);
        let dense = self.mlp_only_layers.as_deref().unwrap_or_default();
        let step = self.decoder_sparse_step.or(self.interleave_moe_layer_step).or(self.moe_layer_interval);
        let step = step.unwrap_or(1).max(1);
        let sparse = |layer: usize| {
            (first..=end).contains(&layer) && !dense.contains(&layer) && (layer + 1).is_multiple_of(step)
        };
        let listed: Vec<_> = match (&self.mlp_layer_types, &self.moe_layers) {
            (Some(types), _) => types.iter().map(|kind| has_experts(kind)).collect::<Result<_, _>>()?,
            (None, Some(listed)) => (0..layers).map(|layer| listed.contains(&layer)).collect(),
            (None, None) => (0..layers).map(sparse).collect(),
        };
        let layers = LayerPattern::under("mlp_only_layers", &listed)?;
        let OwnExperts {
            narrows,
            widens,
            of_chosen,
            router_first,
            clamped,
            narrow_correction,
            shared_of_layer,
            of_all,
            least_sum,
            ..
        } = own;
        let rule = RouterRule { chosen, normalises, narrows, widens, of_chosen };
        let shared = match in_groups {
            Some(_) => Some(self.n_shared_experts.map_or(own.shared.unwrap_or(1), Extent::get) * hidden),
            None if shared_of_layer => of_layer,
            None if of_all => Some(hidden),
            None if least_sum.is_some() => {
                let count = self.moe_num_shared_experts.or(own.shared).unwrap_or(2);
                if count == 0 {
                    return Err("moe_num_shared_experts is 0, which is not there; use 1 at least".to_owned());
                }
                Some(count * hidden)
            }
            None => own.shared.map(|own| self.shared_expert_intermediate_size.map_or(own, Extent::get)),
        };
        Ok(Some(ExpertSizes {
            count,
            hidden,
            rule,
            router_first,
            in_groups,
            narrow_correction,
            shared,
            shared_of_layer,
            clamped,
            of_all,
            least_sum: least_sum.map(|own| self.moe_norm_min.unwrap_or(own)),
            layers,
        }))
    }

    /// The rule for `count` groups of experts, `chosen` of which each position may use.
    fn in_groups(&self, own: GroupRule, [count, chosen]: [usize; 2]) -> Result<GroupRule, String> {
        let groups = self.n_group.map_or(own.groups, Extent::get);
        let chosen_groups = self.topk_group.map_or(own.chosen_groups, Extent::get);
        let factor = self.routed_scaling_factor.unwrap_or(own.factor);
        // Only DeepSeek-V2 reads the method; among all experts there are no groups.
        if own.scores == ExpertScores::Softmax {
            match self.topk_method.as_deref().unwrap_or("greedy") {
                "greedy" => return Ok(GroupRule { groups: 1, chosen_groups: 1, factor, ..own }),
                "group_limited_greedy" => {}
                other => {
                    return Err(format!(
                        "topk_method '{other}' is not there; there are greedy and group_limited_greedy"
                    ));
                }
            }
        }
        if !count.is_multiple_of(groups) || count / groups < 2 {
            return Err(format!(
                "n_group is {groups} of {count} experts; use a number that leaves each group two at least"
            ));
        }
        if chosen_groups > groups {
            return Err(format!("topk_group is {chosen_groups} of {groups} groups; use {groups} at most"));
        }
        if chosen > chosen_groups * (count / groups) {
            let most = chosen_groups * (count / groups);
            return Err(format!("num_experts_per_tok is {chosen} of {most} experts in topk_group; use {most} at most"));
        }
        Ok(GroupRule { groups, chosen_groups, factor, ..own })
    }
}

/// A size that is given, perhaps as 0.
pub(super) fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Extent>>, D::Error> {
    let size = |number: i64| match number {
        0 => Ok(None),
        number => Extent::try_from(number).map(Some).map_err(D::Error::custom),
    };
    Option::deserialize(deserializer)?.map(size).transpose()
}
