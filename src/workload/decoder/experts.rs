//! A mixture of experts in place of an MLP, as transformers builds Mixtral, OLMoE, Qwen2-MoE, Qwen3-MoE, GLM-4.5, DeepSeek, Llama 4 and gpt-oss.

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    ClampedExperts, Context, ExpertScores, GroupRule, OpResult, Repeatable, RouterRule, Routes, Shape, Tensor,
};

use super::super::llama::{Gate, GatedMlp, PackedMlp};
use super::super::lora::{Adaptable, Lora, Target};
use super::super::modules::Linear;
use super::super::parameters::Parameters;
use super::sizes::ExpertSizes;

/// A router, and the experts that it sends positions to.
pub(super) struct SparseMlp {
    scope: NameId,
    /// The name of the experts, which are one module.
    experts: NameId,
    router: Linear,
    /// Gate and up matrices of all experts, and their down matrices.
    weights: [Tensor; 2],
    /// Their biases, if they have any and the gates are clamped.
    biases: Option<[Tensor; 2]>,
    /// Each rank has some hidden values of every expert.
    parts: bool,
    rule: RouterRule,
    /// The rule of a router that weighs in f32, and the correction that is added to sigmoids for the choice.
    in_groups: Option<(GroupRule, Option<Tensor>)>,
    shared: Option<SharedExpert>,
    /// Every expert sees every position.
    of_all: bool,
    /// The least sum of the chosen weights of a router in f32.
    least_sum: Option<f64>,
}

/// An expert that sees every position, and the share of its output that each position gets.
struct SharedExpert {
    mlp: GatedMlp,
    /// `None` if each position gets all of it.
    gate: Option<Adaptable>,
}

impl SparseMlp {
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        (width, router): (usize, &str),
        sizes: ExpertSizes,
    ) -> OpResult<Self> {
        let ExpertSizes { count, hidden, rule, router_first, in_groups, narrow_correction, shared, clamped, .. } =
            sizes;
        let (shared_of_layer, of_all, least_sum) = (sizes.shared_of_layer, sizes.of_all, sizes.least_sum);
        let make = if clamped { Linear::make } else { Linear::plain };
        let router = |cx: &mut Context, all: &mut Parameters| {
            let of_router = format!("{name}.{router}");
            if least_sum.is_none() {
                return make(cx, all, &of_router, [width, count]);
            }
            let weight = all.weight_in_f32(cx, &format!("{of_router}.weight"), &[count, width])?;
            let correction = format!("{of_router}.moe_statics.e_score_correction_bias");
            all.buffer(cx, &correction, Shape::new(&[1, count]), [DType::F32; 2])?;
            Ok(Linear::tied(cx, &of_router, weight))
        };
        let first = router_first.then(|| router(cx, all)).transpose()?;
        let (of, sizes) = (format!("{name}.experts"), [count, hidden, width]);
        let (weights, biases) = if clamped {
            let [gate_up, gate_up_bias, down, down_bias] = all.biased_experts(cx, &of, sizes)?;
            ([gate_up, down], Some([gate_up_bias, down_bias]))
        } else if of_all {
            (all.turned_experts(cx, &of, sizes)?, None)
        } else {
            (all.experts(cx, &of, sizes)?, None)
        };
        let router = match first {
            Some(router) => router,
            None => router(cx, all)?,
        };
        let mut correction = |cx: &mut Context, rule: GroupRule| {
            if rule.scores != ExpertScores::Sigmoid {
                return Ok(None);
            }
            let name = format!("{name}.gate.e_score_correction_bias");
            let made = if narrow_correction { router.dtype() } else { DType::F32 };
            all.buffer(cx, &name, Shape::new(&[count]), [made, DType::F32]).map(Some)
        };
        let in_groups = in_groups.map(|rule| OpResult::Ok((rule, correction(cx, rule)?))).transpose()?;
        let (gated, word) = match in_groups.is_none() {
            true if least_sum.is_some() => (false, "shared_experts"),
            true => (!of_all, "shared_expert"),
            false => (false, "shared_experts"),
        };
        let shared = shared.map(|hidden| match shared_of_layer {
            true => SharedExpert::of_layer(cx, all, name, [width, hidden]),
            false => SharedExpert::make(cx, all, (name, word), ([width, hidden], gated)),
        });
        let shared = shared.transpose()?;
        let (scope, experts) = (cx.memory().name(name), cx.memory().name(&format!("{name}.experts")));
        let parts = all.splits_experts();
        Ok(Self { scope, experts, router, weights, biases, parts, rule, in_groups, shared, of_all, least_sum })
    }

    /// Puts adapters on its linear layers; routed experts have none.
    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, name: &str, lora: Lora) -> OpResult<()> {
        if let (Some(shared), true) = (&mut self.shared, self.rule.of_chosen) {
            return shared.mlp.adapt(cx, all, &SharedExpert::name_in_layer(name), lora);
        }
        let Some(SharedExpert { mlp, gate }) = &mut self.shared else { return Ok(()) };
        if gate.is_none() && !self.of_all {
            return Ok(());
        }
        mlp.adapt(cx, all, &format!("{name}.shared_expert"), lora)?;
        gate.as_mut().map_or(Ok(()), |gate| gate.adapt(cx, all, name, lora, Target::SharedGate))
    }
}

