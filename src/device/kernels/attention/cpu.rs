//! Scaled dot-product attention. Scores exist only in scratch, one block of rows at a time; backward recomputes them
//! from the saved logarithm of the sum of exponents.

use std::ops::Range;

use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, max_of, sum_by};
use crate::cpu::tile::{self, Store, TILE, padded, transpose};
use crate::{AttentionShape, DropoutMask, HeadView, Operand};

/// Rows of scores that are in scratch at the same time, in whole tiles.
const BLOCK: usize = 64;

/// A claimed operand with its layout.
#[derive(Clone, Copy)]
struct Heads<'a> {
    view: View<'a>,
    layout: HeadView,
    /// Elements of one head.
    width: usize,
}

impl<'a> Heads<'a> {
    fn claim(access: &mut Access<'a>, layout: HeadView, shape: &AttentionShape, written: bool) -> KernelResult<Self> {
        Ok(Self { view: access.heads(&layout, shape, written)?, layout, width: shape.head_size })
    }

    /// Claims keys and values, which may have a different number of positions than the queries, or fewer heads.
    fn claim_keys(
        access: &mut Access<'a>,
        [k, v]: [HeadView; 2],
        shape: &AttentionShape,
        keys: usize,
    ) -> KernelResult<[Self; 2]> {
        let of = |shape: AttentionShape| AttentionShape { rows: keys, ..shape };
        Ok([
            Self::claim(access, k, &of(shape.of_keys()), false)?,
            Self::claim(access, v, &of(shape.of_values()), false)?,
        ])
    }

    fn start(&self, [b, h]: [usize; 2]) -> usize {
        b * self.layout.batch_stride + h * self.layout.head_stride
    }

    /// Loads all rows of one head, padded with zeros to `wide` elements and whole tiles.
    #[inline(always)]
    fn load<R: Real>(&self, head: [usize; 2], [rows, wide]: [usize; 2], out: &mut [R]) {
        let start = self.start(head);
        let (filled, rest) = out.split_at_mut(rows * wide);
        for (i, row) in filled.chunks_exact_mut(wide).enumerate() {
            let (row, padding) = row.split_at_mut(self.width);
            R::load(&self.view, start + i * self.layout.row_stride, row);
            padding.fill(R::ZERO);
        }
        rest.fill(R::ZERO);
    }

    /// Stores `rows` rows of `wide` elements, starting at `first`, without their padding.
    #[inline(always)]
    fn store<R: Real>(&self, head: [usize; 2], [first, rows]: [usize; 2], wide: usize, values: &[R]) {
        let start = self.start(head);
        for (i, row) in values.chunks_exact(wide).enumerate().take(rows) {
            R::store(&self.view, start + (first + i) * self.layout.row_stride, &row[..self.width]);
        }
    }
}

fn check_shape(shape: &AttentionShape, logsumexp: &Operand, lse_stride: usize) -> KernelResult {
    let last = (shape.batch * shape.heads).saturating_sub(1) * lse_stride + shape.rows;
    let fits = lse_stride >= shape.rows && logsumexp.len >= last;
    require(fits, || format!("{} sums of exponents don't fit {shape:?} at stride {lse_stride}", logsumexp.len))?;
    check_group(shape)
}

fn check_group(shape: &AttentionShape) -> KernelResult {
    require(shape.heads.is_multiple_of(shape.group.max(1)), || format!("groups of {shape:?} are not whole"))
}

/// Rows `[first, first + n)` of scaled scores over `keys` positions.
struct ScoreBlock {
    first: usize,
    n: usize,
    keys: usize,
}

impl ScoreBlock {
    #[inline(always)]
    fn all(shape: &AttentionShape, keys: usize) -> impl Iterator<Item = Self> {
        let rows = shape.rows;
        (0..rows).step_by(BLOCK).map(move |first| Self { first, n: BLOCK.min(rows - first), keys })
    }

    /// The first rows of the block's tiles, relative to the block's start.
    #[inline(always)]
    fn tiles(&self) -> impl Iterator<Item = usize> {
        (0..self.n).step_by(TILE)
    }

    /// Positions that row `i` of the block sees.
    #[inline(always)]
    fn visible(&self, shape: &AttentionShape, i: usize) -> usize {
        if shape.causal { self.first + i + 1 } else { self.keys }
    }

    /// The first position that row `i` of the block sees.
    #[inline(always)]
    fn begins(&self, shape: &AttentionShape, i: usize) -> usize {
        shape.first_seen(self.first + i)
    }

