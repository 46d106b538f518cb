//! Optimizer and GradScaler kernels against PyTorch's formulas.

use std::collections::BTreeMap;
use std::io::Read;

use serde::Deserialize;
use vramlab::device::{
    AdamParameters, ByteMoment, DType, GradScaling, KeptMoment, KeptMoments, LionParameters, Operand, ParameterUpdate,
    UpdatePasses, dynamic_map, kernels,
};

use super::harness::{Bench, assert_close, random};

const SIZES: [usize; 3] = [1, 700, 20_001];

struct State {
    updates: Vec<ParameterUpdate>,
    /// Parameter, first and second moment of each, in f64.
    truth: Vec<[Vec<f64>; 3]>,
    gradients: Vec<Vec<f64>>,
}

fn state(bench: &mut Bench, dtype: DType, first: bool, second: bool) -> State {
    let mut state = State { updates: Vec::new(), truth: Vec::new(), gradients: Vec::new() };
    for (i, n) in SIZES.into_iter().enumerate() {
        let (parameter, p) = bench.random(dtype, n, i as u32);
        let (gradient, g) = bench.random(dtype, n, 10 + i as u32);
        let zeros = vec![0.0; n];
        state.updates.push(ParameterUpdate {
            parameter,
            gradient,
            first: first.then(|| bench.put(dtype, &zeros)),
            second: second.then(|| bench.put(dtype, &zeros)),
        });
        state.truth.push([p, zeros.clone(), zeros]);
        state.gradients.push(g);
    }
    state
}

fn compare(bench: &mut Bench, state: &State, tolerance: f64) {
    for (update, truth) in state.updates.iter().zip(&state.truth) {
        let operands = [Some(update.parameter), update.first, update.second];
        for (operand, truth) in operands.into_iter().zip(truth) {
            if let Some(operand) = operand {
                assert_close(&bench.get(operand), truth, tolerance, 1.0, "optimizer");
            }
        }
    }
}

#[test]
fn sgd_with_and_without_momentum_and_decay() {
    for (momentum, weight_decay) in [(0.0, 0.0), (0.9, 0.0), (0.9, 0.1), (0.0, 0.1)] {
        for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-13)] {
            let mut bench = Bench::new();
            let mut state = state(&mut bench, dtype, momentum != 0.0, false);
            let lr = 0.1;
            for step in 0..3 {
                let first_step = step == 0;
                bench.run(kernels::Optimizer::Sgd {
                    updates: &state.updates,
                    lr,
                    momentum,
                    weight_decay,
                    first_step,
                    scaling: None,
                    passes: UpdatePasses::Several,
                });
                for ([p, buffer, _], g) in state.truth.iter_mut().zip(&state.gradients) {
                    for i in 0..p.len() {
                        let g = g[i] + weight_decay * p[i];
                        buffer[i] = if first_step { g } else { momentum * buffer[i] + g };
                        p[i] -= lr * buffer[i];
                    }
                }
            }
            compare(&mut bench, &state, tolerance);
        }
    }
}

#[test]
fn adam_and_adamw_correct_the_bias_of_both_moments() {
    for decoupled in [false, true] {
        for weight_decay in [0.0, 0.1] {
            // The usual epsilon is negligible beside the root; a large one shows where it is added.
            for eps in [1e-8, 0.3] {
                adam_is_its_formula(decoupled, weight_decay, eps);
            }
        }
    }
}

fn adam_is_its_formula(decoupled: bool, weight_decay: f64, eps: f64) {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-12)] {
        let mut bench = Bench::new();
        let mut state = state(&mut bench, dtype, true, true);
        let (lr, beta1, beta2) = (0.01, 0.9, 0.999);
        for step in 1..=4 {
            let parameters = AdamParameters { lr, beta1, beta2, eps, weight_decay, decoupled, step };
            bench.run(kernels::Optimizer::Adam {
                updates: &state.updates,
                parameters,
                scaling: None,
                passes: UpdatePasses::Several,
            });
            for ([p, m, v], g) in state.truth.iter_mut().zip(&state.gradients) {
                for i in 0..p.len() {
                    let mut g = g[i];
                    if decoupled {
                        p[i] *= 1.0 - lr * weight_decay;
                    } else {
                        g += weight_decay * p[i];
                    }
                    m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                    v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
                    let first = m[i] / (1.0 - beta1.powi(step as i32));
                    let root = v[i].sqrt() / (1.0 - beta2.powi(step as i32)).sqrt();
                    p[i] -= lr * first / (root + eps);
                }
            }
        }
        compare(&mut bench, &state, tolerance);
    }
}

