//! Negative log-likelihood, averaged over rows whose target is not [`IGNORED`].

use crate::cpu::cores::Cores;
use crate::cpu::dispatch::{real, scalar};
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::Real;
use crate::cpu::rows::{for_rows, rows_of};
use crate::{DType, Operand};

/// The target of ignored rows: PyTorch's default `ignore_index`.
const IGNORED: i64 = -100;

/// The target classes of rows, checked to exist.
#[derive(Clone, Copy)]
pub(in crate::kernels::loss) struct Targets<'a>(&'a [i64]);

impl<'a> Targets<'a> {
    /// The targets in `view`, for `rows` rows of `cols` classes.
    pub(in crate::kernels::loss) fn of(view: &'a View<'_>, rows: usize, cols: usize) -> KernelResult<Self> {
        require(view.dtype() == DType::I64, || format!("targets are {:?}, and must be I64", view.dtype()))?;
        require(view.len() == rows, || format!("{} targets for {rows} rows", view.len()))?;
        let targets = Self(view.slice(0, rows));
        let exists = |target: i64| target == IGNORED || usize::try_from(target).is_ok_and(|class| class < cols);
        let wild = targets.0.iter().find(|&&target| !exists(target));
        require(wild.is_none(), || {
            format!("target {} is outside the {cols} classes there are", wild.unwrap_or(&IGNORED))
        })?;
        Ok(targets)
    }

    pub(in crate::kernels::loss) fn len(self) -> usize {
        self.0.len()
    }

    /// The class of a row; `None` if the row is ignored.
    #[inline(always)]
    pub(in crate::kernels::loss) fn class(self, row: usize) -> Option<usize> {
        usize::try_from(self.0[row]).ok()
    }

    /// The rows that are not ignored, each with its class.
    pub(in crate::kernels::loss) fn counted(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.len()).filter_map(move |row| Some((row, self.class(row)?)))
    }
}

pub(in crate::kernels::loss) fn forward(
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
    for (row, class) in Targets::of(&at, rows, cols)?.counted() {
        let mut value = [0.0];
        f64::load(&from, row * cols + class, &mut value);
        sum -= value[0];
        count += 1.0;
    }
    f64::store(&mean, 0, &[sum / count]);
    f64::store(&weight, 0, &[count]);
    Ok(())
}

pub(in crate::kernels::loss) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    grad: Operand,
    targets: Operand,
    total_weight: Operand,
    dst: Operand,
    cols: usize,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, slope: f64, targets: Targets<'_>, dst: View<'_>, cols: usize) {
        for_rows(
            cores,
            [targets.len(), cols],
            0.2,
            cols,
            #[inline(always)]
            |row, x: &mut [R]| {
                x.fill(R::ZERO);
                if let Some(class) = targets.class(row) {
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
    let classes = Targets::of(&at, rows, cols)?;
    let slope = -scalar(&of_loss) / scalar(&weight);
    real!([dst.dtype], go(cores, slope, classes, to, cols));
    Ok(())
}
