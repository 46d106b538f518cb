//! Element-wise kernels.

use half::{bf16, f16};

use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::Elementwise;
use crate::kernels::family::Family;
use crate::{DType, Operand, to_e4m3, to_e5m2};
use vramlab_allocator::units::Address;

const THREADS: u32 = 256;
/// Elements per block in a function's kernel.
const PER_BLOCK: usize = 16 * THREADS as usize;
/// Bytes per block in a kernel that fills.
const FILLED_PER_BLOCK: usize = 128 * THREADS as usize;

/// True if functions can be computed on operands of this type.
pub(in crate::kernels::elementwise) const fn computes(operand: Operand) -> bool {
    matches!(operand.dtype, DType::F32 | DType::F16 | DType::Bf16)
}

/// Adds an operand whose type is read at run time; the kernels number types like [`DType`].
fn typed(arguments: Arguments, operand: &Operand) -> Arguments {
    arguments.operand(operand).int(operand.dtype as u32)
}

pub(in crate::kernels::elementwise) fn unary(
    queue: &mut Queue<'_>,
    kernel: &Elementwise,
    name: &'static str,
    [src, dst]: [Operand; 2],
    parameter: f32,
) -> Result<(), Refusal> {
    map(queue, kernel, name, [src, dst], |arguments| arguments.float(parameter))
}