impl SharedExpert {
    fn make(
        cx: &mut Context,
        all: &mut Parameters,
        (name, word): (&str, &str),
        (ends, gated): ([usize; 2], bool),
    ) -> OpResult<Self> {
        let of_mlp = format!("{name}.{word}");
        let mlp = GatedMlp::make(cx, all, &of_mlp, ends, Gate::Silu, false)?;
        let of_gate = format!("{name}.shared_expert_gate");
        let gate = gated.then(|| Adaptable::plain(cx, all, &of_gate, [ends[0], 1])).transpose()?;
        Ok(Self { mlp, gate })
    }

    /// The name of one that belongs to the layer of the module `experts`.
    fn name_in_layer(experts: &str) -> String {
        let layer = experts.rsplit_once('.').map_or(experts, |(layer, _)| layer);
        format!("{layer}.shared_mlp")
    }

    /// One of the layer.
    fn of_layer(cx: &mut Context, all: &mut Parameters, experts: &str, ends: [usize; 2]) -> OpResult<Self> {
        let mlp = GatedMlp::packed(cx, all, &Self::name_in_layer(experts), ends, PackedMlp::GRANITE)?;
        Ok(Self { mlp, gate: None })
    }

    /// The sum of the shared expert's output `made`, with its gate, and the output of the other experts.
    fn added(&self, cx: &mut Context, scope: NameId, rows: &Tensor, made: Tensor, others: &Tensor) -> OpResult<Tensor> {
        let Some(gate) = &self.gate else { return cx.within(scope, |cx| cx.add(others, &made)) };
        let gates = {
            let logits = gate.forward(cx, rows)?;
            cx.within(scope, |cx| cx.sigmoid(&logits))?
        };
        let gated = cx.within(scope, |cx| cx.gated(&gates, &made))?;
        drop((gates, made));
        cx.within(scope, |cx| cx.add(others, &gated))
    }
}

