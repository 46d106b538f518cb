//! 8-bit floats.

use super::Float8;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, Precision};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{DType, ScaleGroups};

/// Small integers, whose sums every accumulator represents exactly.
const WHOLE: Values = Values::Each(|i| (i * 37 % 7) as f64 - 3.0);
/// Values on both sides of every middle between two representable values, and beyond the largest.
const SPREAD: Values = Values::Each(|i| {
    let magnitude = 2_f64.powf((i % 613) as f64 / 13.0 - 30.0);
    if i % 2 == 0 { magnitude } else { -magnitude }
});

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        let dtype = precision.dtype();
        for len in [1, 255, 4096, 4097, 70_001] {
            let mut case = Case::new("abs_max", precision, format!("{len} elements"));
            let src = case.input("src", dtype, len, Values::STANDARD);
            let dst = case.output("dst", dtype, 1, ErrorBound::Exact);
            session.check(&case, |at| Float8::AbsMax {
                src: at[src],
                dst: at[dst],
                cols: len,
                groups: ScaleGroups::All,
                copied: false,
            });

            for to in [DType::E4M3, DType::E5M2] {
                for factor in [1.0, 448.0 / 3.0] {
                    let title = format!("{len} elements to {}, times {factor:.1}", to.label());
                    let mut case = Case::new("quantize_float8", precision, title);
                    let src = case.input("src", dtype, len, SPREAD);
                    let scale = case.input("scale", DType::F32, 1, Values::Constant(factor));
                    let dst = case.output("dst", to, len, ErrorBound::Exact);
                    session.check(&case, |at| Float8::Quantize {
                        src: at[src],
                        scale: at[scale],
                        dst: at[dst],
                        cols: len,
                        groups: ScaleGroups::All,
                    });
                }
            }
        }
        for (groups, what) in [(ScaleGroups::Rows, "rows"), (ScaleGroups::Columns, "columns")] {
            let [rows, cols] = [37, 144];
            let count = groups.count(rows * cols, cols);
            let mut case = Case::new("abs_max", precision, format!("{rows} × {cols} by {what}"));
            let src = case.input("src", dtype, rows * cols, Values::STANDARD);
            let dst = case.output("dst", dtype, count, ErrorBound::Exact);
            session.check(&case, |at| Float8::AbsMax { src: at[src], dst: at[dst], cols, groups, copied: false });

            let mut case = Case::new("quantize_float8", precision, format!("{rows} × {cols} by {what}"));
            let src = case.input("src", dtype, rows * cols, SPREAD);
            let scale = case.input("scale", DType::F32, count, Values::Each(|i| 2_f64.powi((i % 9) as i32 - 4)));
            let dst = case.output("dst", DType::E4M3, rows * cols, ErrorBound::Exact);
            session.check(&case, |at| Float8::Quantize { src: at[src], scale: at[scale], dst: at[dst], cols, groups });
        }
        for amax in [0.0, 1e-13, 3e-5, 1.0, 448.0, 60_000.0] {
            let mut case = Case::new("float8_scale", precision, format!("of {amax:e}"));
            let (from, most) = (case.input("amax", dtype, 1, Values::Constant(amax)), 448.0);
            let dst = case.output("dst", DType::F32, 1, ErrorBound::Formula);
            session.check(&case, |at| Float8::Scale { amax: at[from], dst: at[dst], most, power: false });
        }
        let mut case = Case::new("float8_scale", precision, "powers of two of 300");
        let from = case.input("amax", dtype, 300, Values::Each(|i| (i % 60) as f64 * 1.1 + 1e-3));
        let dst = case.output("dst", DType::F32, 300, ErrorBound::Exact);
        session.check(&case, |at| Float8::Scale { amax: at[from], dst: at[dst], most: 448.0, power: true });
        for [m, n, k] in [[16, 32, 64], [256, 512, 128]] {
            let title = format!("{m} × {n} × {k}, scales of rows and columns");
            let mut case = Case::new("scaled_gemm", precision, title).work(m * n * k);
            // Cards before Ada have no such kernel, and no card has one for f16.
            case.optional = true;
            let (a, b) = (case.input("a", DType::E4M3, m * k, WHOLE), case.input("b", DType::E4M3, n * k, WHOLE));
            let inverse = [m, n].map(|count| {
                case.input("inverse scales", DType::F32, count, Values::Each(|i| 2_f64.powi((i % 9) as i32 - 4)))
            });
            let c = case.output("c", dtype, m * n, ErrorBound::Sum(k));
            session.check(&case, |at| Float8::Gemm {
                m,
                n,
                k,
                a: at.matrix(a, 0, [k, 1, 0]),
                b: at.matrix(b, 0, [1, k, 0]),
                c: at.matrix(c, 0, [n, 1, 0]),
                inverse: inverse.map(|slot| at[slot]),
                fast: true,
            });
        }
        for [m, n, k] in [[16, 16, 16], [48, 32, 64], [256, 512, 128], [1024, 1536, 2048]] {
            for of_a in [DType::E4M3, DType::E5M2] {
                for fast in [false, true] {
                    let how = if fast { ", fast" } else { "" };
                    let title = format!("{m} × {n} × {k} of {}{how}", of_a.label());
                    let mut case = Case::new("scaled_gemm", precision, title).work(m * n * k);
                    // Cards before Ada have no such kernel.
                    case.optional = true;
                    let a = case.input("a", of_a, m * k, WHOLE);
                    let b = case.input("b", DType::E4M3, n * k, WHOLE);
                    let inverse =
                        [0.25, 0.5].map(|factor| case.input("inverse scale", DType::F32, 1, Values::Constant(factor)));
                    let c = case.output("c", dtype, m * n, ErrorBound::Sum(k));
                    session.check(&case, |at| Float8::Gemm {
                        m,
                        n,
                        k,
                        a: at.matrix(a, 0, [k, 1, 0]),
                        b: at.matrix(b, 0, [1, k, 0]),
                        c: at.matrix(c, 0, [n, 1, 0]),
                        inverse: inverse.map(|slot| at[slot]),
                        fast,
                    });
                }
            }
        }
    }
}
