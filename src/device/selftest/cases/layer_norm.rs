//! Layer normalisation.

use crate::device::selftest::bound::Bound;
use crate::device::selftest::case::{Case, Precision, Skew};
use crate::device::selftest::session::Session;
use crate::device::selftest::values::Values;
use crate::device::{DType, Kernel};

const SHAPES: [(usize, usize, Skew); 17] = [
    (3, 1, Skew::Aligned),
    (1, 7, Skew::Aligned),
    (100, 7, Skew::Together(1)),
    (128, 32, Skew::Aligned),
    (65, 48, Skew::Aligned),
    (33, 100, Skew::Together(1)),
    (1, 768, Skew::Aligned),
    (513, 768, Skew::Aligned),
    (60, 770, Skew::Together(2)),
    (2048, 256, Skew::Aligned),
    (70_000, 16, Skew::Aligned),
    (17, 1024, Skew::Aligned),
    (1024, 1024, Skew::Aligned),
    (9, 1600, Skew::Aligned),
    (12, 4096, Skew::Aligned),
    (5, 5000, Skew::Aligned),
    (7, 5001, Skew::Together(1)),
];

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        // Models in 16 bit have parameters of their own type; statistics are always f32.
        for (rows, cols, skew) in SHAPES {
            let what = format!("{rows} × {cols}");
            forward(session, precision, [rows, cols], &what, skew, Values::Normal(0.3, 1.2));
            backward(session, precision, [rows, cols], skew);
        }
        forward(session, precision, [4, 768], "4 × 768 equal", Skew::Aligned, Values::Constant(1.5));
        forward(session, precision, [6, 768], "6 × 768 far from zero", Skew::Aligned, Values::Normal(50.0, 1.0));
        forward(session, precision, [6, 1000], "6 × 1000 tiny", Skew::Aligned, Values::Normal(0.0, 1e-3));
    }
}

fn forward(
    session: &mut Session<'_>,
    precision: Precision,
    [rows, cols]: [usize; 2],
    what: &str,
    skew: Skew,
    values: Values,
) {
    let dtype = precision.dtype();
    let mut case = Case::new("layer_norm", precision, what).skewed(skew);
    let src = case.input("src", dtype, rows * cols, values);
    let weight = case.input("weight", dtype, cols, Values::Normal(1.0, 0.2));
    let bias = case.input("bias", dtype, cols, Values::Normal(0.0, 0.5));
    let dst = case.output("dst", dtype, rows * cols, Bound::Sum(cols));
    let mean = case.output("mean", DType::F32, rows, Bound::Sum(cols));
    let rstd = case.output("rstd", DType::F32, rows, Bound::Sum(cols));
    session.check(&case, |at| Kernel::LayerNorm {
        src: at[src],
        weight: at[weight],
        bias: at[bias],
        dst: at[dst],
        mean: at[mean],
        rstd: at[rstd],
        cols,
        eps: 1e-5,
    });
}

fn backward(session: &mut Session<'_>, precision: Precision, [rows, cols]: [usize; 2], skew: Skew) {
    let dtype = precision.dtype();
    let mut case = Case::new("layer_norm_backward", precision, format!("{rows} × {cols}")).skewed(skew);
    let grad = case.input("grad", dtype, rows * cols, Values::STANDARD);
    let src = case.input("src", dtype, rows * cols, Values::Normal(0.3, 1.2));
    let mean = case.input("mean", DType::F32, rows, Values::Normal(0.3, 0.05));
    let rstd = case.input("rstd", DType::F32, rows, Values::Uniform(0.7, 0.95));
    let weight = case.input("weight", dtype, cols, Values::Normal(1.0, 0.2));
    let dsrc = case.output("dsrc", dtype, rows * cols, Bound::Sum(cols));
    let dweight = case.output("dweight", dtype, cols, Bound::Sum(rows));
    let dbias = case.output("dbias", dtype, cols, Bound::Sum(rows));
    session.check(&case, |at| Kernel::LayerNormBackward {
        grad: at[grad],
        src: at[src],
        mean: at[mean],
        rstd: at[rstd],
        weight: at[weight],
        dsrc: at[dsrc],
        dweight: at[dweight],
        dbias: at[dbias],
        cols,
    });
}
