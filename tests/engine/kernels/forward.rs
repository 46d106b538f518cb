//! Every kernel against the formula in its documentation, written naively in f64 on the values as stored.

use vramlab::device::{AttentionShape, DType, Device, Earlier, FusedAttention, HeadView, Operand, kernels};
use vramlab::units::{Address, Bytes, StreamId};

use super::harness::{Bench, FLOATS, assert_close, heads, matrix, random, tolerance, transposed};

/// Sizes around the chunks and tasks into which kernels divide their work.
const SIZES: [usize; 7] = [0, 1, 3, 511, 513, 4097, 40_001];

fn gelu(x: f64, tanh: bool) -> f64 {
    if tanh {
        0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
    } else {
        0.5 * x * (1.0 + libm::erf(x / 2.0_f64.sqrt()))
    }
}

fn gelu_slope(x: f64, tanh: bool) -> f64 {
    let h = 1e-6;
    (gelu(x + h, tanh) - gelu(x - h, tanh)) / (2.0 * h)
}

#[test]
fn fill_writes_every_element_of_every_type_and_nothing_else() {
    let mut bench = Bench::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::I64, DType::I32, DType::U8] {
        for n in SIZES {
            let around = bench.put(dtype, &vec![1.0; n + 2]);
            let dst = Operand { address: around.address.offset(dtype.bytes(1)), dtype, len: n };
            bench.run(kernels::Elementwise::Fill { dst, value: 3.0 });
            let mut truth = vec![3.0; n + 2];
            (truth[0], truth[n + 1]) = (1.0, 1.0);
            assert_eq!(bench.get(around), truth, "{dtype:?} {n}");
        }
        bench = Bench::new();
    }
}

#[test]
fn arange_counts_in_every_type_that_can() {
    for dtype in [DType::I64, DType::I32, DType::F32, DType::F64] {
        let mut bench = Bench::new();
        let dst = bench.empty(dtype, 40_001);
        bench.run(kernels::Elementwise::Arange { dst });
        assert_eq!(bench.get(dst), (0..40_001).map(f64::from).collect::<Vec<_>>());
    }
}

#[test]
fn casts_round_to_nearest_even_between_all_types() {
    for from in FLOATS {
        for to in FLOATS {
            let mut bench = Bench::new();
            let (src, values) = bench.random(from, 4097, 1);
            let dst = bench.empty(to, 4097);
            bench.run(kernels::Elementwise::Cast { src, dst });
            let truth = bench.put(to, &values);
            assert_eq!(bench.bytes(dst), bench.bytes(truth), "{from:?} to {to:?}");
        }
    }
    let mut bench = Bench::new();
    let halfway = [1.0 + 2.0_f64.powi(-8), 1.0 + 3.0 * 2.0_f64.powi(-8), 65520.0, 1e-8, -0.0];
    let src = bench.put(DType::F32, &halfway);
    let (brain, half) = (bench.empty(DType::Bf16, 5), bench.empty(DType::F16, 5));
    bench.run(kernels::Elementwise::Cast { src, dst: brain });
    bench.run(kernels::Elementwise::Cast { src, dst: half });
    assert_eq!(bench.get(brain)[..2], [1.0, 1.0 + 2.0_f64.powi(-6)]);
    assert_eq!(bench.get(half)[2..4], [f64::INFINITY, 0.0]);
    let counts = bench.put(DType::I64, &[16_777_217.0, -3.0]);
    let wide = bench.empty(DType::F64, 2);
    bench.run(kernels::Elementwise::Cast { src: counts, dst: wide });
    assert_eq!(bench.get(wide), [16_777_217.0, -3.0]);
}

