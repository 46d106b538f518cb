//! Predicts how long a search on the processor will take, by doing the same search without computation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{
    CandidateCost, Control, Largest, Pareto, ProbeFigures, ProbeOutcome, SearchNews, Terms, largest_batch, pareto,
};
use crate::model::Micros;
use crate::session::LabSpec;

/// The forecast for a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchForecast {
    /// A lower estimate of its time, in microseconds.
    pub time: Micros,
    /// The number of runs that it tries.
    pub probes: usize,
    /// True if the search was simulated to its end.
    pub whole: bool,
}

/// Simulates a search on the processor for `patience` at most, including the combinations of switches if `switches`.
/// `None` for a search elsewhere, or one that fails, which will report the error itself.
#[must_use]
pub fn foresee(spec: &LabSpec, steps: u64, switches: bool, patience: Duration) -> Option<SearchForecast> {
    let simulated = spec.without_arithmetic()?;
    let (stop, until) = (AtomicBool::new(false), Instant::now() + patience);
    let look = |_: SearchNews<'_>| {
        if Instant::now() > until {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let control = Control::new(&stop, &look);
    let terms = Terms { why: |_| String::new() };
    let largest = largest_batch(&simulated, steps, terms, &control).ok()?;
    let costed = match switches && !control.is_stopped() {
        true => pareto(&simulated, steps, terms, &control).ok()?,
        false => Pareto::default(),
    };
    Some(SearchForecast {
        time: Micros(
            costed.tried.iter().fold(time_of(&largest, steps), |sum, one| sum.saturating_add(of_costed(one, steps))),
        ),
        probes: largest.probes.len() + costed.tried.len(),
        whole: !control.is_stopped(),
    })
}

const fn whole(figures: &ProbeFigures, steps: u64) -> u64 {
    figures.step.0.saturating_mul(steps)
}

fn of_costed(costed: &CandidateCost, steps: u64) -> u64 {
    costed.figures().map_or(0, |figures| whole(figures, steps))
}

/// The time of the search. Runs that end because memory is short take half a step there, at the pace of the largest
/// batch that fits.
fn time_of(largest: &Largest, steps: u64) -> u64 {
    let fitting = |outcome: &ProbeOutcome| match outcome {
        ProbeOutcome::Fits(figures) => Some(figures.step.0),
        _ => None,
    };
    let pace = largest.best().and_then(|best| Some((fitting(&best.outcome)?, best.batch as u64)));
    let time = |batch: usize, outcome: &ProbeOutcome| match outcome {
        ProbeOutcome::Fits(figures) => whole(figures, steps),
        ProbeOutcome::OutOfMemory { step: Some(step), .. } => pace.map_or(0, |(time, best)| {
            (time.saturating_mul(batch as u64) / best.max(1)).saturating_mul(2 * step + 1) / 2
        }),
        _ => 0,
    };
    largest.probes.iter().fold(0, |sum: u64, probe| sum.saturating_add(time(probe.batch, &probe.outcome)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::MemoryLimit;
    use crate::units::Bytes;
    use crate::workload::Catalog;

    #[test]
    fn a_search_is_foreseen_by_its_probes() {
        let entry = Catalog::with_user_workloads(None).entry("mlp-mini").unwrap();
        let limit = |mebibytes| Some(MemoryLimit::Bytes(Bytes::mib(mebibytes)));
        let spec = |mebibytes| LabSpec { limit: limit(mebibytes), ..LabSpec::new(entry.clone()) };
        let of = |mebibytes| foresee(&spec(mebibytes), 2, false, Duration::from_secs(60)).unwrap();
        let (less, more) = (of(24), of(96));
        assert!(less.whole && less.probes > 4 && less.time > Micros(0), "{less:?}");
        // Four times the memory fits a larger batch, which takes longer.
        assert!(more.time > less.time && more.probes > less.probes, "{less:?} {more:?}");
        let cut = foresee(&spec(24), 2, false, Duration::ZERO).unwrap();
        assert!(!cut.whole && cut.probes < less.probes, "{cut:?}");
    }
}