    /// The positions seen by the tile that starts at row `i` of the block, rounded up to whole tiles.
    #[inline(always)]
    fn seen(&self, shape: &AttentionShape, i: usize) -> usize {
        padded(if shape.causal { self.first + i + TILE } else { self.keys })
    }

    /// The first row of the block whose tile sees the tile of positions that starts at `position`.
    #[inline(always)]
    fn seen_by(&self, shape: &AttentionShape, position: usize) -> usize {
        if shape.causal { position.saturating_sub(self.first) } else { 0 }
    }
}

/// Dropout's effect on the weights of all heads: each is multiplied by 0 or by a factor.
#[derive(Clone, Copy)]
struct DropoutWeights<R> {
    seed: u64,
    threshold: u64,
    factor: R,
}

impl<R: Real> DropoutWeights<R> {
    fn of(shape: &AttentionShape) -> Option<Self> {
        let of = |mask: DropoutMask| Self {
            seed: mask.seed(),
            threshold: mask.threshold(),
            factor: R::of(f64::from(mask.factor())),
        };
        shape.dropout.map(of)
    }

    /// The factor on the weight of this number.
    #[inline(always)]
    fn of_weight(self, number: usize) -> R {
        if DropoutMask::leaves_out(self.seed, self.threshold, number as u64) { R::ZERO } else { self.factor }
    }
}

/// e^(s − shift) of the `visible` scores, zero for the others.
#[inline(always)]
fn exponents<R: Real>(scores: &mut [R], visible: Range<usize>, shift: R) {
    scores[visible.end..].fill(R::NEG_INFINITY);
    scores[..visible.start].fill(R::NEG_INFINITY);
    for tile in scores.as_chunks_mut::<TILE>().0 {
        for s in tile {
            *s = (*s - shift).exp();
        }
    }
}

fn nanos(shape: &AttentionShape, keys: usize, products: usize) -> usize {
    let scores = shape.batch * shape.heads * shape.rows * keys / if shape.causal { 2 } else { 1 };
    scores * (products * shape.widest() / 30 + 1)
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
    let of_q = Heads::claim(&mut access, q, shape, false)?;
    let [of_k, of_v] = Heads::claim_keys(&mut access, [k, v], shape, shape.rows)?;
    let inputs = [of_q, of_k, of_v];
    let out = Heads::claim(&mut access, out, &shape.of_result(), true)?;
    let sums = access.write(&logsumexp)?;
    real!(types, forward_all(cores, shape, shape.rows, inputs, out, Some((sums, lse_stride))));
    Ok(())
}

/// The forward pass without sums of exponents, over `keys` positions.
pub(super) fn inference(
    cores: &Cores,
    mut access: Access<'_>,
    shape: &AttentionShape,
    keys: usize,
    [q, k, v, out]: [HeadView; 4],
) -> KernelResult {
    require(!shape.causal || keys == shape.rows, || format!("{keys} positions can't be causal to {shape:?}"))?;
    check_group(shape)?;
    let types = [q.dtype, k.dtype, v.dtype, out.dtype];
    let of_q = Heads::claim(&mut access, q, shape, false)?;
    let [of_k, of_v] = Heads::claim_keys(&mut access, [k, v], shape, keys)?;
    let inputs = [of_q, of_k, of_v];
    let out = Heads::claim(&mut access, out, &shape.of_result(), true)?;
    real!(types, forward_all(cores, shape, keys, inputs, out, None));
    Ok(())
}

