//! Element-wise kernels. They load a chunk of each operand before they store one, so that an output may be the same
//! operand as an input.

pub(super) mod activation;

use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::map::{CHUNK, chunks, map1, map2, results, same_length};
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, elements};
use crate::cpu::rows::rows_of;
use crate::{DropoutMask, Operand};

pub(super) fn fill(cores: &Cores, mut access: Access<'_>, dst: Operand, value: f64) -> KernelResult {
    fn go<R: Real>(cores: &Cores, dst: View<'_>, value: f64) {
        let values = [R::of(value); CHUNK];
        chunks(
            cores,
            dst.len(),
            0.15,
            #[inline(always)]
            |start, len, []: &mut [[R; CHUNK]; 0]| R::store(&dst, start, &values[..len]),
        );
    }
    let view = access.write(&dst)?;
    real!([dst.dtype], go(cores, view, value));
    Ok(())
}

pub(super) fn arange(cores: &Cores, mut access: Access<'_>, dst: Operand) -> KernelResult {
    let view = access.write(&dst)?;
    chunks(
        cores,
        dst.len,
        1.0,
        #[inline(always)]
        |start, len, [values]: &mut [[f64; CHUNK]; 1]| {
            for (i, x) in values[..len].iter_mut().enumerate() {
                #[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³")]
                let index = (start + i) as f64;
                *x = index;
            }
            f64::store(&view, start, &values[..len]);
        },
    );
    Ok(())
}

pub(super) fn identity(cores: &Cores, mut access: Access<'_>, dst: Operand, cols: usize) -> KernelResult {
    fn go<R: Real>(cores: &Cores, dst: View<'_>, cols: usize) {
        chunks(
            cores,
            dst.len(),
            0.15,
            #[inline(always)]
            |start, len, [values]: &mut [[R; CHUNK]; 1]| {
                let values = &mut values[..len];
                values.fill(R::ZERO);
                // Diagonal elements are `cols + 1` apart; rows beyond the last column have none.
                let mut at = start.next_multiple_of(cols + 1);
                while at < start + len && at < cols * (cols + 1) {
                    values[at - start] = R::ONE;
                    at += cols + 1;
                }
                R::store(&dst, start, values);
            },
        );
    }
    rows_of(&dst, cols)?;
    let view = access.write(&dst)?;
    real!([dst.dtype], go(cores, view, cols));
    Ok(())
}

/// The operation of [`binary`].
#[derive(Clone, Copy)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
}

pub(super) fn binary(
    cores: &Cores,
    mut access: Access<'_>,
    a: Operand,
    b: Operand,
    dst: Operand,
    operation: Binary,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>, operation: Binary) {
        match operation {
            Binary::Add => map2::<R>(
                cores,
                operands,
                dst,
                0.4,
                #[inline(always)]
                |x, y| x + y,
            ),
            Binary::Sub => map2::<R>(
                cores,
                operands,
                dst,
                0.4,
                #[inline(always)]
                |x, y| x - y,
            ),
            Binary::Mul => map2::<R>(
                cores,
                operands,
                dst,
                0.4,
                #[inline(always)]
                |x, y| x * y,
            ),
            Binary::Div => map2::<R>(
                cores,
                operands,
                dst,
                0.4,
                #[inline(always)]
                |x, y| x / y,
            ),
        }
    }
    same_length(&a, &dst)?;
    require(b.len > 0 || a.len == 0, || "the second operand is empty".into())?;
    let operands = [access.read(&a)?, access.read(&b)?];
    let to = access.write(&dst)?;
    real!([a.dtype, b.dtype, dst.dtype], go(cores, operands, to, operation));
    Ok(())
}

pub(super) fn scale(cores: &Cores, mut access: Access<'_>, src: Operand, dst: Operand, factor: f64) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, factor: f64) {
        let factor = R::of(factor);
        map1::<R>(
            cores,
            src,
            dst,
            0.3,
            #[inline(always)]
            move |x| factor * x,
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, factor));
    Ok(())
}

pub(super) fn dropout(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    mask: DropoutMask,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, mask: DropoutMask) {
        let (seed, threshold, factor) = (mask.seed(), mask.threshold(), R::of(f64::from(mask.factor())));
        chunks(
            cores,
            dst.len(),
            1.5,
            #[inline(always)]
            |start, len, [x, y]: &mut [[R; CHUNK]; 2]| {
                let x = elements(&src, start, &mut x[..len]);
                let (y, stored) = results(&dst, [&src], start, &mut y[..len]);
                for (index, (y, &x)) in (start as u64..).zip(y.iter_mut().zip(x)) {
                    *y = if DropoutMask::leaves_out(seed, threshold, index) { R::ZERO } else { factor * x };
                }
                if !stored {
                    R::store(&dst, start, y);
                }
            },
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, mask));
    Ok(())
}

pub(super) fn add_scalar(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    value: f64,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, value: f64) {
        let value = R::of(value);
        map1::<R>(
            cores,
            src,
            dst,
            0.3,
            #[inline(always)]
            move |x| x + value,
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, value));
    Ok(())
}
/// Multiplies each row of `cols` elements by its own factor.
pub(super) fn mul_rows(cores: &Cores, mut access: Access<'_>, [a, b, dst]: [Operand; 3], cols: usize) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [a, b]: [View<'_>; 2], dst: View<'_>, cols: usize) {
        const ROWS: usize = 16;
        let rows = b.len();
        cores.for_each(rows.div_ceil(ROWS), rows * cols / 2, |task| {
            cores.scratch(cols, |values: &mut [R]| {
                for row in task * ROWS..rows.min((task + 1) * ROWS) {
                    let mut factor = [R::ZERO];
                    R::load(&b, row, &mut factor);
                    R::load(&a, row * cols, values);
                    values.iter_mut().for_each(|value| *value *= factor[0]);
                    R::store(&dst, row * cols, values);
                }
            });
        });
    }
    same_length(&a, &dst)?;
    require(b.len.checked_mul(cols) == Some(a.len), || {
        format!("{} factors for rows of {cols} in {} elements", b.len, a.len)
    })?;
    let operands = [access.read(&a)?, access.read(&b)?];
    let to = access.write(&dst)?;
    real!([a.dtype, b.dtype, dst.dtype], go(cores, operands, to, cols));
    Ok(())
}
