//! Copies between layouts.

use crate::device::DType;
use crate::device::cpu::cores::Cores;
use crate::device::cpu::operand::{Access, Element, KernelResult, View};
use crate::units::Address;

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
    let plan = Plan::new(shape, src_strides, dst_strides);
    match dtype.size() {
        8 => plan.run::<i64>(cores, from, to),
        4 => plan.run::<i32>(cores, from, to),
        2 => plan.run::<u16>(cores, from, to),
        _ => plan.run::<u8>(cores, from, to),
    }
    Ok(())
}

/// The copy with dimensions joined where both layouts allow it, so that inner runs are long.
struct Plan {
    /// (size, source stride, destination stride), outermost first.
    dims: Vec<(usize, usize, usize)>,
}

impl Plan {
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
                if run_src == 1 && run_dst == 1 {
                    to.slice_mut::<T>(dst, run).copy_from_slice(from.slice::<T>(src, run));
                } else {
                    for i in 0..run {
                        to.slice_mut::<T>(dst + i * run_dst, 1)[0] = from.slice::<T>(src + i * run_src, 1)[0];
                    }
                }
            }
        });
    }
}
