//! Rotary position embeddings.

use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::{DType, HeadView, Kernel, Operand, RotaryPass, RotaryShape};
use vramlab_allocator::units::Address;

const THREADS: u32 = 256;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Result<(), Refusal> {
    match *kernel {
        Kernel::RotaryTables { frequencies, cos, sin, scaling, copies } => {
            tables(queue, frequencies, [cos, sin], (scaling, copies))
                .unwrap_or_else(|| Err(Refusal::unsupported(kernel)))
        }
        Kernel::Rotary { shape, src, dst, pass } => {
            rotate(queue, shape, [src, dst], pass).unwrap_or_else(|| Err(Refusal::unsupported(kernel)))
        }
        _ => Err(Refusal::unsupported(kernel)),
    }
}

const fn computes(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
}

/// `None` where there is no kernel for the operands.
fn tables(
    queue: &mut Queue<'_>,
    frequencies: Operand,
    [cos, sin]: [Operand; 2],
    (scaling, copies): (f64, usize),
) -> Option<Result<(), Refusal>> {
    let cols = copies * frequencies.len;
    let rows = cos.len.checked_div(cols)?;
    let fits = cos.len == rows * cols && sin.len == cos.len;
    if !(fits && frequencies.dtype == DType::F32 && computes(cos.dtype) && computes(sin.dtype)) {
        return None;
    }
    let angles = rows * frequencies.len;
    if angles == 0 {
        return Some(Ok(()));
    }
    #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
    let arguments = Arguments::new().operand(&frequencies).count(frequencies.len).count(copies).float(scaling as f32);
    let mut arguments = typed(typed(arguments, &cos), &sin).count(angles);
    Some(queue.launch("rotary_tables", &[], Grid::row(blocks_of(angles, THREADS as usize), THREADS), &mut arguments))
}

fn rotate(
    queue: &mut Queue<'_>,
    shape: RotaryShape,
    [src, dst]: [HeadView; 2],
    pass: RotaryPass,
) -> Option<Result<(), Refusal>> {
    let [cos, sin] = pass.tables();
    let reads = |table: Option<Operand>| table.is_none_or(|it| it.len == shape.table() && computes(it.dtype));
    let fits = shape.head_size.is_multiple_of(2) && reads(cos) && reads(sin);
    if !(fits && computes(src.dtype) && computes(dst.dtype)) {
        return None;
    }
    let pairs = shape.len() / 2;
    if pairs == 0 {
        return Some(Ok(()));
    }
    let view = |view: &HeadView| [view.batch_stride, view.head_stride, view.row_stride].map(|stride| stride as u64);
    let sizes = [shape.heads, shape.rows, shape.head_size / 2].map(|size| size as u64);
    let mut fields = [sizes, view(&src), view(&dst)].concat();
    fields.push(u64::from(shape.neighbours));
    let table = |arguments: Arguments, table: Option<Operand>| match table {
        Some(table) => typed(arguments, &table),
        None => arguments.at(Address(0)).int(0),
    };
    let arguments = table(table(Arguments::new().at(src.address).int(src.dtype as u32), cos), sin);
    let arguments = arguments.at(dst.address).int(dst.dtype as u32);
    let arguments = arguments.int(u32::from(pass.is_backward())).int(u32::from(pass.adds())).count(pairs);
    let grid = Grid::row(blocks_of(pairs, THREADS as usize), THREADS);
    Some(queue.launch("rotary", &[], grid, &mut arguments.structure(&fields)))
}

/// An operand and what it consists of.
fn typed(arguments: Arguments, operand: &Operand) -> Arguments {
    arguments.operand(operand).int(operand.dtype as u32)
}
