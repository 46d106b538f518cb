//! Sums of columns and of channels.

pub(super) mod mean;

use crate::cpu::channels::{check, for_blocks};
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, elements};
use crate::{ChannelShape, Operand};

pub(in crate::kernels) fn columns(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    rows: usize,
    cols: usize,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, [rows, cols]: [usize; 2]) {
        const COLUMNS: usize = 128;
        const BLOCK: usize = 64;
        cores.for_each(
            cols.div_ceil(COLUMNS),
            rows * cols / 6,
            #[inline(always)]
            |task| {
                let first = task * COLUMNS;
                let n = COLUMNS.min(cols - first);
                let (mut total, mut part, mut line) = ([R::ZERO; COLUMNS], [R::ZERO; COLUMNS], [R::ZERO; COLUMNS]);
                // Sums of blocks are summed, so errors grow with the number of blocks, not of rows.
                for block in 0..rows.div_ceil(BLOCK) {
                    part.fill(R::ZERO);
                    for row in block * BLOCK..rows.min((block + 1) * BLOCK) {
                        R::load(&src, row * cols + first, &mut line[..n]);
                        for (sum, &x) in part.iter_mut().zip(&line[..n]) {
                            *sum += x;
                        }
                    }
                    total.iter_mut().zip(&part).for_each(|(sum, &x)| *sum += x);
                }
                R::store(&dst, first, &total[..n]);
            },
        );
    }
    require(rows.checked_mul(cols) == Some(src.len) && dst.len == cols, || {
        format!("{rows} × {cols} does not fit {} elements and {} sums", src.len, dst.len)
    })?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, [rows, cols]));
    Ok(())
}

pub(super) fn channels(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    shape: ChannelShape,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, shape: ChannelShape) {
        for_blocks(
            cores,
            shape,
            0.2,
            #[inline(always)]
            |block, [sums, buffer]: [&mut [R]; 2], [totals]: [&mut [R]; 1]| {
                sums.fill(R::ZERO);
                for image in 0..shape.batch {
                    let x = elements(&src, block.line(image), &mut *buffer);
                    sums.iter_mut().zip(x).for_each(|(sum, &x)| *sum += x);
                }
                block.fold(sums, totals);
                R::store(&dst, block.first, totals);
            },
        );
    }
    check(&shape, &[&src], &[&dst])?;
    require(!shape.is_empty(), || format!("{shape:?} has no elements"))?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, shape));
    Ok(())
}
