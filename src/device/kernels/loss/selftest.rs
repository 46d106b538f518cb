//! Losses and their gradients.

use super::Loss;
use crate::DType;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, CaseOperands, Precision, Skew};
use crate::selftest::session::Session;
use crate::selftest::values::Values;

/// The target of ignored rows.
const IGNORED: f64 = -100.0;

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        for (rows, cols, ignored) in [
            (1, 1, 0),
            (1, 10, 0),
            (5, 10, 2),
            (16, 257, 0),
            (33, 1000, 5),
            (1000, 7, 3),
            (1025, 65, 0),
            (2048, 257, 0),
            (30, 50_257, 4),
            (3, 100, 1),
        ] {
            likelihood(session, precision, [rows, cols], ignored);
        }
        for (rows, cols, gap, ignored) in [
            (1, 1, 0, 0),
            (1, 10, 6, 0),
            (5, 10, 0, 2),
            (16, 257, 7, 0),
            (33, 1000, 0, 5),
            (33, 1001, 3, 5),
            (1000, 7, 1, 3),
            (300, 1024, 0, 0),
            (2049, 65, 15, 0),
            (30, 50_257, 47, 4),
            (3, 131_073, 0, 0),
            (3, 100, 4, 1),
        ] {
            fused(session, precision, [rows, cols, cols + gap], ignored);
        }
        for (len, skew) in [
            (1, Skew::Aligned),
            (7, Skew::Aligned),
            (256, Skew::Aligned),
            (1000, Skew::Together(1)),
            (4099, Skew::Apart),
            (70_001, Skew::Aligned),
        ] {
            binary(session, precision, len, skew);
        }
    }
}

/// A class for each row. Every `ignored`-th row is ignored: none if it is 0, all if it is 1.
fn classes([rows, cols]: [usize; 2], ignored: usize) -> Vec<f64> {
    let class = |row: usize| {
        if ignored > 0 && row.is_multiple_of(ignored) { IGNORED } else { ((row * 7919 + cols - 1) % cols) as f64 }
    };
    (0..rows).map(class).collect()
}

fn likelihood(session: &mut Session<'_>, precision: Precision, [rows, cols]: [usize; 2], ignored: usize) {
    let dtype = precision.dtype();
    let classes = classes([rows, cols], ignored);
    let counted = classes.iter().filter(|&&class| class != IGNORED).count();
    let targets = Values::List(classes);
    let what = format!("{rows} × {cols}{}", if ignored > 0 { ", some ignored" } else { "" });
    let mut case = Case::new("nll_loss", precision, what.clone());
    let logp = case.input("logp", dtype, rows * cols, Values::Uniform(-9.0, -0.5));
    let classes = case.input("targets", DType::I64, rows, targets.clone());
    let loss = case.output("loss", dtype, 1, ErrorBound::Sum(rows));
    let total_weight = case.output("total_weight", dtype, 1, ErrorBound::Formula);
    session.check(&case, |at| Loss::Nll {
        logp: at[logp],
        targets: at[classes],
        loss: at[loss],
        total_weight: at[total_weight],
        cols,
    });
    for slope in [1.0, 1024.0, -0.3] {
        let mut case = Case::new("nll_loss_backward", precision, format!("{what}, gradient {slope}"));
        let grad = case.input("grad", dtype, 1, Values::Constant(slope));
        let classes = case.input("targets", DType::I64, rows, targets.clone());
        let total_weight = case.input("total_weight", dtype, 1, Values::Constant(counted.max(1) as f64));
        let dst = case.output("dst", dtype, rows * cols, ErrorBound::Formula);
        session.check(&case, |at| Loss::NllBackward {
            grad: at[grad],
            targets: at[classes],
            total_weight: at[total_weight],
            dst: at[dst],
            cols,
        });
    }
}

