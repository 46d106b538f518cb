//! Several devices side by side: which is the worst, and how much they differ.

use super::part::DocumentPart;
use super::subject::ReportSubject;
use crate::cli::columns::{Column, Table};
use crate::units::Bytes;

/// The index of the device that matters most: with failed requests, else with the most reserved memory.
pub(super) fn worst(subjects: &[ReportSubject<'_>]) -> usize {
    let badness = |subject: &ReportSubject<'_>| (subject.examined.ooms > 0, peak(subject));
    (0..subjects.len()).rev().max_by_key(|index| badness(&subjects[*index])).unwrap_or(0)
}

fn peak(subject: &ReportSubject<'_>) -> (Bytes, Bytes) {
    (subject.examined.view.peak_reserved, subject.examined.view.peak_allocated)
}

/// A table of all devices, and a sentence on how they differ.
pub(super) fn parts(subjects: &[ReportSubject<'_>]) -> Vec<DocumentPart> {
    let mut table = Table::new([
        Column::wraps(""),
        Column::left("device"),
        Column::right("peak reserved"),
        Column::right("peak allocated"),
        Column::right("at the end").spare(1),
        Column::right("a step keeps"),
        Column::right("failed"),
    ]);
    for subject in subjects {
        let view = &subject.examined.view;
        let leak: Bytes = subject.examined.leaks.iter().map(|leak| leak.bytes_per_step).sum();
        let keeps = match subject.examined.rhythm {
            None => "not known".to_owned(),
            Some(_) if leak == Bytes::ZERO => "nothing".to_owned(),
            Some(_) => leak.to_string(),
        };
        let failed = if subject.examined.ooms == 0 { "no".to_owned() } else { subject.examined.ooms.to_string() };
        table.words(vec![
            subject.file.to_owned(),
            number(subject),
            view.peak_reserved.to_string(),
            view.peak_allocated.to_string(),
            subject.examined.end.ledger.allocated().to_string(),
            keeps,
            failed,
        ]);
    }
    let one_file = subjects.windows(2).all(|pair| pair[0].file == pair[1].file);
    let heading = if one_file { "Devices" } else { "Ranks" };
    vec![DocumentPart::Heading(heading.to_owned()), DocumentPart::Table(table), DocumentPart::Text(imbalance(subjects))]
}

/// The device's number, and the rank that owns it.
fn number(subject: &ReportSubject<'_>) -> String {
    let device = subject.run.facts.device.0;
    subject.examined.alike.as_ref().map_or_else(|| device.to_string(), |alike| format!("{device} ({})", alike.words()))
}

/// How far the worst device is from the mean, and from the lowest. A GPU that a rank uses besides its own does not count.
fn imbalance(subjects: &[ReportSubject<'_>]) -> String {
    let has_ranks = subjects.iter().any(|subject| subject.examined.alike.is_some());
    // A device that stands for several ranks counts as often.
    let counts = |subject: &ReportSubject<'_>| match &subject.examined.alike {
        Some(alike) => alike.ranks.len() as u64,
        None => u64::from(!has_ranks),
    };
    let compared = || subjects.iter().filter(|subject| counts(subject) > 0);
    let peak = |subject: &ReportSubject<'_>| subject.examined.view.peak_allocated.get();
    let (most, least) = (compared().map(peak).max().unwrap_or(0), compared().map(peak).min().unwrap_or(0));
    let sum: f64 = compared().map(|subject| peak(subject) as f64 * counts(subject) as f64).sum();
    let mean = sum / compared().map(counts).sum::<u64>().max(1) as f64;
    let over = if mean > 0.0 { (most as f64 / mean - 1.0) * 100.0 } else { 0.0 };
    let Some(worst) = subjects.get(worst(subjects)) else { return String::new() };
    let worst = format!("{}, device {}", worst.file, number(worst));
    if has_ranks && compared().count() == 1 {
        return format!("The ranks were recorded as one. Looked at below: {worst}.");
    }
    if most - least < most / 200 {
        return format!("Peaks are within 0.5 % of one another. Looked at below: {worst}.");
    }
    let apart = Bytes(most - least);
    format!(
        "The highest peak of allocated memory is {over:.1} % above the mean, {apart} above the lowest. The worst: {worst}."
    )
}
