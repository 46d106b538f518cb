//! Matrix products through the kernels of the `gemm` crate.
#![allow(unsafe_code)]

use gemm_common::Parallelism;

use super::Gemm;
use crate::MatrixView;
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, elements};
use crate::cpu::rows::for_rows;

/// Approximate floating-point operations per nanosecond of one core, to decide which work is worth spreading.
const FLOPS_PER_NANO: usize = 40;
/// The host memory that one product may use besides its operands.
struct Beside {
    /// Elements of a matrix that are converted at once.
    converted: usize,
    /// Columns of the right factor that gemm packs at once: this many lines of some hundred elements.
    packed: usize,
}

/// For one product that uses all cores.
const OF_ONE: Beside = Beside { converted: 1024 * 1024, packed: 4096 };
/// For products that each run on one core.
const OF_MANY: Beside = Beside { converted: 256 * 1024, packed: 512 };
/// Parts are multiples of this many elements.
const LINE: usize = 16;

/// A matrix in host memory: its first element, row stride and column stride in elements.
#[derive(Clone, Copy)]
struct RawMatrix<R> {
    data: *const R,
    row: usize,
    col: usize,
}

impl<R> RawMatrix<R> {
    fn transposed(self) -> Self {
        Self { data: self.data, row: self.col, col: self.row }
    }
}

#[derive(Clone, Copy)]
struct Out<R> {
    data: *mut R,
    row: usize,
    col: usize,
}

impl<R> Out<R> {
    fn transposed(self) -> Self {
        Self { data: self.data, row: self.col, col: self.row }
    }
}

/// # Safety
/// Every element within the shape and strides is valid, `c`'s for writing, and no element of `c` is reached twice.
#[expect(clippy::cast_possible_wrap, reason = "strides lie within mappings, which are smaller than isize::MAX")]
unsafe fn raw<R: Real>(
    [m, n, k]: [usize; 3],
    alpha: R,
    a: RawMatrix<R>,
    b: RawMatrix<R>,
    c: Out<R>,
    beta: R,
    parallelism: Parallelism,
) {
    // The kernels prefer results with contiguous columns. For other results, compute the transpose.
    let (m, n, a, b, c) =
        if c.col < c.row { (n, m, b.transposed(), a.transposed(), c.transposed()) } else { (m, n, a, b, c) };
    // SAFETY: guaranteed by the caller.
    unsafe {
        R::gemm()(
            m,
            n,
            k,
            c.data,
            c.col as isize,
            c.row as isize,
            beta != R::ZERO,
            a.data,
            a.col as isize,
            a.row as isize,
            b.data,
            b.col as isize,
            b.row as isize,
            beta,
            alpha,
            false,
            false,
            false,
            parallelism,
        );
    }
}

pub(in crate::kernels) fn gemm(cores: &Cores, mut access: Access<'_>, operands: &Gemm) -> KernelResult {
    let &Gemm { m, n, k, batch, a, b, c, bias, .. } = operands;
    if m == 0 || n == 0 || batch == 0 {
        return Ok(());
    }
    let from = [access.matrix(&a, [batch, m, k], false)?, access.matrix(&b, [batch, k, n], false)?];
    let to = access.matrix(&c, [batch, m, n], true)?;
    let bias = match bias {
        Some(bias) => {
            require(bias.len == n, || format!("the bias has {} elements for {n} columns", bias.len))?;
            Some(access.read(&bias)?)
        }
        None => None,
    };
    let bias_type = bias.map_or(c.dtype, |bias| bias.dtype());
    real!([a.dtype, b.dtype, c.dtype, bias_type], all(cores, operands, from, to, bias));
    Ok(())
}

