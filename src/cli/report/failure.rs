//! Out of memory: what stopped the request, its size, how much was missing, what is live, and what would have fitted.

use std::sync::Arc;

use super::message;
use super::part::DocumentPart;
use super::subject::{ReportSubject, TriedOut};
use crate::cli::columns::Tone;
use crate::cli::flags::flag;
use crate::cli::serving::{LimitEnds, fitting, in_range};
use crate::model::Autopsy;
use crate::tui;
use crate::units::Bytes;

/// The section; empty if no request failed and there is no message.
pub(super) fn parts(subject: &ReportSubject<'_>) -> Vec<DocumentPart> {
    let ooms = subject.examined.ooms;
    let Some(failure) = subject.failure() else {
        let Some(refusal) = subject.asked.refusal else { return Vec::new() };
        let mut said = message::culprit(refusal).unwrap_or_default();
        said += &format!(
            " Asked: {}. No request failed in this file: it ends before that, or begins after it.",
            refusal.asked.size
        );
        return vec![DocumentPart::Heading("Out of memory".to_owned()), DocumentPart::Text(said)];
    };
    let heading = if ooms == 1 { "Out of memory".to_owned() } else { format!("Out of memory: {ooms} requests failed") };
    let mut parts = vec![DocumentPart::Heading(heading), DocumentPart::Verdict(Tone::Bad, first(subject, failure))];
    let mut items: Vec<String> = subject.asked.refusal.and_then(message::others).into_iter().collect();
    if subject.is_pytorchs() {
        let leaking = leaking(subject, failure);
        items.extend(leaking.iter().map(|(said, _)| said.clone()));
        items.extend(fits(subject, failure));
        // A smaller batch does not cure a leak.
        if leaking.is_none_or(|(_, left)| left < missing(subject, failure)) {
            items.extend(smaller_batch(subject, failure));
        }
    }
    let view = subject.view_at(failure);
    let lines = tui::autopsy_lines(&view, usize::MAX, flag);
    // The paragraph above says the same as the first line; remedies are worded for the program that ran.
    let told = |line: &&String| {
        let said = !subject.is_pytorchs() || ["live:", "free:", "tried:"].iter().any(|head| line.starts_with(head));
        said && !line.trim().is_empty()
    };
    let worded = |line: &String| if subject.is_pytorchs() { of_a_file(line) } else { line.clone() };
    items.extend(lines.iter().skip(1).filter(told).map(worded));
    parts.push(DocumentPart::Items(items));
    parts
}

/// A line on memory at that time, below the paragraph that says how much is live; for a program whose names include their files.
fn of_a_file(line: &str) -> String {
    let live = line.strip_prefix("live: ").and_then(|live| live.split_once(": "));
    match (live, line.strip_prefix("free: ")) {
        (Some((_, parts)), _) => {
            format!("Live: {}", parts.split_once("; largest module: ").map_or(parts, |(parts, _)| parts))
        }
        (None, Some(free)) => format!("Free: {free}"),
        (None, None) => line.to_owned(),
    }
}

/// What every step leaves behind, if that is eventually why memory ran out; and how much the steps before the failure left.
fn leaking(subject: &ReportSubject<'_>, failure: &Autopsy) -> Option<(String, Bytes)> {
    let leaks = &subject.examined.leaks;
    let first = leaks.first()?;
    let rate: Bytes = leaks.iter().map(|leak| leak.bytes_per_step).sum();
    // A small leak over many steps is not the reason.
    let left = Bytes(rate.get().saturating_mul(failure.step));
    if left.get() * 100 < failure.ledger.allocated().get() {
        return None;
    }
    let most = if leaks.len() > 1 { "most of it " } else { "" };
    let said = format!(
        "The program leaks: every step leaves {rate} behind, {most}taken by {}. A smaller batch, or other settings, only put the failure off.",
        first.line
    );
    Some((said, left))
}

/// How much memory was missing; an upper bound if the limit is unknown.
fn missing(subject: &ReportSubject<'_>, failure: &Autopsy) -> Bytes {
    match subject.run.facts.unknown_limit.filter(|_| failure.limit.is_none()) {
        Some(range) => (failure.ledger.reserved() + failure.request.segment).saturating_sub(range.least),
        None => failure.short,
    }
}

/// What stopped the request, its size, how much was missing, and what is live.
fn first(subject: &ReportSubject<'_>, failure: &Arc<Autopsy>) -> String {
    let request = &failure.request;
    let mut said = match (subject.run.facts.unknown_limit, failure.limit) {
        _ if request.device_free < request.segment => card(subject, request.device_free),
        (Some(range), _) => format!(
            "A limit of this process stopped it: the card had {} free. The file does not say which limit: it lies between {} and {} \
             (PyTorch's message says it: --error; or --limit).",
            request.device_free, range.least, range.below
        ),
        (None, Some(limit)) => format!(
            "A limit of this process stopped it: {limit} are allowed{}, and the card had {} free.",
            if subject.asked.told.is_some() { "" } else { " (as recorded)" },
            request.device_free
        ),
        (None, None) => format!("The card had {} free.", request.device_free),
    };
    let name = match subject.examined.view.names.get(request.name) {
        "" => String::new(),
        name => format!(", for {name}"),
    };
    let (segment, requested) = (request.segment.to_string(), request.requested.to_string());
    said += &match request.segment == request.rounded || segment == requested {
        true => format!(" Asked: {}{name}.", request.segment),
        false => format!(" Asked: {} (a tensor of {}){name}.", request.segment, request.requested),
    };
    let upto = if subject.run.facts.unknown_limit.is_some() && failure.limit.is_none() { "up to " } else { "" };
    said += &format!(" Missing: {upto}{}.", missing(subject, failure));
    said += &format!(" Live: {} of {} reserved.", failure.ledger.allocated(), failure.ledger.reserved());
    if let Some(refusal) = subject.asked.refusal
        && refusal.asked.size.get().abs_diff(request.segment.get()) > refusal.asked.slack.get()
    {
        said += &format!(" (The message is of another request, for {}: is it of this run?)", refusal.asked.size);
    }
    said
}

