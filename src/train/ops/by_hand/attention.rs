//! Causal attention by two products, a `where` as mask and a softmax by its formula.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::ops::attention::{evenly_spaced, matrices};
use crate::ops::masks::minus_infinity;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use super::row_numbers;

/// The result of attention, and the tensors that local variables of the module's forward hold until it returns.
pub struct AttentionOutput {
    /// (batch, rows, width).
    pub merged: Tensor,
    _positions: Tensor,
    _mask: Tensor,
}

/// The saved tensors, in order.
struct Residuals {
    q: SavedVariable,
    k: SavedVariable,
    mask: SavedVariable,
    softmax: SoftmaxResiduals,
    weights: SavedVariable,
    v: SavedVariable,
}

/// The saved tensors of a softmax of four ops.
struct SoftmaxResiduals {
    largest: SavedVariable,
    exponentials: SavedVariable,
    dividends: SavedVariable,
    sums: SavedVariable,
}

/// What backward needs to know of the forward.
#[derive(Clone, Copy)]
struct Sizes {
    scores: Shape,
    heads: Shape,
    /// The type of products.
    low: DType,
    /// The type of the softmax.
    wide: DType,
    factor: f64,
}

impl Context {
    /// Attention of queries, keys and values (batch, heads, rows, head size): `scores = einsum(q, k) / sqrt(head size)`,
    /// `scores = where(mask, scores, -inf)`, softmax by hand, `einsum(weights, v)`, and a copy of that with the heads side by side.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn attention_by_hand(&mut self, [q, k, v]: [&Tensor; 3]) -> OpResult<AttentionOutput> {
        let rows = q.shape().dims().get(2).copied().unwrap_or(1);
        let (positions, mask) = self.op("causal mask", |cx| {
            let positions = cx.activation(Shape::new(&[rows]), DType::I64, "positions")?;
            cx.launch(kernels::Elementwise::Arange { dst: positions.operand() })?;
            // The mask is never read: hidden positions are zero in the weights of the softmax.
            Ok((positions, cx.activation(Shape::new(&[rows, rows]), DType::U8, "causal mask")?))
        })?;
        let (q, k) = (self.cast_to_lower(q, "queries copy")?, self.cast_to_lower(k, "keys copy")?);
        let attended = self.op("attention by hand", |cx| cx.heads_by_hand(q, k, v, &mask))?;
        let merged = self.merge_heads(&attended)?;
        Ok(AttentionOutput { merged, _positions: positions, _mask: mask })
    }

    fn heads_by_hand(&mut self, q: Tensor, k: Tensor, v: &Tensor, mask: &Tensor) -> OpResult<Tensor> {
        let [batch, heads, rows, head_size] = *q.shape().dims() else { return Ok(q) };
        let low = q.dtype();
        let wide = if low == DType::F64 { low } else { DType::F32 };
        #[expect(clippy::cast_precision_loss, reason = "the size of a head")]
        let factor = 1.0 / (head_size as f64).sqrt();
        let sizes = Sizes { scores: Shape::new(&[batch, heads, rows, rows]), heads: q.shape(), low, wide, factor };
        // Only the sources of queries and keys are needed. The values outlive the op, so their handles stand in.
        let inputs = [&q, &k, v].map(|tensor| v.detach().with_source(tensor.source()));
        let (saved_q, saved_k) = (self.save(&q)?, self.save(&k)?);
        let scores = self.activation(sizes.scores, low, "attention scores")?;
        self.head_products([rows, rows, head_size], matrices(&q, false), matrices(&k, true), &scores)?;
        drop((q, k));
        let scaled = self.activation(sizes.scores, low, "scaled scores")?;
        self.launch(kernels::Elementwise::Scale { src: scores.operand(), dst: scaled.operand(), factor })?;
        drop(scores);
        let (masked, saved_mask) = self.masked_by_hand(scaled, mask)?;
        let (weights, softmax) = self.softmax_by_hand(&masked, wide)?;
        let (output, saved_weights, saved_v) = {
            let weights =
                if wide == low { weights.clone() } else { self.elementwise_activation(&weights, low, "weights copy")? };
            let v = self.by_head(v, "values")?;
            let saved = (self.save(&weights)?, self.save(&v)?);
            let output = self.activation(sizes.heads, low, "heads output")?;
            let (a, b) = (matrices(&weights, false), matrices(&v, false));
            self.head_products([rows, head_size, rows], a, b, &output)?;
            (output, saved.0, saved.1)
        };
        drop((masked, weights));
        let [of_q, of_k, of_v] = &inputs;
        if !self.differentiates(&[of_q, of_k, of_v]) {
            return Ok(output);
        }
        let residuals =
            Residuals { q: saved_q, k: saved_k, mask: saved_mask, softmax, weights: saved_weights, v: saved_v };
        let inputs = [Some(of_q), Some(of_k), Some(of_v)];
        let source = self.record("attention by handBackward", inputs, move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            cx.attention_by_hand_backward(grad, residuals, sizes)
        });
        Ok(output.with_source(source))
    }

    /// `torch.where(mask, scores, float("-inf"))`.
    fn masked_by_hand(&mut self, scores: Tensor, mask: &Tensor) -> OpResult<(Tensor, SavedVariable)> {
        let (dtype, rows) = (scores.dtype(), scores.shape().last());
        let infinity = self.temporary(Shape::new(&[]), dtype, "minus infinity")?;
        let saved = self.save(mask)?;
        let masked = self.activation(scores.shape(), dtype, "masked scores")?;
        drop(infinity);
        // The mask as numbers is kept in the result's memory until it is added.
        let hidden = minus_infinity(dtype);
        let added = masked.window(Shape::new(&[rows, rows]), 0);
        self.memory().fill(&added, |first, bytes| {
            for (i, element) in bytes.chunks_exact_mut(hidden.len()).enumerate() {
                let (row, column) = ((first + i) / rows, (first + i) % rows);
                if column <= row { element.fill(0) } else { element.copy_from_slice(&hidden) }
            }
        })?;
        self.launch(kernels::Elementwise::Add { a: scores.operand(), b: added.operand(), dst: scores.operand() })?;
        self.launch(kernels::Elementwise::Cast { src: scores.operand(), dst: masked.operand() })?;
        Ok((masked, saved))
    }

    /// `shifted = scores - max(scores); exp(shifted) / sum(exp(shifted))` by rows. Under autocast exponentials are in f32.
    fn softmax_by_hand(&mut self, scores: &Tensor, wide: DType) -> OpResult<(Tensor, SoftmaxResiduals)> {
        let (low, cols) = (scores.dtype(), scores.shape().last());
        let (largest, shifted) = {
            let values = self.by_row(scores, low, "largest scores")?;
            let places = self.activation(row_numbers(scores), DType::I64, "places of the largest")?;
            let saved = self.save(&places)?;
            drop(places);
            let shifted = self.elementwise(scores, low, "shifted scores")?;
            drop(values);
            (saved, shifted)
        };
        let exponentials = {
            let copy = if wide == low { None } else { Some(self.elementwise(scores, wide, "scores in f32")?) };
            let exponentials = self.activation(scores.shape(), wide, "exponentials")?;
            // The stored values are already divided by their sums, which simplifies backward.
            let src = copy.as_ref().unwrap_or(scores).operand();
            self.launch(kernels::Softmax::Forward { src, dst: exponentials.operand(), cols })?;
            exponentials
        };
        let saved = self.save(&exponentials)?;
        let sums = self.by_row_activation(&exponentials, wide, "sums of exponentials")?;
        let (dividends, saved_sums) = (self.save(&exponentials)?, self.save(&sums)?);
        let weights = self.elementwise_activation(&exponentials, wide, "attention weights")?;
        drop((sums, shifted, exponentials));
        Ok((weights, SoftmaxResiduals { largest, exponentials: saved, dividends, sums: saved_sums }))
    }

    fn attention_by_hand_backward(&mut self, merged: Tensor, saved: Residuals, sizes: Sizes) -> OpResult<Gradients> {
        let Sizes { scores, heads, low, factor, .. } = sizes;
        let [_, count, rows, head_size] = *heads.dims() else { return Ok(Gradients::default()) };
        // The gradient lies side by side; the products need each head's rows together.
        let width = count * head_size;
        let side_by_side = merged.strided(heads, [rows * width, head_size, width, 1], 0);
        drop(merged);
        let grad = if evenly_spaced(&side_by_side) {
            side_by_side
        } else {
            let copy = self.temporary(heads, low, "gradient by head")?;
            self.copy(&side_by_side, &copy)?;
            drop(side_by_side);
            copy
        };
        let (weights, v) = (saved.weights.unpack(self)?, saved.v.unpack(self)?);
        let to_v = self.temporary(heads, low, "value gradient")?;
        self.head_products([rows, head_size, rows], matrices(&weights, true), matrices(&grad, false), &to_v)?;
        let to_weights = self.temporary(scores, low, "weights gradient")?;
        self.head_products([rows, rows, head_size], matrices(&grad, false), matrices(&v, true), &to_weights)?;
        drop((grad, weights, v, saved.weights, saved.v));
        let to_masked = self.softmax_by_hand_backward(to_weights, saved.softmax, sizes)?;
        let mask = saved.mask.unpack(self)?;
        let zero = self.temporary(Shape::new(&[]), low, "zero")?;
        let to_scaled = self.elementwise(&to_masked, low, "scaled scores gradient")?;
        drop((zero, to_masked, mask, saved.mask));
        let to_scores = self.temporary(scores, low, "scores gradient")?;
        self.launch(kernels::Elementwise::Scale { src: to_scaled.operand(), dst: to_scores.operand(), factor })?;
        drop(to_scaled);
        let (q, k) = (saved.q.unpack(self)?, saved.k.unpack(self)?);
        let to_k = self.temporary(heads, low, "key gradient")?;
        self.head_products([rows, head_size, rows], matrices(&to_scores, true), matrices(&q, false), &to_k)?;
        let to_q = self.temporary(heads, low, "query gradient")?;
        self.head_products([rows, head_size, rows], matrices(&to_scores, false), matrices(&k, false), &to_q)?;
        Ok([Some(to_q), Some(to_k), Some(to_v)])
    }

    /// Turns the gradient of the weights into that of the masked scores.
    fn softmax_by_hand_backward(
        &mut self,
        to_weights: Tensor,
        saved: SoftmaxResiduals,
        Sizes { scores, low, wide, .. }: Sizes,
    ) -> OpResult<Tensor> {
        let to_weights = if wide == low {
            to_weights
        } else {
            let copy = self.elementwise(&to_weights, wide, "weights gradient in f32")?;
            drop(to_weights);
            copy
        };
        let to_exponentials = {
            let (dividends, sums) = (saved.dividends.unpack(self)?, saved.sums.unpack(self)?);
            let quotient = self.elementwise(&dividends, wide, "quotient")?;
            let again = self.elementwise(&quotient, wide, "quotient of that")?;
            let negative = self.elementwise(&to_weights, wide, "negative gradient")?;
            let products = self.product_of(&negative, &again, "divisor gradient")?;
            drop((negative, again, quotient));
            let to_exponentials = self.temporary(scores, wide, "exponentials gradient")?;
            let (output, grad, dst) = (dividends.operand(), to_weights.operand(), to_exponentials.operand());
            self.launch(kernels::Softmax::Backward { output, grad, dst, cols: scores.last() })?;
            // Recomputed tensors of a checkpoint are freed after the products; sums come after the node.
            drop((dividends, sums));
            drop(self.by_row(&products, wide, "sums gradient")?);
            drop((products, to_weights, saved.dividends, saved.sums));
            to_exponentials
        };
        let exponentials = saved.exponentials.unpack(self)?;
        let to_shifted = self.elementwise(&to_exponentials, wide, "shifted scores gradient")?;
        drop((to_exponentials, exponentials, saved.exponentials));
        let to_shifted = if wide == low {
            to_shifted
        } else {
            let copy = self.elementwise(&to_shifted, low, "shifted scores gradient copy")?;
            drop(to_shifted);
            copy
        };
        let negative = self.elementwise(&to_shifted, low, "negative gradient")?;
        let sums = self.by_row(&negative, low, "gradient of the largest")?;
        drop(negative);
        let places = saved.largest.unpack(self)?;
        let scattered = self.elementwise(&to_shifted, low, "gradient where the largest are")?;
        drop((sums, places, saved.largest, scattered));
        Ok(to_shifted)
    }
}
