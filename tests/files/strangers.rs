//! Snapshots of other people's programs, recorded with PyTorch 2.11 on an H200 as their users record: mostly not from
//! the first allocation on. Every one opens, and its figures are PyTorch's. If the replay can begin from the state at
//! the beginning, it agrees to the end.
//!
//! Only the statistics beside each file are the truth: the snapshots are read as if nothing lay beside them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use vramlab::model::{AllocatorState, EventKind, MemoryModel};
use vramlab::narration::events;
use vramlab::snapshot::replay::{Conditions, DeviceReport, Overrides};
use vramlab::snapshot::{Begins, Snapshot};

/// PyTorch's statistics when the snapshot was taken, with peaks since recording began, and at the beginning.
#[derive(Deserialize)]
struct Truth {
    stats: BTreeMap<String, i64>,
    at_start: BTreeMap<String, i64>,
}

impl Truth {
    fn of(name: &str) -> Self {
        serde_json::from_slice(&std::fs::read(folder().join(format!("{name}.stats.json"))).unwrap()).unwrap()
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers")
}

/// A history as events, and the figures of the model and of the allocator's statistics at its beginning and its end.
struct Told {
    report: DeviceReport,
    /// Allocated and reserved when recording began.
    at_start: (i64, i64),
    model: MemoryModel,
    state: AllocatorState,
}

fn told(name: &str) -> Told {
    let snapshot = Snapshot::open(folder().join(format!("{name}.pickle.xz"))).unwrap();
    let alone = Path::new("nothing lies beside it.pickle");
    let conditions = Conditions::find(alone, &snapshot, &Overrides::default()).unwrap();
    let mut all = Vec::new();
    let report = events(&snapshot, 0, &conditions, None, |event| all.push(event.kind));
    // First comes what was there, and then one event for each entry that is about memory.
    let about_memory = snapshot.device_trace(0).len();
    let is_entry = |kind: &EventKind| kind.changes_memory() || matches!(kind, EventKind::Oom(_));
    let early = all.iter().filter(|kind| is_entry(kind)).count() - about_memory;
    let (mut model, mut state) = (MemoryModel::new(), AllocatorState::new());
    let (mut at_start, mut count) = ((0, 0), 0);
    for kind in all {
        count += usize::from(is_entry(&kind));
        let event = vramlab::model::Event::new(Default::default(), kind);
        model.apply(&event).unwrap();
        state.apply(&event);
        if count == early {
            at_start = (signed(model.allocated().0), signed(model.reserved().0));
        }
    }
    Told { report, at_start, model, state }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap()
}

/// Asserts that current values and peaks are PyTorch's, in the model and in the statistics, except for `others`.
fn figures_are_pytorchs(name: &str, told: &Told, others: &[&str]) {
    let truth = Truth::of(name);
    for (key, ours) in [
        ("allocated_bytes.all.current", told.model.allocated()),
        ("allocated_bytes.all.peak", told.model.peak_allocated()),
        ("reserved_bytes.all.current", told.model.reserved()),
        ("reserved_bytes.all.peak", told.model.peak_reserved()),
    ] {
        assert!(
            others.iter().any(|other| key.starts_with(other)) || signed(ours.0) == truth.stats[key],
            "{name}: {key} is {ours}"
        );
    }
    for (key, ours) in told.state.statistics().entries() {
        let compared = key.ends_with(".current") || key.ends_with(".peak");
        let other = others.iter().any(|other| key.starts_with(other) || key == *other);
        assert!(!compared || other || ours == truth.stats[&key], "{name}: {key} is {ours}, not {}", truth.stats[&key]);
    }
    if !others.contains(&"start") {
        let start = |key: &str| truth.at_start[key];
        let expected = (start("allocated_bytes.all.current"), start("reserved_bytes.all.current"));
        assert_eq!(told.at_start, expected, "{name} at its start");
    }
}

/// Asserts that the allocator agrees to the end, and where the history begins.
fn is_explained(told: &Told, begins: Begins) {
    let report = &told.report;
    assert_eq!(report.first_mismatch, None);
    assert!(
        report.segments.is_complete() && report.placements.is_complete() && report.blocks.is_complete(),
        "{report:?}"
    );
    assert!(report.placements.total > 50);
    assert_eq!((report.history.begins, report.history.exact_from), (begins, Some(0)));
}

#[test]
fn a_compiled_program_is_read_and_explained() {
    let told = told("compiled-gpt");
    figures_are_pytorchs("compiled-gpt", &told, &[]);
    is_explained(&told, Begins::First);
}

#[test]
fn a_trainer_that_is_recorded_late_is_explained() {
    let told = told("hf-trainer-llama");
    // How free memory had been cut before the beginning is unknown.
    figures_are_pytorchs("hf-trainer-llama", &told, &["inactive_split_bytes.small_pool.peak"]);
    is_explained(&told, Begins::Late);
    assert!(told.report.history.missing.iter().any(|clause| clause.contains("blocks")), "{:?}", told.report.history);
}

#[test]
fn a_leak_that_is_recorded_late_is_explained() {
    let told = told("leak-outputs");
    figures_are_pytorchs("leak-outputs", &told, &[]);
    is_explained(&told, Begins::Late);
}

#[test]
fn expandable_segments_need_no_size_of_the_card() {
    let told = told("lightning-resnet-expandable");
    figures_are_pytorchs("lightning-resnet-expandable", &told, &[]);
    is_explained(&told, Begins::Late);
}

#[test]
fn a_ring_buffer_that_overflowed_is_explained_from_what_it_left() {
    let told = told("timm-convnext-ring");
    // The peaks are those of everything recorded, and only its end remains.
    let older = ["start", "active", "allocat", "inactive_split", "requested"];
    figures_are_pytorchs("timm-convnext-ring", &told, &older);
    assert_eq!(told.model.allocated().0, 68_157_440);
    is_explained(&told, Begins::Ring);
}

#[test]
fn a_snapshot_from_inside_the_observer_of_an_out_of_memory_is_that_moment() {
    let told = told("oom-observer");
    let truth = Truth::of("oom-observer");
    // The statistics were taken later, so nothing that was freed in between can be compared.
    for (key, ours) in told.state.statistics().entries() {
        if key.ends_with(".peak") || key.starts_with("reserved_bytes") && key.ends_with(".current") {
            assert_eq!(ours, truth.stats[&key], "{key}");
        }
    }
    assert_eq!(told.at_start.0, truth.at_start["allocated_bytes.all.current"]);
    assert_eq!(told.state.statistics().num_ooms, 1);
    is_explained(&told, Begins::Late);
}

#[test]
fn private_pools_are_counted_and_the_others_explained() {
    let told = told("cuda-graphs");
    figures_are_pytorchs("cuda-graphs", &told, &[]);
    let report = &told.report;
    assert!(report.segments.is_complete() && report.placements.is_complete() && report.blocks.is_complete());
    assert_eq!(report.first_mismatch, None);
    assert!(report.history.missing.iter().any(|clause| clause.contains("private pools")));
}

#[test]
fn every_stranger_has_a_test() {
    let tests = include_str!("strangers.rs");
    for file in std::fs::read_dir(folder()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".pickle.xz") {
            assert!(tests.contains(&format!("told(\"{name}\")")), "{name}");
        }
    }
}
