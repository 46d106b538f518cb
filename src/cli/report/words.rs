//! The sentences and tables of a report.

use clap::ValueEnum;

use super::failure;
use super::part::DocumentPart;
use super::subject::ReportSubject;
use crate::cli::columns::{Cell, Column, Table, Tone};
use crate::cli::flags::flag;
use crate::cli::paste::paste;
use crate::cli::percent::{changed, share};
use crate::cli::whatif::{reproduced, started};
use crate::model::{Begins, Category, Evidence, Leak, Ledger, Remedy, StrandingSegment, Survivor};
use crate::session::in_program;
use crate::units::Bytes;
use crate::whatif::{RecordedRun, Tuning, TuningTrial};

/// What the report sums up held memory by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// By the source line that requested it.
    Line,
    /// By Python module, or by module of the lab's model.
    Module,
    /// By category: what the memory is for.
    Category,
}

/// Rows of a table.
const ROWS: usize = 10;
/// Settings that are listed.
const SETTINGS: usize = 4;

/// Everything that needs no replay under other settings, the most important first.
pub(super) fn before_settings(subject: &ReportSubject<'_>, by: By) -> Vec<DocumentPart> {
    let mut parts = failure::parts(subject);
    let leaks = subject.leaks();
    let leaking = !subject.examined.leaks.is_empty();
    if leaking {
        parts.extend(leaks.clone());
    }
    parts.extend(subject.figures());
    parts.extend(subject.holders(by));
    parts.extend(subject.fragmentation());
    parts.extend(subject.findings());
    if !leaking && subject.has_history() {
        parts.extend(leaks);
    }
    parts
}

/// A remedy for a PyTorch program, which does not have our flags.
fn of_pytorch(remedy: &Remedy, subject: &ReportSubject<'_>) -> String {
    match remedy {
        Remedy::HigherLimit => "more memory allowed to this process".to_owned(),
        remedy => in_program(remedy, subject.oldest),
    }
}