/// Cross-entropy in one kernel, with NaN between the rows.
fn fused(session: &mut Session<'_>, precision: Precision, [rows, cols, stride]: [usize; 3], ignored: usize) {
    let dtype = precision.dtype();
    let classes = classes([rows, cols], ignored);
    let counted = classes.iter().filter(|&&class| class != IGNORED).count().max(1) as f64;
    let gaps = (0..rows).flat_map(|row| (row * stride + cols..(row + 1) * stride).map(|at| (at, f64::NAN)));
    let values = Values::Except(3.0, gaps.collect());
    let what = format!("{rows} × {cols}, {stride} apart{}", if ignored > 0 { ", some ignored" } else { "" });
    let mut forward = Case::new("cross_entropy", precision, what.clone());
    let logits = forward.input("logits", dtype, rows * stride, values);
    let targets = forward.input("targets", DType::I64, rows, Values::List(classes.clone()));
    let loss = forward.output("loss", DType::F32, 1, ErrorBound::Sum(rows));
    let total_weight = forward.output("total_weight", DType::F32, 1, ErrorBound::Exact);
    let logsumexp = forward.output("logsumexp", DType::F32, rows, ErrorBound::Sum(cols));
    let kernel = |at: &CaseOperands| Loss::CrossEntropy {
        logits: at[logits],
        targets: at[targets],
        loss: at[loss],
        total_weight: at[total_weight],
        logsumexp: at[logsumexp],
        cols,
        stride,
    };
    session.check(&forward, kernel);
    for slope in [1.0, 1024.0, -0.3] {
        let mut case = Case::new("cross_entropy_backward", precision, format!("{what}, gradient {slope}"));
        let grad = case.input("grad", DType::F32, 1, Values::Constant(slope));
        let targets = case.input("targets", DType::I64, rows, Values::List(classes.clone()));
        let total_weight = case.input("total_weight", DType::F32, 1, Values::Constant(counted));
        // For a row with a single class, two terms of this size cancel completely.
        let size = 0.03 * f64::abs(slope) / counted / cols as f64;
        let bound = ErrorBound::Cancelling(cols, size);
        let gaps_and_logits = |prepared: &[Vec<f64>]| Some((prepared.first()?.clone(), prepared.last()?.clone()));
        if !session.wants(&case) {
            continue;
        }
        let Some((values, sums)) = session.prepare(&forward, kernel).as_deref().and_then(gaps_and_logits) else {
            return;
        };
        let logsumexp = case.input("logsumexp", DType::F32, rows, Values::List(sums));
        let logits = case.update("logits", dtype, rows * stride, Values::List(values), bound);
        session.check(&case, |at| Loss::CrossEntropyBackward {
            grad: at[grad],
            logits: at[logits],
            targets: at[targets],
            total_weight: at[total_weight],
            logsumexp: at[logsumexp],
            cols,
            stride,
        });
    }
}

fn binary(session: &mut Session<'_>, precision: Precision, len: usize, skew: Skew) {
    let dtype = precision.dtype();
    let far = [80.0, -80.0, 20.0, -20.0, 0.0, 1e-4];
    let logits_of = || Values::Except(3.0, far.into_iter().enumerate().collect());
    for (what, truth) in [("labels", Values::Below(2)), ("probabilities", Values::Uniform(0.0, 1.0))] {
        let what = format!("{len} elements, {what}");
        let mut case = Case::new("bce_with_logits", precision, what.clone()).skewed(skew);
        let logits = case.input("logits", dtype, len, logits_of());
        let targets = case.input("targets", dtype, len, truth.clone());
        let loss = case.output("loss", dtype, 1, ErrorBound::Sum(len));
        session.check(&case, |at| Loss::BceWithLogits { logits: at[logits], targets: at[targets], loss: at[loss] });
        let mut case = Case::new("bce_with_logits_backward", precision, what).skewed(skew);
        let grad = case.input("grad", dtype, 1, Values::Constant(512.0));
        let logits = case.input("logits", dtype, len, logits_of());
        let targets = case.input("targets", dtype, len, truth);
        let dst = case.output("dst", dtype, len, ErrorBound::Formula);
        session.check(&case, |at| Loss::BceWithLogitsBackward {
            grad: at[grad],
            logits: at[logits],
            targets: at[targets],
            dst: at[dst],
        });
    }
}