impl SparseMlp {
    /// The output, and what its caller gets or holds besides: the shares of experts if they are clamped, the output of routed experts
    /// if the shared one is the layer's.
    pub fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<(Tensor, Option<Tensor>)> {
        if let (Some((in_groups, correction)), Some(shared)) = (&self.in_groups, &self.shared) {
            let routes = {
                let rows = cx.as_matrix(input);
                let logits = self.router.forward_in_f32(cx, &rows)?;
                let rules = (self.rule, *in_groups);
                cx.within(self.scope, |cx| match correction {
                    Some(correction) => cx.routes_by_sigmoid(logits, rules, correction),
                    None => cx.routes_by_softmax(logits, rules),
                })?
            };
            let rows = cx.as_matrix(input);
            let others = self.by_experts(cx, &rows, &routes)?;
            let others = cx.rows_as(&others, input);
            let made = shared.mlp.forward(cx, input)?;
            let output = shared.added(cx, self.scope, input, made, &others)?;
            cx.put_out(self.scope, &output);
            return Ok((output, None));
        }
        if self.rule.of_chosen {
            let rows = cx.as_matrix(input);
            let logits = self.router.forward(cx, &rows)?;
            let (output, routes) = self.sent(cx, &rows, logits)?;
            let output = cx.rows_as(&output, input);
            cx.put_out(self.scope, &output);
            if let Some(shared) = &self.shared {
                drop((rows, routes));
                let made = shared.mlp.forward(cx, input)?;
                return Ok((cx.add(&output, &made)?, Some(output)));
            }
            return Ok((output, self.biases.is_some().then(|| routes.shares().clone())));
        }
        if let (true, Some(shared)) = (self.of_all, &self.shared) {
            return self.through_all(cx, input, shared);
        }
        if let (Some(least), Some(shared)) = (self.least_sum, &self.shared) {
            let rows = cx.as_matrix(input);
            let made = shared.mlp.forward(cx, &rows)?;
            let routes = cx.without_autocast(|cx| {
                let logits = self.router.forward_in_f32(cx, &rows)?;
                let rule = (self.rule.chosen, least);
                cx.within(self.scope, |cx| cx.routes_by_corrected_softmax(logits, rule, rows.dtype()))
            })?;
            let others = self.by_experts(cx, &rows, &routes)?;
            let output = cx.within(self.scope, |cx| cx.add(&others, &made))?;
            drop((others, made, routes));
            let output = cx.rows_as(&output, input);
            cx.put_out(self.scope, &output);
            return Ok((output, None));
        }
        let Some(shared) = &self.shared else {
            let (output, _routes) = self.routed(cx, input)?;
            cx.put_out(self.scope, &output);
            return Ok((output, None));
        };
        // All experts get rows, without a batch dimension.
        let rows = cx.as_matrix(input);
        let made = shared.mlp.forward(cx, &rows)?;
        let (others, _routes) = self.routed(cx, &rows)?;
        let output = shared.added(cx, self.scope, &rows, made, &others)?;
        let output = cx.rows_as(&output, input);
        cx.put_out(self.scope, &output);
        Ok((output, None))
    }

    /// The output of all experts and the shared one, and the logits, which the layer holds.
    fn through_all(
        &self,
        cx: &mut Context,
        input: &Tensor,
        shared: &SharedExpert,
    ) -> OpResult<(Tensor, Option<Tensor>)> {
        let rows = cx.as_matrix(input);
        let logits = self.router.forward(cx, &rows)?;
        let shares = cx.within(self.scope, |cx| cx.shares_of_all_experts(&logits, self.rule.chosen))?;
        let scaled = cx.within(self.scope, |cx| cx.rows_for_all_experts(&rows, &shares))?;
        let both = self.weights.each_ref();
        let outputs = cx.module(self.experts, |cx| cx.with_parameters(both, |cx| cx.all_experts(&scaled, both)))?;
        let made = shared.mlp.forward(cx, &rows)?;
        let sum = cx.within(self.scope, |cx| {
            let sum = cx.sum_over_experts(&outputs, shares.shape().last())?;
            cx.add_in_place(made, &sum)
        })?;
        drop((shares, scaled, outputs));
        let output = cx.rows_as(&sum, input);
        cx.put_out(self.scope, &output);
        Ok((output, Some(logits)))
    }

    /// The output of the routed experts, and the router's variables.
    fn routed(&self, cx: &mut Context, input: &Tensor) -> OpResult<(Tensor, Routes)> {
        let logits = {
            let rows = cx.as_rows(input);
            self.router.forward(cx, &rows)?
        };
        self.sent(cx, input, logits)
    }

    /// The same with given logits of the router.
    fn sent(&self, cx: &mut Context, input: &Tensor, logits: Tensor) -> OpResult<(Tensor, Routes)> {
        let routes = cx.within(self.scope, |cx| cx.routes(logits, self.rule, input.dtype()))?;
        Ok((self.by_experts(cx, input, &routes)?, routes))
    }

    /// The output of the experts that `routes` lead to.
    fn by_experts(&self, cx: &mut Context, input: &Tensor, routes: &Routes) -> OpResult<Tensor> {
        let [gate_up, down] = &self.weights;
        cx.module(self.experts, |cx| match &self.biases {
            None => {
                let both = [gate_up, down];
                cx.with_parameters(both, |cx| cx.experts(input, routes, both, self.parts))
            }
            Some([gate_up_bias, down_bias]) => {
                let of = ClampedExperts { gate_up, gate_up_bias, down, down_bias };
                let parameters = [gate_up, gate_up_bias, down, down_bias];
                cx.with_parameters(parameters, |cx| cx.clamped_experts(input, routes, of))
            }
        })
    }
}
