//! Routers and the experts that they choose.

use vramlab::device::DType;
use vramlab::train::{ClampedExperts, Context, ExpertScores, GroupRule, RouterRule, Shape, Tensor};

use super::{check, context, decode, tensor, values};

/// Two of six experts for each row, from the two of three groups with the largest weights.
#[test]
fn experts_in_groups_have_the_gradients_of_their_formula() {
    let rule = RouterRule { chosen: 2, normalises: true, narrows: false, widens: false, of_chosen: false };
    let sigmoid = GroupRule { scores: ExpertScores::Sigmoid, groups: 3, chosen_groups: 2, factor: 2.5 };
    let program = move |cx: &mut Context, p: &[Tensor]| {
        let rows = cx.as_matrix(&p[0]);
        let larger = cx.scale(&rows, 4.0, "larger rows")?;
        let logits = cx.linear(&larger, &p[1], None)?;
        let correction = cx.buffer("correction", Shape::new(&[6]), DType::F32, 0.0)?;
        let routes = cx.routes_by_sigmoid(logits, (rule, sigmoid), &correction)?;
        cx.experts(&rows, &routes, [&p[2], &p[3]], false)
    };
    let shapes: [&[usize]; 4] = [&[2, 3, 4], &[6, 4], &[6, 6, 4], &[6, 4, 3]];
    check(&shapes, &program);

    // The same by hand.
    let p: Vec<Vec<f64>> = shapes.iter().zip(1..).map(|(shape, seed)| values(seed, shape.iter().product())).collect();
    let mut cx = context();
    let given: Vec<Tensor> = shapes.iter().zip(&p).map(|(shape, p)| tensor(&cx, shape, DType::F64, p)).collect();
    let made = program(&mut cx, &given).unwrap();
    let (mut outside, mut expected) = (0, Vec::new());
    for x in p[0].chunks(4) {
        let sigmoid_of = |e: usize| 1.0 / (1.0 + (-4.0 * (0..4).map(|i| x[i] * p[1][4 * e + i]).sum::<f64>()).exp());
        let weights: Vec<f64> = (0..6).map(sigmoid_of).collect();
        let mut groups = [0, 1, 2];
        groups.sort_by(|a, b| (weights[2 * b] + weights[2 * b + 1]).total_cmp(&(weights[2 * a] + weights[2 * a + 1])));
        let by_weight = |all: &mut Vec<usize>| all.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
        let mut all: Vec<usize> = (0..6).collect();
        let mut inside: Vec<usize> = groups[..2].iter().flat_map(|g| [2 * g, 2 * g + 1]).collect();
        by_weight(&mut all);
        by_weight(&mut inside);
        outside += usize::from(all[..2] != inside[..2]);
        let mut sum = vec![0.0; 4];
        for &e in &inside[..2] {
            let share = 2.5 * weights[e] / (weights[inside[0]] + weights[inside[1]]);
            let both: Vec<f64> = (0..6).map(|j| (0..4).map(|i| x[i] * p[2][24 * e + 4 * j + i]).sum()).collect();
            for (o, sum) in sum.iter_mut().enumerate() {
                let hidden =
                    (0..3).map(|j| both[j] / (1.0 + (-both[j]).exp()) * both[3 + j] * p[3][12 * e + 3 * o + j]);
                *sum += share * hidden.sum::<f64>();
            }
        }
        expected.extend(sum);
    }
    assert!(outside > 0, "groups decide nothing here");
    for (ours, theirs) in decode(&cx, &made).iter().zip(&expected) {
        assert!((ours - theirs).abs() < 1e-12, "{ours} for {theirs}");
    }
}

/// All of three experts for each row, two of which have a share.
#[test]
fn experts_of_all_rows_have_the_gradients_of_their_formula() {
    let program = move |cx: &mut Context, p: &[Tensor]| {
        let logits = cx.linear(&p[0], &p[1], None)?;
        let shares = cx.shares_of_all_experts(&logits, 2)?;
        let scaled = cx.rows_for_all_experts(&p[0], &shares)?;
        let outputs = cx.all_experts(&scaled, [&p[2], &p[3]])?;
        cx.sum_over_experts(&outputs, 3)
    };
    let shapes: [&[usize]; 4] = [&[5, 4], &[3, 4], &[3, 4, 6], &[3, 3, 4]];
    check(&shapes, &program);

    // The same by hand.
    let p: Vec<Vec<f64>> = shapes.iter().zip(1..).map(|(shape, seed)| values(seed, shape.iter().product())).collect();
    let mut cx = context();
    let given: Vec<Tensor> = shapes.iter().zip(&p).map(|(shape, p)| tensor(&cx, shape, DType::F64, p)).collect();
    let made = program(&mut cx, &given).unwrap();
    let made = decode(&cx, &made);
    for (row, x) in p[0].chunks(4).enumerate() {
        let dot = |a: &[f64], column: usize, cols: usize, of: &[f64]| -> f64 {
            a.iter().enumerate().map(|(i, a)| a * of[i * cols + column]).sum()
        };
        let logits: Vec<f64> = p[1].chunks(4).map(|of| x.iter().zip(of).map(|(a, b)| a * b).sum()).collect();
        let least = logits.iter().copied().fold(f64::INFINITY, f64::min);
        let mut sum = [0.0; 4];
        for (expert, logit) in logits.iter().enumerate().filter(|(_, logit)| **logit > least) {
            let share = 1.0 / (1.0 + (-logit).exp());
            let scaled: Vec<f64> = x.iter().map(|x| x * share).collect();
            let (gate_up, down) = (&p[2][expert * 24..][..24], &p[3][expert * 12..][..12]);
            let both: Vec<f64> = (0..6).map(|column| dot(&scaled, column, 6, gate_up)).collect();
            let hidden: Vec<f64> = (0..3).map(|i| both[3 + i] * both[i] / (1.0 + (-both[i]).exp())).collect();
            sum.iter_mut().enumerate().for_each(|(column, sum)| *sum += dot(&hidden, column, 4, down));
        }
        for (ours, theirs) in made[row * 4..][..4].iter().zip(sum) {
            assert!((ours - theirs).abs() < 1e-12, "row {row}: {ours} for {theirs}");
        }
    }
}

