//! Linear layers, lookups, convolutions, MLPs of them and checkpointed segments.

use std::rc::Rc;

use vramlab::device::DType;
use vramlab::train::{Context, Interrupt, OpResult, Repeatable, Tensor, checkpoint};

use super::{check, context, gradients, tensor, values};

#[test]
fn linear_with_and_without_bias() {
    check(&[&[5, 4], &[3, 4], &[3]], &|cx, p| cx.linear(&p[0], &p[1], Some(&p[2])));
    check(&[&[2, 3, 4], &[6, 4]], &|cx, p| cx.linear(&p[0], &p[1], None));
}

/// `Conv1D` of transformers.
#[test]
fn a_weight_of_inputs_and_outputs_has_the_gradients_of_its_formula() {
    check(&[&[2, 5, 4], &[4, 3], &[3]], &|cx, p| cx.addmm(&p[2], &p[0], &p[1]));
    check(&[&[4, 3]], &|cx, p| {
        let [input, bias] =
            [(&[5, 4][..], 20), (&[3], 3)].map(|(dims, len)| tensor(cx, dims, p[0].dtype(), &values(7, len)));
        cx.addmm(&bias, &input, &p[0])
    });
}

#[test]
fn embedding_tied_to_the_head() {
    check(&[&[5, 4]], &|cx, p| {
        let tokens = tensor(cx, &[2, 3], DType::I64, &[0.0, 3.0, 3.0, 1.0, 4.0, 0.0]);
        let x = cx.embedding(&p[0], &tokens)?;
        cx.linear(&x, &p[0], None)
    });
}

#[test]
fn rows_are_not_looked_up_by_indices_of_four_dimensions() {
    let mut cx = context();
    let table = tensor(&cx, &[3, 2], DType::F64, &values(1, 6));
    let indices = tensor(&cx, &[1, 1, 1, 2], DType::I64, &[0.0, 1.0]);
    for looked_up in [cx.embedding(&table, &indices), cx.indexed_rows(&table, &indices)] {
        let Err(Interrupt::Failed(error)) = looked_up else { panic!("looked up") };
        assert_eq!(error.to_string(), "indices of four dimensions have no rows to look up; give them fewer");
    }
}

#[test]
fn convolutions_and_their_transposes() {
    check(&[&[2, 3, 5, 5], &[4, 3, 3, 3], &[4]], &|cx, p| cx.conv2d(&p[0], &p[1], Some(&p[2]), 2, 1));
    check(&[&[2, 3, 4, 4], &[2, 3, 1, 1]], &|cx, p| cx.conv2d(&p[0], &p[1], None, 1, 0));
    check(&[&[2, 3, 3, 3], &[3, 2, 4, 4]], &|cx, p| cx.conv_transpose2d(&p[0], &p[1], 2, 1));
}

#[test]
fn a_gated_mlp_has_the_gradients_of_its_formula() {
    let shapes: [&[usize]; 4] = [&[2, 3, 4], &[6, 4], &[6, 4], &[4, 6]];
    check(&shapes, &|cx, p| {
        let gate = cx.linear(&p[0], &p[1], None)?;
        let gate = cx.silu(&gate)?;
        let up = cx.linear(&p[0], &p[2], None)?;
        let hidden = cx.mul(&gate, &up)?;
        cx.linear(&hidden, &p[3], None)
    });
    check(&shapes, &|cx, p| {
        let [gate, up] = [&p[1], &p[2]].map(|weight| cx.linear(&p[0], weight, None));
        let hidden = cx.gated_silu(&gate?, &up?)?;
        cx.linear(&hidden, &p[3], None)
    });
}

struct Layer(Vec<Tensor>);

impl Repeatable for Layer {
    fn forward(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let p = &self.0;
        let normalised = cx.layer_norm(x, &p[0], &p[1], 1e-5)?;
        let hidden = cx.linear(&normalised, &p[2], Some(&p[3]))?;
        let activated = cx.gelu(&hidden, true)?;
        cx.add(x, &activated)
    }
}

#[test]
fn a_checkpointed_segment_has_the_gradients_of_a_plain_one() {
    let shapes: [&[usize]; 5] = [&[3, 4], &[4], &[4], &[4, 4], &[4]];
    check(&shapes, &|cx, p| {
        let layer: Rc<dyn Repeatable> = Rc::new(Layer(p[1..].to_vec()));
        let x = checkpoint(cx, &layer, &p[0])?;
        checkpoint(cx, &layer, &x)
    });
    let run = |recompute: bool| {
        gradients(&shapes, DType::F32, Some(DType::Bf16), &move |cx, p| {
            let layer: Rc<dyn Repeatable> = Rc::new(Layer(p[1..].to_vec()));
            if recompute { checkpoint(cx, &layer, &p[0]) } else { layer.forward(cx, &p[0]) }
        })
    };
    assert_eq!(run(true), run(false), "to the bit");
}
