//! Scaled dot-product attention. Scores live only in scratch, a block of rows at a time; backward computes them
//! again from the saved logarithm of the sum of exponents.

use super::gemm::{Matrix, multiply};
use super::real;
use crate::device::cpu::cores::Cores;
use crate::device::cpu::operand::{Access, KernelResult, View, require};
use crate::device::cpu::real::{Real, max_of, sum_by, with_scratch};
use crate::device::{AttentionShape, HeadView, Operand};

/// Rows of scores that are in scratch at once.
const BLOCK: usize = 64;

/// A claimed operand with its layout.
#[derive(Clone, Copy)]
struct Heads<'a> {
    view: View<'a>,
    layout: HeadView,
}

impl<'a> Heads<'a> {
    fn claim(access: &mut Access<'a>, layout: HeadView, shape: &AttentionShape, written: bool) -> KernelResult<Self> {
        Ok(Self { view: access.heads(&layout, shape, written)?, layout })
    }

    fn start(&self, [b, h]: [usize; 2]) -> usize {
        b * self.layout.batch_stride + h * self.layout.head_stride
    }

    /// Loads all rows of one head.
    #[inline(always)]
    fn load<R: Real>(&self, head: [usize; 2], width: usize, out: &mut [R]) {
        let start = self.start(head);
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            R::load(&self.view, start + i * self.layout.row_stride, row);
        }
    }

    /// Stores rows from `first` on.
    #[inline(always)]
    fn store<R: Real>(&self, head: [usize; 2], first: usize, width: usize, values: &[R]) {
        let start = self.start(head);
        for (i, row) in values.chunks_exact(width).enumerate() {
            R::store(&self.view, start + (first + i) * self.layout.row_stride, row);
        }
    }
}

fn check_shape(shape: &AttentionShape, logsumexp: &Operand, lse_stride: usize) -> KernelResult {
    let fits = lse_stride >= shape.rows && logsumexp.len >= shape.batch * shape.heads * lse_stride;
    require(fits, || format!("{} sums of exponents don't fit {shape:?} at stride {lse_stride}", logsumexp.len))
}

/// Rows `[first, first + n)` of scaled scores against the `seen` positions that any of them sees.
struct ScoreBlock {
    first: usize,
    n: usize,
    seen: usize,
}

impl ScoreBlock {
    fn all(shape: &AttentionShape) -> impl Iterator<Item = Self> {
        let (rows, causal) = (shape.rows, shape.causal);
        (0..rows).step_by(BLOCK).map(move |first| {
            let n = BLOCK.min(rows - first);
            Self { first, n, seen: if causal { first + n } else { rows } }
        })
    }

    /// Positions that row `i` of the block sees.
    fn visible(&self, shape: &AttentionShape, i: usize) -> usize {
        if shape.causal { self.first + i + 1 } else { self.seen }
    }
}

fn nanos(shape: &AttentionShape, products: usize) -> usize {
    let scores = shape.batch * shape.heads * shape.rows * shape.rows / if shape.causal { 2 } else { 1 };
    scores * (products * shape.head_size / 20 + 2)
}

pub(super) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    shape: &AttentionShape,
    [q, k, v, out]: [HeadView; 4],
    logsumexp: Operand,
    lse_stride: usize,
) -> KernelResult {
    check_shape(shape, &logsumexp, lse_stride)?;
    let types = [q.dtype, k.dtype, v.dtype, out.dtype];
    let inputs = [
        Heads::claim(&mut access, q, shape, false)?,
        Heads::claim(&mut access, k, shape, false)?,
        Heads::claim(&mut access, v, shape, false)?,
    ];
    let out = Heads::claim(&mut access, out, shape, true)?;
    let sums = access.write(&logsumexp)?;
    real!(types, forward_all(cores, shape, inputs, out, sums, lse_stride));
    Ok(())
}

