//! Routers that weigh experts by a softmax in f32, choose them by weights plus a correction, and divide the chosen weights by their sum,
//! which has a least value: op by op as transformers does for ERNIE 4.5.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, MatrixView, kernels};

use super::experts::Routes;

impl Context {
    /// Routes the rows of `logits` (rows, experts; f32) to `chosen` experts each, with shares of the type `narrow`. The correction
    /// that is added for the choice is not trained, and it is zero here. Nothing runs in 16 bits under autocast.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn routes_by_corrected_softmax(
        &mut self,
        logits: Tensor,
        (chosen, least): (usize, f64),
        narrow: DType,
    ) -> OpResult<Routes> {
        let scores = self.softmax(&logits, logits.dtype())?;
        let (rows, cols, dtype) = (scores.shape().rows(), scores.shape().last(), scores.dtype());
        let differentiates = self.differentiates(&[&scores]);
        let of_chosen = Shape::new(&[rows, chosen]);
        // A variable of the router, which lives until it returns; autograd saves the indices for a gradient that never comes.
        let (_largest, experts, _unused) = self.op("topk", |cx| {
            let corrected = cx.temporary(scores.shape(), dtype, "corrected weights")?;
            cx.launch(kernels::Elementwise::Cast { src: scores.operand(), dst: corrected.operand() })?;
            let largest = cx.temporary(of_chosen, dtype, "largest weights")?;
            let experts = cx.activation(of_chosen, DType::I64, "chosen experts")?;
            let [src, values, indices] = [&corrected, &largest, &experts].map(Tensor::operand);
            cx.launch(kernels::Routing::TopK { src, values, indices, cols, k: chosen })?;
            let unused = differentiates.then(|| cx.save_in_vain(&experts)).transpose()?;
            Ok((largest, experts, unused))
        })?;
        let weights = self.op("gather", |cx| {
            let saved = if differentiates { Some([cx.save(&experts)?, cx.save(&scores)?]) } else { None };
            let output = cx.activation(of_chosen, dtype, "weights of chosen")?;
            let [src, indices, dst] = [&scores, &experts, &output].map(Tensor::operand);
            cx.launch(kernels::Routing::Gather { src, indices, dst, cols, k: chosen })?;
            let Some(saved) = saved else { return Ok(output) };
            let of_scores = scores.shape();
            let source = cx.record("gatherBackward", [Some(&scores), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (indices, _scores) = (saved[0].unpack(cx)?, saved[1].unpack(cx)?);
                let dst = cx.temporary(of_scores, grad.dtype(), "gradient of weights")?;
                let [grad, indices, to] = [&grad, &indices, &dst].map(Tensor::operand);
                cx.launch(kernels::Routing::TopKBackward { grad, indices, dst: to, cols, k: chosen })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })?;
        drop(scores);
        let shares = self.divided_by_sums(&weights, least)?;
        drop(weights);
        let shares = self.converted(shares, narrow, "shares in the type of rows")?;
        Ok(Routes::new(logits, shares, experts))
    }

    /// `weights / clamp(weights.sum(dim=-1, keepdim=True), min=least)`. Saves the weights, the sums, and what they were clamped to.
    fn divided_by_sums(&mut self, weights: &Tensor, least: f64) -> OpResult<Tensor> {
        let (shape, dtype) = (weights.shape(), weights.dtype());
        let (rows, k) = (shape.rows(), shape.last());
        let of_rows = Shape::new(&[rows]);
        #[expect(clippy::cast_precision_loss, reason = "experts are few")]
        let each = k as f64;
        #[expect(clippy::cast_possible_truncation, reason = "f32 as the kernel wants it")]
        let most = -least as f32;
        self.op("div", |cx| {
            let differentiates = cx.differentiates(&[weights]);
            let sums = cx.activation(of_rows, dtype, "sums of weights")?;
            let (src, sum) = (weights.operand(), sums.operand());
            cx.launch(kernels::Sums::Mean { src, dst: sum, outer: rows, middle: k, inner: 1 })?;
            cx.launch(kernels::Elementwise::Scale { src: sum, dst: sum, factor: each })?;
            let saved_sums = if differentiates { Some(cx.save(&sums)?) } else { None };
            // Holds the reciprocals, which are all that its readers need; the least of a number is minus the most of its negative.
            let clamped = cx.activation(of_rows, dtype, "clamped sums")?;
            let reciprocal = clamped.operand();
            cx.launch(kernels::Elementwise::Scale { src: sum, dst: reciprocal, factor: -1.0 })?;
            cx.launch(kernels::Elementwise::AtMost { src: reciprocal, dst: reciprocal, most })?;
            cx.launch(kernels::Elementwise::Scale { src: reciprocal, dst: reciprocal, factor: -1.0 })?;
            cx.launch(kernels::Elementwise::Rsqrt { src: reciprocal, dst: reciprocal })?;
            cx.launch(kernels::Elementwise::Mul { a: reciprocal, b: reciprocal, dst: reciprocal })?;
            drop(sums);
            let saved = if differentiates { Some([cx.save(&clamped)?, cx.save(weights)?]) } else { None };
            let output = cx.activation(shape, dtype, "shares")?;
            let dst = output.operand();
            cx.launch(kernels::Elementwise::MulRows { a: weights.operand(), b: reciprocal, dst, cols: k })?;
            let (Some(saved_sums), Some(saved)) = (saved_sums, saved) else { return Ok(output) };
            let source = cx.record("divBackward", [Some(weights), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // In the alphabetical order of their names: other, self.
                let [reciprocals, weights] = [saved[0].unpack(cx)?, saved[1].unpack(cx)?];
                let whole = |cx: &Self, what| cx.temporary(shape, dtype, what);
                let (b, of_grad) = (reciprocals.operand(), grad.operand());
                let divide = |a, dst| kernels::Elementwise::MulRows { a, b, dst, cols: k };
                let (once, twice) = (whole(cx, "quotient")?, whole(cx, "quotient divided")?);
                cx.launch(divide(weights.operand(), once.operand()))?;
                cx.launch(divide(once.operand(), twice.operand()))?;
                let negative = whole(cx, "negative gradient")?;
                cx.launch(kernels::Elementwise::Scale { src: of_grad, dst: negative.operand(), factor: -1.0 })?;
                let product = whole(cx, "gradient of the divisor")?;
                let (a, other, dst) = (negative.operand(), twice.operand(), product.operand());
                cx.launch(kernels::Elementwise::Mul { a, b: other, dst })?;
                drop((negative, twice, once));
                let to_weights = whole(cx, "gradient of the dividend")?;
                cx.launch(divide(of_grad, to_weights.operand()))?;
                // Recomputed tensors of a checkpoint are freed with the node; sums come after it.
                drop((reciprocals, weights));
                let of_sums = cx.temporary(of_rows, dtype, "gradient of clamped sums")?;
                let (src, dst) = (product.operand(), of_sums.operand());
                cx.launch(kernels::Sums::Mean { src, dst, outer: rows, middle: k, inner: 1 })?;
                cx.launch(kernels::Elementwise::Scale { src: dst, dst, factor: each })?;
                drop((product, grad, saved));
                let sums = saved_sums.unpack(cx)?;
                let zero = cx.temporary(Shape::new(&[]), dtype, "zero")?;
                let flags = cx.temporary(of_rows, DType::U8, "sums that are large enough")?;
                let kept = cx.temporary(of_rows, dtype, "gradient of sums")?;
                let (room, grad) = (kept.operand(), of_sums.operand());
                cx.launch(kernels::Elementwise::Scale { src: sums.operand(), dst: room, factor: -1.0 })?;
                cx.launch(kernels::Elementwise::AtMostBackward { src: room, grad, dst: room, most })?;
                // Adds the gradient of each sum to those of its terms: times a row of ones.
                cx.launch(kernels::Elementwise::Fill { dst: zero.operand(), value: 1.0 })?;
                let one = MatrixView { row_stride: 0, col_stride: 0, batch_stride: 0, ..zero.matrix() };
                let rows_of = |tensor: &Tensor, cols| MatrixView {
                    row_stride: cols,
                    col_stride: 1,
                    batch_stride: 0,
                    ..tensor.matrix()
                };
                let (a, c) = (rows_of(&kept, 1), rows_of(&to_weights, k));
                let (m, n) = (rows, k);
                cx.launch(kernels::Gemm { m, n, k: 1, batch: 1, a, b: one, c, bias: None, alpha: 1.0, beta: 1.0 })?;
                drop((flags, zero, of_sums, sums, kept));
                Ok([Some(to_weights), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