impl ReportSubject<'_> {
    fn figures(&self) -> Vec<DocumentPart> {
        let (view, end) = (&self.examined.view, &self.examined.end);
        let row = |what: &str, allocated: Bytes, reserved: Bytes| {
            vec![what.to_owned(), allocated.to_string(), reserved.to_string()]
        };
        let mut table = Table::new([Column::left(""), Column::right("allocated"), Column::right("reserved")]);
        if self.has_history() {
            let what = if self.overwritten() { "peak, at least" } else { "peak" };
            table.words(row(what, view.peak_allocated, view.peak_reserved));
        }
        table.words(row("at the end", end.ledger.allocated(), end.ledger.reserved()));
        let mut parts = vec![DocumentPart::Heading("Figures".to_owned()), DocumentPart::Table(table)];
        if self.overwritten() {
            parts.push(DocumentPart::Text(
                "The ring buffer of the recording overflowed, and its oldest entries are gone: the real peaks may be higher. Record \
                 with a larger max_entries."
                    .to_owned(),
            ));
        }
        if self.has_history() {
            parts.push(DocumentPart::Curve(self.examined.curve.clone()));
        }
        parts
    }

    fn holders(&self, by: By) -> Vec<DocumentPart> {
        let (standing, heading) = if self.has_history() {
            let peak = &self.examined.peak;
            (peak, format!("Who held the peak of {} (event {})", peak.ledger.allocated(), peak.position))
        } else {
            let end = &self.examined.end;
            (end, format!("Who holds the {} at the end", end.ledger.allocated()))
        };
        let all = standing.ledger.allocated();
        let part = if self.has_history() { "of the peak" } else { "of all" };
        let of = |held: &Survivor| {
            vec![
                held.category.label().to_owned(),
                held.bytes.to_string(),
                share(held.bytes.get(), all.get()),
                held.blocks.to_string(),
            ]
        };
        let held: &[Survivor] = match by {
            By::Line => &standing.holders,
            By::Module => &standing.modules,
            By::Category => {
                let mut table = Table::new([Column::left("for"), Column::right("bytes"), Column::right(part)]);
                let mut each: Vec<(Category, Bytes)> = Category::ALL.into_iter().zip(standing.by_category).collect();
                each.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
                for (category, bytes) in each.into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO) {
                    table.words(vec![category.label().to_owned(), bytes.to_string(), share(bytes.get(), all.get())]);
                }
                return vec![DocumentPart::Heading(heading), DocumentPart::Table(table)];
            }
        };
        // For a line inside a package, another column says which of its layers it was.
        let within = by == By::Line && held.iter().take(ROWS).any(|held| standing.within.contains_key(&held.name));
        let name = if by == By::Module { "module" } else { "name" };
        let mut columns = vec![
            Column::wraps(name),
            Column::left("for"),
            Column::right("bytes"),
            Column::right(part),
            Column::right("blocks").spare(1),
        ];
        if within {
            columns.push(Column::wraps("most of it in"));
        }
        let mut table = Table::new(columns);
        for held in held.iter().take(ROWS) {
            let mut row = vec![held.name.clone()];
            row.extend(of(held));
            if within {
                row.push(standing.within.get(&held.name).cloned().unwrap_or_default());
            }
            table.words(row);
        }
        let mut parts = vec![DocumentPart::Heading(heading), DocumentPart::Table(table)];
        if let Some(more) = held.len().checked_sub(ROWS).filter(|&more| more > 0) {
            let rest: Bytes = held.iter().skip(ROWS).map(|held| held.bytes).sum();
            parts.push(DocumentPart::Text(format!(
                "and {rest} under {} more.",
                if more == 1 { "one name".to_owned() } else { format!("{more} names") }
            )));
        }
        parts
    }

    fn fragmentation(&self) -> Vec<DocumentPart> {
        let fullest = &self.examined.fullest;
        let ledger = if self.has_history() { fullest.ledger } else { self.examined.end.ledger };
        let (stranded, reserved) = (ledger.stranded, ledger.reserved());
        let mut parts = vec![DocumentPart::Heading("Fragmentation".to_owned())];
        let when = match self.has_history() {
            true => format!("Where most is reserved ({reserved}, event {})", fullest.position),
            false => format!("At the end, of {reserved} reserved"),
        };
        let kept = match ledger.releasable {
            Bytes::ZERO => String::new(),
            kept => format!(
                " {kept} ({}) are releasable: whole segments that are free and kept for later.",
                share(kept.get(), reserved.get())
            ),
        };
        parts.push(DocumentPart::Text(format!(
            "{when}, {} are allocated.{kept} {stranded} ({}) are stranded: free, but in segments that live blocks hold. The largest \
             free block is {}.",
            ledger.allocated(),
            share(stranded.get(), reserved.get()),
            ledger.largest_free
        )));
        let items = stranding(&fullest.stranding, &ledger);
        if !items.is_empty() {
            parts.push(DocumentPart::Items(items));
        }
        parts
    }

    /// Findings that no other section reports.
    fn findings(&self) -> Vec<DocumentPart> {
        // Free memory after the end of a job is no finding.
        let said = |evidence: &Evidence| match evidence {
            Evidence::OutOfMemory { .. } | Evidence::Stranded { .. } => true,
            Evidence::Leak { .. } => !self.examined.leaks.is_empty(),
            Evidence::Releasable { .. } => self.is_pytorchs(),
            _ => false,
        };
        let findings = self.examined.view.findings.iter().filter(|finding| !said(&finding.evidence));
        let items: Vec<String> = findings
            .map(|finding| {
                let words = |remedy| if self.is_pytorchs() { of_pytorch(remedy, self) } else { flag(remedy) };
                let remedies: Vec<String> = finding.remedies.iter().map(words).collect();
                match remedies.is_empty() {
                    true => finding.to_string(),
                    false => format!("{finding}. What can be done: {}", remedies.join(", or ")),
                }
            })
            .collect();
        if items.is_empty() {
            Vec::new()
        } else {
            vec![DocumentPart::Heading("Findings".to_owned()), DocumentPart::Items(items)]
        }
    }

    /// What every step leaves behind: how much in all, which lines, why, and what to do.
    fn leaks(&self) -> Vec<DocumentPart> {
        let leaks = &self.examined.leaks;
        let Some(rhythm) = self.examined.rhythm else {
            let text =
                "The run has too few repeating steps to tell a leak from memory that is taken once: record more steps.";
            return vec![DocumentPart::Heading("Leaks".to_owned()), DocumentPart::Text(text.to_owned())];
        };
        let times = rhythm.times;
        let told = if rhythm.is_told() { "" } else { ", inferred from the repeating pattern of requests" };
        if leaks.is_empty() {
            let text = format!("Nothing holds more from step to step ({times} steps{told}).");
            return vec![DocumentPart::Heading("Leaks".to_owned()), DocumentPart::Verdict(Tone::Good, text)];
        }
        let rate: Bytes = leaks.iter().map(|leak| leak.bytes_per_step).sum();
        let steps = leaks.iter().map(|leak| leak.steps).max().unwrap_or(0);
        let mut text = format!("A leak: every step leaves {rate} behind ({steps} steps seen{told}).");
        let room = self.run.facts.conditions.limit.or(self.run.facts.conditions.device.map(|device| device.total));
        if let Some(room) = room.filter(|_| rate > Bytes::ZERO && self.run.facts.unknown_limit.is_none())
            && self.examined.ooms == 0
        {
            let left = room.saturating_sub(self.examined.view.peak_reserved).get() / rate.get().max(1);
            text +=
                &format!(" At this rate the {room} that it may have are full after about {} more steps.", about(left));
        }
        let mut table = Table::new([
            Column::wraps("name"),
            Column::left("for"),
            Column::right("a step keeps"),
            Column::right("blocks").spare(1),
            Column::right("at the end"),
        ]);
        for leak in leaks.iter().take(ROWS) {
            table.words(vec![
                leak.line.clone(),
                self.category_of(leak).label().to_owned(),
                leak.bytes_per_step.to_string(),
                format!("{:.2}", leak.blocks_per_step),
                leak.bytes.to_string(),
            ]);
        }
        let mut parts = vec![
            DocumentPart::Heading("Leaks".to_owned()),
            DocumentPart::Verdict(Tone::Bad, text),
            DocumentPart::Table(table),
        ];
        if let Some(more) = leaks.len().checked_sub(ROWS).filter(|&more| more > 0) {
            parts.push(DocumentPart::Text(format!("and {more} more.")));
        }
        let given_back = leaks.iter().all(|leak| leak.bytes == Bytes::ZERO);
        let ends = if given_back { " All of it was given back before the recording ended." } else { "" };
        parts.push(DocumentPart::Text(cause(leaks) + ends));
        parts
    }

    /// The category of most of the memory that a name holds at the end, in the same word as everywhere else.
    fn category_of(&self, leak: &Leak) -> Category {
        let held = self.examined.end.holders.iter().find(|held| held.name == leak.line);
        held.map_or(leak.category, |held| held.category)
    }
}

