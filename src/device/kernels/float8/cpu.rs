//! 8-bit floats: the scale of a tensor, and its scaled values.

use std::sync::{Mutex, PoisonError};

use crate::cpu::cores::Cores;
use crate::cpu::dispatch::{real, scalar};
use crate::cpu::map::{CHUNK, chunks, same_length};
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, elements, max_of};
use crate::cpu::tasks::{TASK, estimate};
use crate::{MatrixView, Operand, ScaleGroups};

/// The least magnitude for which a scale is computed.
const LEAST: f64 = 1e-12;

/// Columns per task.
const COLUMNS: usize = 64;

/// Which elements of a matrix share a scale.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    /// Elements in a row.
    pub(super) cols: usize,
    pub(super) groups: ScaleGroups,
}

impl Groups {
    fn has(self, len: usize, scales: &Operand) -> KernelResult {
        let Self { cols, groups } = self;
        let fits = cols > 0 && len > 0 && len.is_multiple_of(cols) && scales.len == groups.count(len, cols);
        require(fits, || format!("{len} elements in rows of {cols} have no {} groups", scales.len))
    }
}

/// The largest magnitude of a run of elements.
fn largest<R: Real>(from: &View<'_>, [start, len]: [usize; 2]) -> R {
    let (mut most, mut buffers) = (R::ZERO, [[R::ZERO; CHUNK]; 2]);
    for first in (start..start + len).step_by(CHUNK) {
        let [values, magnitudes] = &mut buffers;
        let len = CHUNK.min(start + len - first);
        let values = elements(from, first, &mut values[..len]);
        let magnitudes = &mut magnitudes[..len];
        for (magnitude, &x) in magnitudes.iter_mut().zip(values) {
            *magnitude = magnitude_of(x);
        }
        most = most.maximum(max_of(magnitudes));
    }
    most
}

#[inline(always)]
fn magnitude_of<R: Real>(x: R) -> R {
    if x < R::ZERO { -x } else { x }
}

pub(super) fn abs_max(cores: &Cores, mut access: Access<'_>, [src, dst]: [Operand; 2], of: Groups) -> KernelResult {
    fn go<R: Real>(cores: &Cores, from: View<'_>, to: View<'_>, Groups { cols, groups }: Groups) {
        let (len, nanos) = (from.len(), estimate(from.len(), 0.3));
        match groups {
            ScaleGroups::All => {
                // The maximum does not depend on the order.
                let most = Mutex::new(R::ZERO);
                cores.for_each(len.div_ceil(TASK), nanos, |task| {
                    let start = task * TASK;
                    let found = largest(&from, [start, TASK.min(len - start)]);
                    let mut most = most.lock().unwrap_or_else(PoisonError::into_inner);
                    *most = most.maximum(found);
                });
                R::store(&to, 0, &[most.into_inner().unwrap_or_else(PoisonError::into_inner)]);
            }
            ScaleGroups::Rows => cores.for_each(len / cols, nanos, |row| {
                R::store(&to, row, &[largest(&from, [row * cols, cols])]);
            }),
            ScaleGroups::Columns => cores.for_each(cols.div_ceil(COLUMNS), nanos, |task| {
                let (mut most, mut buffer) = ([R::ZERO; COLUMNS], [R::ZERO; COLUMNS]);
                let (first, width) = (task * COLUMNS, COLUMNS.min(cols - task * COLUMNS));
                for row in 0..len / cols {
                    let values = elements(&from, row * cols + first, &mut buffer[..width]);
                    for (most, &x) in most.iter_mut().zip(values) {
                        *most = most.maximum(magnitude_of(x));
                    }
                }
                R::store(&to, first, &most[..width]);
            }),
        }
    }
    of.has(src.len, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, of));
    Ok(())
}

pub(super) fn scale(mut access: Access<'_>, amax: Operand, dst: Operand, most: f64, power: bool) -> KernelResult {
    require(amax.len == dst.len, || "there are as many scales as largest magnitudes".into())?;
    let (from, to) = (access.read(&amax)?, access.write(&dst)?);
    let mut value = [0.0];
    for i in 0..amax.len {
        f64::load(&from, i, &mut value);
        // PyTorch doesn't divide a number by a tensor here: it multiplies by the reciprocal.
        let scale = (1.0 / Real::maximum(LEAST, value[0])) * most;
        #[expect(clippy::cast_possible_truncation, reason = "the power is one of the f32")]
        let scale = if power { f64::from((scale as f32).log2().floor().exp2()) } else { scale };
        f64::store(&to, i, &[scale]);
    }
    Ok(())
}

