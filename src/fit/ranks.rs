//! What fits on several simulated cards that train together.

use super::probe::{figures, retries};
use super::{Control, FitError, News, Outcome, Terms, search};
use crate::model::{Micros, Ranks};
use crate::session::{BuildError, GroupError, LabSpec, Parallel, ProcessGroup, Speed};
use crate::train::{Config, OnOom, Parallelism, TrainError};
use crate::workload::BatchSize;

/// Ranks that were tried.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupProbe {
    /// How they share the work, and how many they are.
    pub parallel: Parallel,
    /// Samples of a step of all ranks.
    pub batch: usize,
    /// The rank that decides: one that failed, else the one that reserves most; of those that do the same the lowest.
    pub rank: usize,
    /// What came of it. The figures are that rank's; the step is the longest of any rank.
    pub outcome: Outcome,
}

impl GroupProbe {
    /// Whether all steps went through on every rank.
    #[must_use]
    pub const fn fits(&self) -> bool {
        matches!(self.outcome, Outcome::Fits(_))
    }
}

/// What a search for ranks came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfRanks {
    /// The best that fits, if anything does.
    pub best: Option<GroupProbe>,
    /// The nearest that does not fit: why it is not better.
    pub beyond: Option<GroupProbe>,
    /// The search went to its end.
    pub complete: bool,
}

/// Trains `steps` steps (one at least) on all ranks, from a clean state.
///
/// # Errors
/// Whatever is neither out of memory nor something that these ranks can't share.
pub fn probe_ranks(
    spec: &LabSpec,
    parallel: Parallel,
    steps: u64,
    terms: Terms,
    control: &Control<'_>,
) -> Result<GroupProbe, FitError> {
    let of = |rank, outcome| GroupProbe { parallel, batch: spec.config.batch, rank, outcome };
    let refused = |why: String| of(0, Outcome::Refused { why });
    let config = Config { on_oom: OnOom::Stop, ..spec.config };
    let spec = LabSpec { config, speed: Speed::Max, ..spec.clone() };
    let mut group = match ProcessGroup::start(&spec, parallel, None) {
        Ok(group) => group,
        Err(GroupError::Build { rank, error: error @ BuildError::TooSmall { .. } }) => {
            let (why, retries) = (error.to_string(), super::Retries::default());
            return Ok(of(rank, Outcome::OutOfMemory { step: None, why, retries }));
        }
        Err(GroupError::Build { error, .. }) => return Err(error.into()),
        Err(error) => return Ok(refused(error.to_string())),
    };
    let mut times: Vec<Vec<Micros>> = vec![Vec::new(); group.runs().len()];
    for step in 0..steps.max(1) {
        if control.is_stopped() {
            return Ok(of(0, Outcome::Stopped));
        }
        match group.step() {
            Ok(reports) => times.iter_mut().zip(&reports).for_each(|(times, report)| times.push(report.total)),
            Err(failed) => match failed.error {
                error @ TrainError::OutOfMemory { .. } => {
                    let run = group.of_rank().get(failed.rank).copied().unwrap_or_default();
                    let run = &mut group.runs()[run];
                    let told = (terms.why)(&run.view());
                    let why = if told.is_empty() { error.to_string() } else { told };
                    return Ok(of(failed.rank, Outcome::OutOfMemory { step: Some(step), why, retries: retries(run) }));
                }
                error @ (TrainError::TooFewSamples { .. } | TrainError::NoKernel { .. }) => {
                    return Ok(refused(error.to_string()));
                }
                error => return Err(error.into()),
            },
        }
    }
    let of_rank = group.of_rank().to_vec();
    let each: Vec<_> = group.runs().iter().zip(&mut times).map(|(run, times)| figures(run, times)).collect();
    let longest = each.iter().map(|figures| figures.step).max().unwrap_or_default();
    let most = each.iter().map(|of| (of.peak_reserved, of.peak_allocated)).max();
    let worst = each.iter().position(|of| Some((of.peak_reserved, of.peak_allocated)) == most).unwrap_or_default();
    let rank = of_rank.iter().position(|run| *run == worst).unwrap_or_default();
    Ok(of(rank, Outcome::Fits(super::Figures { step: longest, ..each[worst] })))
}

/// The fewest cards on which the batch of `spec` fits, from two on.
///
/// # Errors
/// See [`probe_ranks`].
pub fn fewest_cards(
    spec: &LabSpec,
    parallelism: Parallelism,
    steps: u64,
    terms: Terms,
    control: &Control<'_>,
) -> Result<OfRanks, FitError> {
    let Config { batch, accumulation, .. } = spec.config;
    let shares = |ranks: &usize| batch.is_multiple_of(parallelism.batch_unit(*ranks, accumulation));
    let mut counts: Vec<usize> = (2..=Ranks::MOST).filter(shares).collect();
    if counts.is_empty() {
        // It says what is wrong with the batch.
        counts.push(2);
    }
    let mut found = OfRanks::default();
    for ranks in counts {
        let Some(probe) = tried(spec, Parallel { parallelism, ranks }, steps, terms, control)? else {
            return Ok(found);
        };
        if probe.fits() {
            found.best = Some(probe);
            break;
        }
        // Numbers of ranks that can't share the model say nothing of memory.
        if found.beyond.is_none() || matches!(probe.outcome, Outcome::OutOfMemory { .. }) {
            found.beyond = Some(probe);
        }
    }
    found.complete = true;
    Ok(found)
}

/// The largest batch of all ranks whose first `steps` steps go through, beginning with that of `spec`.
///
/// # Errors
/// See [`probe_ranks`].
pub fn largest_batch_of_ranks(
    spec: &LabSpec,
    parallel: Parallel,
    steps: u64,
    terms: Terms,
    control: &Control<'_>,
) -> Result<OfRanks, FitError> {
    let unit = parallel.parallelism.batch_unit(parallel.ranks, spec.config.accumulation);
    let start = (spec.config.batch / unit).max(1);
    let mut probes: Vec<GroupProbe> = Vec::new();
    let found = search::largest(start, (BatchSize::MOST.get() / unit).max(1), |units| {
        let batch = units * unit;
        if let Some(known) = probes.iter().find(|probe| probe.batch == batch) {
            return Ok::<_, FitError>(Some(known.fits()));
        }
        let spec = LabSpec { config: Config { batch, ..spec.config }, ..spec.clone() };
        let Some(probe) = tried(&spec, parallel, steps, terms, control)? else { return Ok(None) };
        probes.push(probe);
        Ok(probes.last().map(GroupProbe::fits))
    })?;
    let best = probes.iter().filter(|probe| probe.fits()).max_by_key(|probe| probe.batch).cloned();
    let least = best.as_ref().map_or(0, |best| best.batch);
    let beyond = probes.into_iter().filter(|probe| probe.batch > least).min_by_key(|probe| probe.batch);
    Ok(OfRanks { best, beyond, complete: found.is_some() })
}

/// A probe that is told; `None`: it was stopped.
fn tried(
    spec: &LabSpec,
    parallel: Parallel,
    steps: u64,
    terms: Terms,
    control: &Control<'_>,
) -> Result<Option<GroupProbe>, FitError> {
    let probe = probe_ranks(spec, parallel, steps, terms, control)?;
    if probe.outcome == Outcome::Stopped {
        return Ok(None);
    }
    control.tell(News::GroupTried(&probe));
    Ok(Some(probe))
}
