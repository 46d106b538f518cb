//! Copies between layouts.

use crate::DType;
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, Element, KernelResult, View};
use crate::cpu::real::Real;
use vramlab_allocator::units::Address;

pub(super) fn copy(
    cores: &Cores,
    mut access: Access<'_>,
    dtype: DType,
    shape: [usize; 4],
    (src, src_strides): (Address, [usize; 4]),
    (dst, dst_strides): (Address, [usize; 4]),
) -> KernelResult {
    let dims = |strides: [usize; 4]| std::array::from_fn(|i| (shape[i], strides[i]));
    let from = access.claim(src, dtype, dims(src_strides), false)?;
    let to = access.claim(dst, dtype, dims(dst_strides), true)?;
    let plan = JoinedCopy::new(shape, src_strides, dst_strides);
    match dtype.size() {
        8 => plan.run::<i64>(cores, from, to),
        4 => plan.run::<i32>(cores, from, to),
        2 => plan.run::<u16>(cores, from, to),
        _ => plan.run::<u8>(cores, from, to),
    }
    Ok(())
}

/// A copy between layouts and float types.
pub(super) fn cast(
    cores: &Cores,
    mut access: Access<'_>,
    shape: [usize; 4],
    (src, src_dtype, src_strides): (Address, DType, [usize; 4]),
    (dst, dst_dtype, dst_strides): (Address, DType, [usize; 4]),
) -> KernelResult {
    let dims = |strides: [usize; 4]| std::array::from_fn(|i| (shape[i], strides[i]));
    let from = access.claim(src, src_dtype, dims(src_strides), false)?;
    let to = access.claim(dst, dst_dtype, dims(dst_strides), true)?;
    let plan = JoinedCopy::new(shape, src_strides, dst_strides);
    real!([src_dtype, dst_dtype], cast_all(cores, &plan, from, to));
    Ok(())
}

fn cast_all<R: Real>(cores: &Cores, plan: &JoinedCopy, from: View<'_>, to: View<'_>) {
    plan.for_each_run(cores, |[(src, src_step), (dst, dst_step)], run| {
        if src_step == 1 && dst_step == 1 {
            cores.scratch(run, |values: &mut [R]| {
                R::load(&from, src, values);
                R::store(&to, dst, values);
            });
        } else {
            let mut value = [R::ZERO];
            for i in 0..run {
                R::load(&from, src + i * src_step, &mut value);
                R::store(&to, dst + i * dst_step, &value);
            }
        }
    });
}

/// The copy with adjacent dimensions joined if both layouts permit it, so that inner runs are long.
struct JoinedCopy {
    /// (size, source stride, destination stride), outermost first.
    dims: Vec<(usize, usize, usize)>,
}

impl JoinedCopy {
    fn new(shape: [usize; 4], src: [usize; 4], dst: [usize; 4]) -> Self {
        let mut dims: Vec<(usize, usize, usize)> = Vec::with_capacity(4);
        for i in 0..4 {
            if shape[i] == 1 {
                continue;
            }
            match dims.last_mut() {
                Some(outer) if outer.1 == shape[i] * src[i] && outer.2 == shape[i] * dst[i] => {
                    *outer = (outer.0 * shape[i], src[i], dst[i]);
                }
                _ => dims.push((shape[i], src[i], dst[i])),
            }
        }
        if dims.is_empty() {
            dims.push((1, 1, 1));
        }
        Self { dims }
    }

    fn run<T: Element>(&self, cores: &Cores, from: View<'_>, to: View<'_>) {
        self.for_each_run(cores, |[(src, src_step), (dst, dst_step)], run| {
            if src_step == 1 && dst_step == 1 {
                to.slice_mut::<T>(dst, run).copy_from_slice(from.slice::<T>(src, run));
            } else {
                for i in 0..run {
                    to.slice_mut::<T>(dst + i * dst_step, 1)[0] = from.slice::<T>(src + i * src_step, 1)[0];
                }
            }
        });
    }

    /// Calls `copy` with (start, step) in source and destination and the length of every innermost run.
    fn for_each_run(&self, cores: &Cores, copy: impl Fn([(usize, usize); 2], usize) + Sync) {
        let Some((&(run, run_src, run_dst), outer)) = self.dims.split_last() else { return };
        let rows: usize = outer.iter().map(|&(size, ..)| size).product();
        const ROWS: usize = 64;
        cores.for_each(rows.div_ceil(ROWS), rows * run / 2 + rows * 4, |task| {
            for row in task * ROWS..rows.min((task + 1) * ROWS) {
                let (mut rest, mut src, mut dst) = (row, 0, 0);
                for &(size, src_stride, dst_stride) in outer.iter().rev() {
                    let index = rest % size;
                    rest /= size;
                    src += index * src_stride;
                    dst += index * dst_stride;
                }
                copy([(src, run_src), (dst, run_dst)], run);
            }
        });
    }
}
