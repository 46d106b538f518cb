//! Softmax and log-softmax, row by row.

use crate::selftest::bound::Bound;
use crate::selftest::case::{Case, Placed, Precision, Skew, Slot};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{DType, Kernel};

const SHAPES: [(usize, usize, Skew); 20] = [
    (1, 1, Skew::Aligned),
    (5, 1, Skew::Aligned),
    (1, 2, Skew::Aligned),
    (1000, 7, Skew::Aligned),
    (33, 10, Skew::Aligned),
    (64, 31, Skew::Together(1)),
    (64, 32, Skew::Aligned),
    (100, 33, Skew::Aligned),
    (37, 100, Skew::Apart),
    (128, 197, Skew::Aligned),
    (16, 257, Skew::Aligned),
    (70, 512, Skew::Aligned),
    (9, 1000, Skew::Together(1)),
    (256, 1024, Skew::Aligned),
    (5, 1025, Skew::Aligned),
    (3, 4099, Skew::Aligned),
    (4, 8192, Skew::Aligned),
    (2, 30_522, Skew::Aligned),
    (17, 50_257, Skew::Aligned),
    (3, 131_073, Skew::Aligned),
];

pub(super) fn run(session: &mut Session<'_>) {
    type Map = fn(&Placed, [Slot; 2], usize) -> Kernel<'static>;
    type Derivative = fn(&Placed, [Slot; 3], usize) -> Kernel<'static>;
    let softmax: Map = |at, [src, dst], cols| Kernel::Softmax { src: at[src], dst: at[dst], cols };
    let log_softmax: Map = |at, [src, dst], cols| Kernel::LogSoftmax { src: at[src], dst: at[dst], cols };
    let softmax_backward: Derivative = |at, [output, grad, dst], cols| Kernel::SoftmaxBackward {
        output: at[output],
        grad: at[grad],
        dst: at[dst],
        cols,
    };
    let log_softmax_backward: Derivative = |at, [output, grad, dst], cols| Kernel::LogSoftmaxBackward {
        output: at[output],
        grad: at[grad],
        dst: at[dst],
        cols,
    };
    for precision in Precision::FLOATS {
        let dtype = precision.dtype();
        for (kernel, make) in [("softmax", softmax), ("log_softmax", log_softmax)] {
            for (rows, cols, skew) in SHAPES {
                let case = Case::new(kernel, precision, format!("{rows} × {cols}")).skewed(skew);
                forward(session, case, [rows, cols], Values::Normal(0.0, 3.0), make);
            }
            for (rows, cols, what, values) in special(kernel == "softmax", dtype) {
                let case = Case::new(kernel, precision, format!("{rows} × {cols} {what}"));
                forward(session, case, [rows, cols], values, make);
            }
            let mut case = Case::new(kernel, precision, "19 × 65, in place");
            let dst = case.update("dst", dtype, 19 * 65, Values::Normal(0.0, 3.0), Bound::Sum(65));
            session.check(&case, |at| make(at, [dst, dst], 65));
        }
        for (kernel, make) in [("softmax_backward", softmax_backward), ("log_softmax_backward", log_softmax_backward)] {
            for (rows, cols, skew) in SHAPES {
                let mut case = Case::new(kernel, precision, format!("{rows} × {cols}")).skewed(skew);
                let outputs = if kernel == "softmax_backward" {
                    Values::Uniform(0.0, 2.0 / cols as f64)
                } else {
                    Values::Uniform(-8.0, -1.0)
                };
                let output = case.input("output", dtype, rows * cols, outputs);
                let grad = case.input("grad", dtype, rows * cols, Values::STANDARD);
                let dst = case.output("dst", dtype, rows * cols, Bound::Sum(cols));
                session.check(&case, |at| make(at, [output, grad, dst], cols));
            }
            let mut case = Case::new(kernel, precision, "19 × 65, in place");
            let output = case.input("output", dtype, 19 * 65, Values::Uniform(0.0, 0.03));
            let dst = case.update("dst", dtype, 19 * 65, Values::STANDARD, Bound::Sum(65));
            session.check(&case, |at| make(at, [output, dst, dst], 65));
        }
    }
}

fn forward(
    session: &mut Session<'_>,
    mut case: Case,
    [rows, cols]: [usize; 2],
    values: Values,
    make: fn(&Placed, [Slot; 2], usize) -> Kernel<'static>,
) {
    let dtype = case.main_type();
    let src = case.input("src", dtype, rows * cols, values);
    let dst = case.output("dst", dtype, rows * cols, Bound::Sum(cols));
    session.check(&case, |at| make(at, [src, dst], cols));
}

/// Rows that are all the same, far from zero, or masked.
fn special(softmax: bool, dtype: DType) -> Vec<(usize, usize, &'static str, Values)> {
    let far = if dtype == DType::F16 { 6e4 } else { 1e30 };
    let mut rows = vec![
        (3, 1000, "equal", Values::Constant(1.5)),
        (3, 50_257, "equal", Values::Constant(-7.0)),
        (2, 500, "far from zero", Values::Constant(far)),
        (2, 500, "far below zero", Values::Constant(-far)),
    ];
    if softmax {
        let causal = Values::Each(|i| if i % 64 > i / 64 { f64::NEG_INFINITY } else { (i % 11) as f64 * 0.3 });
        rows.push((64, 64, "masked", causal));
        let last = Values::Each(|i| if i % 2048 == 2047 { 0.25 } else { f64::NEG_INFINITY });
        rows.push((2, 2048, "masked but for the last", last));
    }
    rows
}
