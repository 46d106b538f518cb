//! Layer normalisation.

use super::LayerNorm;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, Precision, Skew};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{DType, Operand};

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

/// Which of the optional operands are present: the addend or second gradient, a second type, only the products' type.
#[derive(Clone, Copy)]
struct OptionalOperands {
    beside: bool,
    both: bool,
    lower: bool,
}

const PARTS: [OptionalOperands; 4] = [
    OptionalOperands { beside: true, both: true, lower: false },
    OptionalOperands { beside: true, both: false, lower: true },
    OptionalOperands { beside: false, both: true, lower: false },
    OptionalOperands { beside: false, both: false, lower: true },
];

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        // 16-bit models have parameters of their own type; statistics are always f32.
        for (rows, cols, skew) in SHAPES {
            let what = format!("{rows} × {cols}");
            forward(session, precision, [rows, cols], &what, skew, Values::Normal(0.3, 1.2));
            for parameters in [Parameters::Trained, Parameters::Unbiased, Parameters::Frozen, Parameters::None] {
                backward(session, precision, [rows, cols], skew, parameters);
            }
        }
        for (rows, cols, skew) in SHAPES {
            // Under autocast the residual stream stays f32; in 16-bit models it has their type.
            for wide in [DType::F32, precision.dtype()] {
                for parts in PARTS {
                    add_forward(session, precision, wide, [rows, cols], skew, parts);
                    add_backward(session, precision, wide, [rows, cols], skew, parts);
                }
                if precision == Precision::F32 {
                    break;
                }
            }
        }
        forward(session, precision, [4, 768], "4 × 768 equal", Skew::Aligned, Values::Constant(1.5));
        forward(session, precision, [6, 768], "6 × 768 far from zero", Skew::Aligned, Values::Normal(50.0, 1.0));
        forward(session, precision, [6, 1000], "6 × 1000 tiny", Skew::Aligned, Values::Normal(0.0, 1e-3));
    }
}

/// Which of weight and bias exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parameters {
    Trained,
    /// There is no bias.
    Unbiased,
    Frozen,
    None,
}

impl Parameters {
    const fn words(self) -> &'static str {
        match self {
            Self::Trained => "",
            Self::Unbiased => ", without bias",
            Self::Frozen => ", frozen",
            Self::None => ", without weight",
        }
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
    for (weighted, biased, words) in
        [(true, true, ""), (true, false, ", without bias"), (false, false, ", without weight")]
    {
        let what = format!("{what}{words}");
        let mut case = Case::new("layer_norm", precision, what).skewed(skew);
        let src = case.input("src", dtype, rows * cols, values.clone());
        let weight = case.input("weight", dtype, cols, Values::Normal(1.0, 0.2));
        let bias = case.input("bias", dtype, cols, Values::Normal(0.0, 0.5));
        let dst = case.output("dst", dtype, rows * cols, ErrorBound::Sum(cols));
        let mean = case.output("mean", DType::F32, rows, ErrorBound::Sum(cols));
        let rstd = case.output("rstd", DType::F32, rows, ErrorBound::Sum(cols));
        session.check(&case, |at| {
            let some = |operand: Operand, is: bool| if is { operand } else { Operand { len: 0, ..operand } };
            LayerNorm::Forward {
                src: at[src],
                weight: some(at[weight], weighted),
                bias: some(at[bias], biased),
                dst: at[dst],
                mean: at[mean],
                rstd: at[rstd],
                cols,
                eps: 1e-5,
            }
        });
    }
}

fn backward(
    session: &mut Session<'_>,
    precision: Precision,
    [rows, cols]: [usize; 2],
    skew: Skew,
    parameters: Parameters,
) {
    let dtype = precision.dtype();
    let (trained, what) = (parameters == Parameters::Trained, parameters.words());
    let made = [trained || parameters == Parameters::Unbiased, trained];
    let mut case = Case::new("layer_norm_backward", precision, format!("{rows} × {cols}{what}")).skewed(skew);
    let grad = case.input("grad", dtype, rows * cols, Values::STANDARD);
    let src = case.input("src", dtype, rows * cols, Values::Normal(0.3, 1.2));
    let mean = case.input("mean", DType::F32, rows, Values::Normal(0.3, 0.05));
    let rstd = case.input("rstd", DType::F32, rows, Values::Uniform(0.7, 0.95));
    let weight = case.input("weight", dtype, cols, Values::Normal(1.0, 0.2));
    let dsrc = case.output("dsrc", dtype, rows * cols, ErrorBound::Sum(cols));
    let mut slot = |name, is: bool| is.then(|| case.output(name, dtype, cols, ErrorBound::Sum(rows)));
    let slots = [slot("dweight", made[0]), slot("dbias", made[1])];
    session.check(&case, |at| {
        let none = Operand { len: 0, ..at[weight] };
        let weight = if parameters == Parameters::None { none } else { at[weight] };
        let [dweight, dbias] = slots.map(|slot| slot.map_or(none, |slot| at[slot]));
        LayerNorm::Backward {
            grad: at[grad],
            src: at[src],
            mean: at[mean],
            rstd: at[rstd],
            weight,
            dsrc: at[dsrc],
            dweight,
            dbias,
            cols,
        }
    });
}

