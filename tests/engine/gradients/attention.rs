//! Attention by fused kernels, by matrix products and op by op, against each other and central differences.

use vramlab::device::{DType, Earlier};
use vramlab::train::{AttentionKernel, Context, EagerScores, MaskShape, OpResult, Tensor};

use super::{check, context, decode, gradients, tensor, values};

fn attend(heads: usize, causal: bool) -> impl Fn(&mut Context, &[Tensor]) -> OpResult<Tensor> {
    move |cx, p| {
        let qkv = cx.linear(&p[0], &p[1], None)?;
        let y = cx.attention(&qkv, heads, causal)?;
        cx.merge_heads(&y)
    }
}

#[test]
fn attention_by_matrix_products() {
    for causal in [true, false] {
        check(&[&[2, 3, 4], &[12, 4]], &attend(2, causal));
    }
}

#[test]
fn fused_attention_has_the_gradients_of_matrix_products() {
    let sizes = [(8, 2, 5), (4, 3, 33), (64, 1, 40), (6, 2, 9)];
    for ((head_size, heads, rows), causal) in sizes.into_iter().flat_map(|s| [(s, true), (s, false)]) {
        let width = heads * head_size;
        let shapes: [&[usize]; 2] = [&[2, rows, width], &[3 * width, width]];
        let exact = gradients(&shapes, DType::F64, None, &attend(heads, causal));
        for (amp, tolerance) in [(None, 2e-5), (Some(DType::F16), 2e-2), (Some(DType::Bf16), 1e-1)] {
            let ours = gradients(&shapes, DType::F32, amp, &attend(heads, causal));
            for (ours, exact) in ours.iter().zip(&exact) {
                let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                for (a, b) in ours.iter().zip(exact) {
                    assert!((a - b).abs() <= tolerance * largest, "head size {head_size}, {amp:?}: {a} for {b}");
                }
            }
        }
    }
}

#[test]
fn math_attention_has_them_in_sixteen_bits_too() {
    for (heads, rows, causal) in [(2, 5, true), (1, 4, true), (3, 33, false)] {
        let width = heads * 8;
        let shapes: [&[usize]; 2] = [&[2, rows, width], &[3 * width, width]];
        let exact = gradients(&shapes, DType::F64, None, &attend(heads, causal));
        for (amp, tolerance) in [(None, 2e-5), (Some(DType::F16), 2e-2), (Some(DType::Bf16), 1e-1)] {
            let ours = gradients(&shapes, DType::F32, amp, &move |cx, p| {
                cx.choose_attention(AttentionKernel::Math);
                attend(heads, causal)(cx, p)
            });
            for (ours, exact) in ours.iter().zip(&exact) {
                let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                for (a, b) in ours.iter().zip(exact) {
                    assert!((a - b).abs() <= tolerance * largest, "{heads} heads, {amp:?}: {a} for {b}");
                }
            }
        }
    }
}

/// Four heads of queries over two of keys, op for op, with a cap and a window.
#[test]
fn eager_attention_has_the_gradients_of_its_formula() {
    for cap in [None, Some(0.7)] {
        check(&[&[2, 5, 16], &[2, 5, 8], &[2, 5, 8]], &move |cx, p| {
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 4));
            let shape = MaskShape { batch: 2, rows: 5, earlier: Earlier::Window(3), padding: false };
            let mask = cx.attention_mask(shape, p[0].dtype())?;
            let (attended, _) = cx.eager_attention(
                [&q, &k, &v],
                EagerScores { scale: 0.4, cap, mask: &mask, dropout: 0.0, plain: cap.is_none(), turned: cap.is_none() },
            )?;
            Ok(attended)
        });
    }
}

/// Four heads of queries over two of keys or over as many, with one more logit for each.
#[test]
fn attention_with_sinks_has_the_gradients_of_its_formula() {
    for kv in [2, 4] {
        let of_keys: &[usize] = &[2, 5, 4 * kv];
        check(&[&[2, 5, 16], of_keys, of_keys, &[4]], &move |cx, p| {
            // Products leave the gradient of keys in the order of a head's elements.
            let k = cx.scale(&p[1], 1.0, "keys")?;
            let [q, k, v] = [&p[0], &k, &p[2]].map(|part| cx.by_head_size(part, 4));
            let shape = MaskShape { batch: 2, rows: 5, earlier: Earlier::Window(3), padding: false };
            let mask = &cx.attention_mask(shape, p[0].dtype())?;
            let by = EagerScores { scale: 0.4, cap: None, mask, dropout: 0.0, plain: false, turned: false };
            Ok(cx.attention_with_sinks([&q, &k, &v], &p[3], by)?.0)
        });
    }
}

