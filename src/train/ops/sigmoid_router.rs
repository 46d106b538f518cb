//! Routers that weigh experts by a sigmoid and choose them in groups, op by op as transformers does for DeepSeek-V3 and GLM-4.5.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, Operand, kernels};

use super::experts::{RouterRule, Routes};

/// How experts that are weighed in f32 are chosen in groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupRule {
    /// How they are weighed.
    pub scores: ExpertScores,
    /// Number of groups of experts; each has at least two experts.
    pub groups: usize,
    /// How many groups a row may choose its experts from: those whose best experts weigh most.
    pub chosen_groups: usize,
    /// The factor on shares.
    pub factor: f64,
}

/// How experts are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertScores {
    /// Each by the sigmoid of its logit; two of a group count for it (DeepSeek-V3, GLM-4.5).
    Sigmoid,
    /// By a softmax of all logits; the best of a group counts for it (DeepSeek-V2).
    Softmax,
}

/// The chosen experts.
struct ChosenExperts {
    /// The weight of each.
    shares: Tensor,
    experts: Tensor,
    /// Variables that live until the shares are complete.
    _locals: Vec<Tensor>,
    /// Tensors that intermediate ops saved for gradients that never come; they are freed with the variables.
    _unused: Vec<SavedVariable>,
}

impl Context {
    /// `F.linear(input.float(), weight.float())` of `input` (rows, in) and `weight` (out, in): in f32, except under autocast,
    /// which narrows both again. Saves the same as [`Context::linear`].
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn linear_in_f32(&mut self, input: &Tensor, weight: &Tensor) -> OpResult<Tensor> {
        let input = self.converted(input.clone(), DType::F32, "rows in f32")?;
        let weight = self.converted(weight.clone(), DType::F32, "weight in f32")?;
        self.linear(&input, &weight, None)
    }

