//! Sums and means over rows, channels and middles.

use super::Sums;
use crate::ChannelShape;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, Precision, Skew};
use crate::selftest::session::Session;
use crate::selftest::values::Values;

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        columns(session, precision);
        channels(session, precision);
        means(session, precision);
    }
}

fn columns(session: &mut Session<'_>, precision: Precision) {
    let dtype = precision.dtype();
    for (rows, cols, skew) in [
        (1, 1, Skew::Aligned),
        (1, 1000, Skew::Aligned),
        (1, 1001, Skew::Together(1)),
        (1000, 1, Skew::Aligned),
        (100_003, 1, Skew::Aligned),
        (7, 5, Skew::Aligned),
        (33, 10, Skew::Aligned),
        (257, 65, Skew::Together(1)),
        (1000, 2, Skew::Aligned),
        (1024, 64, Skew::Aligned),
        (300, 768, Skew::Aligned),
        (300, 770, Skew::Together(2)),
        (2048, 200, Skew::Aligned),
        (5001, 96, Skew::Aligned),
        (16_384, 768, Skew::Aligned),
        (512, 3072, Skew::Aligned),
        (20, 50_257, Skew::Aligned),
        (8, 131_072, Skew::Aligned),
    ] {
        let mut case = Case::new("column_sum", precision, format!("{rows} × {cols}")).skewed(skew);
        let src = case.input("src", dtype, rows * cols, Values::STANDARD);
        let dst = case.output("dst", dtype, cols, ErrorBound::Sum(rows));
        session.check(&case, |at| Sums::Columns { src: at[src], dst: at[dst], rows, cols });
    }
}

fn channels(session: &mut Session<'_>, precision: Precision) {
    let dtype = precision.dtype();
    for (batch, channels, area) in [
        (1, 1, 1),
        (1, 1, 5000),
        (4, 3, 49),
        (5, 17, 1),
        (64, 10, 1),
        (16, 64, 196),
        (2, 3, 12_544),
        (7, 33, 65),
        (32, 128, 16),
        (3, 2048, 49),
        (64, 3, 1024),
    ] {
        let shape = ChannelShape { batch, channels, area };
        let mut case = Case::new("channel_sum", precision, format!("{batch} × {channels} × {area}"));
        let src = case.input("src", dtype, shape.len(), Values::STANDARD);
        let dst = case.output("dst", dtype, channels, ErrorBound::Sum(shape.per_channel()));
        session.check(&case, |at| Sums::Channels { src: at[src], dst: at[dst], shape });
    }
}

fn means(session: &mut Session<'_>, precision: Precision) {
    let dtype = precision.dtype();
    for (outer, middle, inner) in [
        (1, 1, 1),
        (1, 1, 100),
        (5, 1, 33),
        (1, 1000, 1),
        (1, 100_003, 1),
        (100, 49, 1),
        (33, 7, 1),
        (2048, 49, 1),
        (7, 13, 5),
        (4, 197, 192),
        (8, 32, 32),
        (3, 1024, 65),
        (1, 12_544, 3),
        (70_000, 2, 1),
    ] {
        let what = format!("{outer} × {middle} × {inner}");
        let mut case = Case::new("mean", precision, what.clone());
        let src = case.input("src", dtype, outer * middle * inner, Values::Normal(0.5, 1.0));
        let dst = case.output("dst", dtype, outer * inner, ErrorBound::Sum(middle));
        session.check(&case, |at| Sums::Mean { src: at[src], dst: at[dst], outer, middle, inner });
        let mut case = Case::new("mean_backward", precision, what);
        let grad = case.input("grad", dtype, outer * inner, Values::STANDARD);
        let dst = case.output("dst", dtype, outer * middle * inner, ErrorBound::Formula);
        session.check(&case, |at| Sums::MeanBackward { grad: at[grad], dst: at[dst], outer, middle, inner });
    }
}
