//! Losses and their gradients.

use crate::device::selftest::bound::Bound;
use crate::device::selftest::case::{Case, Precision, Skew};
use crate::device::selftest::session::Session;
use crate::device::selftest::values::Values;
use crate::device::{DType, Kernel};

/// Rows with this target do not count.
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

/// Every `ignored`-th row does not count; none where it is 0, all where it is 1.
fn likelihood(session: &mut Session<'_>, precision: Precision, [rows, cols]: [usize; 2], ignored: usize) {
    let dtype = precision.dtype();
    let target = |row: usize| {
        if ignored > 0 && row % ignored == 0 {
            IGNORED
        } else {
            (row.wrapping_mul(7919) + cols - 1).rem_euclid(cols) as f64
        }
    };
    let targets = Values::List((0..rows).map(target).collect());
    let what = format!("{rows} × {cols}{}", if ignored > 0 { ", some ignored" } else { "" });
    let mut case = Case::new("nll_loss", precision, what.clone());
    let logp = case.input("logp", dtype, rows * cols, Values::Uniform(-9.0, -0.5));
    let classes = case.input("targets", DType::I64, rows, targets.clone());
    let loss = case.output("loss", dtype, 1, Bound::Sum(rows));
    let total_weight = case.output("total_weight", dtype, 1, Bound::Formula);
    session.check(&case, |at| Kernel::NllLoss {
        logp: at[logp],
        targets: at[classes],
        loss: at[loss],
        total_weight: at[total_weight],
        cols,
    });
    for slope in [1.0, 1024.0, -0.3] {
        let counted = (0..rows).filter(|&row| target(row) >= 0.0).count();
        let mut case = Case::new("nll_loss_backward", precision, format!("{what}, gradient {slope}"));
        let grad = case.input("grad", dtype, 1, Values::Constant(slope));
        let classes = case.input("targets", DType::I64, rows, targets.clone());
        let total_weight = case.input("total_weight", dtype, 1, Values::Constant(counted.max(1) as f64));
        let dst = case.output("dst", dtype, rows * cols, Bound::Formula);
        session.check(&case, |at| Kernel::NllLossBackward {
            grad: at[grad],
            targets: at[classes],
            total_weight: at[total_weight],
            dst: at[dst],
            cols,
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
        let loss = case.output("loss", dtype, 1, Bound::Sum(len));
        session.check(&case, |at| Kernel::BceWithLogits { logits: at[logits], targets: at[targets], loss: at[loss] });
        let mut case = Case::new("bce_with_logits_backward", precision, what).skewed(skew);
        let grad = case.input("grad", dtype, 1, Values::Constant(512.0));
        let logits = case.input("logits", dtype, len, logits_of());
        let targets = case.input("targets", dtype, len, truth);
        let dst = case.output("dst", dtype, len, Bound::Formula);
        session.check(&case, |at| Kernel::BceWithLogitsBackward {
            grad: at[grad],
            logits: at[logits],
            targets: at[targets],
            dst: at[dst],
        });
    }
}
