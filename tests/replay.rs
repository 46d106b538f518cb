//! Replays histories that PyTorch 2.11 recorded on an H200 through our allocator: every segment event, every address,
//! every final block and every statistic must be PyTorch's.

#![allow(clippy::unwrap_used, reason = "a test that can't read its data must fail")]

use std::path::{Path, PathBuf};

use vramlab::snapshot::Snapshot;
use vramlab::snapshot::replay::{Conditions, Overrides, Report, verify};

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.pickle.xz"))
}

fn replay(name: &str) -> Report {
    let path = trace(name);
    let snapshot = Snapshot::open(&path).unwrap();
    let conditions = Conditions::find(&path, &snapshot, &Overrides::default()).unwrap();
    verify(&snapshot, &conditions)
}

/// Everything agrees; `silent` calls of `empty_cache()` had nothing to return.
fn matches_completely(name: &str, silent: u64) {
    let report = replay(name);
    assert_eq!(report.first_mismatch, None);
    assert!(report.is_match(), "{report:?}");
    assert!(report.segments.total > 0 && report.placements.total > 0 && report.blocks.total > 0, "{report:?}");
    assert_eq!(report.stats.total, 122);
    assert_eq!(report.silent_empty_cache, silent, "{report:?}");
}

macro_rules! traces {
    ($($test:ident: $name:literal, $silent:literal;)*) => {
        $(
            #[test]
            fn $test() {
                matches_completely($name, $silent);
            }
        )*

        #[test]
        fn every_trace_has_a_test() {
            let mut tested = vec![$($name),*];
            tested.sort_unstable();
            let mut present: Vec<String> = std::fs::read_dir(trace("x").parent().unwrap())
                .unwrap()
                .filter_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".pickle.xz")?.to_owned()))
                .collect();
            present.sort_unstable();
            assert_eq!(present, tested);
        }
    };
}

// The second number: `empty_cache()` calls that left no entry, as they had nothing to return (churn-gc: as it returned
// what the garbage collection of the next request would have).
traces! {
    bert_varlen: "bert-varlen", 0;
    bert_varlen_expandable: "bert-varlen-expandable", 0;
    bert_varlen_gc: "bert-varlen-gc", 0;
    bert_varlen_max_split: "bert-varlen-max-split", 0;
    churn_default: "churn-default", 0;
    churn_expandable: "churn-expandable", 0;
    churn_gc: "churn-gc", 1;
    churn_split_roundup: "churn-split-roundup", 0;
    dcgan_roundup: "dcgan-roundup", 0;
    gpt_frames: "gpt-frames", 0;
    gpt2_amp: "gpt2-amp", 0;
    oom_and_recover: "oom-and-recover", 0;
    resnet50_train_eval: "resnet50-train-eval", 0;
    two_streams: "two-streams", 0;
    torture_a: "torture.a", 0;
    torture_b: "torture.b", 0;
    torture_c: "torture.c", 0;
    torture_d: "torture.d", 0;
    torture_e: "torture.e", 0;
    torture_f: "torture.f", 1;
    torture_g: "torture.g", 0;
    torture_h: "torture.h", 0;
    gpt_mini_base: "gpt-mini.base", 1;
    gpt_mini_all: "gpt-mini.all", 1;
    gpt_odd_bf16: "gpt-odd.bf16", 1;
    mlp_rows_base: "mlp-rows.base", 0;
    mlp_mini_bf16ckpt: "mlp-mini.bf16ckpt", 1;
    loop_pinned: "loop.gpt-mini.pinned", 1;
}
