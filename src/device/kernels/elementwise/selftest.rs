//! Element-wise kernels.

use super::Elementwise;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, CaseOperands, Precision, Skew, Slot};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{DType, DropoutMask};

/// Lengths around the widths of vectors, thread blocks and grids, with the alignments of operands.
const LENGTHS: [(usize, Skew); 14] = [
    (0, Skew::Aligned),
    (1, Skew::Aligned),
    (7, Skew::Aligned),
    (8, Skew::Aligned),
    (255, Skew::Aligned),
    (1000, Skew::Together(1)),
    (1024, Skew::Aligned),
    (1025, Skew::Together(2)),
    (4099, Skew::Apart),
    (4096, Skew::Together(4)),
    (65_536, Skew::Aligned),
    (65_537, Skew::Together(3)),
    (1_000_003, Skew::Aligned),
    (3_000_000, Skew::Aligned),
];

/// Every length in every type.
fn each(kernel: &'static str, what: &str, mut body: impl FnMut(Case, DType, usize)) {
    for precision in Precision::FLOATS {
        for (len, skew) in LENGTHS {
            let case = Case::new(kernel, precision, format!("{len} elements{what}")).skewed(skew);
            body(case, precision.dtype(), len);
        }
    }
}

pub(super) fn run(session: &mut Session<'_>) {
    fill(session);
    identity(session);
    cast(session);
    unary(session);
    backward(session);
    binary(session);
    rows(session);
}

fn fill(session: &mut Session<'_>) {
    for value in [0.0, 1.0, -0.37, 65536.0] {
        each("fill", &format!(" of {value}"), |mut case, dtype, len| {
            if value == 65536.0 && dtype == DType::F16 || len > 70_000 && value != -0.37 {
                return;
            }
            let dst = case.output("dst", dtype, len, ErrorBound::Formula);
            session.check(&case, |at| Elementwise::Fill { dst: at[dst], value });
        });
    }
    for (dtype, optional) in [(DType::I32, false), (DType::I64, false), (DType::U8, true)] {
        for (len, value) in [(1, 0.0), (1, 3.0), (1027, 0.0), (1027, 7.0)] {
            let mut case = Case::of_types("fill", &[dtype], format!("{len} elements of {value}"));
            case.optional = optional;
            let dst = case.output("dst", dtype, len, ErrorBound::Exact);
            session.check(&case, |at| Elementwise::Fill { dst: at[dst], value });
        }
    }
    for (dtype, optional) in [(DType::I64, false), (DType::F32, true), (DType::I32, true)] {
        for len in [1, 7, 1024, 5003, 300_001] {
            let mut case = Case::of_types("arange", &[dtype], format!("{len} elements"));
            case.optional = optional;
            let dst = case.output("dst", dtype, len, ErrorBound::Exact);
            session.check(&case, |at| Elementwise::Arange { dst: at[dst] });
        }
    }
}

/// Square matrices, and ones that are cut off on either side.
fn identity(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        for (rows, cols, skew) in [
            (1, 1, Skew::Aligned),
            (3, 7, Skew::Aligned),
            (7, 3, Skew::Together(1)),
            (64, 64, Skew::Aligned),
            (1025, 1025, Skew::Aligned),
            (4096, 512, Skew::Aligned),
        ] {
            let mut case = Case::new("identity", precision, format!("{rows} × {cols}")).skewed(skew);
            let dst = case.output("dst", precision.dtype(), rows * cols, ErrorBound::Exact);
            session.check(&case, |at| Elementwise::Identity { dst: at[dst], cols });
        }
    }
}

/// Values that are hard to convert: the largest numbers and beyond, halves between neighbours, the smallest numbers.
const HARD: [f64; 34] = [
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    0.0,
    -0.0,
    65504.0,
    65519.0,
    65520.0,
    -65520.0,
    1e6,
    3.4e38,
    -3.4e38,
    3.39e38,
    1e-8,
    2.980_232_238_769_531e-8,
    2.99e-8,
    5.96e-8,
    8.94e-8,
    6.1e-5,
    6.097e-5,
    1e-38,
    1e-40,
    -1e-42,
    1.401_298_464_324_817e-45,
    1.000_488_281_25,
    1.001_464_843_75,
    1.003_906_25,
    1.011_718_75,
    1.003_906_3,
    2049.0,
    2051.0,
    257.0,
    259.0,
    -0.333_333_333,
];