fn forward_all<R: Real>(
    cores: &Cores,
    shape: &AttentionShape,
    keys: usize,
    inputs: [Heads<'_>; 3],
    out: Heads<'_>,
    sums: Option<(View<'_>, usize)>,
) {
    let rows = shape.rows;
    if rows * keys * shape.widest() == 0 {
        return;
    }
    let (seq, wide) = (padded(keys), padded(shape.widest()));
    let (size, queries) = (seq * wide, padded(rows) * wide);
    let scale = R::of(f64::from(shape.scale));
    let kept = DropoutWeights::of(shape);
    cores.for_each(
        shape.batch * shape.heads,
        nanos(shape, keys, 2),
        #[inline(always)]
        |task| {
            let head = [task / shape.heads, task % shape.heads];
            let shared = [head[0], head[1] / shape.group.max(1)];
            cores.scratch(
                3 * size + queries + BLOCK * (seq + wide),
                #[inline(always)]
                |scratch: &mut [R]| {
                    let sizes = [queries, BLOCK * seq, BLOCK * wide];
                    let ([k, v, columns], [q, scores, result]) = parts(scratch, size, sizes);
                    let [all_q, all_k, all_v] = &inputs;
                    all_q.load(head, [rows, wide], q);
                    all_k.load(shared, [keys, wide], k);
                    all_v.load(shared, [keys, wide], v);
                    transpose(k, wide, columns, seq);
                    for block in ScoreBlock::all(shape, keys) {
                        for i in block.tiles() {
                            let seen = block.seen(shape, i);
                            let q = &q[(block.first + i) * wide..];
                            let scores = &mut scores[i * seq..];
                            tile::rows(
                                cores,
                                [seen, wide],
                                scale,
                                (q, wide),
                                (columns, seq),
                                (&mut *scores, seq),
                                Store::Replace,
                            );
                            for row in i..block.n.min(i + TILE) {
                                let p = &mut scores[(row - i) * seq..][..seen];
                                let visible = block.begins(shape, row)..block.visible(shape, row);
                                let max = max_of(&p[visible.clone()]);
                                exponents(p, visible, max);
                                let sum = sum_by(
                                    seen,
                                    #[inline(always)]
                                    |j| p[j],
                                );
                                let factor = R::ONE / sum;
                                p.iter_mut().for_each(|p| *p *= factor);
                                if let Some(kept) = kept {
                                    let first = (task * rows + block.first + row) * keys;
                                    let weights = p.iter_mut().enumerate();
                                    weights.for_each(|(j, p)| *p *= kept.of_weight(first + j));
                                }
                                if let Some((sums, stride)) = &sums {
                                    R::store(sums, task * stride + block.first + row, &[max + sum.ln()]);
                                }
                            }
                            let result = &mut result[i * wide..];
                            tile::rows(
                                cores,
                                [wide, seen],
                                R::ONE,
                                (scores, seq),
                                (v, wide),
                                (result, wide),
                                Store::Replace,
                            );
                        }
                        out.store(head, [block.first, block.n], wide, result);
                    }
                },
            );
        },
    );
}

/// Divides scratch into `N` parts of `size` and further parts of `sizes`.
#[inline(always)]
fn parts<R, const N: usize, const M: usize>(
    scratch: &mut [R],
    size: usize,
    sizes: [usize; M],
) -> ([&mut [R]; N], [&mut [R]; M]) {
    let mut rest = scratch;
    let mut take = |n: usize| {
        let (part, left) = std::mem::take(&mut rest).split_at_mut(n);
        rest = left;
        part
    };
    (std::array::from_fn(|_| take(size)), sizes.map(take))
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
    let of_q = Heads::claim(&mut access, q, shape, false)?;
    let [of_k, of_v] = Heads::claim_keys(&mut access, [k, v], shape, shape.rows)?;
    let result = shape.of_result();
    let of_out = Heads::claim(&mut access, out, &result, false)?;
    let inputs = [of_q, of_k, of_v, of_out, Heads::claim(&mut access, grad, &result, false)?];
    let sums = access.read(&logsumexp)?;
    let [dq, dk, dv] = gradients;
    let gradients = [
        Heads::claim(&mut access, dq, shape, true)?,
        Heads::claim(&mut access, dk, shape, true)?,
        Heads::claim(&mut access, dv, &result, true)?,
    ];
    real!(types, backward_all(cores, shape, inputs, sums, lse_stride, gradients));
    Ok(())
}

/// With P = softmax(S), S = scale·QKᵀ and O = PV: dV = Pᵀ dO, dP = dO Vᵀ, dS = P∘(dP − rowsum(dO∘O)),
/// dQ = scale·dS K, dK = scale·dSᵀ Q. Dropout multiplies dP, and P in O and dV.
fn backward_all<R: Real>(
    cores: &Cores,
    shape: &AttentionShape,
    inputs: [Heads<'_>; 5],
    sums: View<'_>,
    lse_stride: usize,
    [dq, dk, dv]: [Heads<'_>; 3],
) {
    let rows = shape.rows;
    if rows * shape.widest() == 0 {
        return;
    }
    let (seq, wide) = (padded(rows), padded(shape.widest()));
    let size = seq * wide;
    let scale = R::of(f64::from(shape.scale));
    let kept = DropoutWeights::of(shape);
    cores.for_each(
        shape.batch * shape.heads,
        nanos(shape, rows, 5),
        #[inline(always)]
        |task| {
            let head = [task / shape.heads, task % shape.heads];
            let shared = [head[0], head[1] / shape.group.max(1)];
            cores.scratch(
                9 * size + BLOCK * (2 * seq + wide) + rows,
                #[inline(always)]
                |scratch: &mut [R]| {
                    let sizes = [BLOCK * seq, BLOCK * seq, BLOCK * wide, rows];
                    let (matrices, [scores, score_grads, query_grads, lse]) = parts(scratch, size, sizes);
                    let [q, k, v, out, grad, keys, values, key_grads, value_grads] = matrices;
                    let [all_q, all_k, all_v, all_out, all_grad] = &inputs;
                    all_q.load(head, [rows, wide], q);
                    all_k.load(shared, [rows, wide], k);
                    all_v.load(shared, [rows, wide], v);
                    all_out.load(head, [rows, wide], out);
                    all_grad.load(head, [rows, wide], grad);
                    R::load(&sums, task * lse_stride, lse);
                    transpose(k, wide, keys, seq);
                    transpose(v, wide, values, seq);
                    key_grads.fill(R::ZERO);
                    value_grads.fill(R::ZERO);
                    for block in ScoreBlock::all(shape, rows) {
                        for i in block.tiles() {
                            let seen = block.seen(shape, i);
                            let first = (block.first + i) * wide;
                            let (p, ds) = (&mut scores[i * seq..], &mut score_grads[i * seq..]);
                            tile::rows(
                                cores,
                                [seen, wide],
                                scale,
                                (&q[first..], wide),
                                (keys, seq),
                                (&mut *p, seq),
                                Store::Replace,
                            );
                            let of_out = (&grad[first..], wide);
                            tile::rows(
                                cores,
                                [seen, wide],
                                R::ONE,
                                of_out,
                                (values, seq),
                                (&mut *ds, seq),
                                Store::Replace,
                            );
                            for row in 0..TILE {
                                let (p, ds) = (&mut p[row * seq..][..seen], &mut ds[row * seq..][..seen]);
                                if i + row >= block.n {
                                    p.fill(R::ZERO);
                                    ds.fill(R::ZERO);
                                    continue;
                                }
                                let at = first + row * wide;
                                let (grad, out) = (&grad[at..][..wide], &out[at..][..wide]);
                                let delta = sum_by(
                                    wide,
                                    #[inline(always)]
                                    |j| grad[j] * out[j],
                                );
                                let visible = block.begins(shape, i + row)..block.visible(shape, i + row);
                                exponents(p, visible, lse[block.first + i + row]);
                                match kept {
                                    None => {
                                        for (ds, &p) in ds.iter_mut().zip(p.iter()) {
                                            *ds = p * (*ds - delta);
                                        }
                                    }
                                    Some(kept) => {
                                        let number = (task * rows + block.first + i + row) * rows;
                                        for (j, (ds, p)) in ds.iter_mut().zip(p.iter_mut()).enumerate() {
                                            let stays = kept.of_weight(number + j);
                                            *ds = *p * (*ds * stays - delta);
                                            *p *= stays;
                                        }
                                    }
                                }
                            }
                            let query_grads = (&mut query_grads[i * wide..], wide);
                            tile::rows(cores, [wide, seen], scale, (ds, seq), (k, wide), query_grads, Store::Replace);
                        }
                        dq.store(head, [block.first, block.n], wide, query_grads);
                        let n = padded(block.n);
                        for position in (0..block.seen(shape, n - TILE)).step_by(TILE) {
                            let i = block.seen_by(shape, position);
                            let (at, first) = (i * seq + position, (block.first + i) * wide);
                            let (p, ds) = ((&scores[at..], seq), (&score_grads[at..], seq));
                            let (of_out, queries) = ((&grad[first..], wide), (&q[first..], wide));
                            let of_values = (&mut value_grads[position * wide..], wide);
                            tile::rows_of_transposed(cores, [wide, n - i], R::ONE, p, of_out, of_values, Store::Add);
                            let of_keys = (&mut key_grads[position * wide..], wide);
                            tile::rows_of_transposed(cores, [wide, n - i], scale, ds, queries, of_keys, Store::Add);
                        }
                    }
                    dk.store(head, [0, rows], wide, key_grads);
                    dv.store(head, [0, rows], wide, value_grads);
                },
            );
        },
    );
}
