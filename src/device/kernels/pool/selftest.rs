//! Pooling.

use super::Pool;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, CaseOperands, Precision};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{DType, PoolShape};

const fn shape(planes: usize, [in_height, in_width]: [usize; 2], [kernel, stride, padding]: [usize; 3]) -> PoolShape {
    PoolShape {
        planes,
        in_height,
        in_width,
        out_height: (in_height + 2 * padding - kernel) / stride + 1,
        out_width: (in_width + 2 * padding - kernel) / stride + 1,
        kernel,
        stride,
        padding,
        interleaved: 1,
    }
}

const SHAPES: [PoolShape; 11] = [
    shape(1, [1, 1], [1, 1, 0]),
    shape(3, [7, 7], [2, 2, 0]),
    shape(5, [8, 8], [3, 2, 1]),
    shape(16, [16, 16], [3, 2, 1]),
    shape(7, [13, 9], [3, 1, 1]),
    shape(7, [9, 13], [3, 2, 1]),
    shape(2, [5, 5], [5, 5, 0]),
    shape(4, [10, 10], [2, 3, 0]),
    shape(64, [112, 112], [3, 2, 1]),
    shape(2000, [4, 4], [2, 2, 0]),
    shape(3, [6, 6], [4, 1, 2]),
];

pub(super) fn run(session: &mut Session<'_>) {
    let interleaved = [(3, 1), (16, 2), (24, 3), (33, 3), (64, 8), (130, 0)].map(|(channels, of)| PoolShape {
        planes: 2 * channels,
        interleaved: channels,
        ..SHAPES[of]
    });
    for precision in Precision::FLOATS {
        for shape in interleaved {
            check(session, precision, shape, ", interleaved", Values::STANDARD);
            check(session, precision, shape, ", interleaved, ties", Values::Below(3));
        }
        for shape in SHAPES {
            check(session, precision, shape, "", Values::STANDARD);
            check(session, precision, shape, ", ties", Values::Below(3));
        }
        let shape = shape(5, [12, 12], [3, 2, 1]);
        check(session, precision, shape, ", equal", Values::Constant(-2.0));
        check(session, precision, shape, ", nothing above minus infinity", Values::Constant(f64::NEG_INFINITY));
        let lost = [(40, f64::NAN), (200, f64::NAN), (333, f64::NAN), (500, f64::INFINITY)];
        check(session, precision, shape, ", not all numbers", Values::Except(1.0, lost.to_vec()));
    }
}

fn check(session: &mut Session<'_>, precision: Precision, shape: PoolShape, what: &str, values: Values) {
    let dtype = precision.dtype();
    let PoolShape { planes, in_height, in_width, kernel, stride, padding, .. } = shape;
    let title =
        format!("{planes} × {in_height} × {in_width}, {kernel} × {kernel}, stride {stride}, padding {padding}{what}");
    let (inside, outside) = (planes * shape.in_area(), planes * shape.out_area());
    let mut forward = Case::new("max_pool", precision, title.clone());
    let src = forward.input("src", dtype, inside, values);
    let dst = forward.output("dst", dtype, outside, ErrorBound::Exact);
    let indices = forward.output("indices", DType::I64, outside, ErrorBound::Exact);
    let kernel = |at: &CaseOperands| Pool::Max { src: at[src], dst: at[dst], indices: at[indices], shape };
    session.check(&forward, kernel);

    let mut case = Case::new("max_pool_backward", precision, title);
    let grad = case.input("grad", dtype, outside, Values::STANDARD);
    let windows = shape.kernel.div_ceil(shape.stride).pow(2);
    let dst = case.output("dst", dtype, inside, ErrorBound::Sum(windows));
    if !session.wants(&case) {
        return;
    }
    let Some(places) = session.prepare(&forward, kernel).and_then(|mut values| values.pop()) else { return };
    let indices = case.input("indices", DType::I64, outside, Values::List(places));
    session.check(&case, |at| Pool::MaxBackward { grad: at[grad], indices: at[indices], dst: at[dst], shape });
}
