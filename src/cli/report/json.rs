//! A report as one JSON object.

use serde_json::{Value, json};

use super::subject::ReportSubject;
use crate::cli::flags::WORDS;
use crate::cli::subjects::Subject as File;
use crate::export;
use crate::model::{Category, Survivor};
use crate::snapshot::Refusal;
use crate::snapshot::replay::HistoryReport;
use crate::source::MomentHoldings;
use crate::units::Bytes;
use crate::whatif::{LimitRange, Tuning, TuningTrial};

/// The report on all files: the same object as ever for one file, and an object for each of several.
pub(super) fn all(mut files: Vec<Value>, refusal: Option<&Refusal>) -> Value {
    let mut object =
        if files.len() == 1 { files.remove(0) } else { json!({ "units": { "sizes": "bytes" }, "files": files }) };
    if let (Some(refusal), Some(object)) = (refusal, object.as_object_mut()) {
        object.insert("error".into(), message(refusal));
    }
    object
}

/// PyTorch's message.
pub(super) fn message(refusal: &Refusal) -> Value {
    let others = refusal.others.iter().map(|other| json!({ "process": other.process, "bytes": other.size }));
    json!({
        "asked": refusal.asked.size,
        "device": refusal.device,
        "capacity": refusal.capacity,
        "free": refusal.free,
        "allowed": refusal.allowed.map(|allowed| allowed.size),
        "this_process": refusal.this_process,
        "others": others.collect::<Vec<_>>(),
        "allocated": refusal.allocated,
        "reserved": refusal.reserved,
        "stopped_by": refusal.culprit().map(|culprit| match culprit {
            crate::snapshot::Culprit::Limit => "limit",
            crate::snapshot::Culprit::Others => "other_processes",
            crate::snapshot::Culprit::Card => "card",
        }),
        "missing": refusal.missing(),
    })
}

/// The report on all devices of a file.
pub(super) fn object(file: &File, subjects: &[ReportSubject<'_>]) -> Value {
    json!({
        "units": { "sizes": "bytes" },
        "file": file.name,
        "events": file.whole.end(),
        "remarks": file.whole.remarks(),
        "devices": subjects.iter().map(device).collect::<Vec<_>>(),
        "recommended": for_all(subjects).map(tried),
    })
}

/// The settings that are best for all devices together.
fn for_all<'a>(subjects: &'a [ReportSubject<'_>]) -> Option<&'a TuningTrial> {
    let runs: Vec<_> =
        subjects.iter().filter_map(|subject| Some((&subject.tried.as_ref()?.tuning, subject.run))).collect();
    Tuning::for_all(&runs)?.first().copied()
}

fn device(of: &ReportSubject<'_>) -> Value {
    let ReportSubject { examined, run, tried: tried_out, .. } = of;
    let view = &examined.view;
    let leaks: Vec<Value> = examined.leaks.iter().map(|leak| json!(leak)).collect();
    let leaking: Bytes = examined.leaks.iter().map(|leak| leak.bytes_per_step).sum();
    let failures: Vec<Value> =
        examined.failures.iter().map(|autopsy| export::out_of_memory(autopsy, &of.view_at(autopsy), &WORDS)).collect();
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
    let range = |LimitRange { least, below }: LimitRange| json!({ "least": least, "below": below });
    let tuning = tried_out.as_ref().map(|tried| &tried.tuning);
    let loose = tried_out.as_ref().and_then(|tried| tried.loose.as_ref());
    json!({
        "device": run.facts.device,
        "ranks": examined.alike.as_ref().map(|alike| &alike.ranks),
        "allocated": examined.end.ledger.allocated(),
        "reserved": examined.end.ledger.reserved(),
        "peak_allocated": view.peak_allocated,
        "peak_reserved": view.peak_reserved,
        "peaks_overwritten": of.overwritten(),
        "stranded": fullest.ledger.stranded,
        "fragmentation": fullest.ledger.fragmentation(),
        "conf": run.facts.conditions.text(),
        "torch_at_least": of.oldest,
        "steps": run.facts.steps,
        "limit": run.facts.conditions.limit.filter(|_| run.facts.unknown_limit.is_none()).or(view.limit),
        "limit_unknown": run.facts.unknown_limit.map(range),
        "history": of.whole.history(run.facts.device).cloned().unwrap_or(HistoryReport {
            exact_from: Some(0),
            ..HistoryReport::default()
        }),
        "remarks": run.facts.remarks,
        "peak": standing(&examined.peak),
        "end": standing(&examined.end),
        "stranding": stranding.collect::<Vec<_>>(),
        "findings": view.findings.iter().map(|finding| export::finding(finding, &WORDS)).collect::<Vec<_>>(),
        "repetitions": examined.rhythm.map(|rhythm| json!({ "times": rhythm.times, "told": rhythm.is_told() })),
        "leaks": leaks,
        "leak_per_step": examined.rhythm.map(|_| leaking),
        "num_ooms": examined.ooms,
        "ooms": failures,
        "smallest_limit": tried_out.as_ref().and_then(|tried| tried.smallest),
        "exact": tried_out.as_ref().map(|tried| run.is_exact(&tried.again)),
        "recommended": tuning.and_then(|tuning| tuning.recommended(run)).map(tried),
        "recommended_at_most": loose.and_then(|tuning| tuning.recommended(run)).map(tried),
        "tried": tuning.map(|tuning| tuning.front().into_iter().map(tried).collect::<Vec<_>>()),
    })
}

fn standing(of: &MomentHoldings) -> Value {
    let by_category = Category::ALL
        .into_iter()
        .map(|category| (category.label().to_owned(), json!(of.by_category[category as usize])));
    let holder = |held: &Survivor| {
        json!({
            "line": held.name,
            "within": of.within.get(&held.name),
            "category": held.category,
            "bytes": held.bytes,
            "blocks": held.blocks,
        })
    };
    let module = |held: &Survivor| json!({ "module": held.name, "category": held.category, "bytes": held.bytes, "blocks": held.blocks });
    json!({
        "position": of.position,
        "by_category": Value::Object(by_category.collect()),
        "holders": of.holders.iter().map(holder).collect::<Vec<_>>(),
        "modules": of.modules.iter().map(module).collect::<Vec<_>>(),
    })
}

fn tried(of: &TuningTrial) -> Value {
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