fn forward_all<R: Real>(
    cores: &Cores,
    shape: &AttentionShape,
    inputs: [Heads<'_>; 3],
    out: Heads<'_>,
    sums: View<'_>,
    lse_stride: usize,
) {
    let (rows, width) = (shape.rows, shape.head_size);
    if rows * width == 0 {
        return;
    }
    let size = rows * width;
    cores.for_each(shape.batch * shape.heads, nanos(shape, 2), |task| {
        let head = [task / shape.heads, task % shape.heads];
        with_scratch(3 * size + BLOCK * (rows + width), |scratch: &mut [R]| {
            let (q, rest) = scratch.split_at_mut(size);
            let (k, rest) = rest.split_at_mut(size);
            let (v, rest) = rest.split_at_mut(size);
            let (scores, result) = rest.split_at_mut(BLOCK * rows);
            for (heads, x) in inputs.iter().zip([&mut *q, &mut *k, &mut *v]) {
                heads.load(head, width, x);
            }
            let (k, v) = (Matrix::rows(k, width), Matrix::rows(v, width));
            for block in ScoreBlock::all(shape) {
                let q = Matrix::rows(&q[block.first * width..], width);
                let scale = R::of(f64::from(shape.scale));
                multiply([block.n, block.seen, width], scale, q, k.transposed(), scores, block.seen, false);
                for i in 0..block.n {
                    let row = &mut scores[i * block.seen..][..block.seen];
                    let (row, hidden) = row.split_at_mut(block.visible(shape, i));
                    let max = max_of(row);
                    row.iter_mut().for_each(|s| *s = (*s - max).exp());
                    let sum = sum_by(row.len(), |j| row[j]);
                    let factor = R::ONE / sum;
                    row.iter_mut().for_each(|p| *p *= factor);
                    hidden.fill(R::ZERO);
                    R::store(&sums, task * lse_stride + block.first + i, &[max + sum.ln()]);
                }
                let probabilities = Matrix::rows(scores, block.seen);
                multiply([block.n, width, block.seen], R::ONE, probabilities, v, result, width, false);
                out.store(head, block.first, width, &result[..block.n * width]);
            }
        });
    });
}

pub(super) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    shape: &AttentionShape,
    inputs: [HeadView; 5],
    logsumexp: Operand,
    lse_stride: usize,
    gradients: [HeadView; 3],
) -> KernelResult {
    check_shape(shape, &logsumexp, lse_stride)?;
    let types = [inputs.map(|heads| heads.dtype).as_slice(), &gradients.map(|heads| heads.dtype)].concat();
    let [q, k, v, out, grad] = inputs;
    let inputs = [
        Heads::claim(&mut access, q, shape, false)?,
        Heads::claim(&mut access, k, shape, false)?,
        Heads::claim(&mut access, v, shape, false)?,
        Heads::claim(&mut access, out, shape, false)?,
        Heads::claim(&mut access, grad, shape, false)?,
    ];
    let sums = access.read(&logsumexp)?;
    let [dq, dk, dv] = gradients;
    let gradients = [
        Heads::claim(&mut access, dq, shape, true)?,
        Heads::claim(&mut access, dk, shape, true)?,
        Heads::claim(&mut access, dv, shape, true)?,
    ];
    real!(types, backward_all(cores, shape, inputs, sums, lse_stride, gradients));
    Ok(())
}

/// With P = softmax(S), S = scale·QKᵀ and O = PV: dV = Pᵀ dO, dP = dO Vᵀ, dS = P∘(dP − rowsum(dO∘O)),
/// dQ = scale·dS K, dK = scale·dSᵀ Q.
fn backward_all<R: Real>(
    cores: &Cores,
    shape: &AttentionShape,
    inputs: [Heads<'_>; 5],
    sums: View<'_>,
    lse_stride: usize,
    [dq, dk, dv]: [Heads<'_>; 3],
) {
    let (rows, width) = (shape.rows, shape.head_size);
    if rows * width == 0 {
        return;
    }
    let size = rows * width;
    cores.for_each(shape.batch * shape.heads, nanos(shape, 5), |task| {
        let head = [task / shape.heads, task % shape.heads];
        with_scratch(7 * size + BLOCK * (2 * rows + width) + rows, |scratch: &mut [R]| {
            let mut rest = scratch;
            let mut take = |n: usize| {
                let (part, left) = std::mem::take(&mut rest).split_at_mut(n);
                rest = left;
                part
            };
            let [q, k, v, out, grad]: [&mut [R]; 5] = std::array::from_fn(|_| take(size));
            let (key_grads, value_grads) = (take(size), take(size));
            let (scores, score_grads) = (take(BLOCK * rows), take(BLOCK * rows));
            let (query_grads, lse) = (take(BLOCK * width), take(rows));
            for (heads, x) in inputs.iter().zip([&mut *q, &mut *k, &mut *v, &mut *out, &mut *grad]) {
                heads.load(head, width, x);
            }
            R::load(&sums, task * lse_stride, lse);
            key_grads.fill(R::ZERO);
            value_grads.fill(R::ZERO);
            let (keys, values) = (Matrix::rows(k, width), Matrix::rows(v, width));
            let scale = R::of(f64::from(shape.scale));
            for block in ScoreBlock::all(shape) {
                let (n, seen) = (block.n, block.seen);
                let queries = Matrix::rows(&q[block.first * width..], width);
                let of_out = Matrix::rows(&grad[block.first * width..], width);
                multiply([n, seen, width], scale, queries, keys.transposed(), scores, seen, false);
                multiply([n, seen, width], R::ONE, of_out, values.transposed(), score_grads, seen, false);
                for i in 0..n {
                    let row = block.first + i;
                    let at = row * width;
                    let delta = sum_by(width, |j| grad[at + j] * out[at + j]);
                    let visible = block.visible(shape, i);
                    let (p, hidden) = scores[i * seen..][..seen].split_at_mut(visible);
                    let (ds, hidden_grads) = score_grads[i * seen..][..seen].split_at_mut(visible);
                    for (p, ds) in p.iter_mut().zip(ds) {
                        *p = (*p - lse[row]).exp();
                        *ds = *p * (*ds - delta);
                    }
                    hidden.fill(R::ZERO);
                    hidden_grads.fill(R::ZERO);
                }
                let (p, ds) = (Matrix::rows(scores, seen), Matrix::rows(score_grads, seen));
                multiply([seen, width, n], R::ONE, p.transposed(), of_out, value_grads, width, true);
                multiply([seen, width, n], scale, ds.transposed(), queries, key_grads, width, true);
                multiply([n, width, seen], scale, ds, keys, query_grads, width, false);
                dq.store(head, block.first, width, &query_grads[..n * width]);
            }
            dk.store(head, 0, width, key_grads);
            dv.store(head, 0, width, value_grads);
        });
    });
}
