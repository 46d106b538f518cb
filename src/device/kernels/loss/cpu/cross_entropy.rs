//! Cross-entropy of logits in one pass, and its gradient, which overwrites the logits.

use super::nll::Targets;
use crate::Operand;
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::{real, scalar};
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, max_of, sum_by};
use crate::cpu::rows::{for_rows, rows_of};

/// What the forward pass writes.
pub(in crate::kernels::loss) struct Results {
    pub loss: Operand,
    pub total_weight: Operand,
    pub logsumexp: Operand,
}

pub(in crate::kernels::loss) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    [logits, targets]: [Operand; 2],
    Results { loss, total_weight, logsumexp }: Results,
    [cols, stride]: [usize; 2],
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, x: View<'_>, lse: View<'_>, [rows, cols, stride]: [usize; 3]) {
        for_rows(
            cores,
            [rows, cols],
            0.8,
            cols,
            #[inline(always)]
            |row, x_row: &mut [R]| {
                R::load(&x, row * stride, x_row);
                let max = max_of(x_row);
                let sum = sum_by(
                    cols,
                    #[inline(always)]
                    |i| (x_row[i] - max).exp(),
                );
                R::store(&lse, row, &[max + sum.ln()]);
            },
        );
    }
    let rows = rows_of(&logits, stride)?;
    require(0 < cols && cols <= stride, || format!("rows of {cols} do not fit {stride} elements"))?;
    require(loss.len == 1 && total_weight.len == 1, || "loss and total weight have one element each".into())?;
    require(logsumexp.len == rows, || format!("{} sums for {rows} rows", logsumexp.len))?;
    let (x, at) = (access.read(&logits)?, access.read(&targets)?);
    let (mean, weight, lse) = (access.write(&loss)?, access.write(&total_weight)?, access.write(&logsumexp)?);
    let classes = Targets::of(&at, rows, cols)?;
    real!([logits.dtype, logsumexp.dtype], go(cores, x, lse, [rows, cols, stride]));
    let (mut sum, mut count) = (0.0, 0.0);
    for (row, class) in classes.counted() {
        let (mut logit, mut log_sum) = ([0.0], [0.0]);
        f64::load(&x, row * stride + class, &mut logit);
        f64::load(&lse, row, &mut log_sum);
        sum += log_sum[0] - logit[0];
        count += 1.0;
    }
    f64::store(&mean, 0, &[sum / count]);
    f64::store(&weight, 0, &[count]);
    Ok(())
}

pub(in crate::kernels::loss) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    [grad, total_weight, logsumexp]: [Operand; 3],
    [logits, targets]: [Operand; 2],
    [cols, stride]: [usize; 2],
) -> KernelResult {
    fn go<R: Real>(
        cores: &Cores,
        share: f64,
        classes: Targets<'_>,
        [x, lse]: [View<'_>; 2],
        [cols, stride]: [usize; 2],
    ) {
        let share = R::of(share);
        for_rows(
            cores,
            [classes.len(), stride],
            0.8,
            stride,
            #[inline(always)]
            |row, whole: &mut [R]| {
                let (x_row, between) = whole.split_at_mut(cols);
                let mut shift = [R::ZERO];
                R::load(&lse, row, &mut shift);
                R::load(&x, row * stride, x_row);
                between.fill(R::ZERO);
                match classes.class(row) {
                    Some(class) => {
                        x_row.iter_mut().for_each(|x| *x = (*x - shift[0]).exp());
                        x_row[class] -= R::ONE;
                        x_row.iter_mut().for_each(|x| *x *= share);
                    }
                    None => x_row.fill(R::ZERO),
                }
                R::store(&x, row * stride, whole);
            },
        );
    }
    let rows = rows_of(&logits, stride)?;
    require(0 < cols && cols <= stride, || format!("rows of {cols} do not fit {stride} elements"))?;
    require(grad.len == 1 && total_weight.len == 1, || "gradient and total weight have one element each".into())?;
    require(logsumexp.len == rows, || format!("{} sums for {rows} rows", logsumexp.len))?;
    let (of_loss, weight, lse) = (access.read(&grad)?, access.read(&total_weight)?, access.read(&logsumexp)?);
    let (at, x) = (access.read(&targets)?, access.write(&logits)?);
    let classes = Targets::of(&at, rows, cols)?;
    let share = scalar(&of_loss) / scalar(&weight);
    real!([logits.dtype, logsumexp.dtype], go(cores, share, classes, [x, lse], [cols, stride]));
    Ok(())
}
