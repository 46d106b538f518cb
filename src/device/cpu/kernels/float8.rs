//! 8-bit floats: the scale of a tensor, and its values under it.

use std::sync::{Mutex, PoisonError};

use super::dispatch::{real, scalar};
use super::elementwise::{CHUNK, chunks, same_length};
use super::tasks::{TASK, estimate};
use crate::Operand;
use crate::cpu::cores::Cores;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, elements, max_of};

/// The least magnitude that a scale is computed for.
const LEAST: f64 = 1e-12;

pub(super) fn abs_max(cores: &Cores, mut access: Access<'_>, src: Operand, dst: Operand) -> KernelResult {
    fn go<R: Real>(cores: &Cores, from: View<'_>, to: View<'_>) {
        // Which of two is larger does not depend on who comes first.
        let most = Mutex::new(R::ZERO);
        cores.for_each(from.len().div_ceil(TASK), estimate(from.len(), 0.3), |task| {
            let (mut largest, mut buffers) = (R::ZERO, [[R::ZERO; CHUNK]; 2]);
            let end = from.len().min((task + 1) * TASK);
            for start in (task * TASK..end).step_by(CHUNK) {
                let [values, magnitudes] = &mut buffers;
                let len = CHUNK.min(end - start);
                let values = elements(&from, start, &mut values[..len]);
                let magnitudes = &mut magnitudes[..len];
                for (magnitude, &x) in magnitudes.iter_mut().zip(values) {
                    *magnitude = if x < R::ZERO { -x } else { x };
                }
                largest = largest.maximum(max_of(magnitudes));
            }
            let mut most = most.lock().unwrap_or_else(PoisonError::into_inner);
            *most = most.maximum(largest);
        });
        R::store(&to, 0, &[most.into_inner().unwrap_or_else(PoisonError::into_inner)]);
    }
    require(dst.len == 1 && src.len > 0, || format!("{} elements of {} have no largest magnitude", dst.len, src.len))?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to));
    Ok(())
}

pub(super) fn scale(mut access: Access<'_>, amax: Operand, dst: Operand, most: f64) -> KernelResult {
    require(amax.len == 1 && dst.len == 1, || "source and result have one element each".into())?;
    let (from, to) = (access.read(&amax)?, access.write(&dst)?);
    // PyTorch has no number over a tensor: it multiplies by the reciprocal.
    f64::store(&to, 0, &[(1.0 / Real::maximum(LEAST, scalar(&from))) * most]);
    Ok(())
}

pub(super) fn quantize(
    cores: &Cores,
    mut access: Access<'_>,
    [src, scale]: [Operand; 2],
    dst: Operand,
) -> KernelResult {
    let most = dst.dtype.float8_max();
    require(scale.len == 1 && most.is_some(), || format!("{:?} is no 8-bit float with one scale", dst.dtype))?;
    same_length(&src, &dst)?;
    let (from, scale, to) = (access.read(&src)?, access.read(&scale)?, access.write(&dst)?);
    #[expect(clippy::cast_possible_truncation, reason = "the scale is f32")]
    let (scale, most) = (scalar(&scale) as f32, most.unwrap_or_default());
    chunks(
        cores,
        src.len,
        1.0,
        #[inline(always)]
        |start, len, [values, results]: &mut [[f32; CHUNK]; 2]| {
            let values = elements(&from, start, &mut values[..len]);
            let results = &mut results[..len];
            for (result, &x) in results.iter_mut().zip(values) {
                let scaled = x * scale;
                // As `torch.clamp` has it: what is not a number stays so.
                let scaled = if scaled < -most { -most } else { scaled };
                *result = if scaled > most { most } else { scaled };
            }
            f32::store(&to, start, results);
        },
    );
    Ok(())
}

/// What the products of two tensors are multiplied by.
pub(super) fn factor(mut access: Access<'_>, inverse: [Operand; 2]) -> KernelResult<f32> {
    require(inverse.iter().all(|inverse| inverse.len == 1), || "a scale of a tensor has one element".into())?;
    let [a, b] = [access.read(&inverse[0])?, access.read(&inverse[1])?];
    #[expect(clippy::cast_possible_truncation, reason = "scales are f32")]
    let [a, b] = [scalar(&a) as f32, scalar(&b) as f32];
    Ok(a * b)
}
