//! Rows of a table by index.

use super::dispatch::real;
use super::rows::{for_rows, rows_of};
use crate::cpu::cores::Cores;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::Real;
use crate::{DType, Operand};

/// Indices that are known to be positions in a table.
#[derive(Clone, Copy)]
struct Positions<'a>(&'a [i64]);

impl<'a> Positions<'a> {
    /// Those that `view` holds, in a table of `rows`.
    fn in_table(view: &'a View<'_>, rows: usize) -> KernelResult<Self> {
        require(view.dtype() == DType::I64, || format!("indices are {:?}, and must be I64", view.dtype()))?;
        let indices = view.slice::<i64>(0, view.len());
        let wild = indices.iter().find(|&&index| usize::try_from(index).map_or(true, |index| index >= rows));
        require(wild.is_none(), || format!("index {} is outside the {rows} rows there are", wild.unwrap_or(&0)))?;
        Ok(Self(indices))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn at(&self, i: usize) -> usize {
        self.0[i] as usize
    }
}

pub(super) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    weight: Operand,
    indices: Operand,
    dst: Operand,
    width: usize,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, weight: View<'_>, indices: Positions<'_>, dst: View<'_>, width: usize) {
        for_rows(
            cores,
            [indices.len(), width],
            0.3,
            width,
            #[inline(always)]
            |row, x: &mut [R]| {
                R::load(&weight, indices.at(row) * width, x);
                R::store(&dst, row * width, x);
            },
        );
    }
    let table = rows_of(&weight, width)?;
    require(dst.len == indices.len * width, || format!("the result is not {} × {width}", indices.len))?;
    let (from, at, to) = (access.read(&weight)?, access.read(&indices)?, access.write(&dst)?);
    let positions = Positions::in_table(&at, table)?;
    real!([weight.dtype, dst.dtype], go(cores, from, positions, to, width));
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
    let positions = Positions::in_table(&at, table)?;
    // A counting sort, stable: each row's gradients are added in the order of their positions. An index's rows end where
    // those of the next begin, once all of them have found their places.
    let mut starts = cores.vec::<usize>(table + 2)?;
    let mut order = cores.vec::<usize>(positions.len())?;
    (0..positions.len()).for_each(|i| starts[positions.at(i) + 2] += 1);
    (1..starts.len()).for_each(|row| starts[row] += starts[row - 1]);
    for source in 0..positions.len() {
        let next = &mut starts[positions.at(source) + 1];
        order[*next] = source;
        *next += 1;
    }
    let starts = &starts[..=table];
    real!([grad.dtype, dst.dtype], go(cores, from, &order, starts, to, width));
    Ok(())
}