fn cast(session: &mut Session<'_>) {
    let types = Precision::FLOATS.map(Precision::dtype);
    for src_type in types {
        for dst_type in types {
            for (len, skew) in LENGTHS {
                let mut case = Case::of_types("cast", &[src_type, dst_type], format!("{len} elements")).skewed(skew);
                let src = case.input("src", src_type, len, Values::STANDARD);
                let dst = case.output("dst", dst_type, len, ErrorBound::Exact);
                session.check(&case, |at| Elementwise::Cast { src: at[src], dst: at[dst] });
            }
            for repeat in [1_usize, 3, 100] {
                let list: Vec<f64> = HARD.iter().copied().cycle().take(HARD.len() * repeat + 1).collect();
                let shape = format!("{} hard numbers", list.len());
                let mut case = Case::of_types("cast", &[src_type, dst_type], shape);
                let len = list.len();
                let src = case.input("src", src_type, len, Values::List(list));
                let dst = case.output("dst", dst_type, len, ErrorBound::Exact);
                session.check(&case, |at| Elementwise::Cast { src: at[src], dst: at[dst] });
            }
        }
    }
}

/// Inputs for functions: mostly moderate, some at either end.
fn ends() -> Values {
    let ends = [0.0, -0.0, 1e-6, -1e-6, 20.0, -20.0, 80.0, -80.0, 9.0, -9.0, 4.0, -4.0];
    Values::Except(2.5, ends.into_iter().enumerate().collect())
}

/// A kernel with one source, tested with a separate output and in place.
fn map(
    session: &mut Session<'_>,
    kernel: &'static str,
    what: &str,
    bound: ErrorBound,
    make: impl Fn(&CaseOperands, Slot, Slot) -> Elementwise,
) {
    each(kernel, what, |mut case, dtype, len| {
        let src = case.input("src", dtype, len, ends());
        let dst = case.output("dst", dtype, len, bound);
        session.check(&case, |at| make(at, src, dst));
    });
    each(kernel, &format!("{what}, in place"), |mut case, dtype, len| {
        if len < 70_000 {
            let dst = case.update("dst", dtype, len, ends(), bound);
            session.check(&case, |at| make(at, dst, dst));
        }
    });
}

fn unary(session: &mut Session<'_>) {
    for factor in [0.1, -2.0, 1.0 / 3.0] {
        let what = format!(" by {factor:.3}");
        let make = move |at: &CaseOperands, src, dst| Elementwise::Scale { src: at[src], dst: at[dst], factor };
        map(session, "scale", &what, ErrorBound::Formula, make);
    }
    for (call, share) in [(0, 0.1), (7, 0.5), (1 << 40, 0.0)] {
        let mask = DropoutMask::new(call, share);
        let make = move |at: &CaseOperands, src, dst| Elementwise::Dropout { src: at[src], dst: at[dst], mask };
        map(session, "dropout", &format!(" without {share}"), ErrorBound::Formula, make);
    }
    for value in [1.0, -0.3] {
        let what = format!(" and {value}");
        let make = move |at: &CaseOperands, src, dst| Elementwise::AddScalar { src: at[src], dst: at[dst], value };
        map(session, "add_scalar", &what, ErrorBound::Formula, make);
    }
    for len in [1, 3] {
        let mut case = Case::of_types("add_scalar", &[DType::I64], format!("{len} elements and 1, in place"));
        let dst = case.update("dst", DType::I64, len, Values::Below(1 << 40), ErrorBound::Exact);
        session.check(&case, |at| Elementwise::AddScalar { src: at[dst], dst: at[dst], value: 1.0 });
    }
    map(session, "relu", "", ErrorBound::Exact, |at, src, dst| Elementwise::Relu { src: at[src], dst: at[dst] });
    for slope in [0.2, 0.01, 0.0] {
        let make = move |at: &CaseOperands, src, dst| Elementwise::LeakyRelu { src: at[src], dst: at[dst], slope };
        map(session, "leaky_relu", &format!(", slope {slope}"), ErrorBound::Formula, make);
    }
    map(session, "at_most", "", ErrorBound::Exact, |at, src, dst| Elementwise::AtMost {
        src: at[src],
        dst: at[dst],
        most: 0.5,
    });
    map(session, "sigmoid", "", ErrorBound::Formula, |at, src, dst| Elementwise::Sigmoid {
        src: at[src],
        dst: at[dst],
    });
    map(session, "silu", "", ErrorBound::Formula, |at, src, dst| Elementwise::Silu { src: at[src], dst: at[dst] });
    each("rsqrt", "", |mut case, dtype, len| {
        let src = case.input("src", dtype, len, Values::Uniform(0.01, 4.0));
        let dst = case.output("dst", dtype, len, ErrorBound::Formula);
        session.check(&case, |at| Elementwise::Rsqrt { src: at[src], dst: at[dst] });
    });
    map(session, "tanh", "", ErrorBound::Formula, |at, src, dst| Elementwise::Tanh { src: at[src], dst: at[dst] });
    for tanh in [false, true] {
        each("gelu", if tanh { ", tanh" } else { "" }, |mut case, dtype, len| {
            let src = case.input("src", dtype, len, ends());
            let dst = case.output("dst", dtype, len, ErrorBound::Formula);
            session.check(&case, |at| Elementwise::Gelu { src: at[src], dst: at[dst], tanh });
        });
    }
}