/// A sink with no weight leaves attention unchanged.
#[test]
fn sinks_take_their_share_of_the_weights() {
    let mut cx = context();
    let [q, k, v] = [1, 2, 3].map(|seed| tensor(&cx, &[1, 3, 4], DType::F64, &values(seed, 12)));
    let [q, k, v] = [q, k, v].map(|part| cx.by_head_size(&part, 2));
    let mask =
        &cx.attention_mask(MaskShape { batch: 1, rows: 3, earlier: Earlier::All, padding: false }, DType::F64).unwrap();
    let by = EagerScores { scale: 0.5, cap: None, mask, dropout: 0.0, plain: false, turned: false };
    let (plain, _) = cx.eager_attention([&q, &k, &v], by).unwrap();
    let mut with = |sinks: [f64; 2]| {
        let sinks = tensor(&cx, &[2], DType::F64, &sinks);
        let (attended, _) = cx.attention_with_sinks([&q, &k, &v], &sinks, by).unwrap();
        decode(&cx, &attended)
    };
    let (none, some) = (with([-1e9; 2]), with([-1e9, 2.0]));
    let plain = decode(&cx, &plain);
    for (ours, theirs) in none.iter().zip(&plain) {
        assert!((ours - theirs).abs() < 1e-12, "{ours} for {theirs}");
    }
    // The first row of the second head has one score and the sink.
    let [q, k] = [1, 2].map(|seed| values(seed, 12));
    let score = 0.5 * (q[2] * k[2] + q[3] * k[3]);
    let share = score.exp() / (score.exp() + 2.0_f64.exp());
    assert!((some[2] - share * plain[2]).abs() < 1e-12 && (some[0] - plain[0]).abs() < 1e-12);
}

#[test]
fn heads_that_share_keys_have_the_gradients_of_their_formula() {
    // Four heads of queries over two, one and four of keys and values.
    for kv in [2, 1, 4] {
        let shapes: [&[usize]; 3] = [&[2, 5, 16], &[2, 5, 4 * kv], &[2, 5, 4 * kv]];
        check(&shapes, &|cx, p| {
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 4));
            let output = cx.grouped_attention([&q, &k, &v], None, 0.0)?;
            cx.merge_heads(&output)
        });
    }
}

/// Computed op by op or by matrix products, attention drops the same weights.
#[test]
fn eager_attention_leaves_out_what_others_do() {
    let shapes: [&[usize]; 3] = [&[2, 9, 16], &[2, 9, 8], &[2, 9, 8]];
    let parts = |cx: &mut Context, p: &[Tensor]| [0, 1, 2].map(|part| cx.by_head_size(&p[part], 4));
    let by_products = |dropout| {
        gradients(&shapes, DType::F64, None, &move |cx, p| {
            let [q, k, v] = parts(cx, p);
            let output = cx.grouped_attention([&q, &k, &v], None, dropout)?;
            cx.merge_heads(&output)
        })
    };
    let eagerly = gradients(&shapes, DType::F64, None, &move |cx, p| {
        let [q, k, v] = parts(cx, p);
        let mask = MaskShape { batch: 2, rows: 9, earlier: Earlier::All, padding: false };
        let mask = &cx.attention_mask(mask, DType::F64)?;
        Ok(cx
            .eager_attention(
                [&q, &k, &v],
                EagerScores { scale: 0.5, cap: None, mask, dropout: 0.3, plain: false, turned: false },
            )?
            .0)
    });
    let distance = |other: &[Vec<f64>]| {
        let both = eagerly.iter().flatten().zip(other.iter().flatten());
        both.fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()))
    };
    assert!(distance(&by_products(0.3)) < 1e-12);
    assert!(distance(&by_products(0.0)) > 1e-2, "nothing was left out");
}

/// Masks of windows and chunks, as fused kernels know them and as products read them.
#[test]
fn fused_attention_with_a_mask_has_the_gradients_of_matrix_products() {
    for (rows, earlier) in [(33, Earlier::Window(7)), (33, Earlier::Chunk(7)), (64, Earlier::Chunk(24))] {
        let program = move |cx: &mut Context, p: &[Tensor]| {
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 8));
            let mask = cx.sdpa_mask(MaskShape { batch: 2, rows, earlier, padding: false })?;
            cx.masked_attention([&q, &k, &v], &mask, 0.4, 0.0)
        };
        let shapes: [&[usize]; 3] = [&[2, rows, 32], &[2, rows, 16], &[2, rows, 16]];
        let exact = gradients(&shapes, DType::F64, None, &program);
        for kernel in [AttentionKernel::Auto, AttentionKernel::Math] {
            let ours = gradients(&shapes, DType::F32, None, &move |cx, p| {
                cx.choose_attention(kernel);
                program(cx, p)
            });
            for (part, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                for (i, (a, b)) in ours.iter().zip(exact).enumerate() {
                    assert!(
                        (a - b).abs() <= 1e-4 * largest,
                        "{earlier:?}, {kernel:?}, part {part}, element {i}: {a} for {b}"
                    );
                }
            }
        }
    }
}

/// The fused kernels run once for each member of a group, and sum the gradients of keys and values.
#[test]
fn fused_attention_of_shared_keys_has_the_gradients_of_matrix_products() {
    for (kv, dropout) in [(1, 0.0), (2, 0.0), (3, 0.0), (2, 0.3), (6, 0.3)] {
        let program = move |cx: &mut Context, p: &[Tensor]| {
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 8));
            let output = cx.grouped_attention([&q, &k, &v], None, dropout)?;
            cx.merge_heads(&output)
        };
        let shapes: [&[usize]; 3] = [&[2, 33, 48], &[2, 33, 8 * kv], &[2, 33, 8 * kv]];
        let exact = gradients(&shapes, DType::F64, None, &program);
        for kernel in [AttentionKernel::Auto, AttentionKernel::Flash, AttentionKernel::Math] {
            let ours = gradients(&shapes, DType::F32, Some(DType::Bf16), &move |cx, p| {
                cx.choose_attention(kernel);
                program(cx, p)
            });
            for (ours, exact) in ours.iter().zip(&exact) {
                let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                for (a, b) in ours.iter().zip(exact) {
                    assert!((a - b).abs() <= 1e-1 * largest, "{kv} heads of keys, {kernel:?}: {a} for {b}");
                }
            }
        }
    }
}