fn all<R: Real>(cores: &Cores, operands: &Gemm, from: [View<'_>; 2], to: View<'_>, bias: Option<View<'_>>) {
    let &Gemm { m, n, k, batch, .. } = operands;
    let nanos = (2 * m * n * k) / FLOPS_PER_NANO + m * n + m * k / 2 + k * n / 2;
    let one = |i: usize, parallelism| matrix::<R>(cores, operands, i, from, to, bias, parallelism);
    if batch == 1 {
        cores.for_gemm(nanos, |parallelism| one(0, parallelism));
    } else {
        cores.for_each(batch, nanos * batch, |i| one(i, Parallelism::None));
    }
}

/// The size of the parts in which a product of these sizes is computed, as rows, columns and terms: none of a part's
/// three matrices has more than `most` elements.
fn parts(mut sizes: [usize; 3], most: usize) -> [usize; 3] {
    let fits = |[m, n, k]: [usize; 3]| [(m, n), (m, k), (k, n)].iter().all(|(rows, cols)| rows * cols <= most);
    while !fits(sizes) {
        let Some(largest) = sizes.iter_mut().max() else { break };
        *largest = largest.div_ceil(2).next_multiple_of(LINE);
    }
    sizes
}

/// Calls `body` with start and length of each part of `len`, even if `len` is 0.
fn for_parts(len: usize, each: usize, mut body: impl FnMut(usize, usize)) {
    for start in (0..len.max(1)).step_by(each.max(1)) {
        body(start, each.min(len - start));
    }
}

/// Computes the `i`-th product of the batch, in parts if a matrix is large or must be converted.
fn matrix<R: Real>(
    cores: &Cores,
    operands: &Gemm,
    i: usize,
    [a, b]: [View<'_>; 2],
    to: View<'_>,
    bias: Option<View<'_>>,
    parallelism: Parallelism,
) {
    let &Gemm { m, n, k, batch, .. } = operands;
    let [alpha, beta] = [operands.alpha, operands.beta].map(|factor| R::of(f64::from(factor)));
    let converted = [a, b, to].iter().any(|view| view.dtype() != R::DTYPE);
    let Beside { converted: most, packed } = if batch == 1 { OF_ONE } else { OF_MANY };
    let [m_each, n_each, k_each] = if converted { parts([m, n, k], most) } else { [m, n, k] };
    let n_each = n_each.min(packed);
    let offset = i * operands.c.batch_stride;
    let [row, col] = [operands.c.row_stride, operands.c.col_stride];
    // Adds some terms to one part of the result, or starts it with the first terms.
    let sum = |[first_row, rows]: [usize; 2], [first_col, cols]: [usize; 2], out: Out<R>, kept: R| {
        for_parts(k, k_each, |first, terms| {
            let kept = if first > 0 { R::ONE } else { kept };
            with_source(cores, a, operands.a, i, [[first_row, rows], [first, terms]], |a| {
                with_source(cores, b, operands.b, i, [[first, terms], [first_col, cols]], |b| {
                    // SAFETY: parts of claimed operands with exactly these shapes and strides; `out` points to an area
                    // that holds the part, without overlapping elements.
                    unsafe { raw([rows, cols, terms], alpha, a, b, out, kept, parallelism) };
                });
            });
        });
    };
    let kept = if bias.is_some() { R::ONE } else { beta };
    let direct = to.dtype() == R::DTYPE;
    if let Some(bias) = bias
        && direct
    {
        start_with_bias::<R>(cores, &to, offset, [row, col], &bias, [m, n], beta);
    }
    for_parts(m, m_each, |first_row, rows| {
        for_parts(n, n_each, |first_col, cols| {
            let offset = offset + first_row * row + first_col * col;
            if direct {
                // SAFETY: `offset` is within the claimed matrix.
                let data = unsafe { to.as_ptr().cast::<R>().add(offset) };
                return sum([first_row, rows], [first_col, cols], Out { data, row, col }, kept);
            }
            cores.scratch(rows * cols, |product: &mut [R]| {
                if beta != R::ZERO {
                    load(cores, &to, offset, [row, col], product, [rows, cols]);
                }
                if let Some(bias) = &bias {
                    add_bias(cores, &bias.part(first_col, cols), product, beta);
                }
                let out = Out { data: product.as_mut_ptr(), row: cols, col: 1 };
                sum([first_row, rows], [first_col, cols], out, kept);
                store(cores, &to, offset, [row, col], product, [rows, cols]);
            });
        });
    });
}

/// Calls `body` with a part of the `i`-th matrix of `view` (start and length of its rows, and of its columns),
/// converted to `R` if it is stored as another type.
fn with_source<R: Real>(
    cores: &Cores,
    view: View<'_>,
    layout: MatrixView,
    i: usize,
    [[first_row, rows], [first_col, cols]]: [[usize; 2]; 2],
    body: impl FnOnce(RawMatrix<R>),
) {
    let (row, col) = (layout.row_stride, layout.col_stride);
    let offset = i * layout.batch_stride + first_row * row + first_col * col;
    if layout.dtype == R::DTYPE || rows * cols == 0 {
        // SAFETY: `offset` is within the claimed matrix, which is not empty if the pointer is dereferenced.
        let data = unsafe { view.as_ptr().cast::<R>().cast_const().add(if rows * cols == 0 { 0 } else { offset }) };
        return body(RawMatrix { data, row, col });
    }
    cores.scratch(rows * cols, |scratch: &mut [R]| {
        // Runs are contiguous along rows or along columns, and the scratch preserves that order.
        let (lines, run, line, step) =
            if row == 1 && col != 1 { (cols, rows, col, row) } else { (rows, cols, row, col) };
        cores.vectorised(
            #[inline(always)]
            || {
                if step == 1 && line == run {
                    R::load(&view, offset, scratch);
                    return;
                }
                for (i, values) in scratch.chunks_exact_mut(run).enumerate().take(lines) {
                    load_line(&view, offset + i * line, step, values);
                }
            },
        );
        let (row, col) = if row == 1 && col != 1 { (1, rows) } else { (cols, 1) };
        body(RawMatrix { data: scratch.as_ptr(), row, col });
    });
}

#[inline(always)]
fn load_line<R: Real>(view: &View<'_>, start: usize, step: usize, values: &mut [R]) {
    if step == 1 {
        R::load(view, start, values);
    } else {
        for (j, x) in values.iter_mut().enumerate() {
            R::load(view, start + j * step, std::slice::from_mut(x));
        }
    }
}

/// Loads a row-major copy.
fn load<R: Real>(
    cores: &Cores,
    view: &View<'_>,
    offset: usize,
    [row, col]: [usize; 2],
    out: &mut [R],
    [m, n]: [usize; 2],
) {
    cores.vectorised(
        #[inline(always)]
        || {
            for i in 0..m {
                load_line(view, offset + i * row, col, &mut out[i * n..][..n]);
            }
        },
    );
}

fn store<R: Real>(
    cores: &Cores,
    view: &View<'_>,
    offset: usize,
    [row, col]: [usize; 2],
    values: &[R],
    [m, n]: [usize; 2],
) {
    cores.vectorised(
        #[inline(always)]
        || {
            for i in 0..m {
                store_line(view, offset + i * row, col, &values[i * n..][..n]);
            }
        },
    );
}

#[inline(always)]
fn store_line<R: Real>(view: &View<'_>, start: usize, step: usize, values: &[R]) {
    if step == 1 {
        R::store(view, start, values);
    } else {
        for (j, x) in values.iter().enumerate() {
            R::store(view, start + j * step, std::slice::from_ref(x));
        }
    }
}

/// Adds the bias to `beta` times every row of `product`.
fn add_bias<R: Real>(cores: &Cores, bias: &View<'_>, product: &mut [R], beta: R) {
    let n = bias.len();
    cores.vectorised(
        #[inline(always)]
        || {
            cores.scratch(
                n,
                #[inline(always)]
                |values: &mut [R]| {
                    let bias = elements(bias, 0, values);
                    for row in product.chunks_exact_mut(n) {
                        if beta == R::ZERO {
                            row.copy_from_slice(bias);
                        } else {
                            row.iter_mut().zip(bias).for_each(|(x, &b)| *x = *x * beta + b);
                        }
                    }
                },
            );
        },
    );
}

/// [`add_bias`] in device memory.
fn start_with_bias<R: Real>(
    cores: &Cores,
    to: &View<'_>,
    offset: usize,
    [row, col]: [usize; 2],
    bias: &View<'_>,
    [m, n]: [usize; 2],
    beta: R,
) {
    for_rows(
        cores,
        [m, n],
        0.2,
        2 * n,
        #[inline(always)]
        |i, scratch: &mut [R]| {
            let (values, line) = scratch.split_at_mut(n);
            let bias = elements(bias, 0, values);
            let start = offset + i * row;
            if beta == R::ZERO && col == 1 {
                return R::store(to, start, bias);
            }
            line.fill(R::ZERO);
            if beta != R::ZERO {
                load_line(to, start, col, line);
            }
            line.iter_mut().zip(bias).for_each(|(x, &b)| *x = *x * beta + b);
            store_line(to, start, col, line);
        },
    );
}
