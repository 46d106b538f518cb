//! Copies between layouts.

use super::Strided;
use crate::DType;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::family::Family;
use vramlab_allocator::units::Address;

const THREADS: u32 = 256;
/// Packs of elements per thread.
const UNROLL: usize = 4;
/// The side of the square that one block transposes.
const SQUARE: usize = 64;
/// For shorter sides, transposing in squares is not worth it.
const LEAST_SIDE: usize = 16;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Strided) -> Result<(), Refusal> {
    let computes = |dtype: DType| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    let (shape, src, dst) = match *kernel {
        // Nothing is computed, so elements of any type are copied.
        Strided::Cast { src, src_dtype, dst, dst_dtype, shape, src_strides, dst_strides } if src_dtype == dst_dtype => {
            let dtype = of_size(src_dtype);
            let src = Side { address: src, dtype, strides: src_strides };
            (shape, src, Side { address: dst, dtype, strides: dst_strides })
        }
        Strided::Copy { src, dst, dtype, shape, src_strides, dst_strides } => {
            let dtype = of_size(dtype);
            (
                shape,
                Side { address: src, dtype, strides: src_strides },
                Side { address: dst, dtype, strides: dst_strides },
            )
        }
        Strided::Cast { src, src_dtype, dst, dst_dtype, shape, src_strides, dst_strides }
            if computes(src_dtype) && computes(dst_dtype) =>
        {
            let src = Side { address: src, dtype: src_dtype, strides: src_strides };
            (shape, src, Side { address: dst, dtype: dst_dtype, strides: dst_strides })
        }
        _ => return Err(Refusal::unsupported(kernel.name())),
    };
    if shape.contains(&0) {
        return Ok(());
    }
    let OrderedCopy { dims, manner } = OrderedCopy::new(shape, &src, &dst);
    let fields: Vec<usize> =
        dims.iter().map(|d| d.size).chain(dims.iter().map(|d| d.src)).chain(dims.iter().map(|d| d.dst)).collect();
    let fields: Vec<u64> = fields.into_iter().map(|field| field as u64).collect();
    let types = [src.dtype, dst.dtype];
    let arguments = Arguments::new().at(src.address).at(dst.address);
    let packs = |at_once: usize| {
        let packs = dims[..3].iter().map(|d| d.size).product::<usize>() * dims[3].size.div_ceil(at_once);
        u32::try_from(packs).map_err(|_| Refusal::unsupported(kernel.name()))
    };
    let (name, at_once) = match manner {
        Manner::Packs(at_once) => ("strided_packs", at_once),
        Manner::Elements => ("strided_elements", 1),
        Manner::Squares => {
            let tiles: usize = dims[2..].iter().map(|d| d.size.div_ceil(SQUARE)).product();
            let grid = Grid::row(blocks_of(dims[0].size * dims[1].size * tiles, 1), THREADS);
            return queue.launch("strided_transpose", &types, grid, &mut arguments.structure(&fields));
        }
    };
    let packs = packs(at_once)?;
    let grid = Grid::row(blocks_of(packs as usize, THREADS as usize * UNROLL), THREADS);
    queue.launch(name, &types, grid, &mut arguments.int(packs).structure(&fields))
}

/// The type that represents all types of its size when elements are only copied.
const fn of_size(dtype: DType) -> DType {
    match dtype.size() {
        8 => DType::I64,
        4 => DType::F32,
        2 => DType::F16,
        _ => DType::U8,
    }
}

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
struct Side {
    address: Address,
    dtype: DType,
    strides: [usize; 4],
}

impl Side {
    /// True if `n` elements can be copied at once from every multiple of `n` elements.
    const fn aligned(&self, n: usize) -> bool {
        self.address.0.is_multiple_of(n as u64 * self.dtype.size())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dim {
    size: usize,
    src: usize,
    dst: usize,
}

/// How elements are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// This many at once: both sides are contiguous in the last dimension.
    Packs(usize),
    /// One by one.
    Elements,
    /// In squares: the source is contiguous in the third dimension, the destination in the fourth.
    Squares,
}

/// The copy with dimensions in the order of the destination's strides, and joined if both layouts permit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OrderedCopy {
    dims: [Dim; 4],
    manner: Manner,
}

