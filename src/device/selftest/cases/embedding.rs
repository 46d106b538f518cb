//! Tables of embeddings.

use crate::selftest::bound::Bound;
use crate::selftest::case::{Case, Precision, Skew};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{DType, Kernel};

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        for (rows, width, tokens, skew) in [
            (1, 1, 1, Skew::Aligned),
            (10, 7, 1, Skew::Aligned),
            (257, 32, 128, Skew::Aligned),
            (50, 33, 1000, Skew::Together(1)),
            (1000, 10, 300, Skew::Aligned),
            (30_522, 64, 512, Skew::Aligned),
            (50_257, 16, 4097, Skew::Aligned),
            (1000, 64, 30_000, Skew::Aligned),
            (3, 768, 5000, Skew::Aligned),
            (100, 770, 333, Skew::Together(2)),
        ] {
            let what = format!("{tokens} of {rows} × {width}");
            table(session, precision, [rows, width, tokens], what, skew, Values::Below(rows));
        }
        let what = "600 times the last of 40 × 65".to_owned();
        table(session, precision, [40, 65, 600], what, Skew::Aligned, Values::Constant(39.0));
        let what = "30000 times the first of 5 × 24".to_owned();
        table(session, precision, [5, 24, 30_000], what, Skew::Aligned, Values::Constant(0.0));
        let what = "positions of 1024 × 96".to_owned();
        table(session, precision, [1024, 96, 1024], what, Skew::Aligned, Values::Each(|i| i as f64));
    }
}

fn table(
    session: &mut Session<'_>,
    precision: Precision,
    [rows, width, tokens]: [usize; 3],
    what: String,
    skew: Skew,
    values: Values,
) {
    let dtype = precision.dtype();
    let mut case = Case::new("embedding", precision, what.clone()).skewed(skew);
    let weight = case.input("weight", dtype, rows * width, Values::STANDARD);
    let indices = case.input("indices", DType::I64, tokens, values.clone());
    let dst = case.output("dst", dtype, tokens * width, Bound::Exact);
    session.check(&case, |at| Kernel::Embedding { weight: at[weight], indices: at[indices], dst: at[dst], width });
    let mut case = Case::new("embedding_backward", precision, what).skewed(skew);
    let grad = case.input("grad", dtype, tokens * width, Values::STANDARD);
    let indices = case.input("indices", DType::I64, tokens, values);
    let dst = case.output("dst", dtype, rows * width, Bound::Sum(tokens));
    session.check(&case, |at| Kernel::EmbeddingBackward { grad: at[grad], indices: at[indices], dst: at[dst], width });
}
