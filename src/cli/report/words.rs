//! What a report says.

use super::Subject;
use super::document::Part;
use crate::cli::table::{change, line, share};
use crate::cli::tune::to_paste;
use crate::cli::whatif::{reproduced, started};
use crate::cli::witness::flag;
use crate::model::{Remedy, StrandingSegment};
use crate::session::Switch;
use crate::source::Whole;
use crate::tui;
use crate::whatif::Tried;

/// Rows of a table.
const ROWS: usize = 10;
/// Settings that are told.
const SETTINGS: usize = 4;

/// The report on all devices.
pub(super) fn parts(name: &str, whole: &Whole, subjects: &[Subject]) -> Vec<Part> {
    let mut parts = vec![Part::Title(format!("Device memory of {name}"))];
    if !whole.remarks().is_empty() {
        parts.push(Part::Items(whole.remarks().to_vec()));
    }
    let word = if whole.is_snapshot() { of_pytorch } else { flag };
    for subject in subjects {
        if subjects.len() > 1 {
            parts.push(Part::Heading(format!("Device {}", subject.run.device.0)));
        }
        parts.extend(subject.figures());
        parts.extend(subject.holders());
        parts.extend(subject.fragmentation());
        parts.extend(subject.findings(word));
        parts.extend(subject.leaks());
        parts.extend(subject.failures(word));
        parts.extend(subject.settings());
    }
    parts
}

/// A remedy for a program of PyTorch's, which knows nothing of our flags.
fn of_pytorch(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Flip { switch, value } if switch == "alloc-conf" => format!("PYTORCH_CUDA_ALLOC_CONF={value}"),
        Remedy::Flip { switch, value } => match Switch::named(switch) {
            Some(named) => format!("{} {value}", named.label()),
            None => format!("{switch} {value}"),
        },
        Remedy::SmallerBatch { .. } => "a smaller batch".to_owned(),
        Remedy::HigherLimit => "more memory allowed to this process".to_owned(),
        remedy => flag(remedy),
    }
}

impl Subject {
    fn figures(&self) -> Vec<Part> {
        let (view, end) = (&self.examined.view, &self.examined.end);
        let row = |what: &str, allocated: String, reserved: String| vec![what.to_owned(), allocated, reserved];
        vec![Part::Table(vec![
            line(["", "allocated", "reserved"]),
            row("peak", view.peak_allocated.to_string(), view.peak_reserved.to_string()),
            row("at the end", end.ledger.allocated().to_string(), end.ledger.reserved().to_string()),
        ])]
    }

    fn holders(&self) -> Vec<Part> {
        let peak = &self.examined.peak;
        let all = peak.ledger.allocated();
        let mut lines = vec![line(["name", "for", "bytes", "of the peak", "blocks"])];
        for held in peak.holders.iter().take(ROWS) {
            lines.push(vec![
                held.name.clone(),
                held.category.label().to_owned(),
                held.bytes.to_string(),
                share(held.bytes.get(), all.get()),
                held.blocks.to_string(),
            ]);
        }
        let mut parts = vec![Part::Heading(format!("Who held the peak of {all} (event {})", peak.position))];
        parts.push(Part::Table(lines));
        if let Some(more) = peak.holders.len().checked_sub(ROWS).filter(|&more| more > 0) {
            let rest: crate::units::Bytes = peak.holders.iter().skip(ROWS).map(|held| held.bytes).sum();
            parts.push(Part::Text(format!(
                "and {rest} under {} more.",
                if more == 1 { "one name".to_owned() } else { format!("{more} names") }
            )));
        }
        parts
    }

    fn fragmentation(&self) -> Vec<Part> {
        let fullest = &self.examined.fullest;
        let (stranded, reserved) = (fullest.ledger.stranded, fullest.ledger.reserved());
        let mut parts = vec![Part::Heading("Fragmentation".to_owned())];
        parts.push(Part::Text(format!(
            "Where most is reserved ({reserved}, event {}), {stranded} ({}) are stranded: free, but in segments that live blocks \
             hold. The largest free block is {}.",
            fullest.position,
            share(stranded.get(), reserved.get()),
            fullest.ledger.largest_free
        )));
        let item = |(segment, holder): &(StrandingSegment, String)| {
            let (free, size) = (segment.free, segment.size);
            match segment.blocks {
                1 => format!("{free} of a segment of {size}: one block holds it, {holder} ({})", segment.holder.size),
                n => format!(
                    "{free} of a segment of {size}: {n} blocks hold it, the largest is {holder} ({})",
                    segment.holder.size
                ),
            }
        };
        if !fullest.stranding.is_empty() {
            parts.push(Part::Items(fullest.stranding.iter().map(item).collect()));
        }
        parts
    }

