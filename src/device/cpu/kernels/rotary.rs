//! Rotary position embeddings.

use super::dispatch::real;
use crate::cpu::cores::Cores;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::Real;
use crate::{HeadView, Operand, RotaryPass, RotaryShape};

/// Positions of one task.
const ROWS: usize = 16;

/// Cosine and sine of every position times every frequency, in f32 as PyTorch computes them.
pub(super) fn tables(
    cores: &Cores,
    mut access: Access<'_>,
    frequencies: Operand,
    [cos, sin]: [Operand; 2],
    (scaling, copies): (f64, usize),
) -> KernelResult {
    let cols = copies * frequencies.len;
    let rows = cos.len.checked_div(cols).unwrap_or(0);
    require(cos.len == rows * cols && sin.len == cos.len, || {
        format!("{} frequencies make no tables of {} and {} elements", frequencies.len, cos.len, sin.len)
    })?;
    let from = access.read(&frequencies)?;
    let to = [access.write(&cos)?, access.write(&sin)?];
    #[expect(clippy::cast_possible_truncation, reason = "tables are computed in f32")]
    let scaling = scaling as f32;
    let half = frequencies.len;
    cores.for_each(rows.div_ceil(ROWS), rows * cols * 8, |task| {
        let mut frequencies = vec![0.0_f32; half];
        f32::load(&from, 0, &mut frequencies);
        let mut values = vec![0.0_f32; half];
        for row in task * ROWS..rows.min((task + 1) * ROWS) {
            #[expect(clippy::cast_precision_loss, reason = "positions are f32 in PyTorch too")]
            let position = row as f32;
            for (table, function) in to.iter().zip([f32::cos as fn(f32) -> f32, f32::sin]) {
                for (value, frequency) in values.iter_mut().zip(&frequencies) {
                    *value = function(position * frequency) * scaling;
                }
                for copy in 0..copies {
                    f32::store(table, row * cols + copy * half, &values);
                }
            }
        }
    });
    Ok(())
}

/// Rotates every head of every position, or computes what `pass` says of its gradient. A table that is not there is one of zeros.
pub(super) fn rotate(
    cores: &Cores,
    mut access: Access<'_>,
    shape: RotaryShape,
    [src, dst]: [HeadView; 2],
    pass: RotaryPass,
) -> KernelResult {
    fn go<R: Real>(
        cores: &Cores,
        shape: RotaryShape,
        [(from, src), (to, dst)]: [(View<'_>, HeadView); 2],
        tables: [Option<View<'_>>; 2],
        pass: RotaryPass,
    ) {
        let RotaryShape { batch, heads, rows, head_size, neighbours } = shape;
        let tasks = rows.div_ceil(ROWS);
        cores.for_each(batch * tasks, shape.len(), |task| {
            cores.scratch(5 * head_size, |scratch: &mut [R]| {
                let (c, rest) = scratch.split_at_mut(head_size);
                let (s, rest) = rest.split_at_mut(head_size);
                let (x, rest) = rest.split_at_mut(head_size);
                let (y, held) = rest.split_at_mut(head_size);
                let (b, first) = (task / tasks, task % tasks * ROWS);
                for row in first..rows.min(first + ROWS) {
                    for (table, values) in tables.iter().zip([&mut *c, &mut *s]) {
                        match table {
                            Some(table) => R::load(table, row * head_size, values),
                            None => values.fill(R::ZERO),
                        }
                    }
                    for h in 0..heads {
                        let at = |view: &HeadView| b * view.batch_stride + h * view.head_stride + row * view.row_stride;
                        R::load(&from, at(&src), x);
                        turn(x, [c, s], y, neighbours, pass.is_backward());
                        if pass.adds() {
                            R::load(&to, at(&dst), held);
                            y.iter_mut().zip(&*held).for_each(|(y, held)| *y += *held);
                        }
                        R::store(&to, at(&dst), y);
                    }
                }
            });
        });
    }
    require(shape.head_size.is_multiple_of(2), || format!("heads of {} elements have no halves", shape.head_size))?;
    let operands = pass.tables();
    for table in operands.iter().flatten() {
        require(table.len == shape.table(), || format!("a table of {} elements doesn't fit {shape:?}", table.len))?;
    }
    let from = access.claim(src.address, src.dtype, shape.dims(&src), false)?;
    let to = access.claim(dst.address, dst.dtype, shape.dims(&dst), true)?;
    let mut read = |table: Option<Operand>| table.map(|table| access.read(&table)).transpose();
    let [cos, sin] = operands;
    let tables = [read(cos)?, read(sin)?];
    let table_types = operands.map(|table| table.map_or(src.dtype, |table| table.dtype));
    let types = [src.dtype, dst.dtype, table_types[0], table_types[1]];
    real!(types, go(cores, shape, [(from, src), (to, dst)], tables, pass));
    Ok(())
}

/// One head of one position.
#[inline(always)]
fn turn<R: Real>(x: &[R], [cos, sin]: [&[R]; 2], y: &mut [R], neighbours: bool, backward: bool) {
    let half = x.len() / 2;
    for pair in 0..half {
        let (i, j) = if neighbours { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
        // Backward is the transpose: the sine of the other element, with the other sign.
        let other = pair + half;
        let (first, second) = if backward { (sin[other], -sin[pair]) } else { (-sin[pair], sin[other]) };
        y[i] = x[i] * cos[pair] + x[j] * first;
        y[j] = x[j] * cos[other] + x[i] * second;
    }
}
