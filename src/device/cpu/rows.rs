//! Rows of an operand, one after another.

use super::tasks::estimate;
use crate::Operand;
use crate::cpu::cores::Cores;
use crate::cpu::operand::{KernelResult, require};
use crate::cpu::real::Real;

/// Elements that one task handles, at least one row.
const TASK: usize = 8 * 1024;

/// The number of rows of `cols` elements in `operand`.
pub(crate) fn rows_of(operand: &Operand, cols: usize) -> KernelResult<usize> {
    require(cols > 0 && operand.len.is_multiple_of(cols), || {
        format!("{} elements are no whole number of rows of {cols}", operand.len)
    })?;
    Ok(operand.len / cols)
}

/// Calls `body` with each row number and `scratch` elements of scratch, in parallel if that is worth it at `nanos` per
/// element.
#[inline(always)]
pub(crate) fn for_rows<R: Real>(
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