/// Launches an element-wise kernel from `src` to `dst`, with the arguments `more` after the number of elements.
pub(in crate::kernels::elementwise) fn map(
    queue: &mut Queue<'_>,
    kernel: &Elementwise,
    name: &'static str,
    [src, dst]: [Operand; 2],
    more: impl FnOnce(Arguments) -> Arguments,
) -> Result<(), Refusal> {
    if !(computes(src) && computes(dst) && src.len == dst.len) {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if dst.len == 0 {
        return Ok(());
    }
    let grid = Grid::row(blocks_of(dst.len, PER_BLOCK), THREADS);
    let arguments = typed(typed(Arguments::new(), &src), &dst).count(dst.len);
    queue.launch(name, &[], grid, &mut more(arguments))
}

pub(in crate::kernels::elementwise) fn binary(
    queue: &mut Queue<'_>,
    kernel: &Elementwise,
    name: &'static str,
    [a, b, dst]: [Operand; 3],
    parameter: f32,
) -> Result<(), Refusal> {
    if !(computes(a) && computes(b) && computes(dst) && a.len == dst.len && (b.len > 0 || a.len == 0)) {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if dst.len == 0 {
        return Ok(());
    }
    let grid = Grid::row(blocks_of(dst.len, PER_BLOCK), THREADS);
    let arguments = typed(typed(typed(Arguments::new(), &a), &b).count(b.len), &dst);
    queue.launch(name, &[], grid, &mut arguments.count(dst.len).float(parameter))
}

/// Computes two gradients from one: each thread has four elements, or eight of 16 bits.
pub(in crate::kernels::elementwise) fn gated_backward(
    queue: &mut Queue<'_>,
    kernel: &Elementwise,
    operands: [Operand; 5],
) -> Result<(), Refusal> {
    let [grad, ..] = operands;
    if operands.iter().any(|operand| !computes(*operand) || operand.len != grad.len) {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if grad.len == 0 {
        return Ok(());
    }
    let each = if operands.iter().any(|operand| operand.dtype == DType::F32) { 4 } else { 8 };
    let grid = Grid::row(blocks_of(grad.len, each * THREADS as usize), THREADS);
    let arguments = operands.iter().fold(Arguments::new(), typed);
    queue.launch("gated_silu_backward", &[], grid, &mut arguments.count(grad.len))
}

/// Processes rows of `cols` elements of `a`, each with its own element of `b`.
pub(in crate::kernels::elementwise) fn rows(
    queue: &mut Queue<'_>,
    kernel: &Elementwise,
    [a, b, dst]: [Operand; 3],
    cols: usize,
) -> Result<(), Refusal> {
    let fits = a.len == dst.len && b.len.checked_mul(cols) == Some(a.len);
    if !(computes(a) && computes(b) && computes(dst) && fits) {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if dst.len == 0 {
        return Ok(());
    }
    let grid = Grid::row(blocks_of(dst.len, PER_BLOCK), THREADS);
    let arguments = typed(typed(typed(Arguments::new(), &a), &b).count(cols), &dst);
    queue.launch("mul_rows", &[], grid, &mut arguments.count(dst.len))
}

pub(in crate::kernels::elementwise) fn fill(queue: &mut Queue<'_>, dst: &Operand, value: f64) -> Result<(), Refusal> {
    repeat(queue, dst.address, dst.len * dst.dtype.size() as usize, pattern(dst.dtype, value))
}

/// Fills `bytes` of memory with zeros.
pub(in crate::kernels) fn zero(queue: &mut Queue<'_>, address: Address, bytes: usize) -> Result<(), Refusal> {
    repeat(queue, address, bytes, 0)
}

fn repeat(queue: &mut Queue<'_>, address: Address, bytes: usize, pattern: u64) -> Result<(), Refusal> {
    if bytes == 0 {
        return Ok(());
    }
    let grid = Grid::row(blocks_of(bytes, FILLED_PER_BLOCK), THREADS);
    queue.launch("fill", &[], grid, &mut Arguments::new().at(address).count(bytes).bits(pattern))
}

/// Eight bytes of elements that all equal `value`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "integers are cut off and clamped")]
fn pattern(dtype: DType, value: f64) -> u64 {
    let (bits, size) = match dtype {
        DType::F64 => (value.to_bits(), 8),
        DType::I64 => ((value as i64).cast_unsigned(), 8),
        DType::F32 => (u64::from((value as f32).to_bits()), 4),
        DType::I32 => (u64::from((value as i32).cast_unsigned()), 4),
        DType::F16 => (u64::from(f16::from_f32(value as f32).to_bits()), 2),
        DType::Bf16 => (u64::from(bf16::from_f32(value as f32).to_bits()), 2),
        DType::U8 => (u64::from(value as u8), 1),
        DType::E4M3 => (u64::from(to_e4m3(value as f32)), 1),
        DType::E5M2 => (u64::from(to_e5m2(value as f32)), 1),
    };
    (0..8 / size).fold(0, |pattern, i| pattern | bits << (8 * size * i))
}

pub(in crate::kernels::elementwise) fn arange(queue: &mut Queue<'_>, dst: &Operand) -> Result<(), Refusal> {
    if dst.len == 0 {
        return Ok(());
    }
    let grid = Grid::row(blocks_of(dst.len, THREADS as usize), THREADS);
    queue.launch("arange", &[], grid, &mut typed(Arguments::new(), dst).count(dst.len))
}

/// Writes rows of zeros with a diagonal of ones.
pub(in crate::kernels::elementwise) fn identity(
    queue: &mut Queue<'_>,
    kernel: &Elementwise,
    dst: &Operand,
    cols: usize,
) -> Result<(), Refusal> {
    if !computes(*dst) || cols == 0 || !dst.len.is_multiple_of(cols) {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if dst.len == 0 {
        return Ok(());
    }
    let grid = Grid::row(blocks_of(dst.len, PER_BLOCK), THREADS);
    queue.launch("identity", &[], grid, &mut typed(Arguments::new(), dst).count(cols).count(dst.len))
}

/// `dst[i] = src[i] + value` for integers: counters and indices.
pub(in crate::kernels::elementwise) fn exact(
    queue: &mut Queue<'_>,
    kernel: &Elementwise,
    [src, dst]: [Operand; 2],
    value: f64,
) -> Result<(), Refusal> {
    if src.len != dst.len {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if dst.len == 0 {
        return Ok(());
    }
    let grid = Grid::row(blocks_of(dst.len, 4 * THREADS as usize), THREADS);
    let arguments = typed(typed(Arguments::new(), &src), &dst);
    queue.launch("add_exact", &[], grid, &mut arguments.count(dst.len).double(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_repeats_the_element() {
        assert_eq!(pattern(DType::F32, 1.0), 0x3f80_0000_3f80_0000);
        assert_eq!(pattern(DType::Bf16, 1.0), 0x3f80_3f80_3f80_3f80);
        assert_eq!(pattern(DType::F16, 1.0), 0x3c00_3c00_3c00_3c00);
        assert_eq!(pattern(DType::F16, f64::NEG_INFINITY), 0xfc00_fc00_fc00_fc00);
        assert_eq!(pattern(DType::I64, -2.0), (-2_i64).cast_unsigned());
        assert_eq!(pattern(DType::I32, -1.0), u64::MAX);
        assert_eq!(pattern(DType::U8, 3.0), 0x0303_0303_0303_0303);
        assert_eq!(pattern(DType::F64, 0.5), 0.5_f64.to_bits());
    }
}
