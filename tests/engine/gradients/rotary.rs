//! Rotated heads: by halves, by neighbours and as complex numbers.

use vramlab::device::DType;
use vramlab::train::{Context, SideBySide, Tensor, Turn};

use super::{check, context, decode, gradients, rotary_tables, tensor, values};

#[test]
fn rotated_heads_have_the_gradients_of_their_formula() {
    for rows in [1, 5] {
        let shape: &[usize] = &[2, rows, 12];
        check(&[shape], &move |cx, p| {
            let tokens = tensor(cx, &[2, rows], DType::I64, &vec![0.0; 2 * rows]);
            let tables = rotary_tables(cx, &tokens, 4, p[0].dtype())?;
            let heads = cx.by_head_size(&p[0], 4);
            let rotated = cx.rotary(&heads, &tables, Turn::default())?;
            cx.merge_heads(&rotated)
        });
    }
}

/// As gpt-oss writes it: half by half, with tables of one.
#[test]
fn heads_rotated_by_halves_are_rotated_alike() {
    let shape: &[usize] = &[2, 5, 12];
    let program = |halves: bool| {
        move |cx: &mut Context, p: &[Tensor]| {
            let frequencies = tensor(cx, &[2], DType::F32, &values(5, 2));
            let positions = cx.positions(5)?;
            let heads = cx.by_head_size(&p[0], 4);
            let rotated = if halves {
                let tables = cx.rotary_tables_of_half(&positions, &frequencies, p[0].dtype(), 1.25)?;
                cx.rotary_by_halves(&heads, &tables)?
            } else {
                let tables = cx.rotary_tables(&positions, &frequencies, p[0].dtype(), 1.25)?;
                cx.rotary(&heads, &tables, Turn::default())?
            };
            cx.merge_heads(&rotated)
        }
    };
    check(&[shape], &program(true));
    let [halves, whole] = [true, false].map(|halves| gradients(&[shape], DType::F64, None, &program(halves)));
    for (ours, theirs) in halves.iter().flatten().zip(whole.iter().flatten()) {
        assert!((ours - theirs).abs() < 1e-12, "{ours} for {theirs}");
    }
}

/// As GLM rotates them: pairs of neighbours, of a part of each head.
#[test]
fn rotated_neighbours_have_the_gradients_of_their_formula() {
    for part in [4, 2] {
        let shape: &[usize] = &[2, 5, 12];
        check(&[shape; 3], &move |cx, p| {
            let tokens = tensor(cx, &[2, 5], DType::I64, &[0.0; 10]);
            let tables = rotary_tables(cx, &tokens, part, p[0].dtype())?;
            let tables = cx.tables_of_neighbours(&tables)?;
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 4));
            let [q, k] = cx.rotary_before_rest([&q, &k], &tables, Turn { neighbours: true, widens: false })?;
            let output = cx.grouped_attention([&q, &k, &v], None, 0.0)?;
            cx.merge_heads(&output)
        });
    }
}

#[test]
fn neighbours_are_rotated_as_halves_in_another_order() {
    let mut cx = context();
    let tokens = tensor(&cx, &[2, 5], DType::I64, &[0.0; 10]);
    let tables = rotary_tables(&mut cx, &tokens, 8, DType::F64).unwrap();
    let of_neighbours = cx.tables_of_neighbours(&tables).unwrap();
    let before = values(1, 80);
    // Of each head the even elements, then the odd ones.
    let halves = |all: &[f64]| -> Vec<f64> {
        let of_head = |head: &[f64]| [0, 2, 4, 6, 1, 3, 5, 7].map(|at| head[at]);
        all.chunks(8).flat_map(of_head).collect()
    };
    let mut rotated = |values: &[f64], tables, neighbours| {
        let input = tensor(&cx, &[2, 5, 8], DType::F64, values);
        let heads = cx.by_head_size(&input, 8);
        let rotated = cx.rotary(&heads, tables, Turn { neighbours, widens: false }).unwrap();
        let rotated = cx.merge_heads(&rotated).unwrap();
        decode(&cx, &rotated)
    };
    let by_pairs = rotated(&before, &of_neighbours, true);
    assert_eq!(halves(&by_pairs), rotated(&halves(&before), &tables, false));
    assert_ne!(by_pairs, before);
}

/// Whole heads as complex numbers, and a norm of each without a weight.
#[test]
fn complex_heads_that_are_normalised_have_the_gradients_of_their_formula() {
    for normalises in [false, true] {
        check(&[&[2, 5, 16], &[2, 5, 8]], &move |cx, p| {
            let frequencies = tensor(cx, &[2], DType::F32, &[1.0, 0.3]);
            let positions = cx.positions(5)?;
            let tables = cx.rotary_tables_of_complex(&positions, &frequencies, 1.0)?;
            let heads = [0, 1].map(|part| cx.by_head_size(&p[part], 4));
            let told = [SideBySide::default(), SideBySide::default()];
            let turned = cx.rotary_of_whole_complex(heads, &tables, normalises.then_some(&told))?;
            let mut merged = Vec::new();
            for (turned, told) in turned.into_iter().zip(&told) {
                let heads = if normalises {
                    let rows = cx.rows_of_heads(&turned);
                    let made = cx.plain_rms_norm(&rows, 1e-6)?;
                    cx.by_head_size_told(&made, 4, told)
                } else {
                    turned
                };
                merged.push(heads);
            }
            let v = merged[1].clone();
            let output = cx.grouped_attention([&merged[0], &merged[1], &v], None, 0.0)?;
            cx.merge_heads(&output)
        });
    }
}
