//! The state at a moment as one object, in the vocabulary of `vramlab run --json`.

use std::io::Write;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::devices::{Devices, ExportedDevice};
use super::error::ExportError;
use super::kept::LastSteps;
use crate::model::{
    Autopsy, Category, EventKind, Finding, Mark, MarkKind, ModuleOutput, Ranks, Remedy, RemedyTrial, Study, View,
};
use crate::source::Whole;
use crate::units::{Bytes, DeviceIndex};

/// Texts that depend on the front end.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The command line's flags for a remedy.
    pub flag: fn(&Remedy) -> String,
    /// The autopsy of a view, in lines.
    pub autopsy: fn(&View) -> Vec<String>,
}

/// A finding: its figures, its sentence, and the command line's flags for it.
#[must_use]
pub fn finding(finding: &Finding, words: &Words) -> Value {
    json!({
        "level": finding.level,
        "evidence": finding.evidence,
        "sentence": finding.to_string(),
        "remedies": finding.remedies,
        "flags": finding.remedies.iter().map(words.flag).collect::<Vec<_>>(),
    })
}

/// An autopsy, as data and in words.
#[must_use]
pub fn out_of_memory(autopsy: &Autopsy, view: &View, words: &Words) -> Value {
    let mut value = json!(autopsy);
    if let Some(object) = value.as_object_mut() {
        object.insert("name".into(), json!(view.names.get(autopsy.request.name)));
        object.insert("words".into(), json!((words.autopsy)(view)));
    }
    value
}

/// The outputs of modules in the order in which they return, with the memory that each kept until backward if the study
/// contains a forward pass followed by a backward pass.
#[must_use]
pub fn modules(view: &View, study: Option<&Study>) -> Value {
    let row = |row: &ModuleOutput| {
        let module = view.names.get(row.module);
        json!({
            "module": module,
            "shape": row.shape,
            "dtype": view.names.get(row.dtype),
            "bytes": row.bytes,
            "kept": study.and_then(|study| study.kept_by(module)),
            "calls": row.calls,
        })
    };
    view.modules.iter().map(row).collect()
}

