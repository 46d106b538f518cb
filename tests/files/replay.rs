//! Replays histories that PyTorch 2.11 recorded on an H200 through our allocator: every segment event, every address,
//! every final block and every statistic must be PyTorch's.
//!
//! `borders-*` were made by PyTorch 2.11's own `libc10_cuda.so` on a driver that hands out addresses in descending and
//! in random order. They have every size at which rounding, pools, segments and splits change, and many free blocks of
//! one size.

use std::path::{Path, PathBuf};

use vramlab::allocator::Settings;
use vramlab::snapshot::Snapshot;
use vramlab::snapshot::replay::{Conditions, Overrides, Report, verify};
use vramlab::units::Bytes;

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.pickle.xz"))
}

fn replay(name: &str) -> Report {
    let path = trace(name);
    let snapshot = Snapshot::open(&path).unwrap();
    let conditions = Conditions::find(&path, &snapshot, &Overrides::default()).unwrap();
    verify(&snapshot, &conditions)
}

/// The replay with a recorded number of retries that is off by `by`.
fn replay_with_retries(name: &str, by: i64) -> Report {
    let path = trace(name);
    let snapshot = Snapshot::open(&path).unwrap();
    let mut conditions = Conditions::find(&path, &snapshot, &Overrides::default()).unwrap();
    *conditions.statistics.as_mut().unwrap().0.get_mut("num_alloc_retries").unwrap() += by;
    verify(&snapshot, &conditions)
}

/// Asserts that everything agrees; `silent` calls of `empty_cache()` had nothing to return.
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

// The second number counts `empty_cache()` calls that left no entry, because they had nothing to return (churn-gc:
// because they returned what the garbage collection of the next request would have returned).
traces! {
    bert_varlen: "bert-varlen", 0;
    bert_varlen_expandable: "bert-varlen-expandable", 0;
    bert_varlen_gc: "bert-varlen-gc", 0;
    bert_varlen_max_split: "bert-varlen-max-split", 0;
    borders_falling: "borders-falling", 0;
    borders_random: "borders-random", 0;
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
    torture_k: "torture.k", 2;
    torture_m: "torture.m", 12;
    gpt_mini_base: "gpt-mini.base", 1;
    gpt_mini_all: "gpt-mini.all", 1;
    gpt_odd_bf16: "gpt-odd.bf16", 1;
    mlp_rows_base: "mlp-rows.base", 0;
    mlp_mini_bf16ckpt: "mlp-mini.bf16ckpt", 1;
    loop_pinned: "loop.gpt-mini.pinned", 1;
}

/// The program of these two called `empty_cache()` once, just before a request that would have had to retry.
#[test]
fn the_recorded_retries_tell_calls_from_retries() {
    for (name, spots) in [("torture.k", 73), ("torture.m", 103)] {
        let settled = replay(name).devices[0].ambiguous_retries;
        assert_eq!((settled.spots, settled.read_as_retries), (spots, spots - 1), "{name}");
    }
}

#[test]
fn without_statistics_ambiguous_runs_are_retries() {
    let path = trace("torture.m");
    let snapshot = Snapshot::open(&path).unwrap();
    let mut conditions = Conditions::find(&path, &snapshot, &Overrides::default()).unwrap();
    conditions.statistics = None;
    let report = verify(&snapshot, &conditions);
    assert!(report.is_match());
    let settled = report.devices[0].ambiguous_retries;
    assert_eq!((settled.spots, settled.read_as_retries), (103, 103));
}

#[test]
fn a_number_of_retries_that_no_reading_gives_is_reported() {
    // 103 runs can be either, and 102 of them are retries: one more or 102 fewer are possible, and no other numbers.
    for (name, by) in [("torture.m", 2), ("torture.m", -103), ("torture.g", 1), ("torture.g", -1)] {
        let report = replay_with_retries(name, by);
        assert_eq!(report.stats.total, 122);
        assert!(report.stats.matched < 122, "{name} {by}");
        let mismatch = report.first_mismatch.unwrap();
        assert!(mismatch.found.starts_with("num_alloc_retries = "), "{name} {by}: {mismatch:?}");
        assert_eq!(mismatch.explanation, None, "nothing is wrong with the history itself");
    }
    // Within this range only the recorded number decides.
    assert_eq!(replay_with_retries("torture.m", 1).stats.matched, 122);
}

/// A snapshot as a user has it: without a statistics file beside it.
fn alone(name: &str) -> (Snapshot, Conditions) {
    let snapshot = Snapshot::open(trace(name)).unwrap();
    let conditions = Conditions::find(Path::new("nothing beside"), &snapshot, &Overrides::default()).unwrap();
    assert_eq!((conditions.limit, conditions.device_bytes, &conditions.statistics), (None, None, &None));
    (snapshot, conditions)
}

const H200: Bytes = Bytes(150_109_880_320);

#[test]
fn ranges_of_an_unknown_device_have_room() {
    for name in ["bert-varlen-expandable", "churn-expandable", "torture.c"] {
        let (snapshot, conditions) = alone(name);
        let report = verify(&snapshot, &conditions);
        assert_eq!(report.first_mismatch, None, "{name}");
        assert!(report.is_match());
        assert!(report.notes.iter().any(|note| note.contains("memory of device 0 is not in the file")), "{report:?}");
        // Ranges have whole pages of 20 MiB, and lie next to each other at multiples of 32 MiB.
        let largest = report.devices[0].largest_device.unwrap();
        assert!((H200..H200 + Bytes::mib(52)).contains(&largest), "{name}: {largest:?}");
    }
}

#[test]
fn a_device_whose_ranges_would_overlap_is_told() {
    let (snapshot, mut conditions) = alone("churn-expandable");
    conditions.device_bytes = Some(Bytes::gib(100));
    assert!(verify(&snapshot, &conditions).is_match());
    conditions.device_bytes = Some(Bytes::gib(141));
    let explanation = verify(&snapshot, &conditions).first_mismatch.unwrap().explanation.unwrap();
    assert!(
        explanation.contains("does not have 141.00 GiB") && explanation.contains("--device-bytes"),
        "{explanation}"
    );
}

#[test]
fn a_collection_of_garbage_without_its_limit_is_told() {
    let (snapshot, conditions) = alone("churn-gc");
    let mismatch = verify(&snapshot, &conditions).first_mismatch.unwrap();
    assert!(mismatch.explanation.as_ref().is_some_and(|words| words.contains("give --limit")), "{mismatch:?}");
}

#[test]
fn a_share_of_memory_that_nobody_knows_is_no_limit() {
    let (snapshot, mut conditions) = alone("two-streams");
    conditions.settings = Settings::parse("per_process_memory_fraction:0.000001").unwrap();
    assert!(verify(&snapshot, &conditions).is_match());
    conditions.device_bytes = Some(H200);
    assert!(!verify(&snapshot, &conditions).is_match());
}

/// `borders-random`, with two free blocks of one size handed out in the other order, as by an allocator that does not
/// look at addresses.
#[test]
fn a_tie_that_was_broken_another_way_is_the_first_difference() {
    let report = replay("wrong/tie-the-other-way");
    let mismatch = report.first_mismatch.unwrap();
    assert_eq!((mismatch.device, mismatch.entry), (0, 821), "{mismatch:?}");
    assert!(
        mismatch.expected.ends_with("0x103f52200000") && mismatch.found.ends_with("0x104064000000"),
        "{mismatch:?}"
    );
}