#[test]
fn unary_kernels_follow_their_formulas() {
    for dtype in FLOATS {
        for n in SIZES {
            let mut bench = Bench::new();
            let values: Vec<f64> = random(n, 7).iter().map(|x| x * 6.0).collect();
            let src = bench.put(dtype, &values);
            let values = bench.get(src);
            let mut check =
                |kernel: &dyn Fn(Operand) -> kernels::Elementwise, truth: &dyn Fn(f64) -> f64, what: &str| {
                    let dst = bench.empty(dtype, n);
                    bench.run(kernel(dst));
                    let truth: Vec<f64> = values.iter().map(|&x| truth(x)).collect();
                    assert_close(&bench.get(dst), &truth, tolerance(dtype), 1.0, &format!("{what} {dtype:?} {n}"));
                };
            check(&|dst| kernels::Elementwise::Scale { src, dst, factor: -0.37 }, &|x| -0.37 * x, "scale");
            check(&|dst| kernels::Elementwise::Relu { src, dst }, &|x| x.max(0.0), "relu");
            check(&|dst| kernels::Elementwise::Gelu { src, dst, tanh: true }, &|x| gelu(x, true), "gelu tanh");
            check(&|dst| kernels::Elementwise::Gelu { src, dst, tanh: false }, &|x| gelu(x, false), "gelu erf");
        }
    }
}

#[test]
fn binary_kernels_follow_their_formulas_and_broadcast() {
    for (left, right, result) in [
        (DType::F32, DType::F32, DType::F32),
        (DType::F32, DType::Bf16, DType::F32),
        (DType::F16, DType::F16, DType::F16),
        (DType::Bf16, DType::F32, DType::Bf16),
        (DType::F64, DType::F64, DType::F64),
    ] {
        for (n, m) in [(4097, 4097), (40_000, 1), (40_000, 32), (1200, 600), (7, 3), (0, 1)] {
            let mut bench = Bench::new();
            let ((a, x), (b, y)) = (bench.random(left, n, 1), bench.random(right, m, 2));
            let dst = bench.empty(result, n);
            let truth = |f: &dyn Fn(f64, f64) -> f64| (0..n).map(|i| f(x[i], y[i % m])).collect::<Vec<_>>();
            bench.run(kernels::Elementwise::Add { a, b, dst });
            assert_close(&bench.get(dst), &truth(&|x, y| x + y), tolerance(result), 1.0, "add");
            bench.run(kernels::Elementwise::Mul { a, b, dst });
            assert_close(&bench.get(dst), &truth(&|x, y| x * y), tolerance(result), 1.0, "mul");
            bench.run(kernels::Elementwise::Sub { a, b, dst });
            assert_close(&bench.get(dst), &truth(&|x, y| x - y), tolerance(result), 1.0, "sub");
            bench.run(kernels::Elementwise::Div { a, b, dst });
            assert_close(&bench.get(dst), &truth(&|x, y| x / y), tolerance(result), 1.0, "div");
            if n == m {
                bench.run(kernels::Elementwise::ReluBackward { output: a, grad: b, dst });
                let relu = truth(&|x, y| if x > 0.0 { y } else { 0.0 });
                assert_close(&bench.get(dst), &relu, tolerance(result), 1.0, "relu backward");
                for tanh in [true, false] {
                    bench.run(kernels::Elementwise::GeluBackward { src: a, grad: b, dst, tanh });
                    let slope = truth(&|x, y| y * gelu_slope(x, tanh));
                    let tolerance = tolerance(result).max(1e-8);
                    assert_close(&bench.get(dst), &slope, tolerance, 2.0, "gelu backward");
                }
            }
        }
    }
}

#[test]
fn identities_and_norms_of_rows_follow_their_formulas() {
    for (from, to) in [(DType::F32, DType::F32), (DType::Bf16, DType::Bf16), (DType::Bf16, DType::F32)] {
        for (rows, cols) in [(1, 1), (3, 7), (7, 3), (700, 700), (5, 4097), (1500, 2)] {
            let mut bench = Bench::new();
            let dst = bench.empty(from, rows * cols);
            bench.run(kernels::Elementwise::Identity { dst, cols });
            let diagonal: Vec<f64> = (0..rows * cols).map(|i| f64::from(i / cols == i % cols)).collect();
            assert_eq!(bench.get(dst), diagonal, "{rows} × {cols}");
            let (src, x) = bench.random(from, rows * cols, 1);
            let dst = bench.empty(to, rows);
            bench.run(kernels::RmsNorm::RowNorm { src, dst, cols });
            let norms: Vec<f64> = x.chunks(cols).map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt()).collect();
            assert_close(&bench.get(dst), &norms, tolerance(to), 1.0, "row norm");
        }
    }
}