/// A kernel with an output (or source) and a gradient, tested with a separate result and in place of the gradient.
fn derivative(
    session: &mut Session<'_>,
    kernel: &'static str,
    what: &str,
    values: &Values,
    bound: ErrorBound,
    in_place: bool,
    make: impl Fn(&CaseOperands, [Slot; 3]) -> Elementwise,
) {
    each(kernel, what, |mut case, dtype, len| {
        let output = case.input("output", dtype, len, values.clone());
        let grad = case.input("grad", dtype, len, Values::STANDARD);
        let dst = case.output("dst", dtype, len, bound);
        session.check(&case, |at| make(at, [output, grad, dst]));
    });
    each(kernel, &format!("{what}, in place"), |mut case, dtype, len| {
        if in_place && len < 70_000 {
            let output = case.input("output", dtype, len, values.clone());
            let grad = case.update("dst", dtype, len, Values::STANDARD, bound);
            session.check(&case, |at| make(at, [output, grad, grad]));
        }
    });
}

fn gated(session: &mut Session<'_>) {
    each("gated_silu", "", |mut case, dtype, len| {
        let [gate, up] = ["gate", "up"].map(|name| case.input(name, dtype, len, ends()));
        let dst = case.output("dst", dtype, len, ErrorBound::Formula);
        session.check(&case, |at| Elementwise::GatedSilu { gate: at[gate], up: at[up], dst: at[dst] });
    });
    each("gated_silu_backward", "", |mut case, dtype, len| {
        let grad = case.input("grad", dtype, len, Values::STANDARD);
        let [gate, up] = ["gate", "up"].map(|name| case.input(name, dtype, len, ends()));
        let [dgate, dup] = ["dgate", "dup"].map(|name| case.output(name, dtype, len, ErrorBound::Formula));
        session.check(&case, |at| Elementwise::GatedSiluBackward {
            grad: at[grad],
            gate: at[gate],
            up: at[up],
            dgate: at[dgate],
            dup: at[dup],
        });
    });
}

fn backward(session: &mut Session<'_>) {
    let positive_or_zero = Values::Each(|i| if i % 3 == 1 { 0.0 } else { (i % 17) as f64 * 0.25 });
    derivative(session, "relu_backward", "", &positive_or_zero, ErrorBound::Exact, false, |at, [output, grad, dst]| {
        Elementwise::ReluBackward { output: at[output], grad: at[grad], dst: at[dst] }
    });
    for slope in [0.2, 0.0] {
        let make = move |at: &CaseOperands, [output, grad, dst]: [Slot; 3]| Elementwise::LeakyReluBackward {
            output: at[output],
            grad: at[grad],
            dst: at[dst],
            slope,
        };
        let what = format!(", slope {slope}");
        derivative(session, "leaky_relu_backward", &what, &ends(), ErrorBound::Formula, true, make);
    }
    let around = Values::Each(|i| (i % 17) as f64 * 0.25);
    derivative(session, "at_most_backward", "", &around, ErrorBound::Exact, true, |at, [src, grad, dst]| {
        Elementwise::AtMostBackward { src: at[src], grad: at[grad], dst: at[dst], most: 2.0 }
    });
    derivative(session, "silu_backward", "", &ends(), ErrorBound::Formula, true, |at, [src, grad, dst]| {
        Elementwise::SiluBackward { src: at[src], grad: at[grad], dst: at[dst] }
    });
    gated(session);
    let shares = Values::Uniform(0.0, 1.0);
    derivative(session, "sigmoid_backward", "", &shares, ErrorBound::Formula, true, |at, [output, grad, dst]| {
        Elementwise::SigmoidBackward { output: at[output], grad: at[grad], dst: at[dst] }
    });
    let outputs = Values::Uniform(-1.0, 1.0);
    derivative(session, "tanh_backward", "", &outputs, ErrorBound::Formula, true, |at, [output, grad, dst]| {
        Elementwise::TanhBackward { output: at[output], grad: at[grad], dst: at[dst] }
    });
    for tanh in [false, true] {
        let what = if tanh { ", tanh" } else { "" };
        let make = move |at: &CaseOperands, [src, grad, dst]: [Slot; 3]| Elementwise::GeluBackward {
            src: at[src],
            grad: at[grad],
            dst: at[dst],
            tanh,
        };
        derivative(session, "gelu_backward", what, &ends(), ErrorBound::Formula, false, make);
        gelu_with_sums(session, tanh);
    }
}

