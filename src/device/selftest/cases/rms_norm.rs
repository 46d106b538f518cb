//! The norm by the root of the mean square.

use crate::selftest::bound::Bound;
use crate::selftest::case::{Case, Precision, Skew};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{DType, Kernel};

const SHAPES: [(usize, usize, Skew); 14] = [
    (3, 1, Skew::Aligned),
    (1, 7, Skew::Aligned),
    (100, 7, Skew::Together(1)),
    (128, 32, Skew::Aligned),
    (33, 100, Skew::Together(1)),
    (513, 768, Skew::Aligned),
    (60, 770, Skew::Together(2)),
    (70_000, 16, Skew::Aligned),
    (9000, 128, Skew::Aligned),
    (1024, 1024, Skew::Aligned),
    (9, 1600, Skew::Aligned),
    (300, 2048, Skew::Aligned),
    (12, 4096, Skew::Aligned),
    (7, 5001, Skew::Together(1)),
];

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        for (rows, cols, skew) in SHAPES {
            for parameters in [DType::F32, precision.dtype()] {
                forward(session, precision, parameters, [rows, cols], skew);
                row_norm(session, precision, parameters, [rows, cols], skew);
                backward(session, precision, parameters, [rows, cols], skew);
                if precision == Precision::F32 {
                    break;
                }
            }
        }
    }
}

fn case(name: &'static str, precision: Precision, parameters: DType, [rows, cols]: [usize; 2], skew: Skew) -> Case {
    let alike = if parameters == precision.dtype() { "" } else { ", parameters in f32" };
    Case::new(name, precision, format!("{rows} × {cols}{alike}")).skewed(skew)
}

fn forward(session: &mut Session<'_>, precision: Precision, parameters: DType, shape: [usize; 2], skew: Skew) {
    let [rows, cols] = shape;
    let mut case = case("rms_norm", precision, parameters, shape, skew);
    let src = case.input("src", precision.dtype(), rows * cols, Values::Normal(0.3, 1.2));
    let weight = case.input("weight", parameters, cols, Values::Normal(1.0, 0.2));
    let dst = case.output("dst", precision.dtype(), rows * cols, Bound::Sum(cols));
    let rstd = case.output("rstd", DType::F32, rows, Bound::Sum(cols));
    session.check(&case, |at| Kernel::RmsNorm {
        src: at[src],
        weight: at[weight],
        dst: at[dst],
        rstd: at[rstd],
        cols,
        eps: 1e-6,
    });
}

/// Of rows that differ in size.
fn row_norm(session: &mut Session<'_>, precision: Precision, to: DType, [rows, cols]: [usize; 2], skew: Skew) {
    let into = if to == precision.dtype() { "" } else { ", norms in f32" };
    let mut case = Case::new("row_norm", precision, format!("{rows} × {cols}{into}")).skewed(skew);
    let values = Values::Each(|i| ((i * 7919 % 1009) as f64 / 504.5 - 1.0) * (1 + i % 5) as f64);
    let src = case.input("src", precision.dtype(), rows * cols, values);
    let dst = case.output("dst", to, rows, Bound::Sum(cols));
    session.check(&case, |at| Kernel::RowNorm { src: at[src], dst: at[dst], cols });
}

fn backward(session: &mut Session<'_>, precision: Precision, parameters: DType, shape: [usize; 2], skew: Skew) {
    let [rows, cols] = shape;
    let mut case = case("rms_norm_backward", precision, parameters, shape, skew);
    let grad = case.input("grad", precision.dtype(), rows * cols, Values::STANDARD);
    let src = case.input("src", precision.dtype(), rows * cols, Values::Normal(0.3, 1.2));
    let rstd = case.input("rstd", DType::F32, rows, Values::Uniform(0.7, 0.95));
    let weight = case.input("weight", parameters, cols, Values::Normal(1.0, 0.2));
    let dsrc = case.output("dsrc", precision.dtype(), rows * cols, Bound::Sum(cols));
    let dweight = case.output("dweight", parameters, cols, Bound::Sum(rows));
    session.check(&case, |at| Kernel::RmsNormBackward {
        grad: at[grad],
        src: at[src],
        rstd: at[rstd],
        weight: at[weight],
        dsrc: at[dsrc],
        dweight: at[dweight],
        cols,
    });
}