#[test]
fn results_may_take_the_place_of_operands() {
    for dtype in FLOATS {
        let mut bench = Bench::new();
        let (a, x) = bench.random(dtype, 40_001, 1);
        let (b, y) = bench.random(dtype, 40_001, 2);
        bench.run(kernels::Elementwise::Add { a, b, dst: a });
        bench.run(kernels::Elementwise::Scale { src: a, dst: a, factor: 0.5 });
        bench.run(kernels::Elementwise::Relu { src: a, dst: a });
        bench.run(kernels::Elementwise::Mul { a, b, dst: b });
        let sum: Vec<f64> = x.iter().zip(&y).map(|(x, y)| (0.5 * (x + y)).max(0.0)).collect();
        assert_close(&bench.get(a), &sum, tolerance(dtype), 1.0, "add, scale, relu");
        let stored = bench.get(a);
        let product: Vec<f64> = stored.iter().zip(&y).map(|(x, y)| x * y).collect();
        assert_close(&bench.get(b), &product, tolerance(dtype), 1.0, "mul into the second operand");
        let (rows, values) = bench.random(dtype, 3 * 1001, 3);
        let apart = bench.put(dtype, &values);
        let dst = bench.empty(dtype, 3 * 1001);
        bench.run(kernels::Softmax::Forward { src: apart, dst, cols: 1001 });
        bench.run(kernels::Softmax::Forward { src: rows, dst: rows, cols: 1001 });
        assert_eq!(bench.bytes(rows), bench.bytes(dst));
        bench.run(kernels::Softmax::Backward { output: dst, grad: apart, dst: apart, cols: 1001 });
    }
}

#[test]
fn operands_that_half_overlap_are_refused() {
    let mut bench = Bench::new();
    let src = bench.put(DType::F32, &random(100, 1));
    let dst = Operand { address: src.address.offset(Bytes(4)), len: 99, ..src };
    let shorter = Operand { len: 99, ..src };
    let error = bench.try_run(kernels::Elementwise::Relu { src: shorter, dst }).unwrap_err().to_string();
    assert!(error.contains("relu") && error.contains("shares memory"), "{error}");
    let narrower = Operand { dtype: DType::Bf16, ..src };
    assert!(bench.try_run(kernels::Elementwise::Cast { src, dst: narrower }).is_err());
    let view = matrix(Operand { len: 100, ..src }, 10);
    let product =
        kernels::Gemm { m: 10, n: 10, k: 10, batch: 1, a: view, b: view, c: view, bias: None, alpha: 1.0, beta: 0.0 };
    assert!(bench.try_run(product).is_err());
}

#[test]
fn wild_operands_are_refused() {
    let mut bench = Bench::new();
    let end = bench.segment.offset(bench.size);
    let at = |address, len| Operand { address, dtype: DType::F32, len };
    let refused =
        |bench: &mut Bench, dst| bench.try_run(kernels::Elementwise::Fill { dst, value: 1.0 }).unwrap_err().to_string();
    let behind = at(Address(end.0 - 4), 2);
    assert!(refused(&mut bench, behind).contains("outside"));
    assert!(refused(&mut bench, at(Address(0), 1)).contains("outside"));
    let start = bench.segment;
    assert!(refused(&mut bench, at(start, usize::MAX)).contains("too large"));
    assert!(refused(&mut bench, at(start.offset(Bytes(1)), 1)).contains("aligned"));
    assert!(bench.try_run(kernels::Elementwise::Fill { dst: at(Address(end.0 - 4), 1), value: 1.0 }).is_ok());
    assert!(bench.device.copy_pageable(&[0; 8], Address(end.0 - 4), StreamId::DEFAULT).is_err());
    let size = bench.size;
    bench.source.free(start, size);
    assert!(refused(&mut bench, at(start, 1)).contains("outside"));
}

