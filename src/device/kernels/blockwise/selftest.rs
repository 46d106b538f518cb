//! Values in 4 and in 8 bits.

use super::Blockwise;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, Precision};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{
    AdamParameters, BYTES_RUN, ByteMoment, DType, KeptMoment, KeptMoments, LionParameters, Magnitudes, NF4, NF4_RUN,
    dynamic_map,
};

/// Magnitudes of runs.
const MAGNITUDES: Values = Values::Uniform(0.01, 2.0);
/// 256 ascending values at equal distances.
const CODES: Values = Values::Each(|i| (i as f64 - 127.0) / 128.0);

/// Only values from the table, so that rounding never decides which is nearest. Every run contains a magnitude of 1,
/// and one element in eleven is zero.
fn of_table(i: usize) -> f64 {
    match (i / NF4_RUN % 11, i % NF4_RUN) {
        (10, _) => 0.0,
        (run, 0) => (run as f64 - 4.5).signum() * 0.5,
        (_, place) => 0.5 * f64::from(NF4[(place * 7 + i / NF4_RUN) % 16]),
    }
}

/// Decaying weights are rounded twice.
const TWICE: ErrorBound = ErrorBound::Sum(4);

/// AdamW with 8-bit moments. A value half-way between two codes may be rounded differently in f32 and f64, so moments
/// of many elements are not compared.
fn adam_of_bytes(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        let dtype = precision.dtype();
        for len in [1, 255, 256, 257, 5000, 70_001] {
            for (weight_decay, step) in [(0.0, 1), (0.1, 7), (0.1, 1000)] {
                let title = format!("{len} elements, decay {weight_decay}, step {step}");
                let mut case = Case::new("adam_of_bytes", precision, title);
                let parameter = case.update("parameter", dtype, len, Values::Normal(0.0, 0.5), TWICE);
                let gradient = case.input("gradient", dtype, len, Values::Normal(0.0, 0.1));
                let runs = len.div_ceil(BYTES_RUN);
                let of_bytes = if len > 10_000 { ErrorBound::Free } else { ErrorBound::Exact };
                let mut moment = |names: [&'static str; 3], signed: bool, most: Values| {
                    let bytes = case.update(names[0], DType::U8, len, Values::Below(256), of_bytes);
                    let codes = dynamic_map(signed).into_iter().map(f64::from).collect();
                    let codes = case.input(names[1], DType::F32, 256, Values::List(codes));
                    [bytes, codes, case.update(names[2], DType::F32, runs, most, ErrorBound::Formula)]
                };
                let moments = [
                    moment(["first", "first_codes", "first_absmax"], true, Values::Uniform(0.05, 0.2)),
                    moment(["second", "second_codes", "second_absmax"], false, Values::Uniform(0.005, 0.02)),
                ];
                let rule = AdamParameters {
                    lr: 1e-2,
                    beta1: 0.9,
                    beta2: 0.999,
                    eps: 1e-8,
                    weight_decay,
                    decoupled: true,
                    step,
                };
                session.check(&case, |at| Blockwise::AdamOfBytes {
                    parameter: at[parameter],
                    gradient: at[gradient],
                    moments: KeptMoments::Bytes(moments.map(|[bytes, codes, absmax]| ByteMoment {
                        bytes: at[bytes],
                        codes: at[codes],
                        absmax: at[absmax],
                    })),
                    rule,
                });

                let title = format!("{len} elements with moments in f32, decay {weight_decay}, step {step}");
                let mut case = Case::new("adam_of_bytes", precision, title);
                let parameter = case.update("parameter", dtype, len, Values::Normal(0.0, 0.5), TWICE);
                let gradient = case.input("gradient", dtype, len, Values::Normal(0.0, 0.1));
                let first = case.update("first", DType::F32, len, Values::Normal(0.0, 0.1), ErrorBound::Formula);
                let second = case.update("second", DType::F32, len, Values::Uniform(1e-4, 0.02), ErrorBound::Formula);
                session.check(&case, |at| Blockwise::AdamOfBytes {
                    parameter: at[parameter],
                    gradient: at[gradient],
                    moments: KeptMoments::Wide([at[first], at[second]]),
                    rule,
                });
            }
        }
    }
}

/// Multiples of a step around zero.
const STEPS: Values = Values::Each(|i| ((i * 29 % 17) as f64 - 8.0) / 64.0);

/// Lion. Gradients are multiples of a step, so that no sign differs between f32 and f64.
fn lion(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        let dtype = precision.dtype();
        for len in [1, 255, 256, 257, 5000] {
            for weight_decay in [0.0, 0.1] {
                let rule = LionParameters { lr: 1e-2, beta1: 0.9, beta2: 0.99, weight_decay };
                let title = format!("{len} elements, decay {weight_decay}");
                let mut case = Case::new("lion", precision, title);
                let parameter = case.update("parameter", dtype, len, Values::Normal(0.0, 0.5), ErrorBound::Sum(4));
                let gradient = case.input("gradient", dtype, len, STEPS);
                let bytes = case.update("first", DType::U8, len, Values::Below(256), ErrorBound::Exact);
                let codes = dynamic_map(true).into_iter().map(f64::from).collect();
                let codes = case.input("codes", DType::F32, 256, Values::List(codes));
                let absmax = case.update(
                    "absmax",
                    DType::F32,
                    len.div_ceil(BYTES_RUN),
                    Values::Uniform(0.05, 0.2),
                    ErrorBound::Formula,
                );
                session.check(&case, |at| Blockwise::Lion {
                    parameter: at[parameter],
                    gradient: at[gradient],
                    moment: KeptMoment::Bytes(ByteMoment { bytes: at[bytes], codes: at[codes], absmax: at[absmax] }),
                    rule,
                });

                let title = format!("{len} elements with a moment in f32, decay {weight_decay}");
                let mut case = Case::new("lion", precision, title);
                let parameter = case.update("parameter", dtype, len, Values::Normal(0.0, 0.5), ErrorBound::Sum(4));
                let gradient = case.input("gradient", dtype, len, STEPS);
                let first = case.update("first", DType::F32, len, Values::Normal(0.0, 0.1), ErrorBound::Sum(4));
                session.check(&case, |at| Blockwise::Lion {
                    parameter: at[parameter],
                    gradient: at[gradient],
                    moment: KeptMoment::Wide(at[first]),
                    rule,
                });
            }
        }
    }
}