/// Writes the state of every device after `end` events.
pub(super) fn write(
    whole: &Whole,
    end: u64,
    words: &Words,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ExportError> {
    let (mut ranks, mut devices, mut steps) = (Ranks::default(), Devices::default(), LastSteps::default());
    whole.each(0..end, |index, event| {
        ranks.apply(event);
        devices.apply(event);
        steps.apply(index, event);
        progress(index, end);
        Ok::<_, ExportError>(())
    })?;
    let remedied = remedied_since(whole, end)?;
    let mut list = Vec::new();
    for (index, device) in devices.iter().filter(|(_, device)| device.seen) {
        if let Some(lab) = ranks.lab_mut(index) {
            let view = lab.view();
            let study = if view.modules.is_empty() { None } else { steps.study(whole, index, end, lab.names())? };
            list.push(state(view, study.as_ref(), device, &remedied, words));
        }
    }
    let object = json!({
        "units": { "sizes": "bytes", "times": "microseconds" },
        "position": end,
        "events": whole.end(),
        "remarks": whole.remarks(),
        "devices": list,
    });
    serde_json::to_writer(&mut *out, &object).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

/// The trials made for failed requests, by device.
type RemedyTrials = Vec<(DeviceIndex, Arc<[RemedyTrial]>)>;

/// Trials for requests that failed before `end`, including trials recorded only later.
fn remedied_since(whole: &Whole, end: u64) -> Result<RemedyTrials, ExportError> {
    let (mut over, mut found) = (Vec::new(), Vec::new());
    whole.each(end..whole.end(), |_, event| {
        match &event.kind {
            EventKind::Remedied(remedied) if !over.contains(&event.device) => {
                found.push((event.device, Arc::clone(remedied)));
                over.push(event.device);
            }
            EventKind::StepBegin { .. } | EventKind::Oom(_) if !over.contains(&event.device) => over.push(event.device),
            _ => {}
        }
        Ok::<_, ExportError>(())
    })?;
    Ok(found)
}

fn state(
    mut view: View,
    study: Option<&Study>,
    device: &ExportedDevice,
    remedied: &[(DeviceIndex, Arc<[RemedyTrial]>)],
    words: &Words,
) -> Value {
    let index = view.device;
    let late = remedied.iter().find(|(device, _)| *device == index);
    if let (Some(autopsy), Some((_, remedied))) = (view.autopsy.as_mut().filter(|autopsy| !autopsy.tried), late) {
        let autopsy = Arc::make_mut(autopsy);
        (autopsy.remedied, autopsy.tried) = (Arc::clone(remedied), true);
    }
    let by_category = |bytes: &[Bytes; 9]| {
        let pairs =
            Category::ALL.into_iter().zip(bytes).map(|(category, bytes)| (category.label().to_owned(), json!(bytes)));
        Value::Object(pairs.collect())
    };
    let mut ledger = json!(view.ledger);
    if let Some(ledger) = ledger.as_object_mut() {
        ledger.insert("allocated".into(), json!(view.ledger.allocated()));
        ledger.insert("reserved".into(), json!(view.ledger.reserved()));
        ledger.insert("fragmentation".into(), json!(view.ledger.fragmentation()));
    }
    let stats = device.state().statistics().entries();
    let stats: Map<String, Value> = stats.into_iter().map(|(key, value)| (key, json!(value))).collect();
    json!({
        "device": index,
        "about": *view.about,
        "run": view.run,
        "settings": view.settings.0,
        "alloc_conf": device.state().settings().text(),
        "limit": view.limit,
        "time": view.time,
        "steps": view.steps.finished,
        "step": device.step,
        "phase": view.phase,
        "op": view.names.get(view.op),
        "ledger": ledger,
        "by_category": by_category(&view.by_category),
        "peak_allocated": view.peak_allocated,
        "peak_reserved": view.peak_reserved,
        "max_memory_allocated": view.max_memory_allocated(),
        "max_memory_reserved": view.max_memory_reserved(),
        "peak_position": view.peak_position,
        "stats": stats,
        "segments": segments(device),
        "findings": view.findings.iter().map(|one| finding(one, words)).collect::<Vec<_>>(),
        "modules": modules(&view, study),
        "history": history(&view),
        "marks": view.history.marks().map(mark).collect::<Vec<_>>(),
        "effects": view.effects.iter().map(|effect| json!(**effect)).collect::<Vec<_>>(),
        "readings": view.gpu.as_deref(),
        "oom": view.autopsy.as_deref().map(|autopsy| out_of_memory(autopsy, &view, words)),
        "malformed": view.malformed,
    })
}

/// All segments with all blocks, including free ones.
fn segments(device: &ExportedDevice) -> Vec<Value> {
    let segments = device.state().segments().map(|segment| {
        let blocks: Vec<Value> = segment
            .blocks
            .iter()
            .map(|block| {
                let label = device.label(block.address);
                let mut value = json!({
                    "address": block.address,
                    "size": block.size,
                    "requested": block.requested,
                    "state": block.state.name(),
                });
                if let (Some(object), Some(_)) = (value.as_object_mut(), device.state().block(block.address)) {
                    object.insert("category".into(), json!(label.category));
                    object.insert("name".into(), json!(device.name(label.name)));
                    object.insert("op".into(), json!(device.name(label.op)));
                }
                value
            })
            .collect();
        json!({
            "address": segment.address,
            "size": segment.size,
            "stream": segment.stream,
            "pool": segment.pool,
            "expandable": segment.expandable,
            "blocks": blocks,
        })
    });
    segments.collect()
}

/// The steps so far; several share an entry if the model has fewer columns.
fn history(view: &View) -> Vec<Value> {
    let width = crate::model::History::COLUMNS;
    let level = view.history.level_of_run(width);
    let columns = view.history.page(level, width).columns;
    let columns = columns.into_iter().map(|column| {
        json!({
            "step": column.step,
            "steps": 1_u64 << level.min(63),
            "position": column.position,
            "time": column.time,
            "floor": column.floor,
            "peak": column.peak,
            "reserved": column.reserved,
            "stranded": column.stranded,
            "limit": column.limit,
            "failed": column.failed,
        })
    });
    columns.collect()
}

fn mark(mark: &Mark) -> Value {
    let (kind, details) = match &mark.kind {
        MarkKind::Flip { switch, to } => ("flip", json!({ "switch": switch, "to": to })),
        MarkKind::EmptyCache { released } => ("empty_cache", json!({ "released": released })),
        MarkKind::OutOfMemory => ("oom", json!({})),
    };
    json!({ "kind": kind, "step": mark.step, "position": mark.position, "details": details })
}
