//! What-if on part of a history, against the same part of the what-if on all of it.
#![allow(clippy::unwrap_used, reason = "a test that can't be set up fails")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vramlab::model::{About, Event, EventKind, Micros, Setting, Settings};
use vramlab::snapshot::replay::Conditions;
use vramlab::snapshot::{Action, Beginning, Narrator, Snapshot};
use vramlab::units::{Bytes, DeviceIndex};
use vramlab::whatif::{Places, Recorded, RecordedWriter};

/// A history as the program that a prediction replays; `cut` begins a step before that entry.
fn recorded(snapshot: &Snapshot, conditions: &Conditions, cut: Option<usize>) -> Recorded {
    let mut writer = RecordedWriter::new(DeviceIndex::FIRST, Places::Recorded);
    let beginning = Beginning::of(snapshot, 0, &conditions.settings);
    let (mut narrator, report) = Narrator::new(snapshot, 0, conditions, &beginning, None);
    let about = About { history: Some(report.history.begins), torch: conditions.settings.torch(), ..About::default() };
    let value = conditions.settings.text().into();
    let settings = Settings(vec![Setting { switch: "alloc-conf".into(), value, wanted: None, idle: None }]);
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
    writer.finish(None).unwrap()
}

fn traces() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.to_string_lossy().ends_with(".pickle.xz"));
    names.sort();
    names
}

const CONFS: [&str; 9] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:21",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:1",
    "large_segment_size_mb:64",
];

#[test]
fn survey() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut errors: BTreeMap<(&str, bool), Vec<(f64, String)>> = BTreeMap::new();
    for path in traces() {
        let name = path.file_name().unwrap().to_string_lossy().replace(".pickle.xz", "");
        if !only.is_empty() && !only.split(',').any(|only| name.contains(only)) || name.contains("torture") {
            continue;
        }
        let snapshot = Snapshot::open(&path).unwrap();
        let conditions = Conditions::find_or_guess(&path, &snapshot, None);
        for percent in [10_usize, 30, 50, 70, 90] {
            let trace = snapshot.device_trace(0);
            let from = trace.len() * percent / 100;
            let Some(cut) = (from..trace.len()).find(|at| trace[*at].action == Action::Alloc) else { continue };
            let whole = recorded(&snapshot, &conditions, Some(cut));
            let mut late = Snapshot::open(&path).unwrap();
            late.forget(0, cut);
            let part = recorded(&late, &conditions, None);
            for conf in CONFS {
                let own = whole.under(conf).unwrap().settings == whole.conditions.settings;
                let outcome = whole.program.replay(&whole.under(conf).unwrap());
                let truth = outcome.history.page(0, 100).columns.last().unwrap().reserved;
                let mut conds = part.under(conf).unwrap();
                conds.limit = whole.conditions.limit;
                let guess = part.program.replay(&conds).figures;
                let error = (guess.peak_reserved.get() as f64 / truth.get() as f64 - 1.0) * 100.0;
                let _ = Bytes::ZERO;
                println!(
                    "ROW {name} {percent} {own} [{conf}] truth {} got {} {error:+.2} start {:?}",
                    truth.get() >> 20,
                    guess.peak_reserved.get() >> 20,
                    part.begins
                );
                errors.entry((conf, own)).or_default().push((error.abs(), format!("{name}@{percent}")));
            }
        }
    }
    for ((conf, own), mut list) in errors {
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        let median = list[list.len() / 2].0;
        let p90 = list[list.len() * 9 / 10].0;
        let (worst, place) = list.last().unwrap();
        println!("SUM own={own} [{conf}] n={} median {median:.2} p90 {p90:.2} worst {worst:.2} {place}", list.len());
    }
}