/// Segments whose free bytes are stranded by live blocks; equal ones are counted. Small amounts are left out:
/// everything if less than 1 % of all reserved memory is stranded, and segments with less than a twentieth of the
/// stranded bytes.
fn stranding(segments: &[(StrandingSegment, String)], ledger: &Ledger) -> Vec<String> {
    if ledger.stranded.get() * 100 < ledger.reserved().get() {
        return Vec::new();
    }
    let mut items: Vec<(u64, String, String)> = Vec::new();
    for (segment, holder) in segments.iter().filter(|(segment, _)| segment.free.get() * 20 >= ledger.stranded.get()) {
        let (free, size) = (segment.free, segment.size);
        let where_ = format!("{free} of a segment of {size}");
        let held = match segment.blocks {
            1 => format!("one block holds it, {holder} ({})", segment.holder.size),
            n => format!("{n} blocks hold it, the largest is {holder} ({})", segment.holder.size),
        };
        match items.iter_mut().find(|(_, other, by)| *other == where_ && *by == held) {
            Some((count, ..)) => *count += 1,
            None => items.push((1, where_, held)),
        }
    }
    let words = |(count, where_, held): (u64, String, String)| match count {
        1 => format!("{where_}: {held}"),
        n => format!("{n} × {where_}: {held}"),
    };
    items.into_iter().map(words).collect()
}

/// A number rounded to two digits: an extrapolation is no more certain.
fn about(number: u64) -> u64 {
    let digits = number.checked_ilog10().unwrap_or(0).saturating_sub(1);
    let unit = 10_u64.pow(digits);
    (number / unit).saturating_mul(unit)
}

/// Why memory of finished steps stays, as far as the names show, and what to do.
fn cause(leaks: &[Leak]) -> String {
    let first = leaks.first().map_or("", |leak| &*leak.line);
    match leaks.len() {
        0 => String::new(),
        1 => format!(
            "Only {first} grows: what it makes is kept by the program, in a list, a dictionary or an attribute. Keep a number \
             (.item()) or a copy without its graph (.detach().cpu()), or clear it."
        ),
        n => format!(
            "{n} lines grow together, as the saved tensors of one graph do: something keeps a loss or an output with its graph. Keep \
             loss.item() or output.detach() in place of it, and evaluate under torch.no_grad()."
        ),
    }
}