#[test]
fn strided_copies_transpose_split_and_join() {
    for dtype in [DType::F64, DType::F32, DType::Bf16, DType::U8] {
        let mut bench = Bench::new();
        let shape = [3, 5, 4, 7];
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|i| (i % 251) as f64).collect();
        let src = bench.put(dtype, &values);
        let dst = bench.put(dtype, &vec![0.0; 2 * n]);
        // (a, b, c, d) to (a, c, b, d), with every row in a wider one.
        let dst_strides = [5 * 4 * 14, 14, 5 * 14, 1];
        let src_strides = [140, 28, 7, 1];
        bench.run(kernels::Strided::Copy {
            src: src.address,
            dst: dst.address,
            dtype,
            shape,
            src_strides,
            dst_strides,
        });
        // And (a, b, c, d) reversed, which leaves no contiguous run.
        let mirror = bench.empty(dtype, n);
        let reversed = [1, 3, 15, 60];
        bench.run(kernels::Strided::Copy {
            src: src.address,
            dst: mirror.address,
            dtype,
            shape,
            src_strides,
            dst_strides: reversed,
        });
        let (wide, mirror) = (bench.get(dst), bench.get(mirror));
        let mut truth = vec![0.0; 2 * n];
        for (i, &x) in values.iter().enumerate() {
            let index = [i / 140, i / 28 % 5, i / 7 % 4, i % 7];
            let at = |strides: [usize; 4]| (0..4).map(|d| index[d] * strides[d]).sum::<usize>();
            truth[at(dst_strides)] = x;
            assert_eq!(mirror[at(reversed)], x);
        }
        assert_eq!(wide, truth);
        let overlapping = kernels::Strided::Copy {
            src: src.address,
            dst: dst.address,
            dtype,
            shape,
            src_strides,
            dst_strides: [0, 28, 7, 1],
        };
        assert!(bench.try_run(overlapping).is_err(), "a result whose elements share memory");
    }
}

#[test]
fn gemm_multiplies_every_layout_and_type() {
    let types = [
        [DType::F32; 3],
        [DType::F64; 3],
        [DType::F16; 3],
        [DType::Bf16; 3],
        [DType::Bf16, DType::Bf16, DType::F32],
        [DType::F32, DType::F16, DType::F32],
        [DType::F64, DType::F32, DType::F64],
    ];
    for [left, right, result] in types {
        for (m, n, k, batch) in
            [(1, 1, 1, 1), (7, 5, 3, 2), (65, 33, 129, 1), (3, 300, 70, 1), (4, 4, 0, 1), (1, 9, 40, 3)]
        {
            for layout in 0..8 {
                let mut bench = Bench::new();
                let ((a, x), (b, y)) = (bench.random(left, batch * m * k, 1), bench.random(right, batch * k * n, 2));
                let (c, z) = bench.random(result, batch * m * n, 3);
                let (bias, w) = bench.random(right, n, 4);
                let batched = |mut view: vramlab::device::MatrixView, stride| {
                    view.batch_stride = stride;
                    view
                };
                let view_a = if layout & 1 == 0 { matrix(a, k) } else { transposed(matrix(a, m)) };
                let view_b = if layout & 2 == 0 { matrix(b, n) } else { transposed(matrix(b, k)) };
                let view_c = if layout & 4 == 0 { matrix(c, n) } else { transposed(matrix(c, m)) };
                let (view_a, view_b) = (batched(view_a, m * k), batched(view_b, k * n));
                let view_c = batched(view_c, m * n);
                let (with_bias, alpha) = (layout % 3 == 1, 0.75);
                let beta = match layout {
                    4 => -1.5,
                    _ if layout % 3 == 2 => 1.0,
                    _ => 0.0_f32,
                };
                let mut truth = z.clone();
                for s in 0..batch {
                    for i in 0..m {
                        for (j, bias) in w.iter().enumerate() {
                            let dot: f64 = (0..k)
                                .map(|l| {
                                    let at_a = i * view_a.row_stride + l * view_a.col_stride;
                                    let at_b = l * view_b.row_stride + j * view_b.col_stride;
                                    x[s * m * k + at_a] * y[s * k * n + at_b]
                                })
                                .sum();
                            let at = s * m * n + i * view_c.row_stride + j * view_c.col_stride;
                            truth[at] =
                                f64::from(alpha) * dot + if with_bias { *bias } else { 0.0 } + f64::from(beta) * z[at];
                        }
                    }
                }
                bench.run(kernels::Gemm {
                    m,
                    n,
                    k,
                    batch,
                    a: view_a,
                    b: view_b,
                    c: view_c,
                    bias: with_bias.then_some(bias),
                    alpha,
                    beta,
                });
                let what = format!("{left:?} {right:?} {result:?} {m}x{n}x{k} layout {layout}");
                assert_close(&bench.get(c), &truth, tolerance(result), 4.0 + k as f64 / 8.0, &what);
            }
        }
    }
}

