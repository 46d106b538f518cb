//! Negative log-likelihood, averaged over rows whose target is not [`IGNORED`].

use super::rows::{for_rows, rows_of};
use super::{real, scalar};
use crate::device::cpu::cores::Cores;
use crate::device::cpu::operand::{Access, KernelResult, Refused, View, require};
use crate::device::cpu::real::Real;
use crate::device::{DType, Operand};

/// Targets of rows that don't count: PyTorch's default `ignore_index`.
const IGNORED: i64 = -100;

/// The target of each row, `None` where the row does not count.
pub(super) fn load_targets(view: &View<'_>, rows: usize, cols: usize) -> KernelResult<Vec<Option<usize>>> {
    require(view.dtype() == DType::I64, || format!("targets are {:?}, and must be I64", view.dtype()))?;
    require(view.len() == rows, || format!("{} targets for {rows} rows", view.len()))?;
    let check = |&target: &i64| match usize::try_from(target) {
        Ok(class) if class < cols => Ok(Some(class)),
        _ if target == IGNORED => Ok(None),
        _ => Err(Refused(format!("target {target} is outside the {cols} classes there are"))),
    };
    view.slice::<i64>(0, rows).iter().map(check).collect()
}

pub(super) fn forward(
    mut access: Access<'_>,
    logp: Operand,
    targets: Operand,
    loss: Operand,
    total_weight: Operand,
    cols: usize,
) -> KernelResult {
    let rows = rows_of(&logp, cols)?;
    require(loss.len == 1 && total_weight.len == 1, || "loss and total weight have one element each".into())?;
    let (from, at) = (access.read(&logp)?, access.read(&targets)?);
    let (mean, weight) = (access.write(&loss)?, access.write(&total_weight)?);
    let (mut sum, mut count) = (0.0, 0.0);
    for (row, target) in load_targets(&at, rows, cols)?.into_iter().enumerate() {
        if let Some(class) = target {
            let mut value = [0.0];
            f64::load(&from, row * cols + class, &mut value);
            sum -= value[0];
            count += 1.0;
        }
    }
    f64::store(&mean, 0, &[sum / count]);
    f64::store(&weight, 0, &[count]);
    Ok(())
}

pub(super) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    grad: Operand,
    targets: Operand,
    total_weight: Operand,
    dst: Operand,
    cols: usize,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, slope: f64, targets: &[Option<usize>], dst: View<'_>, cols: usize) {
        for_rows(
            cores,
            [targets.len(), cols],
            0.2,
            cols,
            #[inline(always)]
            |row, x: &mut [R]| {
                x.fill(R::ZERO);
                if let Some(class) = targets[row] {
                    x[class] = R::of(slope);
                }
                R::store(&dst, row * cols, x);
            },
        );
    }
    let rows = rows_of(&dst, cols)?;
    require(grad.len == 1 && total_weight.len == 1, || "gradient and total weight have one element each".into())?;
    let (of_loss, at) = (access.read(&grad)?, access.read(&targets)?);
    let (weight, to) = (access.read(&total_weight)?, access.write(&dst)?);
    let classes = load_targets(&at, rows, cols)?;
    let slope = -scalar(&of_loss) / scalar(&weight);
    real!([dst.dtype], go(cores, slope, &classes, to, cols));
    Ok(())
}