    fn findings(&self, word: fn(&Remedy) -> String) -> Vec<Part> {
        let findings = &self.examined.view.findings;
        if findings.is_empty() {
            return Vec::new();
        }
        let items = findings.iter().map(|finding| {
            let remedies: Vec<String> = finding.remedies.iter().map(word).collect();
            match remedies.is_empty() {
                true => finding.to_string(),
                false => format!("{finding}. What can be done: {}", remedies.join(", or ")),
            }
        });
        vec![Part::Heading("Findings at the end".to_owned()), Part::Items(items.collect())]
    }

    fn leaks(&self) -> Vec<Part> {
        let mut parts = vec![Part::Heading("Leaks".to_owned())];
        let Some(rhythm) = self.examined.rhythm else {
            parts.push(Part::Text(
                "The run does not repeat itself often enough to tell a leak from what is made once: record more steps."
                    .to_owned(),
            ));
            return parts;
        };
        let times = rhythm.times;
        let told = if rhythm.is_told() { "" } else { ", concluded from requests that come in equal distances" };
        if self.examined.leaks.is_empty() {
            parts.push(Part::Text(format!("Nothing holds more from step to step ({times} steps{told}).")));
            return parts;
        }
        parts.push(Part::Text(format!("These hold more after every step ({times} steps{told}):")));
        let mut lines = vec![line(["name", "for", "a step keeps", "blocks", "at the end"])];
        for leak in self.examined.leaks.iter().take(ROWS) {
            lines.push(vec![
                leak.line.clone(),
                leak.category.label().to_owned(),
                leak.bytes_per_step.to_string(),
                format!("{:.2}", leak.blocks_per_step),
                leak.bytes.to_string(),
            ]);
        }
        parts.push(Part::Table(lines));
        parts
    }

    fn failures(&self, word: fn(&Remedy) -> String) -> Vec<Part> {
        let Some(first) = self.examined.failures.first() else { return Vec::new() };
        let mut view = self.examined.view.clone();
        let ooms = self.examined.ooms;
        let heading =
            if ooms == 1 { "Out of memory".to_owned() } else { format!("Out of memory: {ooms} requests failed") };
        let mut parts = vec![Part::Heading(heading)];
        if ooms > 1 {
            parts.push(Part::Text("The first:".to_owned()));
        }
        view.autopsy = Some(first.clone());
        parts.push(Part::Items(
            tui::autopsy_lines(&view, usize::MAX, word).into_iter().filter(|line| !line.trim().is_empty()).collect(),
        ));
        if !self.tuning.tried.iter().any(Tried::fits) {
            parts.push(Part::Text(match self.tuning.serves_most() {
                Some(tried) => format!(
                    "No settings that were tried by replay serve every request; {} serve {} of the {ooms} that failed, and {} fail.",
                    tried.conditions, tried.figures.served, tried.figures.ooms
                ),
                None => "No settings that were tried by replay serve it: less must be allocated at once.".to_owned(),
            }));
        }
        if let Some(smallest) = self.smallest {
            parts.push(Part::Text(format!(
                "Under its own settings it goes through where the limit is {smallest} or more (tried by replay)."
            )));
        }
        parts
    }

    fn settings(&self) -> Vec<Part> {
        let Self { run, again, tuning, .. } = self;
        let mut parts = vec![Part::Heading("Settings of the allocator".to_owned()), Part::Text(reproduced(run, again))];
        let front = tuning.front();
        parts.extend(started(run, front.iter().map(|tried| &tried.conditions)).map(Part::Text));
        let before = run.figures.peak_reserved.get();
        let mut lines = vec![line(["", "peak reserved", "", "driver calls", "out of memory"])];
        let told = |n: u64| if n == 0 { "no".to_owned() } else { n.to_string() };
        lines.push(vec![
            format!("recorded: {}", run.conditions),
            run.figures.peak_reserved.to_string(),
            String::new(),
            (run.figures.segments_allocated + run.figures.segments_freed).to_string(),
            told(run.figures.ooms),
        ]);
        let best = tuning.recommended(run);
        let mut shown: Vec<&Tried> = front.into_iter().take(SETTINGS).collect();
        // What is advised is the simplest of those that are about as good: it may be beaten by a little.
        shown.extend(best.filter(|best| !shown.iter().any(|tried| std::ptr::eq(*tried, *best))));
        for tried in shown {
            lines.push(vec![
                format!("predicted: {}", tried.conditions),
                tried.figures.peak_reserved.to_string(),
                change(before, tried.figures.peak_reserved.get()),
                tried.calls().to_string(),
                told(tried.figures.ooms),
            ]);
        }
        parts.push(Part::Table(lines));
        match best {
            Some(best) => parts.push(Part::Code(to_paste(best))),
            None if tuning.tried.iter().any(Tried::fits) => {
                parts.push(Part::Text("No settings lower the peak by 1 % or more.".to_owned()));
            }
            None => parts.push(Part::Text("No settings serve every request.".to_owned())),
        }
        parts
    }
}