#[test]
fn a_flag_that_is_set_skips_the_whole_step() {
    let mut bench = Bench::new();
    let state = state(&mut bench, DType::F32, true, true);
    let clear = bench.put(DType::F32, &[0.0]);
    let set = bench.put(DType::F32, &[1.0]);
    let parameters =
        AdamParameters { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, decoupled: true, step: 1 };
    let scale = bench.put(DType::F32, &[1.0]);
    let scaling = |found_inf: Operand| Some(GradScaling { scale, found_inf });
    let all = |bench: &mut Bench| -> Vec<Vec<u8>> {
        let operands = state.updates.iter().flat_map(|u| [Some(u.parameter), u.first, u.second]).flatten();
        operands.collect::<Vec<_>>().into_iter().map(|x| bench.bytes(x)).collect()
    };
    let sgd = |found_inf: Operand| kernels::Optimizer::Sgd {
        updates: &state.updates,
        lr: 0.1,
        momentum: 0.9,
        weight_decay: 0.1,
        first_step: true,
        scaling: scaling(found_inf),
        passes: UpdatePasses::Several,
    };
    let before = all(&mut bench);
    bench.run(kernels::Optimizer::Adam {
        updates: &state.updates,
        parameters,
        scaling: scaling(set),
        passes: UpdatePasses::Several,
    });
    bench.run(sgd(set));
    assert_eq!(all(&mut bench), before);
    bench.run(kernels::Optimizer::Adam {
        updates: &state.updates,
        parameters,
        scaling: scaling(clear),
        passes: UpdatePasses::Several,
    });
    let after_adam = all(&mut bench);
    assert_ne!(after_adam, before);
    bench.run(sgd(clear));
    assert_ne!(all(&mut bench), after_adam);
}

#[test]
fn a_scale_divides_the_gradients_before_the_step() {
    let run = |scale: Option<f64>| {
        let mut bench = Bench::new();
        let mut state = state(&mut bench, DType::F32, true, true);
        let factor = scale.unwrap_or(1.0);
        for (update, gradient) in state.updates.iter_mut().zip(&state.gradients) {
            let scaled: Vec<f64> = gradient.iter().map(|g| g * factor).collect();
            update.gradient = bench.put(DType::F32, &scaled);
        }
        let scaling = scale.map(|scale| GradScaling {
            scale: bench.put(DType::F32, &[scale]),
            found_inf: bench.put(DType::F32, &[0.0]),
        });
        let parameters = AdamParameters {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.1,
            decoupled: false,
            step: 1,
        };
        bench.run(kernels::Optimizer::Adam {
            updates: &state.updates,
            parameters,
            scaling,
            passes: UpdatePasses::Several,
        });
        let operands: Vec<Operand> = state
            .updates
            .iter()
            .flat_map(|u| [Some(u.parameter), Some(u.gradient), u.first, u.second])
            .flatten()
            .collect();
        operands.into_iter().map(|operand| bench.bytes(operand)).collect::<Vec<_>>()
    };
    assert_eq!(run(Some(1024.0)), run(None));
}

#[test]
fn adam_without_moments_and_tensors_of_other_lengths_are_refused() {
    let mut bench = Bench::new();
    let mut state = state(&mut bench, DType::F32, false, false);
    let parameters =
        AdamParameters { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false, step: 1 };
    assert!(
        bench
            .try_run(kernels::Optimizer::Adam {
                updates: &state.updates,
                parameters,
                scaling: None,
                passes: UpdatePasses::Several
            })
            .is_err()
    );
    state.updates[1].gradient.len -= 1;
    let sgd = kernels::Optimizer::Sgd {
        updates: &state.updates,
        lr: 0.1,
        momentum: 0.0,
        weight_decay: 0.0,
        first_step: true,
        scaling: None,
        passes: UpdatePasses::Several,
    };
    assert!(bench.try_run(sgd).is_err());
}

#[test]
fn unscaling_multiplies_and_finds_what_is_not_finite() {
    for poison in [None, Some(f64::INFINITY), Some(f64::NAN)] {
        let mut bench = Bench::new();
        let mut truth = Vec::new();
        let gradients: Vec<Operand> = (0..3)
            .map(|i| {
                let mut values = random(20_001, i);
                if let (1, Some(poison)) = (i, poison) {
                    values[17_777] = poison;
                }
                let operand = bench.put(DType::F32, &values);
                truth.push(bench.get(operand));
                operand
            })
            .collect();
        let scale = bench.put(DType::F32, &[65536.0]);
        let (inverse_scale, found_inf) = (bench.empty(DType::F32, 1), bench.put(DType::F32, &[0.0]));
        bench.run(kernels::Optimizer::Reciprocal { src: scale, dst: inverse_scale });
        assert_eq!(bench.get(inverse_scale), [1.0 / 65536.0]);
        bench.run(kernels::Optimizer::Unscale { gradients: &gradients, inverse_scale, found_inf });
        assert_eq!(bench.get(found_inf), [if poison.is_some() { 1.0 } else { 0.0 }]);
        for (gradient, truth) in gradients.iter().zip(&truth) {
            let got = bench.get(*gradient);
            let same = |(x, y): (&f64, &f64)| *x == y / 65536.0 || (x.is_nan() && y.is_nan());
            assert!(got.iter().zip(truth).all(same));
        }
    }
}

