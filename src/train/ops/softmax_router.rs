//! Routers that weigh experts by a softmax in f32 and choose them in groups or among all, op by op as transformers does for DeepSeek-V2.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, Operand, kernels};

use super::experts::{RouterRule, Routes};
use super::sigmoid_router::GroupRule;

impl Context {
    /// Routes the rows of `logits` (rows, experts) by `rule`, with the softmax of all logits as shares, times a factor.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn routes_by_softmax(
        &mut self,
        logits: Tensor,
        (rule, in_groups): (RouterRule, GroupRule),
    ) -> OpResult<Routes> {
        let wide = self.converted(logits.clone(), DType::F32, "logits in f32")?;
        let mut scores = self.softmax_in_f32(&wide)?;
        drop(wide);
        let mut _locals = Vec::new();
        if in_groups.groups > 1 {
            (scores, _locals) = self.within_best_groups(&scores, in_groups)?;
        }
        let (largest, experts) = self.top_k(&scores, rule.chosen)?;
        let scaled = self.scale(&largest, in_groups.factor, "scaled shares")?;
        Ok(Routes::new(logits, scaled, experts))
    }

    /// `scores`, set to 0 outside the best groups, and the variables of the choice. Saves where they are outside.
    fn within_best_groups(&mut self, scores: &Tensor, rule: GroupRule) -> OpResult<(Tensor, Vec<Tensor>)> {
        let (shape, dtype) = (scores.shape(), scores.dtype());
        let GroupRule { groups, chosen_groups, .. } = rule;
        let (rows, each) = (shape.rows(), shape.last() / groups);
        self.op("groups of experts", |cx| {
            let best_of = |cx: &Self, src: &Tensor, cols, k, what| {
                let of = Shape::new(&[rows, src.numel() / rows.max(1) / cols * k]);
                let (values, at) = (cx.temporary(of, dtype, what)?, cx.temporary(of, DType::I64, "indices of those")?);
                let [src, largest, indices] = [src, &values, &at].map(Tensor::operand);
                cx.launch(kernels::Routing::TopK { src, values: largest, indices, cols, k })?;
                OpResult::Ok((values, at))
            };
            let (weights, at) = best_of(cx, scores, each, 1, "weights of groups")?;
            let (_, best) = best_of(cx, &weights, groups, chosen_groups, "best groups")?;
            let chosen = cx.temporary(Shape::new(&[rows, groups]), dtype, "chosen groups")?;
            // Writes ones at the best groups and zeros elsewhere; the weights are no longer needed.
            cx.launch(kernels::Elementwise::Fill { dst: weights.operand(), value: 1.0 })?;
            let grad = Operand { len: rows * chosen_groups, ..weights.operand() };
            let (indices, dst, cols) = (best.operand(), chosen.operand(), groups);
            cx.launch(kernels::Routing::TopKBackward { grad, indices, dst, cols, k: chosen_groups })?;
            let of_experts = cx.temporary(shape, dtype, "experts of chosen groups")?;
            let outside = {
                let _inside = cx.temporary(shape, DType::U8, "they are inside")?;
                cx.temporary(shape, DType::U8, "they are outside")?
            };
            let saved = if cx.differentiates(&[scores]) { Some(cx.save(&outside)?) } else { None };
            let masked = cx.activation(shape, dtype, "scores in chosen groups")?;
            let (a, b, dst) = (scores.operand(), chosen.operand(), masked.operand());
            cx.launch(kernels::Elementwise::MulRows { a, b, dst, cols: each })?;
            let locals = vec![weights, at, best, chosen, of_experts];
            let Some(saved) = saved else { return Ok((masked, locals)) };
            let source = cx.record("masked_fillBackward", [Some(scores), None, None], move |cx, [grad, ..]| {
                let Some(grad) = grad else { return Ok(Gradients::default()) };
                let _outside = saved.unpack(cx)?;
                // Gradients reach chosen experts alone, all of which are inside.
                let dst = cx.temporary(grad.shape(), grad.dtype(), "gradient inside chosen groups")?;
                cx.copy(&grad, &dst)?;
                Ok([Some(dst), None, None])
            });
            Ok((masked.with_source(source), locals))
        })
    }
}