fn binary(session: &mut Session<'_>) {
    type Make = fn(&CaseOperands, [Slot; 3]) -> Elementwise;
    let add: Make = |at, [a, b, dst]| Elementwise::Add { a: at[a], b: at[b], dst: at[dst] };
    let sub: Make = |at, [a, b, dst]| Elementwise::Sub { a: at[a], b: at[b], dst: at[dst] };
    let mul: Make = |at, [a, b, dst]| Elementwise::Mul { a: at[a], b: at[b], dst: at[dst] };
    for (kernel, make) in [("add", add), ("sub", sub), ("mul", mul)] {
        each(kernel, "", |mut case, dtype, len| {
            let a = case.input("a", dtype, len, Values::STANDARD);
            let b = case.input("b", dtype, len, Values::STANDARD);
            let dst = case.output("dst", dtype, len, ErrorBound::Formula);
            session.check(&case, |at| make(at, [a, b, dst]));
        });
        each(kernel, ", in place", |mut case, dtype, len| {
            if len < 70_000 {
                let b = case.input("b", dtype, len, Values::STANDARD);
                let dst = case.update("dst", dtype, len, Values::STANDARD, ErrorBound::Formula);
                session.check(&case, |at| make(at, [dst, b, dst]));
            }
        });
        for precision in Precision::FLOATS {
            let dtype = precision.dtype();
            // Repeated second operands: a factor, a bias, a positional embedding, a mask; also with an incomplete last
            // repetition.
            for (len, repeated, skew) in [
                (1, 1, Skew::Aligned),
                (1000, 1, Skew::Aligned),
                (1024, 1, Skew::Apart),
                (77 * 5, 77, Skew::Aligned),
                (64 * 768, 768, Skew::Aligned),
                (64 * 768, 768, Skew::Together(1)),
                (33 * 1025, 1025, Skew::Aligned),
                (50 * 3 + 20, 50, Skew::Aligned),
                (3 * 32 * 4096, 4096, Skew::Aligned),
            ] {
                let mut case =
                    Case::new(kernel, precision, format!("{len} elements and {repeated} repeated")).skewed(skew);
                let a = case.input("a", dtype, len, Values::STANDARD);
                let b = case.input("b", dtype, repeated, Values::STANDARD);
                let dst = case.output("dst", dtype, len, ErrorBound::Formula);
                session.check(&case, |at| make(at, [a, b, dst]));
                if len > 1 {
                    let mut case = Case::new(kernel, precision, format!("{}, in place", case.shape)).skewed(skew);
                    let b = case.input("b", dtype, repeated, Values::STANDARD);
                    let dst = case.update("dst", dtype, len, Values::STANDARD, ErrorBound::Formula);
                    session.check(&case, |at| make(at, [dst, b, dst]));
                }
            }
            // A mask of minus infinities.
            let mask = Values::Each(|i| if i % 3 == 2 { f64::NEG_INFINITY } else { 0.0 });
            if kernel == "add" {
                let mut case = Case::new(kernel, precision, "4 × 33 × 33 elements and a mask, in place");
                let b = case.input("b", dtype, 33 * 33, mask);
                let dst = case.update("dst", dtype, 4 * 33 * 33, Values::STANDARD, ErrorBound::Formula);
                session.check(&case, |at| make(at, [dst, b, dst]));
            }
        }
    }
    quotients(session);
    // A sum of f32 and another type, as autocast computes; the same for a difference and a product.
    for narrow in [DType::F16, DType::Bf16] {
        for types in [[DType::F32, narrow, DType::F32], [narrow, DType::F32, DType::F32]] {
            for (len, repeated) in [(1, 1), (1000, 1000), (1024 * 33, 1024), (769, 769), (5 * 77, 77)] {
                let shape = format!("{len} elements and {repeated}");
                for (kernel, make) in [("add", add), ("sub", sub), ("mul", mul)] {
                    let mut case = Case::of_types(kernel, &types, shape.clone());
                    let a = case.input("a", types[0], len, Values::STANDARD);
                    let b = case.input("b", types[1], repeated, Values::STANDARD);
                    let dst = case.output("dst", types[2], len, ErrorBound::Formula);
                    session.check(&case, |at| make(at, [a, b, dst]));
                }
            }
        }
    }
}