fn add_forward(
    session: &mut Session<'_>,
    precision: Precision,
    wide: DType,
    [rows, cols]: [usize; 2],
    skew: Skew,
    parts: OptionalOperands,
) {
    let (lower, n) = (precision.dtype(), rows * cols);
    let what = parts.describe([rows, cols], wide);
    let mut case = Case::new("add_layer_norm", precision, what).skewed(skew);
    let src = case.input("src", wide, n, Values::Normal(0.3, 1.2));
    let added = parts.beside.then(|| {
        let add = case.input("add", lower, n, Values::STANDARD);
        (add, case.output("sum", wide, n, ErrorBound::Sum(2)))
    });
    let weight = case.input("weight", wide, cols, Values::Normal(1.0, 0.2));
    let bias = case.input("bias", wide, cols, Values::Normal(0.0, 0.5));
    let dst = case.output("dst", if parts.lower { lower } else { wide }, n, ErrorBound::Sum(cols));
    let copy = parts.both.then(|| case.output("copy", lower, n, ErrorBound::Sum(cols)));
    // The statistics of a sum that is rounded to 16 bits differ from those of the exact sum.
    let statistics = if parts.beside && wide != DType::F32 { ErrorBound::Free } else { ErrorBound::Sum(cols) };
    let mean = case.output("mean", DType::F32, rows, statistics);
    let rstd = case.output("rstd", DType::F32, rows, statistics);
    session.check(&case, |at| LayerNorm::Add {
        src: at[src],
        add: added.map(|(add, sum)| (at[add], at[sum])),
        weight: at[weight],
        bias: at[bias],
        dst: at[dst],
        copy: copy.map(|copy| at[copy]),
        mean: at[mean],
        rstd: at[rstd],
        cols,
        eps: 1e-5,
    });
}

fn add_backward(
    session: &mut Session<'_>,
    precision: Precision,
    wide: DType,
    [rows, cols]: [usize; 2],
    skew: Skew,
    parts: OptionalOperands,
) {
    let (lower, n) = (precision.dtype(), rows * cols);
    let what = parts.describe([rows, cols], wide);
    let mut case = Case::new("add_layer_norm_backward", precision, what).skewed(skew);
    let grad = case.input("grad", if parts.lower { lower } else { wide }, n, Values::STANDARD);
    let second = parts.both.then(|| case.input("second", lower, n, Values::STANDARD));
    let src = case.input("src", wide, n, Values::Normal(0.3, 1.2));
    let mean = case.input("mean", DType::F32, rows, Values::Normal(0.3, 0.05));
    let rstd = case.input("rstd", DType::F32, rows, Values::Uniform(0.7, 0.95));
    let weight = case.input("weight", wide, cols, Values::Normal(1.0, 0.2));
    // The residual's gradient is accumulated in place.
    let dsrc = if parts.beside {
        case.update("dsrc", wide, n, Values::STANDARD, ErrorBound::Sum(cols))
    } else {
        case.output("dsrc", wide, n, ErrorBound::Sum(cols))
    };
    let copy = parts.beside.then(|| case.output("copy", lower, n, ErrorBound::Sum(cols)));
    let dweight = case.output("dweight", wide, cols, ErrorBound::Sum(rows));
    let dbias = case.output("dbias", wide, cols, ErrorBound::Sum(rows));
    session.check(&case, |at| LayerNorm::AddBackward {
        grad: at[grad],
        second: second.map(|second| at[second]),
        residual: parts.beside.then(|| at[dsrc]),
        src: at[src],
        mean: at[mean],
        rstd: at[rstd],
        weight: at[weight],
        dsrc: at[dsrc],
        copy: copy.map(|copy| at[copy]),
        dweight: at[dweight],
        dbias: at[dbias],
        cols,
    });
}

impl OptionalOperands {
    fn describe(self, [rows, cols]: [usize; 2], wide: DType) -> String {
        let beside = if self.beside { " + residual" } else { "" };
        let results = if self.both { ", both types" } else { ", one type" };
        let stream = if wide == DType::F32 { ", f32 stream" } else { "" };
        format!("{rows} × {cols}{beside}{results}{stream}")
    }
}