#[test]
fn column_sums_add_every_row() {
    for dtype in FLOATS {
        for (rows, cols) in [(1, 1), (0, 3), (65, 257), (1000, 3), (200, 600)] {
            let mut bench = Bench::new();
            let (src, x) = bench.random(dtype, rows * cols, 1);
            let dst = bench.empty(dtype, cols);
            bench.run(kernels::Sums::Columns { src, dst, rows, cols });
            let truth: Vec<f64> = (0..cols).map(|c| (0..rows).map(|r| x[r * cols + c]).sum()).collect();
            assert_close(&bench.get(dst), &truth, tolerance(dtype), 10.0, &format!("{dtype:?} {rows}x{cols}"));
        }
    }
}

#[test]
fn softmax_and_its_relatives_follow_their_formulas() {
    for dtype in FLOATS {
        for (rows, cols) in [(1, 1), (5, 7), (3, 1000), (70, 33), (0, 4)] {
            let mut bench = Bench::new();
            let values: Vec<f64> = random(rows * cols, 1).iter().map(|x| x * 20.0 + 50.0).collect();
            let src = bench.put(dtype, &values);
            let x = bench.get(src);
            let (grad, g) = bench.random(dtype, rows * cols, 2);
            let (p, logp, d) = (bench.empty(dtype, x.len()), bench.empty(dtype, x.len()), bench.empty(dtype, x.len()));
            bench.run(kernels::Softmax::Forward { src, dst: p, cols });
            bench.run(kernels::Softmax::Log { src, dst: logp, cols });
            let (mut soft, mut log) = (Vec::new(), Vec::new());
            for row in x.chunks(cols) {
                let max = row.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
                soft.extend(row.iter().map(|x| (x - max).exp() / sum));
                log.extend(row.iter().map(|x| x - max - sum.ln()));
            }
            assert_close(&bench.get(p), &soft, tolerance(dtype), 0.1, "softmax");
            assert_close(&bench.get(logp), &log, tolerance(dtype), 10.0, "log-softmax");
            let (soft, log) = (bench.get(p), bench.get(logp));
            let (mut dsoft, mut dlog) = (Vec::new(), Vec::new());
            for r in 0..rows {
                let row = r * cols..(r + 1) * cols;
                let dot: f64 = row.clone().map(|i| g[i] * soft[i]).sum();
                let sum: f64 = row.clone().map(|i| g[i]).sum();
                dsoft.extend(row.clone().map(|i| soft[i] * (g[i] - dot)));
                dlog.extend(row.map(|i| g[i] - log[i].exp() * sum));
            }
            bench.run(kernels::Softmax::Backward { output: p, grad, dst: d, cols });
            assert_close(&bench.get(d), &dsoft, tolerance(dtype), 1.0, "softmax backward");
            bench.run(kernels::Softmax::LogBackward { output: logp, grad, dst: d, cols });
            assert_close(&bench.get(d), &dlog, tolerance(dtype), 20.0, "log-softmax backward");
        }
    }
}

