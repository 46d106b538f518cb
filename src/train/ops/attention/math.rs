//! Attention by matrix products and a softmax: what PyTorch runs if no fused kernel takes the shape.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{AttentionShape, DType, MatrixView, Operand, kernels};

use super::heads::Heads;
use crate::ops::masks::minus_infinity;

/// The matrices of all heads; several sequences must lie head by head.
pub(in crate::ops) fn matrices(tensor: &Tensor, transposed: bool) -> MatrixView {
    let &[_, by_head, by_row, by_element] = tensor.strides() else { return tensor.matrix() };
    let (row_stride, col_stride) = if transposed { (by_element, by_row) } else { (by_row, by_element) };
    // With one head per sequence, the next matrix is the next sequence's.
    let batch_stride = if tensor.shape().dims()[1] == 1 { tensor.strides()[0] } else { by_head };
    MatrixView { row_stride, col_stride, batch_stride, ..tensor.matrix() }
}

/// Whether the heads of all sequences are one run of matrices at equal distances.
pub(in crate::ops) fn evenly_spaced(tensor: &Tensor) -> bool {
    let (&[batch, heads, _, _], &[by_batch, by_head, ..]) = (tensor.shape().dims(), tensor.strides()) else {
        return true;
    };
    batch == 1 || heads == 1 || by_batch == heads * by_head
}

impl Context {
    pub(super) fn math_attention(
        &mut self,
        parts: &Heads,
        shape: AttentionShape,
        bias: Option<Tensor>,
        (dropout, broadcasts): (f64, bool),
    ) -> OpResult<Tensor> {
        let dtype = parts.q.dtype();
        if !matches!(dtype, DType::F16 | DType::Bf16) {
            return self.attention_products(parts, (shape, bias, dropout, broadcasts), dtype);
        }
        // 16-bit inputs are computed in f32; the copies live to the end of the op.
        let parts = Heads {
            q: self.widened(&parts.q, "f32 queries")?,
            k: self.widened(&parts.k, "f32 keys")?,
            v: self.widened(&parts.v, "f32 values")?,
        };
        self.attention_products(&parts, (shape, bias, dropout, broadcasts), dtype)
    }

    /// Attention in the type of its parts; output and weights are returned in `dtype`. Heads of keys are repeated before the
    /// products (`enable_gqa`), or by each product for itself if that `broadcasts`.
    fn attention_products(
        &mut self,
        parts: &Heads,
        (shape, bias, dropout, broadcasts): (AttentionShape, Option<Tensor>, f64, bool),
        dtype: DType,
    ) -> OpResult<Tensor> {
        let AttentionShape { rows, scale, causal, .. } = shape;
        let computed = parts.q.dtype();
        // Each operand gets the root of the scale, which keeps 16-bit products in range.
        let half = f64::from(scale).sqrt();
        let q = self.scaled(&parts.q, half, "scaled queries")?;
        let mask = match bias {
            // The mask is the same for all sequences.
            Some(bias) => Some(bias.window(Shape::new(&[rows, rows]), 0)),
            None if causal => Some(self.causal_mask(rows, computed)?),
            None => None,
        };
        let [early, late] = if broadcasts { [1, parts.group()] } else { [parts.group(), 1] };
        let repeated = Heads {
            q: q.clone(),
            k: self.repeat_heads(&parts.k, early, "keys of every head")?,
            v: self.repeat_heads(&parts.v, early, "values of every head")?,
        };
        let k = self.scaled(&repeated.k, half, "scaled keys")?;
        let scores = self.op("matmul", |cx| {
            let q_rows = cx.by_head(&q, "queries")?;
            let k = cx.broadcast_heads(&k, late, "keys of every head")?;
            let k_rows = cx.by_head(&k, "keys")?;
            let scores = cx.scores(&q_rows, &k_rows, false)?;
            Ok(scores)
        })?;
        drop(k);
        if let Some(mask) = &mask {
            self.launch(kernels::Elementwise::Add { a: scores.operand(), b: mask.operand(), dst: scores.operand() })?;
        }
        let weights = self.attention_softmax(&scores)?;
        drop(scores);
        let weights = {
            let whole = weights;
            self.dropout(&whole, dropout)?
        };
        // The weights are a second result, which the caller drops.
        let result = if computed == dtype {
            None
        } else {
            let result = self.temporary(weights.shape(), dtype, "attention weights")?;
            self.launch(kernels::Elementwise::Cast { src: weights.operand(), dst: result.operand() })?;
            Some(result)
        };
        let output = {
            let v = self.broadcast_heads(&repeated.v, late, "values of every head")?;
            let v = self.by_head(&v, "values")?;
            self.weighted(&weights, &v)?
        };
        let output = if computed == dtype { output } else { self.cast(&output, dtype, "attention output")? };
        drop((q, repeated, mask, result));
        Ok(output)
    }

