//! Rows of a table by index.

use super::real;
use super::rows::{for_rows, rows_of};
use crate::device::cpu::cores::Cores;
use crate::device::cpu::operand::{Access, KernelResult, Refused, View, require};
use crate::device::cpu::real::Real;
use crate::device::{DType, Operand};

/// The indices as positions in a table of `rows`.
pub(super) fn load_indices(view: &View<'_>, rows: usize) -> KernelResult<Vec<usize>> {
    require(view.dtype() == DType::I64, || format!("indices are {:?}, and must be I64", view.dtype()))?;
    let check = |&index: &i64| {
        usize::try_from(index)
            .ok()
            .filter(|&index| index < rows)
            .ok_or_else(|| Refused(format!("index {index} is outside the {rows} rows there are")))
    };
    view.slice::<i64>(0, view.len()).iter().map(check).collect()
}

pub(super) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    weight: Operand,
    indices: Operand,
    dst: Operand,
    width: usize,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, weight: View<'_>, indices: &[usize], dst: View<'_>, width: usize) {
        for_rows(
            cores,
            [indices.len(), width],
            0.3,
            width,
            #[inline(always)]
            |row, x: &mut [R]| {
                R::load(&weight, indices[row] * width, x);
                R::store(&dst, row * width, x);
            },
        );
    }
    let table = rows_of(&weight, width)?;
    require(dst.len == indices.len * width, || format!("the result is not {} × {width}", indices.len))?;
    let (from, at, to) = (access.read(&weight)?, access.read(&indices)?, access.write(&dst)?);
    let positions = load_indices(&at, table)?;
    real!([weight.dtype, dst.dtype], go(cores, from, &positions, to, width));
    Ok(())
}

pub(super) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    grad: Operand,
    indices: Operand,
    dst: Operand,
    width: usize,
) -> KernelResult {
    /// `order` lists gradient rows by their index, those of table row r in `[starts[r], starts[r + 1])`.
    fn go<R: Real>(cores: &Cores, grad: View<'_>, order: &[usize], starts: &[usize], dst: View<'_>, width: usize) {
        for_rows(
            cores,
            [starts.len() - 1, width],
            0.5,
            2 * width,
            #[inline(always)]
            |row, scratch: &mut [R]| {
                let (sum, x) = scratch.split_at_mut(width);
                sum.fill(R::ZERO);
                for &source in &order[starts[row]..starts[row + 1]] {
                    R::load(&grad, source * width, x);
                    for (sum, &x) in sum.iter_mut().zip(x.iter()) {
                        *sum += x;
                    }
                }
                R::store(&dst, row * width, sum);
            },
        );
    }
    let table = rows_of(&dst, width)?;
    require(grad.len == indices.len * width, || format!("the gradient is not {} × {width}", indices.len))?;
    let (from, at, to) = (access.read(&grad)?, access.read(&indices)?, access.write(&dst)?);
    let positions = load_indices(&at, table)?;
    // A counting sort, stable: each row's gradients are added in the order of their positions.
    let mut starts = vec![0; table + 1];
    positions.iter().for_each(|&row| starts[row + 1] += 1);
    (0..table).for_each(|row| starts[row + 1] += starts[row]);
    let mut next = starts.clone();
    let mut order = vec![0; positions.len()];
    for (source, &row) in positions.iter().enumerate() {
        order[next[row]] = source;
        next[row] += 1;
    }
    real!([grad.dtype, dst.dtype], go(cores, from, &order, &starts, to, width));
    Ok(())
}
