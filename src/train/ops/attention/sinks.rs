//! Attention with one more logit per head in the softmax, a sink that takes a share of the weights: op by op as in gpt-oss.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use super::eager::EagerScores;

impl Context {
    /// [`Context::eager_attention`] with each head's sink logit (`sinks`) appended to the scores of every row. Returns the heads
    /// side by side, and the weights, which the caller holds as long as transformers' caller does.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn attention_with_sinks(
        &mut self,
        [q, k, v]: [&Tensor; 3],
        sinks: &Tensor,
        by: EagerScores<'_>,
    ) -> OpResult<(Tensor, Tensor)> {
        self.attention.ran = Some("eager");
        let heads = |tensor: &Tensor| tensor.shape().dims().get(1).copied().unwrap_or(1);
        let group = heads(q) / heads(k).max(1);
        let k = self.repeat_kv(k, group, "keys of every head")?;
        let v = self.repeat_kv(v, group, "values of every head")?;
        let masked = {
            let scores = self.eager_scores(q, &k, by.scale, group <= 1)?;
            // The mask is the same for all sequences.
            let [.., rows, columns] = *by.mask.shape().dims() else { return Ok((q.clone(), q.clone())) };
            self.add(&scores, &by.mask.window(Shape::new(&[rows, columns]), 0))?
        };
        let columns = masked.shape().last();
        // Both are variables that live until the function returns.
        let shifted = self.beside_sinks(&masked, sinks)?;
        let all = self.softmax(&shifted, shifted.dtype())?;
        let weights = {
            let whole = self.columns(&all, 0, columns);
            self.dropout(&whole, by.dropout)?
        };
        let weights = self.converted(weights, v.dtype(), "attention weights")?;
        drop(masked);
        let output = {
            let v = self.cast_to_lower(&v, "values copy")?;
            let weights = self.cast_to_lower(&weights, "weights copy")?;
            let v = self.by_head(&v, "values")?;
            self.weighted(&weights, &v)?
        };
        let merged = self.merge_heads(&output)?;
        drop((output, shifted, all, k, v));
        Ok((merged, weights))
    }

    /// Appends each head's sink to every row of scores, and subtracts each row's maximum: `x = cat([scores, sinks]); x −
    /// x.max(-1)`. Saves the places of the maxima.
    fn beside_sinks(&mut self, scores: &Tensor, sinks: &Tensor) -> OpResult<Tensor> {
        let [batch, heads, rows, columns] = *scores.shape().dims() else { return Ok(scores.clone()) };
        let (narrow, of_sinks) = (scores.dtype(), sinks.dtype());
        let wide = if of_sinks.size() > narrow.size() { of_sinks } else { narrow };
        let cols = columns + 1;
        let (shape, of_rows) = (Shape::new(&[batch, heads, rows, cols]), Shape::new(&[batch, heads, rows, 1]));
        let strides = shape.contiguous_strides();
        let part = move |whole: &Tensor, start: usize, width: usize| {
            whole.strided(Shape::new(&[batch, heads, rows, width]), strides, start)
        };
        let both = self.op("cat", |cx| {
            let both = cx.activation(shape, wide, "scores and sinks")?;
            cx.arrange(scores, &part(&both, 0, columns))?;
            cx.arrange(&sinks.strided(of_rows, [0, 1, 0, 0], 0), &part(&both, columns, 1))?;
            OpResult::Ok(both)
        })?;
        self.op("sub", |cx| {
            let largest = cx.temporary(of_rows, wide, "largest of each row")?;
            let places = cx.activation(of_rows, DType::I64, "places of the largest")?;
            let (src, values, indices) = (both.operand(), largest.operand(), places.operand());
            cx.launch(kernels::Routing::TopK { src, values, indices, cols, k: 1 })?;
            let differentiates = cx.differentiates(&[scores, sinks]);
            let saved = if differentiates { Some(cx.save(&places)?) } else { None };
            drop(places);
            let shifted = cx.activation(shape, wide, "shifted scores")?;
            cx.copy(&largest.strided(shape, [heads * rows, rows, 1, 0], 0), &shifted)?;
            cx.launch(kernels::Elementwise::Sub { a: both.operand(), b: shifted.operand(), dst: shifted.operand() })?;
            drop((largest, both));
            let Some(saved) = saved else { return Ok(shifted) };
            let [to_scores, to_sinks] = [scores, sinks].map(Tensor::requires_grad);
            let source = cx.record("catBackward", [Some(scores), Some(sinks), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let sums = {
                    let negated = cx.temporary(shape, wide, "negative gradient")?;
                    cx.launch(kernels::Elementwise::Scale {
                        src: grad.operand(),
                        dst: negated.operand(),
                        factor: -1.0,
                    })?;
                    let sums = cx.temporary(of_rows, wide, "gradient of the largest")?;
                    cx.sum_of_rows(&negated, &sums, [batch * heads * rows, cols])?;
                    sums
                };
                let places = saved.unpack(cx)?;
                let spread = cx.temporary(shape, wide, "gradient where the largest is")?;
                let [from, indices, dst] = [&sums, &places, &spread].map(Tensor::operand);
                cx.launch(kernels::Routing::TopKBackward { grad: from, indices, dst, cols, k: 1 })?;
                drop((sums, places));
                drop(saved);
                cx.launch(kernels::Elementwise::Add { a: grad.operand(), b: spread.operand(), dst: grad.operand() })?;
                // Summing a column needs its elements together: the sum is computed in the memory of a finished operand, and its
                // result is put at the beginning of the column, which is not read any more.
                let waiting = grad.strided(Shape::new(&[1, heads, 1, 1]), strides, columns);
                if to_sinks {
                    let column = Shape::new(&[batch, heads, rows, 1]);
                    let together = spread.strided(column, [rows, batch * rows, 1, 1], 0);
                    cx.copy(&part(&grad, columns, 1), &together)?;
                    let sums = spread.window(Shape::new(&[heads]), batch * heads * rows);
                    let all = spread.window(Shape::new(&[heads * batch * rows]), 0);
                    cx.sum_of_rows(&all, &sums, [heads, batch * rows])?;
                    cx.copy(&sums.strided(waiting.shape(), [0, 1, 0, 0], 0), &waiting)?;
                }
                drop(spread);
                let to_sinks = if to_sinks {
                    let sum = cx.temporary(Shape::new(&[heads]), wide, "gradient of sinks")?;
                    cx.copy(&waiting, &sum.strided(waiting.shape(), [0, 1, 0, 0], 0))?;
                    Some(cx.cast_gradient(&sum, of_sinks)?)
                } else {
                    None
                };
                drop(waiting);
                let to_scores = to_scores.then(|| cx.cast_gradient(&part(&grad, 0, columns), narrow)).transpose()?;
                Ok([to_scores, to_sinks, None])
            });
            Ok(shifted.with_source(source))
        })
    }

    /// The sum of each of `outer` rows of `middle` elements.
    fn sum_of_rows(&self, src: &Tensor, dst: &Tensor, [outer, middle]: [usize; 2]) -> OpResult<()> {
        let sums = dst.operand();
        // The sum is the mean times the number of terms.
        self.launch(kernels::Sums::Mean { src: src.operand(), dst: sums, outer, middle, inner: 1 })?;
        #[expect(clippy::cast_precision_loss, reason = "rows of attention")]
        self.launch(kernels::Elementwise::Scale { src: sums, dst: sums, factor: middle as f64 })
    }
}