/// Two of four experts for each row, whose weights are divided by their sum, or by something larger.
#[test]
fn weights_divided_by_their_sum_have_the_gradients_of_their_formula() {
    for least in [1e-12, 0.75] {
        let program = move |cx: &mut Context, p: &[Tensor]| {
            let larger = cx.scale(&p[0], 2.0, "larger rows")?;
            let logits = cx.linear(&larger, &p[1], None)?;
            let routes = cx.routes_by_corrected_softmax(logits, (2, least), DType::F64)?;
            cx.experts(&p[0], &routes, [&p[2], &p[3]], false)
        };
        let shapes: [&[usize]; 4] = [&[6, 4], &[4, 4], &[4, 6, 4], &[4, 4, 3]];
        check(&shapes, &program);
    }
    let mut cx = context();
    let logits = tensor(&cx, &[1, 4], DType::F64, &[2.0_f64.ln(), 0.0, 0.0, 4.0_f64.ln()]);
    for (least, theirs) in [(1e-12, [2.0 / 3.0, 1.0 / 3.0]), (0.9, [0.5 / 0.9, 0.25 / 0.9])] {
        let routes = cx.routes_by_corrected_softmax(logits.clone(), (2, least), DType::F64).unwrap();
        for (ours, theirs) in decode(&cx, routes.shares()).iter().zip(theirs) {
            assert!((ours - theirs).abs() < 1e-6, "{ours} for {theirs}");
        }
    }
}

/// Two of three experts for each row, some of whose gates are clamped.
#[test]
fn clamped_experts_have_the_gradients_of_their_formula() {
    let rule = RouterRule { chosen: 2, normalises: false, narrows: false, widens: false, of_chosen: true };
    let program = move |cx: &mut Context, p: &[Tensor]| {
        let rows = cx.as_matrix(&p[0]);
        let logits = cx.linear(&rows, &p[1], Some(&p[2]))?;
        let routes = cx.routes(logits, rule, DType::F32)?;
        let wide = cx.scale(&rows, 12.0, "larger rows")?;
        let of = ClampedExperts { gate_up: &p[3], gate_up_bias: &p[4], down: &p[5], down_bias: &p[6] };
        cx.clamped_experts(&wide, &routes, of)
    };
    let shapes: [&[usize]; 7] = [&[2, 3, 4], &[3, 4], &[3], &[3, 4, 6], &[3, 6], &[3, 3, 4], &[3, 4]];
    check(&shapes, &program);

    // The same by hand.
    let p: Vec<Vec<f64>> = shapes.iter().zip(1..).map(|(shape, seed)| values(seed, shape.iter().product())).collect();
    let mut cx = context();
    let given: Vec<Tensor> = shapes.iter().zip(&p).map(|(shape, p)| tensor(&cx, shape, DType::F64, p)).collect();
    let made = program(&mut cx, &given).unwrap();
    let (mut clamped, mut expected) = (0, Vec::new());
    for x in p[0].chunks(4) {
        let logits: Vec<f64> = (0..3).map(|e| p[2][e] + (0..4).map(|i| x[i] * p[1][4 * e + i]).sum::<f64>()).collect();
        let mut order = [0, 1, 2];
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let all = logits[order[0]].exp() + logits[order[1]].exp();
        let mut sum = vec![0.0; 4];
        for &e in &order[..2] {
            let both: Vec<f64> = (0..6)
                .map(|j| p[4][6 * e + j] + (0..4).map(|i| 12.0 * x[i] * p[3][24 * e + 6 * i + j]).sum::<f64>())
                .collect();
            clamped += both.iter().filter(|value| value.abs() > 7.0).count();
            let hidden: Vec<f64> = (0..3)
                .map(|j| {
                    let (gate, up) = (both[2 * j].min(7.0), both[2 * j + 1].clamp(-7.0, 7.0));
                    (up + 1.0) * gate / (1.0 + (-1.702 * gate).exp())
                })
                .collect();
            for (c, sum) in sum.iter_mut().enumerate() {
                let out = p[6][4 * e + c] + (0..3).map(|j| hidden[j] * p[5][12 * e + 4 * j + c]).sum::<f64>();
                *sum += out * logits[e].exp() / all;
            }
        }
        expected.extend(sum);
    }
    assert!(clamped > 5, "{clamped} of them are clamped");
    for (ours, theirs) in decode(&cx, &made).iter().zip(&expected) {
        assert!((ours - theirs).abs() < 1e-9, "{ours} for {theirs}");
    }
}
