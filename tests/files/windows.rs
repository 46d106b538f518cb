//! A what-if on part of a history, compared with the same part of the what-if on all of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vramlab::model::{About, Begins, Event, EventKind, Micros, RunSettings, Setting};
use vramlab::narration::Narrator;
use vramlab::snapshot::replay::Conditions;
use vramlab::snapshot::{Action, Beginning, Snapshot};
use vramlab::units::{Bytes, DeviceIndex};
use vramlab::whatif::{Places, RecordedRun, RecordedWriter};

/// A history as the program that a prediction replays; with `cut` a step begins before that entry.
fn recorded(snapshot: &Snapshot, conditions: &Conditions, cut: Option<usize>) -> RecordedRun {
    let mut writer = RecordedWriter::new(DeviceIndex::FIRST, Places::Recorded);
    let beginning = Beginning::of(snapshot, 0, &conditions.settings);
    let (mut narrator, report) = Narrator::new(snapshot, 0, conditions, &beginning, None);
    let about = About { history: Some(report.history.begins), torch: conditions.settings.torch(), ..About::default() };
    let value = conditions.settings.text().into();
    let settings = RunSettings(vec![Setting { switch: "alloc-conf".into(), value, wanted: None, idle: None }]);
    let tell = |kind| Event::new(Micros(0), kind);
    writer.push(&tell(EventKind::Begin(Arc::new(about))));
    writer.push(&tell(EventKind::Settings(Arc::new(settings))));
    narrator.begin(&mut |event| writer.push(&event));
    writer.push(&tell(EventKind::StepBegin { step: 0 }));
    loop {
        if cut == Some(narrator.position()) {
            writer.push(&tell(EventKind::StepBegin { step: 1 }));
        }
        if !narrator.advance(&mut |event| writer.push(&event)) {
            break;
        }
    }
    writer.finish(None, None).unwrap()
}

/// Peaks of reserved in the part after `percent` of a history: of the what-if on all of it, and of the what-if on that
/// part.
fn peaks(path: &Path, percent: usize, confs: &[&str]) -> Vec<(Bytes, Bytes)> {
    let snapshot = Snapshot::open(path).unwrap();
    let conditions = Conditions::find_or_guess(path, &snapshot, None);
    let trace = snapshot.device_trace(0);
    let from = trace.len() * percent / 100;
    let is_request = |at: &usize| trace[*at].action == Action::Alloc;
    let cut = (from..trace.len()).find(is_request).or_else(|| (0..from).rfind(is_request)).unwrap();
    let whole = recorded(&snapshot, &conditions, Some(cut));
    let mut late = Snapshot::open(path).unwrap();
    late.forget(0, cut);
    let part = recorded(&late, &conditions, None);
    assert_ne!(part.facts.begins, Some(Begins::First), "{}", path.display());
    let of = |conf: &&str| {
        let outcome = whole.program.replay(&whole.under(conf).unwrap());
        let truth = outcome.history.page(0, 10).columns.last().unwrap().reserved;
        let mut conditions = part.under(conf).unwrap();
        // A person may know what a part does not show.
        conditions.limit = conditions.limit.or(whole.facts.conditions.limit);
        (truth, part.program.replay(&conditions).figures.peak_reserved)
    };
    confs.iter().map(of).collect()
}

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/traces/{name}.pickle.xz"))
}

#[test]
fn under_its_own_settings_a_part_comes_to_what_it_came_to_in_the_whole() {
    let names = [
        "churn-default",
        "churn-split-roundup",
        "churn-expandable",
        "resnet50-train-eval",
        "gpt-odd.bf16",
        "two-streams",
    ];
    for name in names {
        let snapshot = Snapshot::open(trace(name)).unwrap();
        let own = snapshot.allocator_settings.conf.clone().unwrap_or_default();
        for percent in [10, 50, 90] {
            for (truth, predicted) in peaks(&trace(name), percent, &[&own]) {
                assert_eq!(predicted, truth, "{name} behind {percent} %");
            }
        }
    }
}

#[test]
fn under_other_settings_a_part_comes_near_to_what_it_comes_to_in_the_whole() {
    const CONFS: [&str; 6] = [
        "",
        "expandable_segments:True",
        "max_split_size_mb:21",
        "max_split_size_mb:128",
        "roundup_power2_divisions:4",
        "large_segment_size_mb:64",
    ];
    let mut errors: Vec<f64> = Vec::new();
    for name in ["churn-default", "churn-gc", "resnet50-train-eval", "gpt-odd.bf16", "gpt-mini.all", "dcgan-roundup"] {
        for percent in [20, 60] {
            errors.extend(
                peaks(&trace(name), percent, &CONFS)
                    .iter()
                    .map(|(truth, predicted)| (predicted.get() as f64 / truth.get() as f64 - 1.0).abs()),
            );
        }
    }
    errors.sort_by(f64::total_cmp);
    let (median, most) = (errors[errors.len() / 2], errors[errors.len() * 9 / 10]);
    println!(
        "{} predictions: median error {:.2} %, nine of ten below {:.2} %",
        errors.len(),
        median * 100.0,
        most * 100.0
    );
    assert!(median < 0.01 && most < 0.15, "median {median}, nine of ten below {most}");
}
