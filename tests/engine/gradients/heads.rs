//! How queries, keys and values lie side by side, and queries scaled by their positions.

use vramlab::device::DType;
use vramlab::train::{PositionCount, PositionScale, Turn};

use super::{check, context, decode, rotary_tables, tensor, values};

/// As GPT-NeoX has them: side by side in each head, of which a part is rotated.
#[test]
fn thirds_of_heads_have_the_gradients_of_their_formula() {
    for part in [4, 2] {
        let shape: &[usize] = &[2, 5, 36];
        check(&[shape], &move |cx, p| {
            let tokens = tensor(cx, &[2, 5], DType::I64, &[0.0; 10]);
            let tables = rotary_tables(cx, &tokens, part, p[0].dtype())?;
            let [q, k, v] = cx.thirds_of_heads(&p[0], 4);
            let [q, k] = cx.rotary_before_rest([&q, &k], &tables, Turn::default())?;
            let output = cx.grouped_attention([&q, &k, &v], None, 0.0)?;
            cx.merge_heads(&output)
        });
    }
}

/// As GPT-2 has them: side by side.
#[test]
fn thirds_of_a_projection_have_the_gradients_of_their_formula() {
    let shape: &[usize] = &[2, 5, 24];
    check(&[shape], &|cx, p| {
        let parts = cx.thirds(&p[0]);
        let [q, k, v] = parts.map(|part| cx.by_head_size(&part, 4));
        let output = cx.grouped_attention([&q, &k, &v], None, 0.0)?;
        cx.merge_heads(&output)
    });
}

#[test]
fn queries_that_grow_have_the_gradients_of_their_formula() {
    let scale = PositionScale { count: PositionCount::Model, beta: 0.5, original: 2.0 };
    let shape: &[usize] = &[2, 5, 12];
    check(&[shape], &move |cx, p| {
        let heads = cx.by_head_size(&p[0], 4);
        let (grown, _) = cx.scale_by_position(&heads, scale)?;
        cx.merge_heads(&grown)
    });
    let mut cx = context();
    let input = tensor(&cx, shape, DType::F64, &values(1, 120));
    let heads = cx.by_head_size(&input, 4);
    let (grown, _) = cx.scale_by_position(&heads, scale).unwrap();
    let grown = cx.merge_heads(&grown).unwrap();
    for (i, (after, before)) in decode(&cx, &grown).into_iter().zip(values(1, 120)).enumerate() {
        let times: f64 = [1.0, 1.0, 2.0, 2.0, 3.0][i / 12 % 5];
        assert!((after - before * (1.0 + 0.5 * times.ln())).abs() < 1e-6, "element {i}: {after} of {before}");
    }
}

/// Queries that a layer scales by its own positions, from 1 on.
#[test]
fn queries_that_a_layer_scales_have_the_gradients_of_their_formula() {
    let scale = PositionScale { count: PositionCount::Layer, beta: 0.5, original: 2.0 };
    let shape: &[usize] = &[2, 5, 12];
    check(&[shape], &move |cx, p| {
        let heads = cx.by_head_size(&p[0], 4);
        let (scaled, _) = cx.scale_by_position(&heads, scale)?;
        cx.merge_heads(&scaled)
    });
    let mut cx = context();
    let input = tensor(&cx, shape, DType::F64, &values(1, 120));
    let heads = cx.by_head_size(&input, 4);
    let (scaled, _) = cx.scale_by_position(&heads, scale).unwrap();
    let scaled = cx.merge_heads(&scaled).unwrap();
    for (i, (after, before)) in decode(&cx, &scaled).into_iter().zip(values(1, 120)).enumerate() {
        let times: f64 = [0.0, 1.0, 1.0, 2.0, 2.0][i / 12 % 5];
        assert!((after - before * (1.0 + 0.5 * times.ln_1p())).abs() < 1e-6, "element {i}: {after} of {before}");
    }
}