pub(super) fn quantize(
    cores: &Cores,
    mut access: Access<'_>,
    [src, scale]: [Operand; 2],
    dst: Operand,
    of: Groups,
) -> KernelResult {
    let most = dst.dtype.float8_max();
    require(most.is_some(), || format!("{:?} is no 8-bit float", dst.dtype))?;
    same_length(&src, &dst)?;
    of.has(src.len, &scale)?;
    let (from, scale, to) = (access.read(&src)?, access.read(&scale)?, access.write(&dst)?);
    let (most, Groups { cols, groups }) = (most.unwrap_or_default(), of);
    #[expect(clippy::cast_possible_truncation, reason = "the scale is f32")]
    let one = scalar(&scale) as f32;
    chunks(
        cores,
        src.len,
        1.0,
        #[inline(always)]
        |start, len, [values, scales, results]: &mut [[f32; CHUNK]; 3]| {
            let values = elements(&from, start, &mut values[..len]);
            let (scales, results) = (&mut scales[..len], &mut results[..len]);
            match groups {
                ScaleGroups::All => scales.fill(one),
                ScaleGroups::Rows => {
                    for (i, place) in scales.iter_mut().enumerate() {
                        f32::load(&scale, (start + i) / cols, std::slice::from_mut(place));
                    }
                }
                ScaleGroups::Columns => {
                    for (i, place) in scales.iter_mut().enumerate() {
                        f32::load(&scale, (start + i) % cols, std::slice::from_mut(place));
                    }
                }
            }
            for ((result, &x), &scale) in results.iter_mut().zip(values).zip(&*scales) {
                let scaled = x * scale;
                // As in `torch.clamp`, NaN stays NaN.
                let scaled = if scaled < -most { -most } else { scaled };
                *result = if scaled > most { most } else { scaled };
            }
            f32::store(&to, start, results);
        },
    );
    Ok(())
}

/// The factor on products of two tensors; `None` if rows and columns have separate factors.
pub(super) fn factor(mut access: Access<'_>, inverse: [Operand; 2]) -> KernelResult<Option<f32>> {
    if inverse.iter().any(|inverse| inverse.len != 1) {
        return Ok(None);
    }
    let [a, b] = [access.read(&inverse[0])?, access.read(&inverse[1])?];
    #[expect(clippy::cast_possible_truncation, reason = "scales are f32")]
    let [a, b] = [scalar(&a) as f32, scalar(&b) as f32];
    Ok(Some(a * b))
}

/// Multiplies the rows and columns of a product by their separate factors, if they have any.
pub(super) fn scale_product(
    cores: &Cores,
    mut access: Access<'_>,
    c: MatrixView,
    [of_rows, of_columns]: [Operand; 2],
    [m, n]: [usize; 2],
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [of_rows, of_columns]: [View<'_>; 2], to: View<'_>, stride: usize, n: usize) {
        let nanos = estimate(of_rows.len() * n, 1.0);
        cores.for_each(of_rows.len(), nanos, |row| {
            let (mut values, mut factors, mut of_row) = ([R::ZERO; CHUNK], [R::ZERO; CHUNK], [R::ZERO]);
            R::load(&of_rows, row, &mut of_row);
            for first in (0..n).step_by(CHUNK) {
                let len = CHUNK.min(n - first);
                let values = &mut values[..len];
                R::load(&to, row * stride + first, values);
                let factors = elements(&of_columns, first, &mut factors[..len]);
                values.iter_mut().zip(factors).for_each(|(x, &factor)| *x *= of_row[0] * factor);
                R::store(&to, row * stride + first, values);
            }
        });
    }
    if of_rows.len == 1 && of_columns.len == 1 {
        return Ok(());
    }
    require(of_rows.len == m && of_columns.len == n && c.col_stride == 1, || {
        format!("{} and {} factors for {m} rows and {n} columns", of_rows.len, of_columns.len)
    })?;
    let from = [access.read(&of_rows)?, access.read(&of_columns)?];
    let to = access.matrix(&c, [1, m, n], true)?;
    real!([of_rows.dtype, c.dtype], go(cores, from, to, c.row_stride, n));
    Ok(())
}
