//! transformers' plan of a family (`base_model_tp_plan`) for its modules.

use vramlab_train::TensorRole;

/// How a pair of layers is split: the first by its outputs, the second by its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorPair {
    /// The values between them are split too.
    Split,
    /// The values between them are gathered after the first, and split again before the second.
    Gathered,
}

/// How files have the experts' matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertFiles {
    /// One per expert, named as a gated MLP's (`mlp.experts.0.gate_proj`).
    Own,
    /// One per expert, with Mixtral's names (`block_sparse_moe.experts.0.w1`).
    Mixtral,
    /// As the model has them: one for all experts.
    Joined,
    /// The same with Granite's names (`block_sparse_moe.input_linear`).
    Granite,
}

impl ExpertFiles {
    /// Whether the model joins what files have apart.
    pub const fn are_apart(self) -> bool {
        matches!(self, Self::Own | Self::Mixtral)
    }
}

/// A family's plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorPlan {
    /// The projections of queries, keys and values, and that of attention's output.
    pub attention: TensorPair,
    /// The first and the second layers of an MLP.
    pub mlp: TensorPair,
    /// The table of tokens is split by its rows.
    pub table: bool,
    /// Norms of heads are whole on every rank, and their gradients summed.
    pub norms: bool,
    /// The experts' matrices in files.
    pub experts: ExpertFiles,
    /// Ranks split experts.
    pub splits_experts: bool,
    /// The head's name in files.
    pub head: &'static str,
    /// There is no plan.
    pub none: bool,
}

impl Default for TensorPlan {
    fn default() -> Self {
        Self::LLAMA
    }
}

impl TensorPlan {
    /// Llama's.
    pub const LLAMA: Self = Self {
        attention: TensorPair::Split,
        mlp: TensorPair::Split,
        table: false,
        norms: false,
        experts: ExpertFiles::Own,
        splits_experts: false,
        head: "lm_head",
        none: false,
    };

    /// The role of the linear layer `name`.
    pub fn role(self, name: &str) -> Option<TensorRole> {
        if self.none {
            return None;
        }
        let mut parts = name.rsplit('.');
        let (own, parent) = (parts.next().unwrap_or_default(), parts.next());
        if own == "lm_head" {
            return Some(TensorRole::Gathered);
        }
        // Of experts the plan has the routed ones' matrices, and none of the shared one's.
        if !matches!(parent, Some("self_attn" | "attention" | "mlp")) {
            return None;
        }
        let by =
            |pair: TensorPair, [split, whole]: [TensorRole; 2]| if pair == TensorPair::Split { split } else { whole };
        let first = [TensorRole::Columns, TensorRole::Gathered];
        let second = [TensorRole::Rows, TensorRole::RowsOfWhole];
        match own {
            "q_proj" | "k_proj" | "v_proj" | "qkv_proj" | "query_key_value" => Some(by(self.attention, first)),
            "o_proj" | "dense" => Some(by(self.attention, second)),
            "gate_proj" | "up_proj" | "gate_up_proj" | "c_fc" | "dense_h_to_4h" | "fc1" => Some(by(self.mlp, first)),
            "down_proj" | "c_proj" | "dense_4h_to_h" | "fc2" => Some(by(self.mlp, second)),
            _ => None,
        }
    }

    /// A parameter's name in files: for one that joins several experts, the first one's.
    pub fn in_files(self, parameter: &str) -> String {
        if let Some(of_head) = parameter.strip_prefix("lm_head.") {
            return format!("{}.{of_head}", self.head);
        }
        let [sparse, gate_up, down] = match self.experts {
            ExpertFiles::Joined => return parameter.to_owned(),
            ExpertFiles::Own => [".mlp.", ".experts.0.gate_proj.weight", ".experts.0.down_proj.weight"],
            ExpertFiles::Mixtral => [".block_sparse_moe.", ".experts.0.w1.weight", ".experts.0.w2.weight"],
            ExpertFiles::Granite => [".mlp.", ".input_linear.weight", ".output_linear.weight"],
        };
        // ERNIE's files have it beside the router.
        let own = parameter.replace(".gate.moe_statics.", ".moe_statics.").replace(".mlp.", sparse);
        let named = |end: &str, file: &str| own.strip_suffix(end).map(|of| format!("{of}{file}"));
        named(".experts.gate_up_proj", gate_up).or_else(|| named(".experts.down_proj", down)).unwrap_or(own)
    }

    /// Whether the plan names the parameter or its module.
    pub fn has(self, parameter: &str) -> bool {
        let module = parameter.rsplit_once('.').map_or(parameter, |(module, _)| module);
        let experts = parameter.ends_with(".mlp.experts.gate_up_proj") || parameter.ends_with(".mlp.experts.down_proj");
        let is = |own: &str| module.rsplit('.').next() == Some(own);
        self.role(module).is_some()
            || self.splits_experts && experts
            || self.table && (is("embed_tokens") || is("embed_in"))
            || self.norms && (is("q_norm") || is("k_norm"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_modules_and_what_is_theirs() {
        let (llama, phi) = (
            TensorPlan::LLAMA,
            TensorPlan { attention: TensorPair::Gathered, mlp: TensorPair::Gathered, ..TensorPlan::LLAMA },
        );
        assert_eq!(llama.role("model.layers.0.self_attn.q_proj"), Some(TensorRole::Columns));
        assert_eq!(llama.role("model.layers.0.mlp.down_proj"), Some(TensorRole::Rows));
        assert_eq!(llama.role("model.layers.0.mlp.shared_expert.down_proj"), None);
        assert_eq!(phi.role("model.layers.0.self_attn.o_proj"), Some(TensorRole::RowsOfWhole));
        assert!(llama.has("model.layers.0.self_attn.q_proj.bias") && llama.has("lm_head.weight"));
        assert!(!llama.has("model.embed_tokens.weight") && !llama.has("model.layers.0.self_attn.q_norm.weight"));
        let experts = TensorPlan { splits_experts: true, ..llama };
        assert!(experts.has("model.layers.0.mlp.experts.down_proj") && !experts.has("model.layers.0.mlp.gate.weight"));
        assert!(!TensorPlan { none: true, ..llama }.has("lm_head.weight"));
    }
}
