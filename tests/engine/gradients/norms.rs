//! Norms over rows, channels and heads.

use vramlab::device::DType;
use vramlab::train::{RunningStatistics, SideBySide, Turn};

use super::{check, rotary_tables, tensor, values};

#[test]
fn layer_norm_in_all_three_arguments() {
    check(&[&[3, 7], &[7], &[7]], &|cx, p| cx.layer_norm(&p[0], &p[1], &p[2], 1e-5));
}

#[test]
fn batch_norm_in_all_three_arguments() {
    check(&[&[3, 2, 2, 3], &[2], &[2]], &|cx, p| {
        let running = RunningStatistics {
            mean: tensor(cx, &[2], DType::F64, &[0.0; 2]),
            variance: tensor(cx, &[2], DType::F64, &[1.0; 2]),
            batches: tensor(cx, &[], DType::I64, &[0.0]),
        };
        cx.batch_norm(&p[0], &p[1], &p[2], &running)
    });
}

#[test]
fn batch_norm_by_running_statistics_in_all_three_arguments() {
    check(&[&[3, 2, 2, 3], &[2], &[2]], &|cx, p| {
        let running = RunningStatistics {
            mean: tensor(cx, &[2], DType::F64, &[0.3, -0.2]),
            variance: tensor(cx, &[2], DType::F64, &[1.7, 0.4]),
            batches: tensor(cx, &[], DType::I64, &[5.0]),
        };
        cx.evaluating(|cx| cx.batch_norm(&p[0], &p[1], &p[2], &running))
    });
}

#[test]
fn a_norm_by_the_root_of_the_mean_square_has_the_gradients_of_its_formula() {
    let shapes: [&[usize]; 2] = [&[2, 3, 5], &[5]];
    check(&shapes, &|cx, p| cx.rms_norm(&p[0], &p[1], 1e-6));
    // A residual beside it: the norm's two gradients of its input meet a third one.
    check(&shapes, &|cx, p| {
        let y = cx.rms_norm(&p[0], &p[1], 1e-6)?;
        cx.add(&p[0], &y)
    });
}

#[test]
fn a_norm_whose_weight_is_added_to_one_has_the_gradients_of_its_formula() {
    check(&[&[2, 3, 5], &[5]], &|cx, p| cx.centred_rms_norm(&p[0], &p[1], 1e-6));
}

#[test]
fn frozen_norms_hand_gradients_on() {
    check(&[&[2, 3, 8]], &|cx, p| {
        let [weight, bias] = [7, 8].map(|seed| tensor(cx, &[8], p[0].dtype(), &values(seed, 8)));
        cx.layer_norm(&p[0], &weight, &bias, 1e-5)
    });
}

#[test]
fn norms_in_f32_have_the_gradients_of_their_formula() {
    check(&[&[2, 3, 8], &[8]], &|cx, p| {
        let normalised = cx.wide_layer_norm(&p[0], &p[1], 1e-5)?;
        cx.mul(&normalised, &p[0])
    });
    // Heads with weights of their own.
    check(&[&[2, 3, 8], &[2, 4]], &|cx, p| {
        let apart = cx.heads_apart(&p[0], 4, &SideBySide::default());
        let normalised = cx.wide_layer_norm(&apart, &p[1], 1e-5)?;
        let heads = cx.by_head_size(&normalised, 4);
        cx.merge_heads(&heads)
    });
    check(&[&[2, 3, 8]], &|cx, p| cx.plain_layer_norm(&p[0], 1e-5));
}

#[test]
fn norms_of_heads_have_the_gradients_of_their_formula() {
    check(&[&[2, 3, 8], &[4]], &|cx, p| {
        let tokens = tensor(cx, &[2, 3], DType::I64, &[0.0; 6]);
        let tables = rotary_tables(cx, &tokens, 4, p[0].dtype())?;
        let apart = cx.heads_apart(&p[0], 4, &SideBySide::default());
        let normalised = cx.rms_norm(&apart, &p[1], 1e-6)?;
        let heads = cx.by_head_size(&normalised, 4);
        let rotated = cx.rotary(&heads, &tables, Turn::default())?;
        cx.merge_heads(&rotated)
    });
}
