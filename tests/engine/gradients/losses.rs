//! Losses of logits.

use vramlab::device::DType;
use vramlab::train::{LossHead, NextLabels};

use super::{check, context, decode, one, parameters, tensor, values};

#[test]
fn binary_cross_entropy_of_logits() {
    let mut cx = context();
    let logits = parameters(&mut cx, &[&[6]], DType::F64).remove(0);
    let target = tensor(&cx, &[6], DType::F64, &[1.0, 0.0, 1.0, 0.25, 0.0, 1.0]);
    let scalar = cx.binary_cross_entropy_with_logits(&logits, &target).unwrap();
    let seed = one(&cx, DType::F64);
    cx.backward(&scalar, &seed).unwrap();
    let (x, t) = (values(1, 6), decode(&cx, &target));
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let losses = x.iter().zip(&t).map(|(&x, &t)| -t * sigmoid(x).ln() - (1.0 - t) * (1.0 - sigmoid(x)).ln());
    assert!((decode(&cx, &scalar)[0] - losses.sum::<f64>() / 6.0).abs() < 1e-12);
    for ((gradient, x), t) in decode(&cx, cx.gradient(&logits).unwrap()).iter().zip(x).zip(t) {
        assert!((gradient - (sigmoid(x) - t) / 6.0).abs() < 1e-12);
    }
}

#[test]
fn a_loss_by_hand_has_the_gradients_of_its_formula() {
    for batch in [1, 2] {
        check(&[&[batch, 3, 5]], &move |cx, p| {
            let labels = tensor(cx, &[batch, 3], DType::I64, &vec![2.0; 3 * batch]);
            cx.choose_causal(LossHead::Shifted, false);
            cx.loss_of_next(&p[0], NextLabels { labels: &labels, lengths: None })
        });
    }
}

#[test]
fn each_label_is_that_of_the_position_before_it() {
    let mut cx = context();
    for rows in [1, 3] {
        let logits = tensor(&cx, &[2, rows, 5], DType::F32, &values(3, 10 * rows));
        let labels: Vec<f64> = [4.0, 1.0, 2.0].into_iter().cycle().take(2 * rows).collect();
        let mut next: Vec<f64> = labels.iter().copied().skip(1).chain([0.0]).collect();
        next.iter_mut().skip(rows - 1).step_by(rows).for_each(|last| *last = -100.0);
        let labels = tensor(&cx, &[2, rows], DType::I64, &labels);
        let next = tensor(&cx, &[2, rows], DType::I64, &next);
        let [ours, plain] = [cx.causal_loss(&logits, &labels).unwrap(), cx.cross_entropy(&logits, &next).unwrap()]
            .map(|loss| decode(&cx, &loss));
        assert_eq!(ours[0].to_bits(), plain[0].to_bits(), "{rows} rows");
    }
}
