//! Settings under which every request of a run would have been served, in sentences.

use super::paste::in_words;
use crate::allocator::TorchVersion;
use crate::whatif::{LimitRange, RecordedRun, Tuning, TuningTrial, smallest_limit};

/// The most settings that are listed.
const TOLD: usize = 3;

/// An unrecorded limit, and the results of replays under the lowest and the highest that it can have been.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitEnds<'a> {
    pub range: LimitRange,
    pub least: &'a Tuning,
    pub most: &'a Tuning,
}

/// The settings that fit, the best first, with what they reserve.
pub(super) fn fitting(run: &RecordedRun, oldest: TorchVersion, tuning: &Tuning) -> Vec<String> {
    if !tuning.tried.iter().any(TuningTrial::fits) {
        return Vec::new();
    }
    let best = tuning.recommended(run);
    let mut all: Vec<&TuningTrial> = best.into_iter().collect();
    all.extend(tuning.front().into_iter().filter(|tried| best.is_none_or(|best| best.conditions != tried.conditions)));
    let words = |tried: &TuningTrial| {
        let words = in_words(tried.conditions.text(), oldest);
        format!("{words} reserves {}", tried.figures.peak_reserved)
    };
    all.into_iter().take(TOLD).map(words).collect()
}

/// The settings that fit at both ends of the limit's possible range.
pub(super) fn in_range(run: &RecordedRun, oldest: TorchVersion, ends: LimitEnds<'_>) -> Vec<String> {
    let LimitEnds { range, least, most } = ends;
    let always = fitting(run, oldest, least);
    if !always.is_empty() {
        return vec![format!(
            "Would have fitted, whichever limit it was: {} (replayed at both ends).",
            always.join(", or ")
        )];
    }
    let Some(best) = most.recommended(run) else {
        let text =
            "Whichever limit it was, no settings that were tried would have served it: less must be allocated at once.";
        return vec![text.to_owned()];
    };
    let words = in_words(best.conditions.text(), oldest);
    let from = smallest_limit(&run.program, &best.conditions).unwrap_or_else(|| range.most());
    vec![
        format!(
            "With the least that the limit can be, {}, no settings that were tried would have served it.",
            range.least
        ),
        format!("Where the limit is {from} or more, {words} fits (replayed)."),
    ]
}
