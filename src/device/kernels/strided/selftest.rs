//! Copies between layouts.

use super::Strided;
use crate::DType;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, Precision, Skew};
use crate::selftest::session::Session;
use crate::selftest::values::Values;

/// A shape and the strides of source and destination.
struct StridedCase {
    what: &'static str,
    shape: [usize; 4],
    src: [usize; 4],
    dst: [usize; 4],
}

/// The number of elements from the first to the last, inclusive.
fn extent(shape: [usize; 4], strides: [usize; 4]) -> usize {
    shape.iter().zip(strides).fold(1, |end, (&size, stride)| end + (size - 1) * stride)
}

const fn contiguous([_, b, c, d]: [usize; 4]) -> [usize; 4] {
    [b * c * d, c * d, d, 1]
}

/// (batch, rows, heads, head size) viewed as (batch, heads, rows, head size), with rows `width` apart.
const fn by_heads([_, _, rows, size]: [usize; 4], width: usize) -> [usize; 4] {
    [rows * width, size, width, 1]
}

fn layouts() -> Vec<StridedCase> {
    let mut layouts = Vec::new();
    for shape in [[1, 1, 1, 1], [1, 1, 1, 1000], [1, 1, 4, 1023], [2, 3, 5, 7], [2, 4, 33, 64]] {
        let dense = contiguous(shape);
        layouts.push(StridedCase { what: "as it lies", shape, src: dense, dst: dense });
    }
    for shape in [[2, 3, 5, 7], [1, 4, 33, 10], [2, 4, 32, 8], [3, 12, 100, 64], [2, 12, 512, 64]] {
        let width = shape[1] * shape[3];
        let (dense, merged, packed) = (contiguous(shape), by_heads(shape, width), by_heads(shape, 3 * width));
        layouts.push(StridedCase { what: "heads apart", shape, src: packed, dst: dense });
        layouts.push(StridedCase { what: "heads together", shape, src: dense, dst: merged });
        layouts.push(StridedCase { what: "into a packed projection", shape, src: merged, dst: packed });
        layouts.push(StridedCase { what: "out of a packed projection", shape, src: packed, dst: merged });
    }
    for shape in [[1, 1, 7, 5], [1, 1, 33, 65], [1, 1, 1024, 768], [1, 3, 100, 257]] {
        let [_, b, c, d] = shape;
        let transposed = [b * c * d, c * d, 1, c];
        layouts.push(StridedCase { what: "transposed", shape, src: transposed, dst: contiguous(shape) });
        layouts.push(StridedCase { what: "to its transpose", shape, src: contiguous(shape), dst: transposed });
    }
    for shape in [[2, 3, 8, 8], [4, 17, 7, 7], [8, 64, 28, 28]] {
        let [_, channels, height, width] = shape;
        let last = [channels * height * width, 1, width * channels, channels];
        layouts.push(StridedCase { what: "channels last", shape, src: contiguous(shape), dst: last });
        layouts.push(StridedCase { what: "channels first", shape, src: last, dst: contiguous(shape) });
    }
    // One row shared by all, and a cache with room for further positions.
    let shape = [2, 3, 4, 40];
    layouts.push(StridedCase { what: "one row for all", shape, src: [0, 0, 0, 1], dst: contiguous(shape) });
    let shape = [2, 3, 5, 16];
    layouts.push(StridedCase { what: "into a cache", shape, src: by_heads(shape, 3 * 48), dst: [3 * 640, 640, 16, 1] });
    layouts.push(StridedCase { what: "the beginnings", shape: [1, 1, 3, 11], src: [0, 0, 32, 1], dst: [0, 0, 11, 1] });
    layouts
}

pub(super) fn run(session: &mut Session<'_>) {
    let layouts = layouts();
    for layout in &layouts {
        let &StridedCase { what, shape, src: src_strides, dst: dst_strides } = layout;
        let title = format!("{shape:?} {what}");
        for (dtype, optional) in [
            (DType::F32, false),
            (DType::F16, false),
            (DType::Bf16, false),
            (DType::I64, false),
            (DType::U8, true),
            (DType::E5M2, true),
        ] {
            for skew in [Skew::Aligned, Skew::Together(1)] {
                let mut case = Case::of_types("copy_strided", &[dtype], title.clone()).skewed(skew);
                case.optional = optional;
                let src = case.input("src", dtype, extent(shape, src_strides), Values::Below(200));
                let dst = case.output("dst", dtype, extent(shape, dst_strides), ErrorBound::Exact);
                session.check(&case, |at| Strided::Copy {
                    src: at[src].address,
                    dst: at[dst].address,
                    dtype: at[dst].dtype,
                    shape,
                    src_strides,
                    dst_strides,
                });
            }
        }
        let types = Precision::FLOATS.map(Precision::dtype);
        let moved = [DType::I64, DType::I32, DType::U8].map(|dtype| (dtype, dtype));
        for (src_type, dst_type) in types.into_iter().flat_map(|src| types.map(|dst| (src, dst))).chain(moved) {
            let mut case = Case::of_types("cast_strided", &[src_type, dst_type], title.clone());
            let values = if src_type.is_float() { Values::STANDARD } else { Values::Below(200) };
            let src = case.input("src", src_type, extent(shape, src_strides), values);
            let dst = case.output("dst", dst_type, extent(shape, dst_strides), ErrorBound::Exact);
            session.check(&case, |at| Strided::Cast {
                src: at[src].address,
                src_dtype: at[src].dtype,
                dst: at[dst].address,
                dst_dtype: at[dst].dtype,
                shape,
                src_strides,
                dst_strides,
            });
        }
    }
}