impl OrderedCopy {
    fn new(shape: [usize; 4], src: &Side, dst: &Side) -> Self {
        let all = (0..4).map(|i| Dim { size: shape[i], src: src.strides[i], dst: dst.strides[i] });
        let mut sorted: Vec<Dim> = all.filter(|dim| dim.size != 1).collect();
        sorted.sort_by_key(|dim| std::cmp::Reverse(dim.dst));
        let mut dims: Vec<Dim> = Vec::with_capacity(4);
        for dim in sorted {
            match dims.last_mut() {
                Some(outer) if outer.src == dim.size * dim.src && outer.dst == dim.size * dim.dst => {
                    *outer = Dim { size: outer.size * dim.size, ..dim };
                }
                _ => dims.push(dim),
            }
        }
        let inner = dims.pop().unwrap_or(Dim { size: 1, src: 1, dst: 1 });
        let at_once = 16 / src.dtype.size().max(dst.dtype.size()) as usize;
        let aligned = src.aligned(at_once)
            && dst.aligned(at_once)
            && dims.iter().all(|dim| dim.src.is_multiple_of(at_once) && dim.dst.is_multiple_of(at_once));
        let other = dims.iter().position(|dim| dim.src == 1 && dim.size >= LEAST_SIDE);
        let manner = match other {
            _ if inner.src == 1 && inner.dst == 1 && aligned => Manner::Packs(at_once),
            Some(other) if inner.dst == 1 && inner.src != 1 && inner.size >= LEAST_SIDE => {
                let dim = dims.remove(other);
                dims.push(dim);
                Manner::Squares
            }
            _ => Manner::Elements,
        };
        dims.push(inner);
        let mut padded = [Dim { size: 1, src: 0, dst: 0 }; 4];
        padded[4 - dims.len()..].copy_from_slice(&dims);
        Self { dims: padded, manner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shape: [usize; 4], src: [usize; 4], dst: [usize; 4], address: u64) -> OrderedCopy {
        let side = |strides| Side { address: Address(address), dtype: DType::Bf16, strides };
        OrderedCopy::new(shape, &side(src), &side(dst))
    }

    #[test]
    fn contiguous_copies_have_one_dimension() {
        let strides = [1000, 100, 10, 1];
        let plan = plan([3, 10, 10, 10], strides, strides, 512);
        assert_eq!(plan.manner, Manner::Packs(8));
        assert_eq!(plan.dims[3], Dim { size: 3000, src: 1, dst: 1 });
        assert!(plan.dims[..3].iter().all(|dim| dim.size == 1));
    }

    #[test]
    fn heads_are_moved_in_packs_where_they_are_aligned() {
        let (shape, dense) = ([2, 12, 100, 64], [76_800, 6400, 64, 1]);
        let packed = [230_400, 64, 2304, 1];
        assert_eq!(plan(shape, packed, dense, 512).manner, Manner::Packs(8));
        assert_eq!(plan(shape, packed, dense, 514).manner, Manner::Elements);
        // The destination's strides decide the order.
        let merged = plan(shape, dense, packed, 512);
        assert_eq!(merged.manner, Manner::Packs(8));
        assert_eq!(merged.dims.map(|dim| dim.size), [2, 100, 12, 64]);
    }

    #[test]
    fn transposes_go_through_squares() {
        let channels_first = [64 * 784, 784, 28, 1];
        let channels_last = [64 * 784, 1, 28 * 64, 64];
        let squares = plan([8, 64, 28, 28], channels_first, channels_last, 512);
        assert_eq!(squares.manner, Manner::Squares);
        assert_eq!(squares.dims[2], Dim { size: 784, src: 1, dst: 64 });
        assert_eq!(squares.dims[3], Dim { size: 64, src: 784, dst: 1 });
        assert_eq!(plan([8, 3, 28, 28], [2352, 784, 28, 1], [2352, 1, 84, 3], 512).manner, Manner::Elements);
    }
}