/// Quotients of one type, separate and in place, and of two types.
fn quotients(session: &mut Session<'_>) {
    each("div", "", |mut case, dtype, len| {
        let a = case.input("a", dtype, len, Values::STANDARD);
        let b = case.input("b", dtype, len, Values::Uniform(0.5, 4.0));
        let dst = case.output("dst", dtype, len, ErrorBound::Formula);
        session.check(&case, |at| Elementwise::Div { a: at[a], b: at[b], dst: at[dst] });
    });
    for types in [[DType::F32; 3], [DType::F16; 3], [DType::Bf16; 3], [DType::F32, DType::Bf16, DType::F32]] {
        for (len, repeated) in [(1, 1), (5 * 77, 77), (64 * 768, 768), (33 * 1025, 1025)] {
            let mut case = Case::of_types("div", &types, format!("{len} elements by {repeated}, in place"));
            let b = case.input("b", types[1], repeated, Values::Uniform(-4.0, -0.5));
            let dst = case.update("dst", types[2], len, Values::STANDARD, ErrorBound::Formula);
            session.check(&case, |at| Elementwise::Div { a: at[dst], b: at[b], dst: at[dst] });
        }
    }
}

/// Rows with one factor each, also of another type.
fn rows(session: &mut Session<'_>) {
    for types in [[DType::F32; 3], [DType::F16; 3], [DType::Bf16; 3], [DType::Bf16, DType::F32, DType::F32]] {
        for (rows, cols) in [(1, 1), (3, 1), (5, 77), (128, 64), (33, 1025), (257, 2048)] {
            let mut case = Case::of_types("mul_rows", &types, format!("{rows} rows of {cols}"));
            let a = case.input("a", types[0], rows * cols, Values::STANDARD);
            let b = case.input("b", types[1], rows, Values::STANDARD);
            let dst = case.output("dst", types[2], rows * cols, ErrorBound::Formula);
            session.check(&case, |at| Elementwise::MulRows { a: at[a], b: at[b], dst: at[dst], cols });
        }
    }
}

/// GELU's gradient in place of its result's gradient, with the sums of its columns.
fn gelu_with_sums(session: &mut Session<'_>, tanh: bool) {
    for precision in Precision::FLOATS {
        let dtype = precision.dtype();
        for (rows, cols, skew) in [
            (1, 1, Skew::Aligned),
            (3, 8, Skew::Aligned),
            (33, 264, Skew::Aligned),
            (257, 65, Skew::Together(1)),
            (300, 768, Skew::Aligned),
            (16_384, 1024, Skew::Aligned),
            (2049, 3072, Skew::Aligned),
            (64, 3072, Skew::Together(1)),
        ] {
            let what = format!("{rows} × {cols}{}", if tanh { ", tanh" } else { "" });
            for sums_in in [dtype, DType::F32] {
                let what = if sums_in == dtype { what.clone() } else { format!("{what}, sums in f32") };
                let mut case = Case::new("gelu_backward_sum", precision, what).skewed(skew);
                let src = case.input("src", dtype, rows * cols, Values::STANDARD);
                let dst = case.update("dst", dtype, rows * cols, Values::STANDARD, ErrorBound::Formula);
                // The summed values have been rounded, which f32 would reveal.
                let exact = dtype == DType::F32 || sums_in == dtype;
                let bound = if exact { ErrorBound::Sum(rows) } else { ErrorBound::Free };
                let sums = case.output("sums", sums_in, cols, bound);
                session.check(&case, |at| Elementwise::GeluBackwardSum {
                    src: at[src],
                    grad: at[dst],
                    dst: at[dst],
                    sums: at[sums],
                    cols,
                    tanh,
                });
                if dtype == DType::F32 {
                    break;
                }
            }
        }
    }
}
