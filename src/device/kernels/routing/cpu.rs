//! The choice of experts for each row, and the products of each expert's rows.

use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::Real;
use crate::cpu::rows::{for_rows, rows_of};
use crate::kernels::{Gemm, gemm::cpu as gemm};
use crate::{DType, MatrixView, Operand};
use vramlab_allocator::units::Address;

/// True if `a` is larger than `b`, with NaN above everything, as in PyTorch.
fn is_larger<R: Real>(a: R, b: R) -> bool {
    #[expect(clippy::eq_op, reason = "NaN is what differs from itself")]
    let [a_is_nan, b_is_nan] = [a != a, b != b];
    a > b || (a_is_nan && !b_is_nan)
}

fn of_whole_numbers(what: &str, operand: &Operand, dtype: DType) -> KernelResult {
    require(operand.dtype == dtype, || format!("{what} are {:?}, and must be {dtype:?}", operand.dtype))
}

pub(super) fn top_k(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    [values, indices]: [Operand; 2],
    [cols, k]: [usize; 2],
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, [values, indices]: [View<'_>; 2], [rows, cols, k]: [usize; 3]) {
        for_rows(cores, [rows, cols], 1.0 + k as f64, cols + k, |row, scratch: &mut [R]| {
            let (x, largest) = scratch.split_at_mut(cols);
            R::load(&src, row * cols, x);
            let chosen = indices.slice_mut::<i64>(row * k, k);
            for i in 0..k {
                // The best of those that follow the last choice: smaller elements, or equal ones at later positions.
                let last = i.checked_sub(1).map(|last| (largest[last], chosen[last] as usize));
                let is_left = |&(at, &value): &(usize, &R)| {
                    last.is_none_or(|(least, behind)| {
                        is_larger(least, value) || (!is_larger(value, least) && at > behind)
                    })
                };
                let left = x.iter().enumerate().filter(is_left);
                let best = left.reduce(|best, next| if is_larger(*next.1, *best.1) { next } else { best });
                if let Some((at, &value)) = best {
                    (chosen[i], largest[i]) = (at as i64, value);
                }
            }
            R::store(&values, row * k, largest);
        });
    }
    let rows = rows_of(&src, cols)?;
    require(k <= cols, || format!("{k} of {cols} columns are asked for"))?;
    require([values.len, indices.len] == [rows * k; 2], || format!("results are not {rows} × {k}"))?;
    of_whole_numbers("indices", &indices, DType::I64)?;
    let (from, to) = (access.read(&src)?, [access.write(&values)?, access.write(&indices)?]);
    real!([src.dtype, values.dtype], go(cores, from, to, [rows, cols, k]));
    Ok(())
}

pub(super) fn top_k_backward(
    cores: &Cores,
    mut access: Access<'_>,
    [grad, indices, dst]: [Operand; 3],
    [cols, k]: [usize; 2],
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [grad, indices, dst]: [View<'_>; 3], [rows, cols, k]: [usize; 3]) {
        for_rows(cores, [rows, cols], 0.5, cols + k, |row, scratch: &mut [R]| {
            let (x, grads) = scratch.split_at_mut(cols);
            x.fill(R::ZERO);
            R::load(&grad, row * k, &mut grads[..k]);
            for (&at, &grad) in indices.slice::<i64>(row * k, k).iter().zip(&*grads) {
                if let Some(x) = usize::try_from(at).ok().and_then(|at| x.get_mut(at)) {
                    *x = grad;
                }
            }
            R::store(&dst, row * cols, x);
        });
    }
    let rows = rows_of(&dst, cols)?;
    require([grad.len, indices.len] == [rows * k; 2], || format!("gradients are not {rows} × {k}"))?;
    of_whole_numbers("indices", &indices, DType::I64)?;
    let views = [access.read(&grad)?, access.read(&indices)?, access.write(&dst)?];
    real!([grad.dtype, dst.dtype], go(cores, views, [rows, cols, k]));
    Ok(())
}

pub(super) fn gather(
    cores: &Cores,
    mut access: Access<'_>,
    [src, indices, dst]: [Operand; 3],
    [cols, k]: [usize; 2],
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [src, indices, dst]: [View<'_>; 3], [rows, cols, k]: [usize; 3]) {
        for_rows(cores, [rows, cols], 0.5, cols + k, |row, scratch: &mut [R]| {
            let (x, taken) = scratch.split_at_mut(cols);
            R::load(&src, row * cols, x);
            for (&at, taken) in indices.slice::<i64>(row * k, k).iter().zip(&mut *taken) {
                *taken = usize::try_from(at).ok().and_then(|at| x.get(at)).copied().unwrap_or(R::ZERO);
            }
            R::store(&dst, row * k, taken);
        });
    }
    let rows = rows_of(&src, cols)?;
    require([dst.len, indices.len] == [rows * k; 2], || format!("results are not {rows} × {k}"))?;
    of_whole_numbers("indices", &indices, DType::I64)?;
    let views = [access.read(&src)?, access.read(&indices)?, access.write(&dst)?];
    real!([src.dtype, dst.dtype], go(cores, views, [rows, cols, k]));
    Ok(())
}

/// Group numbers that were checked to be below `count`.
fn known<'a>(view: &'a View<'_>, count: usize) -> KernelResult<&'a [i64]> {
    let groups = view.slice::<i64>(0, view.len());
    let wild = groups.iter().find(|&&group| usize::try_from(group).map_or(true, |group| group >= count));
    require(wild.is_none(), || format!("group {} is none of the {count} there are", wild.unwrap_or(&0)))?;
    Ok(groups)
}

