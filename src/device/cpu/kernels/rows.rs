//! Softmax and its relatives row by row, and sums over rows.

use super::dispatch::real;
use super::tasks::estimate;
use crate::Operand;
use crate::cpu::cores::Cores;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, max_of, sum_by};

/// Elements that one task handles, at least one row.
const TASK: usize = 8 * 1024;

/// Rows of `cols` in `operand`.
pub(super) fn rows_of(operand: &Operand, cols: usize) -> KernelResult<usize> {
    require(cols > 0 && operand.len.is_multiple_of(cols), || {
        format!("{} elements are no whole number of rows of {cols}", operand.len)
    })?;
    Ok(operand.len / cols)
}

/// Calls `body` with each row number and `scratch` elements of scratch, in parallel where that pays at `nanos` an
/// element.
#[inline(always)]
pub(super) fn for_rows<R: Real>(
    cores: &Cores,
    [rows, cols]: [usize; 2],
    nanos: f64,
    scratch: usize,
    body: impl Fn(usize, &mut [R]) + Sync,
) {
    let each = (TASK / cols).max(1);
    cores.for_each(
        rows.div_ceil(each),
        estimate(rows * cols, nanos),
        #[inline(always)]
        |task| {
            cores.scratch(
                scratch,
                #[inline(always)]
                |scratch: &mut [R]| {
                    for row in task * each..rows.min((task + 1) * each) {
                        body(row, scratch);
                    }
                },
            );
        },
    );
}

pub(super) fn softmax(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    cols: usize,
    log: bool,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, [rows, cols]: [usize; 2], log: bool) {
        for_rows(
            cores,
            [rows, cols],
            0.8,
            2 * cols,
            #[inline(always)]
            |row, scratch: &mut [R]| {
                let (x, exps) = scratch.split_at_mut(cols);
                R::load(&src, row * cols, x);
                let max = max_of(x);
                for (e, &x) in exps.iter_mut().zip(x.iter()) {
                    *e = (x - max).exp();
                }
                let sum = sum_by(
                    cols,
                    #[inline(always)]
                    |i| exps[i],
                );
                if log {
                    let shift = sum.ln();
                    x.iter_mut().for_each(|x| *x = (*x - max) - shift);
                    R::store(&dst, row * cols, x);
                } else {
                    exps.iter_mut().for_each(|e| *e /= sum);
                    R::store(&dst, row * cols, exps);
                }
            },
        );
    }
    let rows = rows_of(&src, cols)?;
    require(src.len == dst.len, || format!("source and result have {} and {} elements", src.len, dst.len))?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, [rows, cols], log));
    Ok(())
}

pub(super) fn softmax_backward(
    cores: &Cores,
    mut access: Access<'_>,
    output: Operand,
    grad: Operand,
    dst: Operand,
    cols: usize,
    log: bool,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [y, g]: [View<'_>; 2], dst: View<'_>, [rows, cols]: [usize; 2], log: bool) {
        for_rows(
            cores,
            [rows, cols],
            0.8,
            2 * cols,
            #[inline(always)]
            |row, scratch: &mut [R]| {
                let (output, grad) = scratch.split_at_mut(cols);
                R::load(&y, row * cols, output);
                R::load(&g, row * cols, grad);
                if log {
                    let sum = sum_by(
                        cols,
                        #[inline(always)]
                        |i| grad[i],
                    );
                    for (g, &y) in grad.iter_mut().zip(output.iter()) {
                        *g -= y.exp() * sum;
                    }
                } else {
                    let dot = sum_by(
                        cols,
                        #[inline(always)]
                        |i| grad[i] * output[i],
                    );
                    for (g, &y) in grad.iter_mut().zip(output.iter()) {
                        *g = y * (*g - dot);
                    }
                }
                R::store(&dst, row * cols, grad);
            },
        );
    }
    let rows = rows_of(&output, cols)?;
    require(output.len == grad.len && grad.len == dst.len, || {
        format!("output, gradient and result have {}, {} and {} elements", output.len, grad.len, dst.len)
    })?;
    let operands = [access.read(&output)?, access.read(&grad)?];
    let to = access.write(&dst)?;
    real!([output.dtype, grad.dtype, dst.dtype], go(cores, operands, to, [rows, cols], log));
    Ok(())
}

pub(super) fn column_sum(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    rows: usize,
    cols: usize,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, [rows, cols]: [usize; 2]) {
        const COLUMNS: usize = 128;
        const BLOCK: usize = 64;
        cores.for_each(
            cols.div_ceil(COLUMNS),
            rows * cols / 6,
            #[inline(always)]
            |task| {
                let first = task * COLUMNS;
                let n = COLUMNS.min(cols - first);
                let (mut total, mut part, mut line) = ([R::ZERO; COLUMNS], [R::ZERO; COLUMNS], [R::ZERO; COLUMNS]);
                // Sums of blocks are summed: errors grow with the number of blocks, not of rows.
                for block in 0..rows.div_ceil(BLOCK) {
                    part.fill(R::ZERO);
                    for row in block * BLOCK..rows.min((block + 1) * BLOCK) {
                        R::load(&src, row * cols + first, &mut line[..n]);
                        for (sum, &x) in part.iter_mut().zip(&line[..n]) {
                            *sum += x;
                        }
                    }
                    total.iter_mut().zip(&part).for_each(|(sum, &x)| *sum += x);
                }
                R::store(&dst, first, &total[..n]);
            },
        );
    }
    require(rows.checked_mul(cols) == Some(src.len) && dst.len == cols, || {
        format!("{rows} × {cols} does not fit {} elements and {} sums", src.len, dst.len)
    })?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, [rows, cols]));
    Ok(())
}