#[test]
fn softmax_of_one_class_that_dominates_does_not_overflow() {
    let mut bench = Bench::new();
    let src = bench.put(DType::F32, &[1e30, -1e30, 0.0, 1e30]);
    let dst = bench.empty(DType::F32, 4);
    bench.run(kernels::Softmax::Forward { src, dst, cols: 4 });
    assert_eq!(bench.get(dst), [0.5, 0.0, 0.0, 0.5]);
}

#[test]
fn layer_norm_uses_the_population_variance_with_eps_inside_the_root() {
    for dtype in FLOATS {
        for (rows, cols) in [(1, 1), (5, 7), (70, 33), (3, 1000)] {
            let mut bench = Bench::new();
            let values: Vec<f64> = random(rows * cols, 1).iter().map(|x| 3.0 * x + 2.0).collect();
            let src = bench.put(dtype, &values);
            let x = bench.get(src);
            let statistic = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let ((weight, w), (bias, b)) = (bench.random(dtype, cols, 2), bench.random(dtype, cols, 3));
            let (mean, rstd) = (bench.empty(statistic, rows), bench.empty(statistic, rows));
            let dst = bench.empty(dtype, rows * cols);
            let eps = 1e-5;
            bench.run(kernels::LayerNorm::Forward { src, weight, bias, dst, mean, rstd, cols, eps });
            let (mut y, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
            for row in x.chunks(cols) {
                let mean = row.iter().sum::<f64>() / cols as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / cols as f64;
                let rstd = 1.0 / (variance + f64::from(eps)).sqrt();
                y.extend(row.iter().zip(w.iter().zip(&b)).map(|(x, (w, b))| (x - mean) * rstd * w + b));
                means.push(mean);
                rstds.push(rstd);
            }
            assert_close(&bench.get(mean), &means, tolerance(statistic), 4.0, "mean");
            assert_close(&bench.get(rstd), &rstds, tolerance(statistic), 1.0, "rstd");
            assert_close(&bench.get(dst), &y, tolerance(dtype), 10.0, &format!("{dtype:?} {rows}x{cols}"));
        }
    }
}

#[test]
fn embedding_gathers_and_its_backward_sums_by_index() {
    for dtype in FLOATS {
        let (table, width, n) = (11, 37, 64);
        let mut bench = Bench::new();
        let (weight, w) = bench.random(dtype, table * width, 1);
        let at: Vec<f64> = random(n, 2).iter().map(|x| ((x + 1.0) / 2.0 * 9.0).floor()).collect();
        let indices = bench.put(DType::I64, &at);
        let dst = bench.empty(dtype, n * width);
        bench.run(kernels::Embedding::Forward { weight, indices, dst, width });
        let rows: Vec<f64> = at.iter().flat_map(|&i| w[i as usize * width..][..width].to_vec()).collect();
        assert_eq!(bench.get(dst), rows);
        let (grad, g) = bench.random(dtype, n * width, 3);
        let sums = bench.put(dtype, &vec![9.0; table * width]);
        bench.run(kernels::Embedding::Backward { grad, indices, dst: sums, width });
        let mut truth = vec![0.0; table * width];
        for (r, &i) in at.iter().enumerate() {
            (0..width).for_each(|c| truth[i as usize * width + c] += g[r * width + c]);
        }
        assert_close(&bench.get(sums), &truth, tolerance(dtype), 4.0, "embedding backward");
        let outside = bench.put(DType::I64, &[11.0]);
        let one = Operand { len: width, ..dst };
        let error =
            bench.try_run(kernels::Embedding::Forward { weight, indices: outside, dst: one, width }).unwrap_err();
        assert!(error.to_string().contains("index 11"), "{error}");
    }
}

#[test]
fn nll_loss_averages_over_the_rows_that_count() {
    for dtype in FLOATS {
        let (rows, cols) = (9, 5);
        let mut bench = Bench::new();
        let (logp, x) = bench.random(dtype, rows * cols, 1);
        let classes = [0.0, 4.0, 2.0, -100.0, 1.0, 1.0, 3.0, 0.0, 2.0];
        let targets = bench.put(DType::I64, &classes);
        let (loss, weight) = (bench.empty(dtype, 1), bench.empty(dtype, 1));
        bench.run(kernels::Loss::Nll { logp, targets, loss, total_weight: weight, cols });
        let counted = || classes.iter().enumerate().filter(|(_, c)| **c >= 0.0);
        let truth = -counted().map(|(r, &c)| x[r * cols + c as usize]).sum::<f64>() / 8.0;
        assert_close(&bench.get(loss), &[truth], tolerance(dtype), 1.0, "loss");
        assert_eq!(bench.get(weight), [8.0]);
        let grad = bench.put(dtype, &[3.0]);
        let dst = bench.put(dtype, &vec![7.0; rows * cols]);
        bench.run(kernels::Loss::NllBackward { grad, targets, total_weight: weight, dst, cols });
        let mut truth = vec![0.0; rows * cols];
        counted().for_each(|(r, &c)| truth[r * cols + c as usize] = -3.0 / 8.0);
        assert_eq!(bench.get(dst), truth);
        let outside = bench.put(DType::I64, &[5.0; 9]);
        let error = bench.try_run(kernels::Loss::Nll { logp, targets: outside, loss, total_weight: weight, cols });
        assert!(error.unwrap_err().to_string().contains("target 5"));
    }
}

#[test]
fn attention_weighs_values_by_the_softmax_of_scores() {
    for dtype in FLOATS {
        for (rows, size, causal, window, [count, group]) in [
            (1, 4, true, None, [3, 1]),
            (5, 8, false, None, [3, 1]),
            (64, 3, true, None, [3, 1]),
            (70, 16, true, None, [3, 1]),
            (131, 8, false, None, [3, 1]),
            (5, 8, false, None, [6, 3]),
            (70, 16, true, None, [4, 2]),
            (131, 8, true, Some(1), [3, 1]),
            (70, 16, true, Some(33), [4, 2]),
            (20, 8, true, Some(64), [3, 1]),
        ] {
            let (batch, shared) = (2, count / group);
            let mut bench = Bench::new();
            // q, k and v packed side by side as one projection leaves them: (batch, rows, heads of all three, size).
            let (width, all) = (count * size, (count + 2 * shared) * size);
            let first = [0, count, count + shared];
            let (packed, x) = bench.random(dtype, batch * rows * all, 1);
            let part = |n: usize| HeadView {
                address: packed.address.offset(dtype.bytes(first[n] * size)),
                dtype,
                batch_stride: rows * all,
                head_stride: size,
                row_stride: all,
            };
            let out = bench.empty(dtype, batch * rows * width);
            let joined = HeadView {
                address: out.address,
                dtype,
                batch_stride: rows * width,
                head_stride: size,
                row_stride: width,
            };
            let statistic = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let lse_stride = rows.next_multiple_of(32);
            let logsumexp = bench.put(statistic, &vec![0.0; batch * count * lse_stride]);
            let scale = 2.0 / (size as f32).sqrt();
            let shape = AttentionShape {
                batch,
                heads: count,
                group,
                rows,
                head_size: size,
                value_size: size,
                causal,
                earlier: window.map_or(Earlier::All, Earlier::Window),
                masked: false,
                scale,
                dropout: None,
            };
            let (q, k, v) = (part(0), part(1), part(2));
            bench.run(kernels::Attention::Forward {
                by: FusedAttention::Flash,
                shape,
                q,
                k,
                v,
                out: joined,
                logsumexp,
                lse_stride,
            });
            let at = |n: usize, b: usize, h: usize, i: usize| {
                let head = first[n] + if n == 0 { h } else { h / group };
                &x[(b * rows + i) * all + head * size..][..size]
            };
            let mut truth = vec![0.0; out.len];
            let mut sums = vec![0.0; logsumexp.len];
            for b in 0..batch {
                for h in 0..count {
                    for i in 0..rows {
                        let seen = if causal { i + 1 } else { rows };
                        let first = window.map_or(0, |window| seen.saturating_sub(window));
                        let dot = |j| at(0, b, h, i).iter().zip(at(1, b, h, j)).map(|(x, y)| x * y).sum::<f64>();
                        let scores: Vec<f64> = (first..seen).map(|j| f64::from(scale) * dot(j)).collect();
                        let sum: f64 = scores.iter().map(|s| s.exp()).sum();
                        sums[(b * count + h) * lse_stride + i] = sum.ln();
                        for (j, s) in (first..).zip(&scores) {
                            for (c, v) in at(2, b, h, j).iter().enumerate() {
                                truth[(b * rows + i) * width + h * size + c] += s.exp() / sum * v;
                            }
                        }
                    }
                }
            }
            let what = format!("{dtype:?} rows {rows} size {size} group {group}");
            assert_close(&bench.get(out), &truth, tolerance(dtype), 2.0, &what);
            assert_close(&bench.get(logsumexp), &sums, tolerance(statistic), 2.0, &what);
        }
    }
}

#[test]
fn attention_backward_in_sixteen_bits_agrees_with_f64() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let (batch, count, rows, size) = (2, 2, 70, 8);
        let n = batch * count * rows * size;
        let shape = AttentionShape {
            batch,
            heads: count,
            group: 1,
            rows,
            head_size: size,
            value_size: size,
            causal: true,
            earlier: Earlier::All,
            masked: false,
            scale: 0.35,
            dropout: None,
        };
        let run = |dtype: DType, rounded: DType| {
            let mut bench = Bench::new();
            let statistic = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let mut inputs = [0, 1, 2, 3].map(|seed| {
                let (_, values) = bench.random(rounded, n, seed);
                heads(bench.put(dtype, &values), count, rows, size)
            });
            let grad = inputs[3];
            let out = bench.empty(dtype, n);
            inputs[3] = heads(out, count, rows, size);
            let logsumexp = bench.empty(statistic, batch * count * rows);
            let [q, k, v, out] = inputs;
            bench.run(kernels::Attention::Forward {
                by: FusedAttention::Flash,
                shape,
                q,
                k,
                v,
                out,
                logsumexp,
                lse_stride: rows,
            });
            // The three gradients interleaved in one packed buffer.
            let packed = bench.empty(dtype, 3 * n);
            let width = count * size;
            let [dq, dk, dv] = [0, 1, 2].map(|part| HeadView {
                address: packed.address.offset(dtype.bytes(part * width)),
                dtype,
                batch_stride: rows * 3 * width,
                head_stride: size,
                row_stride: 3 * width,
            });
            bench.run(kernels::Attention::Backward {
                by: FusedAttention::Flash,
                shape,
                q,
                k,
                v,
                out,
                logsumexp,
                lse_stride: rows,
                grad,
                dq,
                dk,
                dv,
            });
            bench.get(packed)
        };
        let (got, truth) = (run(dtype, dtype), run(DType::F64, dtype));
        let error: f64 = got.iter().zip(&truth).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
        let size = truth.iter().map(|y| y * y).sum::<f64>().sqrt();
        assert!(error / size < tolerance(dtype), "{dtype:?}: {}", error / size);
    }
}
