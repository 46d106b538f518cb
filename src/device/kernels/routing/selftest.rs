//! The choice of experts for each row, and the products of each expert's rows.

use super::Routing;
use crate::DType;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, Precision, Skew};
use crate::selftest::session::Session;
use crate::selftest::values::Values;

pub(super) fn run(session: &mut Session<'_>) {
    for (rows, cols, k) in [(1, 1, 1), (7, 4, 2), (300, 8, 2), (129, 60, 4), (2000, 128, 8), (33, 5, 5)] {
        choices(session, [rows, cols, k], Values::STANDARD, format!("{k} of {rows} × {cols}"));
        // Few distinct values, to test which of equal elements comes first.
        choices(session, [rows, cols, k], Values::Below(3), format!("{k} of {rows} × {cols}, of three values"));
    }
    for (n, groups, each) in [(1, 1, 1), (14, 4, 2), (600, 8, 2), (4097, 60, 4), (20_000, 128, 8)] {
        grouping(session, [n, groups, each], Values::Below(groups), format!("{n} in {groups} groups"));
        grouping(session, [n, groups, each], Values::Constant(0.0), format!("{n} in the first of {groups} groups"));
    }
    for precision in Precision::PRODUCTS {
        for (ends, n, k) in [
            (vec![1.0], 1, 1),
            (vec![0.0, 5.0, 5.0, 40.0], 33, 17),
            (vec![16.0, 32.0, 33.0, 64.0], 64, 48),
            (vec![0.0, 0.0, 100.0], 96, 130),
        ] {
            for skew in [Skew::Aligned, Skew::Together(1)] {
                products(session, precision, &ends, [n, k], skew);
            }
        }
    }
}

fn choices(session: &mut Session<'_>, [rows, cols, k]: [usize; 3], values: Values, what: String) {
    for precision in Precision::FLOATS {
        let dtype = precision.dtype();
        let mut case = Case::new("top_k", precision, what.clone());
        let src = case.input("src", dtype, rows * cols, values.clone());
        let largest = case.output("values", dtype, rows * k, ErrorBound::Exact);
        let indices = case.output("indices", DType::I64, rows * k, ErrorBound::Exact);
        session.check(&case, |at| Routing::TopK { src: at[src], values: at[largest], indices: at[indices], cols, k });
        let mut case = Case::new("top_k_backward", precision, what.clone());
        let grad = case.input("grad", dtype, rows * k, Values::STANDARD);
        // Different indices in each row.
        let chosen = (0..rows * k).map(|i| ((i / k + i % k) % cols) as f64).collect();
        let indices = case.input("indices", DType::I64, rows * k, Values::List(chosen));
        let dst = case.output("dst", dtype, rows * cols, ErrorBound::Exact);
        session.check(&case, |at| Routing::TopKBackward {
            grad: at[grad],
            indices: at[indices],
            dst: at[dst],
            cols,
            k,
        });
        let mut case = Case::new("gather", precision, what.clone());
        let src = case.input("src", dtype, rows * cols, Values::STANDARD);
        let chosen = (0..rows * k).map(|i| ((i / k + i % k) % cols) as f64).collect();
        let indices = case.input("indices", DType::I64, rows * k, Values::List(chosen));
        let dst = case.output("dst", dtype, rows * k, ErrorBound::Exact);
        session.check(&case, |at| Routing::Gather { src: at[src], indices: at[indices], dst: at[dst], cols, k });
    }
}

fn grouping(session: &mut Session<'_>, [n, groups, each]: [usize; 3], values: Values, what: String) {
    let mut case = Case::of_types("group_rows", &[DType::I64], what.clone());
    let of_each = case.input("groups", DType::I64, n, values.clone());
    let sorted = case.output("sorted", DType::I64, n, ErrorBound::Exact);
    let order = case.output("order", DType::I64, n, ErrorBound::Exact);
    let rows = case.output("rows", DType::I64, n, ErrorBound::Exact);
    session.check(&case, |at| Routing::GroupRows {
        groups: at[of_each],
        sorted: at[sorted],
        order: at[order],
        rows: at[rows],
        count: groups,
        each,
    });
    let mut case = Case::of_types("group_ends", &[DType::I64], what.clone());
    let of_each = case.input("groups", DType::I64, n, values);
    let ends = case.output("ends", DType::I32, groups, ErrorBound::Exact);
    session.check(&case, |at| Routing::GroupEnds { groups: at[of_each], ends: at[ends] });
    let mut case = Case::of_types("invert", &[DType::I64], what);
    // Every position once: 7 and n have no common divisor, or else the positions are in order.
    let step = if n % 7 == 0 { 1 } else { 7 };
    let order = case.input("order", DType::I64, n, Values::List((0..n).map(|i| (i * step % n) as f64).collect()));
    let dst = case.output("dst", DType::I64, n, ErrorBound::Exact);
    session.check(&case, |at| Routing::Invert { order: at[order], dst: at[dst] });
}

fn products(session: &mut Session<'_>, precision: Precision, ends: &[f64], [n, k]: [usize; 2], skew: Skew) {
    let (dtype, groups) = (precision.dtype(), ends.len());
    let rows = ends.last().map_or(0, |&end| end as usize);
    for [row, col] in [[1, k], [n, 1]] {
        let layout = if col == 1 { "rows" } else { "columns" };
        let what = format!("{rows} rows in {groups} groups, n {n}, k {k}, {layout}");
        let mut case = Case::new("grouped_gemm", precision, what).skewed(skew).work(rows * n * k);
        let a = case.input("a", dtype, rows * k, Values::STANDARD);
        let b = case.input("b", dtype, groups * n * k, Values::STANDARD);
        let last = case.input("ends", DType::I32, groups, Values::List(ends.to_vec()));
        let dst = case.output("dst", dtype, rows * n, ErrorBound::Sum(k));
        session.check(&case, |at| Routing::GroupedGemm {
            n,
            k,
            a: at[a],
            b: at.matrix(b, 0, [row, col, n * k]),
            dst: at[dst],
            ends: at[last],
        });
    }
    let what = format!("{rows} rows in {groups} groups, {k} × {n}");
    let mut case = Case::new("grouped_gemm_outer", precision, what).skewed(skew).work(rows * n * k);
    let a = case.input("a", dtype, rows * k, Values::STANDARD);
    let b = case.input("b", dtype, rows * n, Values::STANDARD);
    let last = case.input("ends", DType::I32, groups, Values::List(ends.to_vec()));
    let dst = case.output("dst", dtype, groups * n * k, ErrorBound::Sum(rows));
    session.check(&case, |at| Routing::GroupedGemmOuter { m: k, n, a: at[a], b: at[b], dst: at[dst], ends: at[last] });
}