/// The settings that were tried on all devices, and one line to paste: all processes start with one environment.
pub(super) fn settings(subjects: &[ReportSubject<'_>]) -> Vec<DocumentPart> {
    let mut parts = Vec::new();
    let known: Vec<(&ReportSubject<'_>, &Tuning)> =
        subjects.iter().filter_map(|subject| Some((subject, &subject.tried.as_ref()?.tuning))).collect();
    if known.is_empty() {
        return parts;
    }
    parts.push(DocumentPart::Heading("Settings of the allocator".to_owned()));
    if known.iter().any(|(subject, _)| !subject.examined.leaks.is_empty()) {
        parts.push(DocumentPart::Text(
            "No setting helps against the leak: what a step leaves behind is live, and a lower peak only puts the end off."
                .to_owned(),
        ));
    }
    for (subject, tuning) in &known {
        if known.len() > 1 {
            parts.push(DocumentPart::Text(format!("Device {}:", subject.run.facts.device.0)));
        }
        parts.extend(table(subject, tuning));
    }
    let runs: Vec<(&Tuning, &RecordedRun)> = known.iter().map(|(subject, tuning)| (*tuning, subject.run)).collect();
    let unknown = known.iter().any(|(subject, _)| subject.run.facts.unknown_limit.is_some());
    let none_fits = || known.iter().any(|(_, tuning)| !tuning.tried.iter().any(TuningTrial::fits));
    match (Tuning::for_all(&runs), known.first()) {
        (Some(best), Some((subject, _))) => {
            let Some(tried) = best.first() else { return parts };
            if known.len() > 1 {
                parts.push(DocumentPart::Text("The best for all of them, in one environment:".to_owned()));
            }
            let paste = paste(&tried.conditions, subject.run, subject.oldest);
            parts.push(DocumentPart::Code(paste.shell));
            parts.extend(paste.program.map(DocumentPart::Code));
        }
        // The section on the failure says which settings work with which limit.
        _ if unknown => {}
        // The section on the failure also says that no settings serve every request.
        _ if none_fits() && known.iter().all(|(subject, _)| subject.is_pytorchs() && subject.failure().is_some()) => {}
        _ if none_fits() => {
            parts.push(DocumentPart::Text("None of the settings tried serves every request.".to_owned()))
        }
        _ => parts
            .push(DocumentPart::Text("No settings lower the peak by 1 % or more: leave them as they are.".to_owned())),
    }
    parts
}

fn table(subject: &ReportSubject<'_>, tuning: &Tuning) -> Vec<DocumentPart> {
    let ReportSubject { run, tried: Some(tried), .. } = subject else { return Vec::new() };
    let worth = tuning.worth_telling(run);
    let mut parts = vec![DocumentPart::Text(reproduced(run, &tried.again))];
    parts.extend(started(run, worth.iter().map(|tried| &tried.conditions)).map(DocumentPart::Text));
    if worth.is_empty() {
        return parts;
    }
    let before = run.facts.figures.peak_reserved.get();
    let served = run.facts.figures.ooms > 0;
    let mut table = Table::new([
        Column::wraps(""),
        Column::right("peak reserved"),
        Column::right(""),
        Column::right("driver calls").spare(1),
    ]);
    table.words(vec![
        match run.facts.figures.ooms {
            0 => format!("recorded: {}", run.facts.conditions),
            1 => format!("recorded: {} (ran out of memory)", run.facts.conditions),
            n => format!("recorded: {} ({n} requests failed)", run.facts.conditions),
        },
        run.facts.figures.peak_reserved.to_string(),
        String::new(),
        (run.facts.figures.segments_allocated + run.facts.figures.segments_freed).to_string(),
    ]);
    let best = tuning.recommended(run);
    let mut shown: Vec<&TuningTrial> = worth.into_iter().take(SETTINGS).collect();
    // The recommended settings are the simplest of those that are about equally good, so others may be slightly better.
    shown.extend(best.filter(|best| !shown.iter().any(|tried| std::ptr::eq(*tried, *best))));
    for tried in shown {
        table.row(vec![
            format!("predicted: {}", tried.conditions).into(),
            tried.figures.peak_reserved.to_string().into(),
            // A percentage relative to a run that stopped early says nothing.
            if served { Cell::toned("fits", Tone::Good) } else { changed(before, tried.figures.peak_reserved.get()) },
            tried.calls().to_string().into(),
        ]);
    }
    parts.push(DocumentPart::Table(table));
    if run.facts.begins == Some(Begins::Ring) {
        parts.push(DocumentPart::Text("Both are of the part of the run that is recorded.".to_owned()));
    }
    parts
}
