//! Binary cross-entropy of logits, averaged.

use crate::Operand;
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::{real, scalar};
use crate::cpu::map::{map2, same_length};
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::Real;

/// Elements that are loaded at once.
const CHUNK: usize = 256;

/// −t·ln σ(x) − (1 − t)·ln(1 − σ(x)) = (1 − t)·x + max(−x, 0) + ln(1 + e^−|x|), which does not overflow.
fn term(x: f64, t: f64) -> f64 {
    (1.0 - t) * x + (-x).max(0.0) + (-x.abs()).exp().ln_1p()
}

pub(in crate::kernels::loss) fn forward(
    mut access: Access<'_>,
    logits: Operand,
    targets: Operand,
    loss: Operand,
) -> KernelResult {
    same_length(&logits, &targets)?;
    require(loss.len == 1, || format!("the loss has {} elements, and must have one", loss.len))?;
    require(logits.len > 0, || "there are no logits to average over".into())?;
    let (x, t, mean) = (access.read(&logits)?, access.read(&targets)?, access.write(&loss)?);
    let (mut logits, mut targets) = ([0.0; CHUNK], [0.0; CHUNK]);
    let mut sum = 0.0;
    for start in (0..x.len()).step_by(CHUNK) {
        let n = CHUNK.min(x.len() - start);
        f64::load(&x, start, &mut logits[..n]);
        f64::load(&t, start, &mut targets[..n]);
        sum += logits[..n].iter().zip(&targets[..n]).map(|(&x, &t)| term(x, t)).sum::<f64>();
    }
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³")]
    f64::store(&mean, 0, &[sum / x.len() as f64]);
    Ok(())
}

pub(in crate::kernels::loss) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    grad: Operand,
    logits: Operand,
    targets: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>, share: f64) {
        let share = R::of(share);
        map2::<R>(
            cores,
            operands,
            dst,
            0.8,
            #[inline(always)]
            |x, t| (R::ONE / (R::ONE + (-x).exp()) - t) * share,
        );
    }
    same_length(&logits, &dst)?;
    same_length(&targets, &dst)?;
    require(grad.len == 1, || format!("the loss's gradient has {} elements, and must have one", grad.len))?;
    let of_loss = access.read(&grad)?;
    let operands = [access.read(&logits)?, access.read(&targets)?];
    let to = access.write(&dst)?;
    if to.len() == 0 {
        return Ok(());
    }
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³")]
    let share = scalar(&of_loss) / to.len() as f64;
    real!([logits.dtype, targets.dtype, dst.dtype], go(cores, operands, to, share));
    Ok(())
}