#[test]
fn the_scale_backs_off_at_once_and_grows_after_an_interval() {
    let mut bench = Bench::new();
    let scale = bench.put(DType::F32, &[65536.0]);
    let tracker = bench.put(DType::I32, &[0.0]);
    let (clear, set) = (bench.put(DType::F32, &[0.0]), bench.put(DType::F32, &[1.0]));
    let mut update = |found_inf, scale, tracker| {
        bench.run(kernels::Optimizer::UpdateScale {
            scale,
            tracker,
            found_inf,
            growth: 2.0,
            backoff: 0.5,
            interval: 3,
        });
        (bench.get(scale)[0], bench.get(tracker)[0])
    };
    assert_eq!(update(clear, scale, tracker), (65536.0, 1.0));
    assert_eq!(update(set, scale, tracker), (32768.0, 0.0));
    assert_eq!(update(clear, scale, tracker), (32768.0, 1.0));
    assert_eq!(update(clear, scale, tracker), (32768.0, 2.0));
    assert_eq!(update(clear, scale, tracker), (65536.0, 0.0));
    let mut bench = Bench::new();
    let huge = bench.put(DType::F32, &[3e38]);
    let tracker = bench.put(DType::I32, &[0.0]);
    let found_inf = bench.put(DType::F32, &[0.0]);
    bench.run(kernels::Optimizer::UpdateScale {
        scale: huge,
        tracker,
        found_inf,
        growth: 2.0,
        backoff: 0.5,
        interval: 1,
    });
    assert_eq!(bench.get(huge), [f64::from(3e38_f32)], "a scale that would overflow stays");
    assert_eq!(bench.get(tracker), [0.0]);
}

/// The results of bitsandbytes after a step; f32 values are stored as bits.
#[derive(Deserialize)]
struct Theirs {
    p: Vec<u32>,
    #[serde(default)]
    s1: Vec<u8>,
    #[serde(default)]
    s2: Vec<u8>,
    #[serde(default)]
    a1: Vec<u32>,
    #[serde(default)]
    a2: Vec<u32>,
    /// A moment in f32.
    #[serde(default)]
    m: Vec<u32>,
}