pub(super) fn run(session: &mut Session<'_>) {
    adam_of_bytes(session);
    lion(session);
    for precision in Precision::FLOATS {
        let dtype = precision.dtype();
        for len in [1, 2, 63, 64, 65, 4096, 70_001] {
            let mut case = Case::new("quantize_nf4", precision, format!("{len} elements"));
            let src = case.input("src", dtype, len, Values::Each(of_table));
            let dst = case.output("dst", DType::U8, len.div_ceil(2), ErrorBound::Exact);
            let absmax = case.output("absmax", DType::F32, len.div_ceil(NF4_RUN), ErrorBound::Exact);
            session.check(&case, |at| Blockwise::QuantizeNf4 { src: at[src], dst: at[dst], absmax: at[absmax] });

            let mut case = Case::new("dequantize_nf4", precision, format!("{len} elements"));
            let src = case.input("src", DType::U8, len.div_ceil(2), Values::Below(256));
            let absmax = case.input("absmax", DType::F32, len.div_ceil(NF4_RUN), MAGNITUDES);
            let dst = case.output("dst", dtype, len, ErrorBound::Formula);
            session.check(&case, |at| Blockwise::DequantizeNf4 { src: at[src], absmax: at[absmax], dst: at[dst] });
        }
        for [m, n, k] in [[1, 1, 64], [4, 96, 64], [16, 33, 256], [5, 64, 1024]] {
            for nested in [false, true] {
                for biased in [false, true] {
                    let how = if nested { ", nested" } else { "" };
                    let with = if biased { ", with a bias" } else { "" };
                    let title = format!("{m} × {n} × {k}{how}{with}");
                    let mut case = Case::new("gemm_nf4", precision, title).work(m * n * k);
                    let runs = n * k / NF4_RUN;
                    let a = case.input("a", dtype, m * k, Values::STANDARD);
                    let w = case.input("w", DType::U8, n * k / 2, Values::Below(256));
                    let absmax = case.input(
                        "absmax",
                        DType::F32,
                        if nested { runs.div_ceil(BYTES_RUN) } else { runs },
                        MAGNITUDES,
                    );
                    let nested = nested.then(|| {
                        let bytes = case.input("bytes", DType::U8, runs, Values::Below(256));
                        let codes = case.input("codes", DType::F32, 256, CODES);
                        [bytes, codes, case.input("offset", DType::F32, 1, Values::Constant(2.5))]
                    });
                    let bias = biased.then(|| case.input("bias", dtype, n, Values::STANDARD));
                    let dst = case.output("dst", dtype, m * n, ErrorBound::Sum(k));
                    session.check(&case, |at| Blockwise::GemmNf4 {
                        m,
                        n,
                        k,
                        a: at[a],
                        w: at[w],
                        magnitudes: match nested {
                            None => Magnitudes::Plain(at[absmax]),
                            Some([bytes, codes, offset]) => Magnitudes::Nested {
                                bytes: at[bytes],
                                codes: at[codes],
                                absmax: at[absmax],
                                offset: at[offset],
                            },
                        },
                        bias: bias.map(|bias| at[bias]),
                        dst: at[dst],
                    });
                }
            }
        }
    }
    for len in [1, 255, 256, 257, 5000] {
        let mut case = Case::new("quantize_bytes", Precision::F32, format!("{len} elements"));
        // Multiples of a step, divided by a largest magnitude that is a power of two: each is exactly one of the codes.
        let src = case.input("src", DType::F32, len, Values::Each(|i| (i * 37 % 256) as f64 / 64.0 - 2.0));
        let codes = case.input("codes", DType::F32, 256, Values::Each(|i| (i as f64 - 128.0) / 128.0));
        let dst = case.output("dst", DType::U8, len, ErrorBound::Exact);
        let absmax = case.output("absmax", DType::F32, len.div_ceil(BYTES_RUN), ErrorBound::Exact);
        session.check(&case, |at| Blockwise::QuantizeBytes {
            src: at[src],
            codes: at[codes],
            dst: at[dst],
            absmax: at[absmax],
        });

        let mut case = Case::new("dequantize_bytes", Precision::F32, format!("{len} elements"));
        let src = case.input("src", DType::U8, len, Values::Below(256));
        let codes = case.input("codes", DType::F32, 256, CODES);
        let absmax = case.input("absmax", DType::F32, len.div_ceil(BYTES_RUN), MAGNITUDES);
        let dst = case.output("dst", DType::F32, len, ErrorBound::Formula);
        session.check(&case, |at| Blockwise::DequantizeBytes {
            src: at[src],
            codes: at[codes],
            absmax: at[absmax],
            dst: at[dst],
        });
    }
}