    /// Routes the rows of `logits` (rows, experts) by `rule`, with shares from a sigmoid. A `correction` (experts) is added to
    /// the scores for the choice, but not to shares: it is not trained, and it is zero here.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn routes_by_sigmoid(
        &mut self,
        logits: Tensor,
        (rule, sigmoid): (RouterRule, GroupRule),
        correction: &Tensor,
    ) -> OpResult<Routes> {
        let scores = self.sigmoid(&logits)?;
        let chosen = self.chosen_in_groups(&scores, (rule.chosen, sigmoid), correction.dtype())?;
        let shares = chosen.shares.clone();
        let (shares, _sums) = match rule.normalises {
            true => self.normalised_in_place(shares, true).map(|(shares, sums)| (shares, Some(sums)))?,
            false => (shares, None),
        };
        let scaled = self.scale(&shares, sigmoid.factor, "scaled shares")?;
        Ok(Routes::new(logits, scaled, chosen.experts.clone()))
    }

    /// The chosen experts, the best of the best groups, and `scores.gather(1, chosen)`. Saves both the chosen and the scores, and
    /// meanwhile what the choice itself would save, which no gradient reaches.
    fn chosen_in_groups(
        &mut self,
        scores: &Tensor,
        (k, rule): (usize, GroupRule),
        wide: DType,
    ) -> OpResult<ChosenExperts> {
        let (rows, count) = (scores.shape().rows(), scores.shape().last());
        let dtype = if wide.size() > scores.dtype().size() { wide } else { scores.dtype() };
        let differentiates = self.differentiates(&[scores]);
        let (masked, locals, mut unused) = self.in_best_groups(scores, rule, dtype)?;
        let of_chosen = Shape::new(&[rows, k]);
        // Where the kernel puts the largest values that it finds.
        let largest = Operand { len: rows * k, ..masked.operand() };
        let experts = self.op("topk", |cx| {
            let values = cx.temporary(of_chosen, dtype, "largest scores")?;
            let experts = cx.activation(of_chosen, DType::I64, "chosen experts")?;
            let [src, found, indices] = [&masked, &values, &experts].map(Tensor::operand);
            cx.launch(kernels::Routing::TopK { src, values: found, indices, cols: count, k })?;
            cx.launch(kernels::Elementwise::Cast { src: found, dst: largest })?;
            if differentiates {
                unused.push(cx.save_in_vain(&experts)?);
            }
            Ok(experts)
        })?;
        let shares = self.op("gather", |cx| {
            let saved = if differentiates { Some([cx.save(&experts)?, cx.save(scores)?]) } else { None };
            let output = cx.activation(of_chosen, scores.dtype(), "shares")?;
            cx.launch(kernels::Elementwise::Cast { src: largest, dst: output.operand() })?;
            let Some(saved) = saved else { return Ok(output) };
            let of_scores = scores.shape();
            let source = cx.record("gatherBackward", [Some(scores), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (indices, _scores) = (saved[0].unpack(cx)?, saved[1].unpack(cx)?);
                let dst = cx.temporary(of_scores, grad.dtype(), "gradient of scores")?;
                let [grad, indices, to] = [&grad, &indices, &dst].map(Tensor::operand);
                cx.launch(kernels::Routing::TopKBackward { grad, indices, dst: to, cols: count, k })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })?;
        let locals = locals.into_iter().chain([masked]).collect();
        Ok(ChosenExperts { shares, experts, _locals: locals, _unused: unused })
    }

    /// Scores of `dtype`, set to 0 outside the best groups; also the variables and the saved tensors of the computation.
    fn in_best_groups(
        &mut self,
        scores: &Tensor,
        GroupRule { groups, chosen_groups, .. }: GroupRule,
        dtype: DType,
    ) -> OpResult<(Tensor, Vec<Tensor>, Vec<SavedVariable>)> {
        let (rows, count) = (scores.shape().rows(), scores.shape().last());
        let each = count / groups.max(1);
        let [of_all, of_groups] = [count, groups].map(|cols| Shape::new(&[rows, cols]));
        let differentiates = self.differentiates(&[scores]);
        self.op("groups of experts", |cx| {
            let mut saved = Vec::new();
            let mut save = |cx: &mut Self, tensor: &Tensor| {
                if differentiates {
                    saved.push(cx.save_in_vain(tensor)?);
                }
                OpResult::Ok(())
            };
            let best_of = |cx: &Self, src: &Tensor, cols, k, what| {
                let of = Shape::new(&[src.numel() / cols, k]);
                let (values, at) = (cx.temporary(of, dtype, what)?, cx.temporary(of, DType::I64, "indices of those")?);
                let [src, largest, indices] = [src, &values, &at].map(Tensor::operand);
                cx.launch(kernels::Routing::TopK { src, values: largest, indices, cols, k })?;
                OpResult::Ok((values, at))
            };
            let corrected = cx.temporary(of_all, dtype, "corrected scores")?;
            cx.launch(kernels::Elementwise::Cast { src: scores.operand(), dst: corrected.operand() })?;
            let weights = {
                let (both, of_both) = best_of(cx, &corrected, each, BEST, "best two of each group")?;
                save(cx, &of_both)?;
                drop(of_both);
                let weights = cx.temporary(of_groups, dtype, "weights of groups")?;
                // The mean gives the same order as the sum.
                let (src, dst) = (both.operand(), weights.operand());
                cx.launch(kernels::Sums::Mean { src, dst, outer: rows * groups, middle: BEST, inner: 1 })?;
                weights
            };
            let (values, best) = best_of(cx, &weights, groups, chosen_groups, "best groups")?;
            save(cx, &best)?;
            drop(values);
            let chosen = cx.temporary(of_groups, dtype, "chosen groups")?;
            // Writes ones at the best groups and zeros elsewhere; the weights are no longer needed.
            cx.launch(kernels::Elementwise::Fill { dst: weights.operand(), value: 1.0 })?;
            let grad = Operand { len: rows * chosen_groups, ..weights.operand() };
            let (indices, dst, cols) = (best.operand(), chosen.operand(), groups);
            cx.launch(kernels::Routing::TopKBackward { grad, indices, dst, cols, k: chosen_groups })?;
            // With one group the experts are a view.
            let of_experts =
                (groups > 1).then(|| cx.temporary(of_all, dtype, "experts of chosen groups")).transpose()?;
            let outside = {
                let _inside = cx.temporary(of_all, DType::U8, "they are inside")?;
                cx.temporary(of_all, DType::U8, "they are outside")?
            };
            save(cx, &outside)?;
            let masked = cx.temporary(of_all, dtype, "scores in chosen groups")?;
            // A sigmoid is above 0, so 0 hides as well as minus infinity.
            let (a, b, dst) = (corrected.operand(), chosen.operand(), masked.operand());
            cx.launch(kernels::Elementwise::MulRows { a, b, dst, cols: each })?;
            Ok((masked, [weights, best, chosen].into_iter().chain(of_experts).collect(), saved))
        })
    }
}

/// Number of best experts that give a group its weight.
const BEST: usize = 2;