/// Recorded steps: by type and length, then by their number.
fn recorded(name: &str) -> BTreeMap<String, BTreeMap<u64, Theirs>> {
    let path = format!("{}/tests/data/optimizers/{name}.json.xz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    lzma_rust2::XzReader::new(std::fs::File::open(path).unwrap(), false).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

// Multiples of a thousandth, so that both sides have the same bits.
fn exact(k: usize) -> f32 {
    ((k % 2001) as f32 - 1000.0) / 1000.0
}

fn weights(len: usize) -> Vec<f64> {
    (0..len).map(|i| f64::from(exact(i * 31))).collect()
}

fn gradients(len: usize, step: u64) -> Vec<f64> {
    let sizes = [1.0, 0.1, 0.01, 0.001_f32];
    let before = usize::try_from(step - 1).unwrap() * 104_729;
    (0..len).map(|i| f64::from(exact(i * 7919 + before) * sizes[i % 4])).collect()
}

fn byte_moment(bench: &mut Bench, len: usize, signed: bool) -> ByteMoment {
    let codes: Vec<f64> = dynamic_map(signed).into_iter().map(f64::from).collect();
    ByteMoment {
        bytes: bench.put(DType::U8, &vec![0.0; len]),
        codes: bench.put(DType::F32, &codes),
        absmax: bench.put(DType::F32, &vec![0.0; len.div_ceil(256)]),
    }
}

fn floats(bits: &[u32]) -> Vec<f64> {
    bits.iter().map(|bits| f64::from(f32::from_bits(*bits))).collect()
}

/// Six steps of `AdamW8bit` of bitsandbytes 0.50.2 on an H200, of weights in f32 and in bf16, in bytes and (small ones) in f32.
#[test]
fn moments_in_8_bits_are_those_of_bitsandbytes() {
    let all = recorded("adamw8bit");
    for (dtype, name) in [(DType::F32, "float32"), (DType::Bf16, "bfloat16")] {
        for len in [5000_usize, 1000] {
            let theirs = &all[&format!("{name}.{len}")];
            let mut bench = Bench::new();
            let parameter = bench.put(dtype, &weights(len));
            let in_bytes = len >= 4096;
            let bytes = [true, false].map(|signed| byte_moment(&mut bench, len, signed));
            let wide = [0; 2].map(|_| bench.put(DType::F32, &vec![0.0; len]));
            let moments = if in_bytes { KeptMoments::Bytes(bytes) } else { KeptMoments::Wide(wide) };
            for step in 1..=6_u64 {
                let gradient = bench.put(dtype, &gradients(len, step));
                let rule = AdamParameters {
                    lr: 1e-2,
                    beta1: 0.9,
                    beta2: 0.95,
                    eps: 1e-8,
                    weight_decay: 0.1,
                    decoupled: true,
                    step,
                };
                bench.run(kernels::Blockwise::AdamOfBytes { parameter, gradient, moments, rule });
                let Some(theirs) = theirs.get(&step) else { continue };
                let what = format!("{name}, {len} elements, step {step}");
                let limit = if dtype == DType::F32 { 2e-7 } else { 0.0 };
                for (ours, theirs) in bench.get(parameter).into_iter().zip(floats(&theirs.p)) {
                    assert!((ours - theirs).abs() <= limit, "{what}: {ours} for {theirs}");
                }
                if !in_bytes {
                    continue;
                }
                for (moment, bytes, absmax) in [(bytes[0], &theirs.s1, &theirs.a1), (bytes[1], &theirs.s2, &theirs.a2)]
                {
                    let ours = bench.bytes(moment.bytes);
                    let others = ours.iter().zip(bytes).filter(|(ours, theirs)| ours != theirs).count();
                    // Gradients in bf16 put some values half-way between two codes.
                    assert!(others <= if dtype == DType::F32 { 0 } else { 3 }, "{what}: {others} other bytes");
                    assert!(ours.iter().zip(bytes).all(|(ours, theirs)| ours.abs_diff(*theirs) <= 1), "{what}");
                    assert_close(&bench.get(moment.absmax), &floats(absmax), 5e-7, 1.0, &what);
                }
            }
        }
    }
}

/// Six steps of `Lion` of bitsandbytes 0.50.2 on an H200, with decay: in bytes, and of small parameters in f32.
#[test]
fn lion_is_that_of_bitsandbytes() {
    let all = recorded("lion");
    for (dtype, name) in [(DType::F32, "float32"), (DType::Bf16, "bfloat16")] {
        for len in [5000_usize, 1000] {
            let theirs = &all[&format!("{name}.{len}")];
            let mut bench = Bench::new();
            let parameter = bench.put(dtype, &weights(len));
            let bytes = byte_moment(&mut bench, len, true);
            let wide = bench.put(DType::F32, &vec![0.0; len]);
            let mut parted: Vec<usize> = Vec::new();
            let moment = if len >= 4096 { KeptMoment::Bytes(bytes) } else { KeptMoment::Wide(wide) };
            for step in 1..=6_u64 {
                let gradient = bench.put(dtype, &gradients(len, step));
                let rule = LionParameters { lr: 1e-2, beta1: 0.9, beta2: 0.99, weight_decay: 0.1 };
                bench.run(kernels::Blockwise::Lion { parameter, gradient, moment, rule });
                let Some(theirs) = theirs.get(&step) else { continue };
                let what = format!("{name}, {len} elements, step {step}");
                let limit = if dtype == DType::F32 { 2e-7 } else { 0.0 };
                if let KeptMoment::Bytes(moment) = moment {
                    for (place, (ours, theirs)) in bench.bytes(moment.bytes).into_iter().zip(&theirs.s1).enumerate() {
                        if ours != *theirs && !parted.contains(&place) {
                            assert!(ours.abs_diff(*theirs) == 1, "{what}: byte {place} is {ours} for {theirs}");
                            parted.push(place);
                        }
                    }
                }
                // Gradients in bf16 put some values half-way between two codes: from there on they differ.
                assert!(parted.len() <= if dtype == DType::F32 { 0 } else { 2 }, "{what}: {parted:?}");
                for (place, (ours, theirs)) in bench.get(parameter).into_iter().zip(floats(&theirs.p)).enumerate() {
                    let same = (ours - theirs).abs() <= limit || parted.contains(&place);
                    assert!(same, "{what}: weight {place} is {ours} for {theirs}");
                }
                match moment {
                    KeptMoment::Bytes(moment) => {
                        assert_close(&bench.get(moment.absmax), &floats(&theirs.a1), 5e-7, 1.0, &what);
                    }
                    KeptMoment::Wide(moment) => {
                        assert_close(&bench.get(moment), &floats(&theirs.m), 5e-7, 1.0, &what);
                    }
                }
            }
        }
    }
}
