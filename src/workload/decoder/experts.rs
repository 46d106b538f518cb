//! A mixture of experts in the place of an MLP, as transformers builds Mixtral, OLMoE, Qwen2-MoE, Qwen3-MoE and gpt-oss.

use vramlab_model::NameId;
use vramlab_train::{ClampedExperts, Context, OpResult, Repeatable, RouterRule, Routes, Tensor};

use super::super::llama::{Gate, GatedMlp};
use super::super::lora::{Adaptable, Lora, Target};
use super::super::modules::Linear;
use super::super::parameters::Parameters;
use super::sizes::ExpertSizes;

/// A router, and the experts that it sends positions to.
pub(super) struct SparseMlp {
    scope: NameId,
    /// Of the experts, which are one module.
    experts: NameId,
    router: Linear,
    /// Gates and what they let through, of all experts, and the way back.
    weights: [Tensor; 2],
    /// Their biases, where they have some and gates are clamped.
    biases: Option<[Tensor; 2]>,
    /// Ranks have some hidden values of each.
    parts: bool,
    rule: RouterRule,
    shared: Option<SharedExpert>,
}

/// An expert that sees every position, and how much of it each gets.
struct SharedExpert {
    mlp: GatedMlp,
    gate: Adaptable,
}

impl SparseMlp {
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        (width, router): (usize, &str),
        sizes: ExpertSizes,
    ) -> OpResult<Self> {
        let ExpertSizes { count, hidden, rule, router_first, shared, clamped, .. } = sizes;
        let make = if clamped { Linear::make } else { Linear::plain };
        let router =
            |cx: &mut Context, all: &mut Parameters| make(cx, all, &format!("{name}.{router}"), [width, count]);
        let first = router_first.then(|| router(cx, all)).transpose()?;
        let (of, sizes) = (format!("{name}.experts"), [count, hidden, width]);
        let (weights, biases) = if clamped {
            let [gate_up, gate_up_bias, down, down_bias] = all.biased_experts(cx, &of, sizes)?;
            ([gate_up, down], Some([gate_up_bias, down_bias]))
        } else {
            (all.experts(cx, &of, sizes)?, None)
        };
        let router = match first {
            Some(router) => router,
            None => router(cx, all)?,
        };
        let shared = shared.map(|hidden| SharedExpert::make(cx, all, name, [width, hidden])).transpose()?;
        let (scope, experts) = (cx.memory().name(name), cx.memory().name(&format!("{name}.experts")));
        let parts = all.splits_experts();
        Ok(Self { scope, experts, router, weights, biases, parts, rule, shared })
    }

    /// Puts adapters beside its linear layers, which experts with a router are not.
    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, name: &str, lora: Lora) -> OpResult<()> {
        let Some(SharedExpert { mlp, gate }) = &mut self.shared else { return Ok(()) };
        mlp.adapt(cx, all, &format!("{name}.shared_expert"), lora)?;
        gate.adapt(cx, all, name, lora, Target::SharedGate)
    }
}

impl SharedExpert {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, ends: [usize; 2]) -> OpResult<Self> {
        let mlp = GatedMlp::make(cx, all, &format!("{name}.shared_expert"), ends, Gate::Silu, false)?;
        let gate = Adaptable::plain(cx, all, &format!("{name}.shared_expert_gate"), [ends[0], 1])?;
        Ok(Self { mlp, gate })
    }

    /// The share that each position gets of what it `made`, beside what the other experts did.
    fn added(&self, cx: &mut Context, scope: NameId, rows: &Tensor, made: Tensor, others: &Tensor) -> OpResult<Tensor> {
        let gates = {
            let logits = self.gate.forward(cx, rows)?;
            cx.within(scope, |cx| cx.sigmoid(&logits))?
        };
        let gated = cx.within(scope, |cx| cx.gated(&gates, &made))?;
        drop((gates, made));
        cx.within(scope, |cx| cx.add(others, &gated))
    }
}

impl SparseMlp {
    /// The output, and what else its caller gets: the shares of experts, where they are clamped.
    pub fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<(Tensor, Option<Tensor>)> {
        if self.rule.of_chosen {
            let rows = cx.as_matrix(input);
            let logits = self.router.forward(cx, &rows)?;
            let (output, routes) = self.sent(cx, &rows, logits)?;
            let output = cx.rows_as(&output, input);
            cx.put_out(self.scope, &output);
            return Ok((output, self.biases.is_some().then(|| routes.shares().clone())));
        }
        let Some(shared) = &self.shared else {
            let (output, _routes) = self.routed(cx, input)?;
            cx.put_out(self.scope, &output);
            return Ok((output, None));
        };
        // All of them are given rows, whatever batch they are of.
        let rows = cx.as_matrix(input);
        let made = shared.mlp.forward(cx, &rows)?;
        let (others, _routes) = self.routed(cx, &rows)?;
        let output = shared.added(cx, self.scope, &rows, made, &others)?;
        let output = cx.rows_as(&output, input);
        cx.put_out(self.scope, &output);
        Ok((output, None))
    }

    /// What the experts make that the router sends positions to, and its variables.
    fn routed(&self, cx: &mut Context, input: &Tensor) -> OpResult<(Tensor, Routes)> {
        let logits = {
            let rows = cx.as_rows(input);
            self.router.forward(cx, &rows)?
        };
        self.sent(cx, input, logits)
    }

    /// The same with the logits of the router.
    fn sent(&self, cx: &mut Context, input: &Tensor, logits: Tensor) -> OpResult<(Tensor, Routes)> {
        let routes = cx.within(self.scope, |cx| cx.routes(logits, self.rule, input.dtype()))?;
        let [gate_up, down] = &self.weights;
        let output = cx.module(self.experts, |cx| match &self.biases {
            None => {
                let both = [gate_up, down];
                cx.with_parameters(both, |cx| cx.experts(input, &routes, both, self.parts))
            }
            Some([gate_up_bias, down_bias]) => {
                let of = ClampedExperts { gate_up, gate_up_bias, down, down_bias };
                let parameters = [gate_up, gate_up_bias, down, down_bias];
                cx.with_parameters(parameters, |cx| cx.clamped_experts(input, &routes, of))
            }
        })?;
        Ok((output, routes))
    }
}
