//! Rotary position embeddings.

use crate::selftest::bound::Bound;
use crate::selftest::case::Case;
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{DType, Kernel, RotaryPass, RotaryShape};

const PASSES: [&str; 3] = ["forward", "backward of the sine", "backward of the cosine"];

pub(super) fn run(session: &mut Session<'_>) {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for (rows, half, copies) in [(1, 1, 2), (7, 4, 2), (64, 8, 2), (300, 64, 2), (1, 1, 1), (33, 32, 1)] {
            let what = format!("{rows} rows, {half} frequencies, {copies} of each");
            let mut case = Case::of_types("rotary_tables", &[DType::F32, dtype], what);
            let frequencies = case.input("frequencies", DType::F32, half, Values::Uniform(0.0, 1.0));
            let [cos, sin] = ["cos", "sin"].map(|name| case.output(name, dtype, rows * copies * half, Bound::Formula));
            session.check(&case, |at| Kernel::RotaryTables {
                frequencies: at[frequencies],
                cos: at[cos],
                sin: at[sin],
                scaling: 1.25,
                copies,
            });
        }
    }
    // Of queries or keys, the tables and the result: those of autocast are the last.
    let types = [[DType::F32; 3], [DType::F16; 3], [DType::Bf16; 3], [DType::Bf16, DType::F32, DType::F32]];
    for [src_type, table_type, dst_type] in types {
        // The last two leave a rest of each head as it is.
        for [batch, heads, rows, head_size, rest] in [
            [1, 1, 1, 2, 0],
            [2, 3, 5, 8, 0],
            [2, 4, 33, 64, 0],
            [1, 8, 129, 128, 0],
            [2, 3, 7, 12, 4],
            [1, 4, 33, 96, 32],
        ] {
            for (neighbours, what) in [false, true].into_iter().flat_map(|pairs| PASSES.map(|what| (pairs, what))) {
                let shape = RotaryShape { batch, heads, rows, head_size, neighbours };
                let pairs = if neighbours { ", neighbours" } else { "" };
                let title = format!("{batch} × {heads} heads × {rows} rows × {head_size} and {rest}{pairs}, {what}");
                let mut case = Case::of_types("rotary", &[src_type, table_type, dst_type], title);
                let whole = head_size + rest;
                let src = case.input("src", src_type, batch * heads * rows * whole, Values::STANDARD);
                let tables = ["cos", "sin"];
                let [cos, sin] =
                    tables.map(|name| case.input(name, table_type, shape.table(), Values::Uniform(-1.0, 1.0)));
                let adds = what == "backward of the cosine";
                let dst = if adds {
                    case.update("dst", dst_type, shape.len(), Values::STANDARD, Bound::Formula)
                } else {
                    case.output("dst", dst_type, shape.len(), Bound::Formula)
                };
                // As projections leave queries, and head by head.
                let side_by_side = [rows * heads * head_size, head_size, heads * head_size];
                let from = [rows * heads * whole, whole, heads * whole];
                let by_head = [heads * rows * head_size, rows * head_size, head_size];
                session.check(&case, |at| Kernel::Rotary {
                    shape,
                    src: at.heads(src, 0, from),
                    dst: at.heads(dst, 0, if what == "forward" { side_by_side } else { by_head }),
                    pass: match what {
                        "forward" => RotaryPass::Forward([at[cos], at[sin]]),
                        "backward of the sine" => RotaryPass::BackwardOfSine(at[sin]),
                        _ => RotaryPass::BackwardOfCosine(at[cos]),
                    },
                });
            }
        }
    }
}
