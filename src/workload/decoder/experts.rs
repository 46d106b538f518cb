//! A mixture of experts in the place of an MLP, as transformers builds Mixtral and Qwen3-MoE.

use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, RouterRule, Tensor};

use super::super::hash::Parameters;
use super::super::modules::Linear;
use super::sizes::ExpertSizes;

/// A router, and the experts that it sends positions to.
pub(super) struct SparseMlp {
    scope: NameId,
    /// Of the experts, which are one module.
    experts: NameId,
    router: Linear,
    /// Gates and what they let through, of all experts.
    gate_up: Tensor,
    down: Tensor,
    rule: RouterRule,
}

impl SparseMlp {
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        width: usize,
        sizes: ExpertSizes,
    ) -> OpResult<Self> {
        let ExpertSizes { count, hidden, rule, router_first, .. } = sizes;
        let router =
            |cx: &mut Context, all: &mut Parameters| Linear::plain(cx, all, &format!("{name}.gate"), [width, count]);
        let first = router_first.then(|| router(cx, all)).transpose()?;
        let gate_up = all.weight(cx, &format!("{name}.experts.gate_up_proj"), &[count, 2 * hidden, width])?;
        let down = all.weight(cx, &format!("{name}.experts.down_proj"), &[count, width, hidden])?;
        let router = match first {
            Some(router) => router,
            None => router(cx, all)?,
        };
        let (scope, experts) = (cx.memory().name(name), cx.memory().name(&format!("{name}.experts")));
        Ok(Self { scope, experts, router, gate_up, down, rule })
    }
}

impl Repeatable for SparseMlp {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let logits = {
            let rows = cx.as_rows(input);
            self.router.forward(cx, &rows)?
        };
        let routes = cx.within(self.scope, |cx| cx.routes(logits, self.rule))?;
        let output = cx.module(self.experts, |cx| {
            let weights = [&self.gate_up, &self.down];
            cx.with_parameters(weights, |cx| cx.experts(input, &routes, &self.gate_up, &self.down))
        })?;
        drop(routes);
        cx.put_out(self.scope, &output);
        Ok(output)
    }
}