/// The paragraph for a driver that had no more memory.
fn card(subject: &ReportSubject<'_>, free: Bytes) -> String {
    let said = subject.asked.refusal.filter(|refusal| refusal.free.is_some()).and_then(message::culprit);
    said.unwrap_or_else(|| {
        format!(
            "The card is full: {free} were free. Whether other processes fill it is said by PyTorch's message (--error)."
        )
    })
}

/// What would have fitted, checked by replays.
fn fits(subject: &ReportSubject<'_>, failure: &Autopsy) -> Vec<String> {
    let Some(tried) = &subject.tried else { return Vec::new() };
    let mut said = match (subject.run.facts.unknown_limit, &tried.loose) {
        (Some(range), Some(loose)) => {
            in_range(subject.run, subject.oldest, LimitEnds { range, least: &tried.tuning, most: loose })
        }
        _ => vec![at_limit(subject, tried, failure)],
    };
    if let Some(smallest) = tried.smallest {
        said.push(format!(
            "Under its own settings all that is recorded goes through where the limit is {smallest} or more (replayed)."
        ));
    }
    said
}

fn at_limit(subject: &ReportSubject<'_>, tried: &TriedOut, failure: &Autopsy) -> String {
    let fitting = fitting(subject.run, subject.oldest, &tried.tuning);
    if !fitting.is_empty() {
        return format!("Would have fitted: {} (replayed).", fitting.join(", or "));
    }
    let ooms = subject.examined.ooms;
    let some = tried.tuning.serves_most().filter(|_| ooms > 1).map(|tried| {
        format!(
            " With {} {} of the {ooms} requests that failed are served, and {} {}.",
            tried.conditions,
            tried.figures.served,
            tried.figures.ooms,
            if tried.figures.ooms == 1 { "fails" } else { "fail" }
        )
    });
    let together = failure.ledger.allocated() + failure.request.rounded;
    let why = match failure.limit {
        Some(limit) if together > limit => {
            format!("what is live and what was asked are {together}, more than the {limit} allowed")
        }
        _ => "less must be allocated at once".to_owned(),
    };
    format!("No settings that were tried by replay would have served it: {why}.{}", some.unwrap_or_default())
}

/// By how much the memory that grows with the batch must fall; `None` if the file does not show which memory that is.
fn smaller_batch(subject: &ReportSubject<'_>, failure: &Autopsy) -> Option<String> {
    let (missing, grows) = (missing(subject, failure), tui::grows_with_batch(failure));
    let upto = if subject.run.facts.unknown_limit.is_some() { "up to " } else { "" };
    tui::share_of_batch(failure, missing).map(|share| {
        let setting = |name: &str| subject.examined.view.settings.get(name)?.value.parse().ok();
        let batch = setting("batch").and_then(|batch| batch_without(batch, setting("accum").unwrap_or(1), share));
        let batch = batch.map_or_else(String::new, |(from, to)| format!(", {from} → {to}"));
        format!(
            "A smaller batch: of what grows with it ({grows} live, and the request) {upto}{missing} must go: {upto}{:.0} % of the \
             batch{batch} (an estimate).",
            share.ceil()
        )
    })
}

/// The batch reduced by `share` per cent, and that rounded down to whole micro-batches; `None` if nothing is left.
fn batch_without(batch: u64, accumulation: u64, share: f64) -> Option<(u64, u64)> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a batch has at most 2²² samples"
    )]
    let left = (batch as f64 * (1.0 - share / 100.0)) as u64;
    let whole = left - left % accumulation.max(1);
    (whole > 0).then_some((batch, whole))
}

#[cfg(test)]
mod tests {
    use super::{batch_without, of_a_file};

    #[test]
    fn what_the_paragraph_above_says_is_not_said_again() {
        assert_eq!(
            of_a_file(
                "live: 5.30 GiB: activations 72 %, other 9 %; most: forward (main.py:67) ×100 3.24 GiB; largest module: main.py 4 GiB"
            ),
            "Live: activations 72 %, other 9 %; most: forward (main.py:67) ×100 3.24 GiB"
        );
        assert_eq!(of_a_file("free: 2.0 MiB in 1 piece"), "Free: 2.0 MiB in 1 piece");
    }

    #[test]
    fn a_smaller_batch_is_one_of_whole_micro_batches() {
        assert_eq!(batch_without(12, 1, 5.0), Some((12, 11)));
        assert_eq!(batch_without(12, 4, 5.0), Some((12, 8)));
        assert_eq!(batch_without(12, 4, 70.0), None);
        assert_eq!(batch_without(1, 1, 5.0), None);
    }
}
