//! Functions of elements, their sums, products and means.

use vramlab::device::DType;
use vramlab::train::{Context, Tensor};

use super::{check, context, decode, tensor, values};

#[test]
fn activations() {
    check(&[&[4, 6]], &|cx, p| cx.relu(&p[0]));
    check(&[&[4, 6]], &|cx, p| cx.gelu(&p[0], true));
    check(&[&[4, 6]], &|cx, p| cx.gelu(&p[0], false));
    check(&[&[4, 6]], &|cx, p| cx.new_gelu(&p[0]));
}

#[test]
fn gelu_op_by_op_is_that_of_one_op() {
    let mut cx = context();
    let input = tensor(&cx, &[4, 6], DType::F64, &values(1, 24));
    let [by_one, by_ops] = [cx.gelu(&input, true), cx.new_gelu(&input)].map(|made| decode(&cx, &made.unwrap()));
    for (one, ops) in by_one.iter().zip(&by_ops) {
        assert!((one - ops).abs() < 1e-12, "{one} for {ops}");
    }
}

#[test]
fn functions_in_place() {
    check(&[&[4, 6]], &|cx, p| cx.tanh(&p[0]));
    check(&[&[4, 6]], &|cx, p| {
        let copy = cx.scale(&p[0], 1.5, "copy")?;
        cx.relu_in_place(copy)
    });
    check(&[&[4, 6], &[4, 6]], &|cx, p| {
        let copy = cx.scale(&p[0], 1.5, "copy")?;
        let sum = cx.add_in_place(copy, &p[1])?;
        cx.leaky_relu_in_place(sum, 0.2)
    });
}

#[test]
fn sums_broadcast_and_repeated() {
    check(&[&[2, 3, 4], &[3, 4]], &|cx, p| cx.add(&p[0], &p[1]));
    // A tensor that is used twice collects both gradients, and so does a parameter.
    check(&[&[3, 4]], &|cx, p| {
        let twice = cx.add(&p[0], &p[0])?;
        let activated = cx.gelu(&twice, true)?;
        cx.add(&activated, &twice)
    });
    check(&[&[3, 5]], &|cx, p| cx.scale(&p[0], -1.75, "scaled"));
}

/// What DoRA scales: quotients by constants, differences from them, products of each row with a vector, factors less 1.
#[test]
fn outputs_scaled_column_by_column() {
    fn constant(cx: &Context) -> Tensor {
        tensor(cx, &[4], DType::F64, &[0.7, -1.3, 2.1, 0.4])
    }
    check(&[&[2, 3, 4]], &|cx, p| cx.subtract_columns(&p[0], &constant(cx), "difference"));
    check(&[&[4], &[2, 3, 4]], &|cx, p| cx.multiply_columns(&p[0], &p[1], "products"));
    check(&[&[2, 3, 4]], &|cx, p| cx.multiply_columns(&constant(cx), &p[0], "products"));
    check(&[&[4], &[2, 3, 4]], &|cx, p| {
        let factors = cx.quotient(&p[0], &constant(cx), "factors")?;
        let less = cx.add_number(&factors, -1.0)?;
        let twice = cx.multiply_columns(&factors, &p[1], "products")?;
        let more = cx.multiply_columns(&less, &twice, "products of products")?;
        cx.add(&more, &twice)
    });
}

#[test]
fn pooling_and_means() {
    check(&[&[2, 2, 5, 5]], &|cx, p| cx.max_pool2d(&p[0], 3, 2, 1));
    check(&[&[2, 3, 2, 4]], &|cx, p| cx.mean(&p[0], 2..4));
    check(&[&[2, 3, 4]], &|cx, p| cx.mean(&p[0], 1..2));
}

#[test]
fn gated_rows_have_the_gradients_of_their_formula() {
    check(&[&[2, 3, 5], &[4, 5], &[1, 5]], &|cx, p| {
        let rows = cx.as_matrix(&p[0]);
        let made = cx.linear(&rows, &p[1], None)?;
        let logits = cx.linear(&rows, &p[2], None)?;
        let gates = cx.sigmoid(&logits)?;
        let gated = cx.gated(&gates, &made)?;
        Ok(cx.rows_as(&gated, &made))
    });
}
