//! A report as one object.

use serde_json::{Value, json};

use super::Subject;
use crate::cli::witness::WORDS;
use crate::export;
use crate::model::{Category, Survivor};
use crate::snapshot::replay::HistoryReport;
use crate::source::{Standing, Whole};
use crate::whatif::Tried;

/// The report on all devices.
pub(super) fn object(name: &str, whole: &Whole, subjects: &[Subject]) -> Value {
    json!({
        "units": { "sizes": "bytes" },
        "file": name,
        "events": whole.end(),
        "remarks": whole.remarks(),
        "devices": subjects.iter().map(|subject| device(subject, whole)).collect::<Vec<_>>(),
    })
}

fn device(of: &Subject, whole: &Whole) -> Value {
    let Subject { examined, run, again, tuning, smallest } = of;
    let view = &examined.view;
    let leaks: Vec<Value> = examined.leaks.iter().map(|leak| json!(leak)).collect();
    let failures: Vec<Value> = examined
        .failures
        .iter()
        .map(|autopsy| {
            let mut then = view.clone();
            then.autopsy = Some(autopsy.clone());
            export::out_of_memory(autopsy, &then, &WORDS)
        })
        .collect();
    let fullest = &examined.fullest;
    let stranding = fullest.stranding.iter().map(|(segment, holder)| {
        json!({
            "segment": segment.address,
            "size": segment.size,
            "free": segment.free,
            "blocks": segment.blocks,
            "largest_block": holder,
        })
    });
    json!({
        "device": run.device,
        "allocated": examined.end.ledger.allocated(),
        "reserved": examined.end.ledger.reserved(),
        "peak_allocated": view.peak_allocated,
        "peak_reserved": view.peak_reserved,
        "stranded": fullest.ledger.stranded,
        "fragmentation": fullest.ledger.fragmentation(),
        "conf": run.conditions.text(),
        "limit": run.conditions.limit.or(view.limit),
        "history": whole.history(run.device).cloned().unwrap_or(HistoryReport {
            exact_from: Some(0),
            ..HistoryReport::default()
        }),
        "remarks": run.remarks,
        "peak": standing(&examined.peak),
        "end": standing(&examined.end),
        "stranding": stranding.collect::<Vec<_>>(),
        "findings": view.findings.iter().map(|finding| export::finding(finding, &WORDS)).collect::<Vec<_>>(),
        "repetitions": examined.rhythm.map(|rhythm| json!({ "times": rhythm.times, "told": rhythm.is_told() })),
        "leaks": leaks,
        "num_ooms": examined.ooms,
        "ooms": failures,
        "smallest_limit": smallest,
        "exact": run.is_exact(again),
        "recommended": tuning.recommended(run).map(tried),
        "tried": tuning.front().into_iter().map(tried).collect::<Vec<_>>(),
    })
}

fn standing(of: &Standing) -> Value {
    let by_category = Category::ALL
        .into_iter()
        .map(|category| (category.label().to_owned(), json!(of.by_category[category as usize])));
    let holder = |held: &Survivor| json!({ "line": held.name, "category": held.category, "bytes": held.bytes, "blocks": held.blocks });
    json!({
        "position": of.position,
        "by_category": Value::Object(by_category.collect()),
        "holders": of.holders.iter().map(holder).collect::<Vec<_>>(),
    })
}

fn tried(of: &Tried) -> Value {
    json!({
        "conf": of.conditions.text(),
        "limit": of.conditions.limit,
        "peak_reserved": of.figures.peak_reserved,
        "peak_allocated": of.figures.peak_allocated,
        "driver_calls": of.calls(),
        "num_ooms": of.figures.ooms,
        "predicted": true,
    })
}
