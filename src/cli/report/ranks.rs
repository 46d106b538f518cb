//! Several devices side by side: which is the worst, and how far they are apart.

use super::part::Part;
use super::subject::Subject;
use crate::cli::table::line;
use crate::units::Bytes;

/// The one that matters most: where requests failed, else where most was reserved.
pub(super) fn worst(subjects: &[Subject<'_>]) -> usize {
    let badness = |subject: &Subject<'_>| (subject.examined.ooms > 0, peak(subject));
    (0..subjects.len()).rev().max_by_key(|index| badness(&subjects[*index])).unwrap_or(0)
}

fn peak(subject: &Subject<'_>) -> (Bytes, Bytes) {
    (subject.examined.view.peak_reserved, subject.examined.view.peak_allocated)
}

/// A table of all, and a sentence on how they differ.
pub(super) fn parts(subjects: &[Subject<'_>]) -> Vec<Part> {
    let mut lines =
        vec![line(["", "device", "peak reserved", "peak allocated", "at the end", "a step keeps", "failed"])];
    for subject in subjects {
        let view = &subject.examined.view;
        let leak: Bytes = subject.examined.leaks.iter().map(|leak| leak.bytes_per_step).sum();
        let keeps = match subject.examined.rhythm {
            None => "not known".to_owned(),
            Some(_) if leak == Bytes::ZERO => "nothing".to_owned(),
            Some(_) => leak.to_string(),
        };
        let failed = if subject.examined.ooms == 0 { "no".to_owned() } else { subject.examined.ooms.to_string() };
        lines.push(vec![
            subject.file.to_owned(),
            subject.run.facts.device.0.to_string(),
            view.peak_reserved.to_string(),
            view.peak_allocated.to_string(),
            subject.examined.end.ledger.allocated().to_string(),
            keeps,
            failed,
        ]);
    }
    let one_file = subjects.windows(2).all(|pair| pair[0].file == pair[1].file);
    let heading = if one_file { "Devices" } else { "Ranks" };
    vec![Part::Heading(heading.to_owned()), Part::Table(lines), Part::Text(imbalance(subjects))]
}

/// How far the worst is from the mean, and from the least.
fn imbalance(subjects: &[Subject<'_>]) -> String {
    let peaks = || subjects.iter().map(|subject| subject.examined.view.peak_allocated.get());
    let (most, least) = (peaks().max().unwrap_or(0), peaks().min().unwrap_or(0));
    let mean = peaks().sum::<u64>() as f64 / subjects.len().max(1) as f64;
    let over = if mean > 0.0 { (most as f64 / mean - 1.0) * 100.0 } else { 0.0 };
    let Some(worst) = subjects.get(worst(subjects)) else { return String::new() };
    if most - least < most / 200 {
        return format!(
            "Peaks are within 0.5 % of one another. Looked at below: {}, device {}.",
            worst.file, worst.run.facts.device.0
        );
    }
    format!(
        "The highest peak of allocated memory is {over:.1} % above the mean, {} above the lowest. The worst: {}, device {}.",
        Bytes(most - least),
        worst.file,
        worst.run.facts.device.0
    )
}