    /// An f32 copy in the layout of a (batch, rows, width) tensor, viewed by heads.
    fn widened(&mut self, part: &Tensor, what: &'static str) -> OpResult<Tensor> {
        self.op("cast", |cx| {
            let output = cx.like(part, DType::F32, what)?;
            cx.arrange(part, &output)?;
            if !cx.differentiates(&[part]) {
                return Ok(output);
            }
            let original = part.dtype();
            let source = cx.record("castBackward", [Some(part), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                Ok([Some(cx.cast_gradient(&grad, original)?), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// A tensor for an elementwise result: dense, with its dimensions ordered by the strides of `part`.
    fn like(&self, part: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let [batch, heads, rows, head_size] = *part.shape().dims() else { return Ok(part.clone()) };
        if part.is_contiguous() {
            return self.activation(part.shape(), dtype, what);
        }
        let width = heads * head_size;
        let output = self.activation(Shape::new(&[batch, rows, width]), dtype, what)?;
        Ok(output.strided(part.shape(), [rows * width, head_size, width, 1], 0))
    }

    /// `part · factor` in the layout of PyTorch's product.
    fn scaled(&mut self, part: &Tensor, factor: f64, what: &'static str) -> OpResult<Tensor> {
        self.op("mul", |cx| {
            let view = cx.like(part, part.dtype(), what)?;
            cx.copy(part, &view)?;
            let whole = Operand { address: view.address(), dtype: view.dtype(), len: view.numel() };
            cx.launch(kernels::Elementwise::Scale { src: whole, dst: whole, factor })?;
            if !cx.differentiates(&[part]) {
                return Ok(view);
            }
            let source = cx.record("mulBackward", [Some(part), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let dst = cx.temporary(grad.shape(), grad.dtype(), "scaled gradient")?;
                cx.launch(kernels::Elementwise::Scale { src: grad.operand(), dst: dst.operand(), factor })?;
                Ok([Some(dst), None, None])
            });
            Ok(view.with_source(source))
        })
    }

    /// 0 where a position sees another, minus infinity elsewhere: (rows, rows).
    fn causal_mask(&self, rows: usize, dtype: DType) -> OpResult<Tensor> {
        let square = Shape::new(&[rows, rows]);
        let scalar = |what| self.temporary(Shape::new(&[]), dtype, what);
        let ones = self.temporary(square, DType::U8, "ones")?;
        let triangle = self.temporary(square, DType::U8, "triangle")?;
        drop(ones);
        let scalars = (scalar("minus infinity")?, scalar("zero")?);
        let mask = self.temporary(square, dtype, "mask")?;
        drop((scalars, triangle));
        let seen = |at: usize| at % rows <= at / rows;
        let hidden = minus_infinity(dtype);
        self.memory().fill(&mask, |first, bytes| {
            for (i, element) in bytes.chunks_exact_mut(hidden.len()).enumerate() {
                if seen(first + i) {
                    element.fill(0);
                } else {
                    element.copy_from_slice(&hidden);
                }
            }
        })?;
        Ok(mask)
    }

    /// A copy with the rows of each head together, unless heads and sequences are already at equal distances; its
    /// gradient passes through unchanged.
    pub(in crate::ops) fn by_head(&self, part: &Tensor, what: &'static str) -> OpResult<Tensor> {
        if evenly_spaced(part) {
            return Ok(part.clone());
        }
        let output = self.activation(part.shape(), part.dtype(), what)?;
        self.copy(part, &output)?;
        Ok(output.with_source(part.source()))
    }

    pub(in crate::ops) fn head_products(
        &mut self,
        [m, n, k]: [usize; 3],
        a: MatrixView,
        b: MatrixView,
        c: &Tensor,
    ) -> OpResult<()> {
        let memory = self.memory().clone();
        self.workspaces.gemm(&memory)?;
        let batch = c.shape().dims()[0] * c.shape().dims()[1];
        let c = matrices(c, false);
        self.launch(kernels::Gemm { m, n, k, batch, a, b, c, bias: None, alpha: 1.0, beta: 0.0 })
    }

    /// `q kᵀ` of every head. The gradient of `k` lies head by head, or transposed as the product leaves it if `turned`.
    pub(super) fn scores(&mut self, q: &Tensor, k: &Tensor, turned: bool) -> OpResult<Tensor> {
        let [batch, heads, rows, head_size] = *q.shape().dims() else { return Ok(q.clone()) };
        let keys = k.shape().dims()[2];
        let differentiates = self.differentiates(&[q, k]);
        let saved_q = if differentiates && k.requires_grad() { Some(self.save(q)?) } else { None };
        let saved_k = if differentiates && q.requires_grad() { Some(self.save(k)?) } else { None };
        let output = self.activation(Shape::new(&[batch, heads, rows, keys]), q.dtype(), "attention scores")?;
        self.head_products([rows, keys, head_size], matrices(q, false), matrices(k, true), &output)?;
        if !differentiates {
            return Ok(output);
        }
        let (of_q, of_k, dtype) = (q.shape(), k.shape(), q.dtype());
        let source = self.record("matmulBackward", [Some(q), Some(k), None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            // The second argument comes first: names are unpacked in alphabetical order, and mat2 sorts before self.
            let k = saved_k.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
            let q = saved_q.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
            let mut product = |of: Shape, what, sizes, a, b| {
                let dst = cx.temporary(of, dtype, what)?;
                cx.head_products(sizes, a, b, &dst)?;
                OpResult::Ok(dst)
            };
            let to_k = |q: &Tensor| {
                let what = "key gradient";
                if !turned {
                    let sizes = [keys, head_size, rows];
                    return product(of_k, what, sizes, matrices(&grad, true), matrices(q, false));
                }
                let (of, sizes) = (Shape::new(&[batch, heads, head_size, keys]), [head_size, keys, rows]);
                let dst = product(of, what, sizes, matrices(q, true), matrices(&grad, false))?;
                let of_head = head_size * keys;
                Ok(dst.strided(of_k, [heads * of_head, of_head, 1, keys], 0))
            };
            let dk = q.as_ref().map(to_k).transpose()?;
            let to_q = |k: &Tensor| {
                let (a, b) = (matrices(&grad, false), matrices(k, false));
                product(of_q, "query gradient", [rows, head_size, keys], a, b)
            };
            let dq = k.as_ref().map(to_q).transpose()?;
            Ok([dq, dk, None])
        });
        Ok(output.with_source(source))
    }

    /// Softmax of every row, with the checks for rows that are fully masked.
    fn attention_softmax(&mut self, scores: &Tensor) -> OpResult<Tensor> {
        let cols = scores.shape().last();
        self.op("softmax", |cx| {
            let output = cx.activation(scores.shape(), scores.dtype(), "softmax output")?;
            cx.launch(kernels::Softmax::Forward { src: scores.operand(), dst: output.operand(), cols })?;
            let differentiates = cx.differentiates(&[scores]);
            let saved = if differentiates { Some(cx.save(&output)?) } else { None };
            let masked = cx.temporary(scores.shape(), DType::U8, "masked scores")?;
            let rows = cx.temporary(Shape::new(&[scores.shape().rows()]), DType::U8, "masked rows")?;
            drop(cx.temporary(Shape::new(&[]), scores.dtype(), "zero")?);
            drop((rows, masked));
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("softmaxBackward", [Some(scores), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let output = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "scores gradient")?;
                drop(cx.temporary(grad.shape(), grad.dtype(), "gradient times output")?);
                cx.launch(kernels::Softmax::Backward {
                    output: output.operand(),
                    grad: grad.operand(),
                    dst: dst.operand(),
                    cols,
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// `weights · values` of every head.
    pub(super) fn weighted(&mut self, weights: &Tensor, v: &Tensor) -> OpResult<Tensor> {
        let [batch, heads, keys, head_size] = *v.shape().dims() else { return Ok(v.clone()) };
        let rows = weights.shape().dims()[2];
        let of_output = Shape::new(&[batch, heads, rows, head_size]);
        self.op("matmul", |cx| {
            let differentiates = cx.differentiates(&[weights, v]);
            let saved_weights = if differentiates && v.requires_grad() { Some(cx.save(weights)?) } else { None };
            let saved_v = if differentiates && weights.requires_grad() { Some(cx.save(v)?) } else { None };
            let output = cx.activation(of_output, v.dtype(), "heads output")?;
            cx.head_products([rows, head_size, keys], matrices(weights, false), matrices(v, false), &output)?;
            if !differentiates {
                return Ok(output);
            }
            let (of_v, of_weights, dtype) = (v.shape(), weights.shape(), v.dtype());
            let source = cx.record("matmulBackward", [Some(weights), Some(v), None], move |cx, grads| {
                let [Some(merged), ..] = grads else { return Ok(Gradients::default()) };
                // The gradient lies side by side; the products need each head's rows together.
                let width = heads * head_size;
                let side_by_side = merged.strided(of_output, [rows * width, head_size, width, 1], 0);
                drop(merged);
                let grad = if evenly_spaced(&side_by_side) {
                    side_by_side
                } else {
                    let copy = cx.temporary(of_output, dtype, "gradient by head")?;
                    cx.copy(&side_by_side, &copy)?;
                    drop(side_by_side);
                    copy
                };
                // The second argument comes first, as in `scores`.
                let v = saved_v.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                let weights = saved_weights.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                let mut product = |of: Shape, what, sizes, a, b| {
                    let dst = cx.temporary(of, dtype, what)?;
                    cx.head_products(sizes, a, b, &dst)?;
                    OpResult::Ok(dst)
                };
                let to_v = |weights: &Tensor| {
                    let (a, b) = (matrices(weights, true), matrices(&grad, false));
                    product(of_v, "value gradient", [keys, head_size, rows], a, b)
                };
                let dv = weights.as_ref().map(to_v).transpose()?;
                let to_weights = |v: &Tensor| {
                    let (a, b) = (matrices(&grad, false), matrices(v, true));
                    product(of_weights, "softmax gradient", [rows, keys, head_size], a, b)
                };
                let to_weights = v.as_ref().map(to_weights).transpose()?;
                Ok([to_weights, dv, None])
            });
            Ok(output.with_source(source))
        })
    }
}