pub(super) fn group_rows(
    cores: &Cores,
    mut access: Access<'_>,
    groups: Operand,
    [sorted, order, rows]: [Operand; 3],
    [count, each]: [usize; 2],
) -> KernelResult {
    let n = groups.len;
    require([sorted.len, order.len, rows.len] == [n; 3] && each > 0, || format!("results are not {n} positions"))?;
    of_whole_numbers("groups", &groups, DType::I64)?;
    of_whole_numbers("sorted groups", &sorted, DType::I64)?;
    of_whole_numbers("positions", &order, DType::I64)?;
    of_whole_numbers("rows", &rows, DType::I64)?;
    let groups = access.read(&groups)?;
    let [sorted, order, rows] = [access.write(&sorted)?, access.write(&order)?, access.write(&rows)?];
    let groups = known(&groups, count)?;
    // A counting sort: the destination of each group's next position.
    let mut next = cores.vec::<usize>(count + 1)?;
    groups.iter().for_each(|&group| next[group as usize + 1] += 1);
    (1..=count).for_each(|group| next[group] += next[group - 1]);
    let sorted = sorted.slice_mut::<i64>(0, n);
    let (order, rows) = (order.slice_mut::<i64>(0, n), rows.slice_mut::<i64>(0, n));
    for (position, &group) in groups.iter().enumerate() {
        let place = &mut next[group as usize];
        sorted[*place] = group;
        order[*place] = position as i64;
        rows[*place] = (position / each) as i64;
        *place += 1;
    }
    Ok(())
}

pub(super) fn group_ends(mut access: Access<'_>, [groups, ends]: [Operand; 2]) -> KernelResult {
    of_whole_numbers("groups", &groups, DType::I64)?;
    of_whole_numbers("ends", &ends, DType::I32)?;
    let (from, to) = (access.read(&groups)?, access.write(&ends)?);
    let ends = to.slice_mut::<i32>(0, ends.len);
    ends.fill(0);
    known(&from, ends.len())?.iter().for_each(|&group| ends[group as usize] += 1);
    (1..ends.len()).for_each(|group| ends[group] += ends[group - 1]);
    Ok(())
}

pub(super) fn invert(mut access: Access<'_>, [order, dst]: [Operand; 2]) -> KernelResult {
    of_whole_numbers("positions", &order, DType::I64)?;
    of_whole_numbers("places", &dst, DType::I64)?;
    require(order.len == dst.len, || format!("{} positions have {} places", order.len, dst.len))?;
    let (from, to) = (access.read(&order)?, access.write(&dst)?);
    let places = to.slice_mut::<i64>(0, dst.len);
    for (i, &position) in from.slice::<i64>(0, order.len).iter().enumerate() {
        let place = usize::try_from(position).ok().and_then(|position| places.get_mut(position));
        let Some(place) = place else { return require(false, || format!("position {position} is none of theirs")) };
        *place = i as i64;
    }
    Ok(())
}

/// The first row and the number of rows of each group, for `rows` in total.
fn runs(access: &mut Access<'_>, ends: &Operand, rows: usize) -> KernelResult<Vec<[usize; 2]>> {
    of_whole_numbers("ends", ends, DType::I32)?;
    let view = access.read(ends)?;
    let mut first = 0;
    let runs = view.slice::<i32>(0, ends.len).iter().map(|&end| {
        let end = usize::try_from(end).unwrap_or(0).clamp(first, rows.max(first));
        let run = [first, end - first];
        first = end;
        run
    });
    Ok(runs.collect())
}

/// Rows of an operand, starting at row `first`.
fn rows_from(operand: &Operand, first: usize, cols: usize) -> MatrixView {
    let address = Address(operand.address.0 + operand.dtype.bytes(first * cols).get());
    MatrixView { address, dtype: operand.dtype, row_stride: cols, col_stride: 1, batch_stride: 0 }
}

pub(super) fn grouped_gemm<'a>(
    cores: &Cores,
    access: impl Fn() -> Access<'a>,
    [n, k]: [usize; 2],
    a: Operand,
    b: MatrixView,
    [dst, ends]: [Operand; 2],
) -> KernelResult {
    let rows = rows_of(&a, k)?;
    require(dst.len == rows * n, || format!("the result is not {rows} × {n}"))?;
    for (group, [first, m]) in runs(&mut access(), &ends, rows)?.into_iter().enumerate() {
        let address = Address(b.address.0 + b.dtype.bytes(group * b.batch_stride).get());
        let [a, b, c] = [rows_from(&a, first, k), MatrixView { address, ..b }, rows_from(&dst, first, n)];
        gemm::gemm(cores, access(), &Gemm { m, n, k, batch: 1, a, b, c, bias: None, alpha: 1.0, beta: 0.0 })?;
    }
    Ok(())
}

pub(super) fn grouped_outer<'a>(
    cores: &Cores,
    access: impl Fn() -> Access<'a>,
    [m, n]: [usize; 2],
    [a, b]: [Operand; 2],
    [dst, ends]: [Operand; 2],
) -> KernelResult {
    let rows = rows_of(&a, m)?;
    require(b.len == rows * n && dst.len == ends.len * m * n, || format!("operands are not of {m} × {n}"))?;
    for (group, [first, k]) in runs(&mut access(), &ends, rows)?.into_iter().enumerate() {
        let a = rows_from(&a, first, m);
        let a = MatrixView { row_stride: 1, col_stride: m, ..a };
        let [b, c] = [rows_from(&b, first, n), rows_from(&dst, group * m, n)];
        gemm::gemm(cores, access(), &Gemm { m, n, k, batch: 1, a, b, c, bias: None, alpha: 1.0, beta: 0.0 })?;
    }
    Ok(())
}
