//! For a batch that does not fit: which other batches would, and with which switches.

use super::pareto::spec_of;
use super::{Candidate, CandidateCost, Control, FitError, Largest, Pareto, Terms, largest_batch, pareto};
use crate::session::LabSpec;
use crate::train::Config;

/// A combination of switches, and the largest batch with it.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateFit {
    /// The combination.
    pub candidate: Candidate,
    /// The result of the search with it, in which a batch fits.
    pub largest: Largest,
}

/// The largest batches with the fastest combination and with the one that needs least memory. Candidates are the
/// combinations in `found` that fit its batch; if none does, those that fit the smallest possible batch.
///
/// # Errors
/// See [`super::probe()`].
pub fn other_ways(
    spec: &LabSpec,
    found: &Pareto,
    steps: u64,
    terms: Terms,
    control: &Control<'_>,
) -> Result<Vec<CandidateFit>, FitError> {
    let mut from = spec.config.batch;
    let mut candidates = ends(&found.front());
    if candidates.is_empty() {
        from = spec.workload.workload(spec.sizes, spec.data.clone(), spec.seed).map_or(1, |w| w.least_micro_batch());
        let smallest = LabSpec { config: Config { batch: from, accumulation: 1, ..spec.config }, ..spec.clone() };
        candidates = ends(&pareto(&smallest, steps, terms, control)?.front());
    }
    let mut ways = Vec::new();
    for mut candidate in candidates {
        let setup = &mut candidate.setup;
        setup.config.batch = from.max(setup.config.accumulation);
        let Some(spec) = spec_of(spec, setup) else { continue };
        let largest = largest_batch(&spec, steps, terms, control)?;
        if let Some(batch) = largest.batch {
            setup.config.batch = batch;
            ways.push(CandidateFit { candidate, largest });
        }
    }
    Ok(ways)
}

/// The first and the last combination of a front.
fn ends(front: &[&CandidateCost]) -> Vec<Candidate> {
    let last = front.last().filter(|_| front.len() > 1);
    front.first().into_iter().chain(last).map(|costed| costed.candidate.clone()).collect()
}
