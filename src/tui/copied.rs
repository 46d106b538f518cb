//! Texts to copy. They must make sense by themselves, because the run is out of sight outside of the screen.

use super::stage::Stage;
use super::when;
use super::words;
use crate::drawing::figures;
use crate::model::{DeviceKind, Finding};
use crate::session;
use crate::user_input::is_safe;

/// A text to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clipping {
    /// A short name for it.
    pub what: String,
    /// The text.
    pub text: String,
}

impl Clipping {
    /// Removes characters from `text` that command a terminal, except line ends and tabs.
    pub fn new(what: &str, text: &str) -> Self {
        let clean = |symbol: char| if is_safe(symbol) || "\n\t".contains(symbol) { symbol } else { '?' };
        Self { what: what.to_owned(), text: text.trim_end().chars().map(clean).collect() }
    }
}

/// `gpt2 on sim:h200 · NVIDIA H200 (simulated), step 41`.
pub(crate) fn whose(stage: &Stage<'_>) -> String {
    let view = stage.view();
    let about = &view.about;
    let simulated = match about.kind {
        DeviceKind::Gpu | DeviceKind::Processor => "",
        DeviceKind::Simulated => " (simulated)",
        DeviceKind::Absent => " (not there, nothing was computed)",
    };
    let whose = [&*about.workload, &*about.device].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
    format!("{}{simulated}, step {}", whose.join(" on "), stage.shown.steps.finished)
}

/// The figures of the moment shown, one per line.
pub(crate) fn moment(stage: &Stage<'_>) -> Clipping {
    let view = stage.shown;
    let ledger = &view.ledger;
    let mut at = whose(stage);
    if let Some(phase) = view.phase {
        at.push_str(&format!(", {}", phase.label()));
    }
    let op = view.names.get(view.op);
    if !op.is_empty() {
        at.push_str(&format!(", {op}"));
    }
    if stage.picture.marked.is_some() {
        at.push_str(&format!(", {}", when::words(stage.picture)));
    }
    let mut text = at;
    let peaks = [("peak allocated", view.peak_allocated), ("peak reserved", view.peak_reserved)];
    let peaks = peaks.into_iter().filter(|_| view.knows_peaks());
    let now = [
        ("allocated", ledger.allocated()),
        ("reserved", ledger.reserved()),
        ("live", ledger.live),
        ("rounding", ledger.rounding),
        ("pending", ledger.pending),
        ("stranded", ledger.stranded),
        ("releasable", ledger.releasable),
    ];
    let since = view.since_reset.map(|since| {
        [
            ("max_memory_allocated since the reset", since.allocated),
            ("max_memory_reserved since the reset", since.reserved),
        ]
    });
    for (name, bytes) in now.into_iter().chain(peaks).chain(since.into_iter().flatten()) {
        text.push_str(&format!("\n{name}: {} ({} bytes)", figures::bytes(bytes), bytes.get()));
    }
    Clipping::new("figures", &text)
}

/// A finding: its sentence with the evidence, where it was seen, and the remedies as flags for the next run.
pub(crate) fn finding(stage: &Stage<'_>, finding: &Finding) -> Clipping {
    let mut text = format!("{finding}\n({})", whose(stage));
    let ours = stage.view().about.history.is_none();
    let word = |remedy| if ours { session::in_flags(remedy) } else { words::in_program(stage, remedy) };
    let remedies: Vec<String> = finding.remedies.iter().map(word).collect();
    if !remedies.is_empty() {
        text.push_str(&format!("\nTry {}", remedies.join(", or ")));
    }
    Clipping::new("finding", &text)
}
