//! 8-bit floats compared with PyTorch's, bit for bit, and products of them compared with the formula.

use serde_json::Value;
use vramlab::device::{DType, Operand, ScaleGroups, from_e4m3, from_e5m2, kernels, to_e4m3, to_e5m2};

use super::harness::{Bench, matrix, random, transposed};

/// The results of PyTorch's processor and of torchao.
fn recorded() -> Value {
    serde_json::from_str(include_str!("../../data/float8/values.json")).unwrap()
}

fn numbers(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|number| u32::try_from(number.as_u64().unwrap()).unwrap()).collect()
}

fn bytes(list: &Value) -> Vec<u8> {
    numbers(list).into_iter().map(|number| u8::try_from(number).unwrap()).collect()
}

/// Every byte has the same value as in PyTorch.
#[test]
fn bytes_mean_what_they_do_in_pytorch() {
    let recorded = recorded();
    for (name, value) in [("e4m3", from_e4m3 as fn(u8) -> f32), ("e5m2", from_e5m2)] {
        let theirs = recorded[name].as_array().unwrap();
        assert_eq!(theirs.len(), 256);
        for (byte, theirs) in (0..=u8::MAX).zip(theirs) {
            let ours = value(byte);
            match theirs {
                Value::Null => assert!(ours.is_nan(), "{name} {byte}"),
                Value::String(word) => assert_eq!(ours, word.parse::<f32>().unwrap(), "{name} {byte}"),
                number => {
                    assert_eq!(f64::from(ours), number.as_f64().unwrap(), "{name} {byte}");
                    assert_eq!(ours.is_sign_negative(), byte > 127, "{name} {byte}: zeros have signs");
                }
            }
        }
    }
}

/// Values around the middle between any two neighbours, beyond the largest, and random ones are rounded as `Tensor.to`
/// rounds them, also on the processor device.
#[test]
fn casts_round_as_pytorchs_do() {
    let casts = &recorded()["casts"];
    let values: Vec<f32> = numbers(&casts["bits"]).into_iter().map(f32::from_bits).collect();
    let wide: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
    for (name, dtype, cast) in [("e4m3", DType::E4M3, to_e4m3 as fn(f32) -> u8), ("e5m2", DType::E5M2, to_e5m2)] {
        let theirs = bytes(&casts[name]);
        assert_eq!(values.iter().map(|&x| cast(x)).collect::<Vec<_>>(), theirs, "{name}");
        let mut bench = Bench::new();
        let (src, dst) = (bench.put(DType::F32, &wide), bench.empty(dtype, wide.len()));
        bench.run(kernels::Elementwise::Cast { src, dst });
        assert_eq!(bench.bytes(dst), theirs, "{name} by the kernel");
    }
}

fn named(word: &Value) -> DType {
    match word.as_str().unwrap() {
        "bfloat16" => DType::Bf16,
        "float16" => DType::F16,
        "float32" => DType::F32,
        "float8_e4m3fn" => DType::E4M3,
        "float8_e5m2" => DType::E5M2,
        other => panic!("no type {other}"),
    }
}

/// Scales and bytes of `hp_tensor_to_float8_dynamic`, one scale for each of `groups`.
fn is_scaled_alike(set: &Value, cols: usize, groups: ScaleGroups, scales: &[u32]) {
    let (dtype, to) = (named(&set["dtype"]), named(&set["to"]));
    let values: Vec<f64> = set["values"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    let mut bench = Bench::new();
    let (src, count) = (bench.put(dtype, &values), groups.count(values.len(), cols));
    let (amax, scale, dst) = (bench.empty(dtype, count), bench.empty(DType::F32, count), bench.empty(to, values.len()));
    let (most, power) = (f64::from(to.float8_max().unwrap()), groups != ScaleGroups::All);
    bench.run(kernels::Float8::AbsMax { src, dst: amax, cols, groups, copied: false });
    bench.run(kernels::Float8::Scale { amax, dst: scale, most, power });
    bench.run(kernels::Float8::Quantize { src, scale, dst, cols, groups });
    let theirs: Vec<f64> = scales.iter().map(|&bits| f64::from(f32::from_bits(bits))).collect();
    assert_eq!(bench.get(scale), theirs, "{dtype:?} to {to:?}, {groups:?}");
    assert_eq!(bench.bytes(dst), bytes(&set["bytes"]), "{dtype:?} to {to:?}, {groups:?}");
}

#[test]
fn tensors_are_scaled_as_torchao_scales_them() {
    let recorded = recorded();
    for set in recorded["scaled"].as_array().unwrap() {
        let scale = u32::try_from(set["scale"].as_u64().unwrap()).unwrap();
        is_scaled_alike(set, set["values"].as_array().unwrap().len(), ScaleGroups::All, &[scale]);
    }
    for set in recorded["by_rows"].as_array().unwrap() {
        let groups = if set["columns"] == true { ScaleGroups::Columns } else { ScaleGroups::Rows };
        is_scaled_alike(set, 8, groups, &numbers(&set["scale"]));
    }
}

#[test]
fn the_largest_magnitude_is_found_wherever_it_lies() {
    for n in [1, 3, 511, 513, 16_385, 40_001] {
        for at in [0, n / 2, n - 1] {
            for dtype in [DType::F32, DType::F16, DType::Bf16] {
                let mut bench = Bench::new();
                let mut values = random(n, 5);
                values[at] = -1.5;
                let (src, dst) = (bench.put(dtype, &values), bench.empty(dtype, 1));
                bench.run(kernels::Float8::AbsMax { src, dst, cols: n, groups: ScaleGroups::All, copied: true });
                assert_eq!(bench.get(dst), [1.5], "{dtype:?}, {at} of {n}");
                values[at] = f64::NAN;
                let src = bench.put(dtype, &values);
                bench.run(kernels::Float8::AbsMax { src, dst, cols: n, groups: ScaleGroups::All, copied: true });
                assert!(bench.get(dst)[0].is_nan(), "{dtype:?}, {at} of {n}");
            }
        }
    }
}

/// Both layouts of each factor, both types of the left one.
#[test]
fn products_are_those_of_the_values_without_their_scales() {
    let [m, n, k] = [48, 32, 80];
    for (of_a, of_c) in [(DType::E4M3, DType::Bf16), (DType::E5M2, DType::F32), (DType::E5M2, DType::F16)] {
        let mut bench = Bench::new();
        let (a, left) = bench.random(of_a, m * k, 1);
        let (b, right) = bench.random(DType::E4M3, n * k, 2);
        let c = bench.empty(of_c, m * n);
        let inverse: [Operand; 2] = [0.25, 3.0].map(|factor| bench.put(DType::F32, &[factor]));
        let (a, b, c_view) = (matrix(a, k), transposed(matrix(b, k)), matrix(c, n));
        bench.run(kernels::Float8::Gemm { m, n, k, a, b, c: c_view, inverse, fast: false });
        let sum = |row: usize, col: usize| -> f64 { (0..k).map(|t| left[row * k + t] * right[col * k + t]).sum() };
        for (i, ours) in bench.get(c).into_iter().enumerate() {
            let theirs = 0.75 * sum(i / n, i % n);
            assert!((ours - theirs).abs() < 5e-3 * theirs.abs().max(1.0), "{of_a:?} {of_c:?}: {ours} for {theirs}");
        }
        // One for each row, and one for each column.
        let power = |i: usize| 2.0_f64.powi(i32::try_from(i % 5).unwrap() - 2);
        let inverse = [m, n].map(|len| bench.put(DType::F32, &(0..len).map(power).collect::<Vec<_>>()));
        bench.run(kernels::Float8::Gemm { m, n, k, a, b, c: c_view, inverse, fast: true });
        for (i, ours) in bench.get(c).into_iter().enumerate() {
            let factor = power(i / n) * power(i % n);
            let theirs = factor * sum(i / n, i % n);
            assert!((ours - theirs).abs() < 5e-3 * theirs.abs().max(factor), "{of_a:?} {of_c:?}: {ours} for {theirs}");
        }
    }
}
