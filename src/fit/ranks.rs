//! What fits on several simulated cards that train together.

use super::probe::{figures, retries};
use super::{Control, FitError, ProbeOutcome, SearchNews, Terms, search};
use crate::model::{Micros, Ranks};
use crate::session::{BuildError, GroupError, LabSpec, Parallel, ProcessGroup, Speed};
use crate::train::{Config, OnOom, Parallelism, TrainError, batch_unit};
use crate::workload::BatchSize;

/// A probe on several ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupProbe {
    /// How they share the work, and the number of ranks.
    pub parallel: Parallel,
    /// Samples per step of all ranks together.
    pub batch: usize,
    /// The decisive rank: one that failed, otherwise the one that reserves most; the lowest of those that do the same work.
    pub rank: usize,
    /// The result. The figures are that rank's, but the step is the longest of any rank.
    pub outcome: ProbeOutcome,
}

impl GroupProbe {
    /// True if all steps went through on every rank.
    #[must_use]
    pub const fn fits(&self) -> bool {
        matches!(self.outcome, ProbeOutcome::Fits(_))
    }
}

/// The border between what fits and what does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupEdge {
    /// The best probe that fits, if any does.
    pub best: Option<GroupProbe>,
    /// The nearest probe that does not fit, which says why the best is not better.
    pub beyond: Option<GroupProbe>,
    /// True if the search was completed.
    pub complete: bool,
}

/// A search for what fits on ranks that train `spec` together.
#[derive(Clone, Copy)]
pub struct GroupSearch<'a> {
    /// The description of the run. Its batch is that of all ranks.
    pub spec: &'a LabSpec,
    /// Steps per probe, at least one.
    pub steps: u64,
    /// The wording of failures.
    pub terms: Terms,
    /// Follows and stops the search.
    pub control: &'a Control<'a>,
}

impl GroupSearch<'_> {
    /// Trains `batch` samples per step on all ranks, from a clean state.
    ///
    /// # Errors
    /// All errors except a lack of memory and what these ranks can't share.
    pub fn probe(&self, batch: usize, parallel: Parallel) -> Result<GroupProbe, FitError> {
        let of = |rank, outcome| GroupProbe { parallel, batch, rank, outcome };
        let refused = |why: String| of(0, ProbeOutcome::Refused { why });
        let config = Config { batch, on_oom: OnOom::Stop, ..self.spec.config };
        let spec = LabSpec { config, speed: Speed::Max, ..self.spec.clone() };
        let mut group = match ProcessGroup::start(&spec, parallel, None) {
            Ok(group) => group,
            Err(GroupError::Build { rank, error: error @ BuildError::TooSmall { .. } }) => {
                let (why, retries) = (error.to_string(), super::Retries::default());
                return Ok(of(rank, ProbeOutcome::OutOfMemory { step: None, why, retries }));
            }
            Err(GroupError::Build { error, .. }) => return Err(error.into()),
            Err(error) => return Ok(refused(error.to_string())),
        };
        let mut times: Vec<Vec<Micros>> = vec![Vec::new(); group.runs().len()];
        for step in 0..self.steps.max(1) {
            if self.control.is_stopped() {
                return Ok(of(0, ProbeOutcome::Stopped));
            }
            match group.step() {
                Ok(reports) => times.iter_mut().zip(&reports).for_each(|(times, report)| times.push(report.total)),
                Err(failed) => match failed.error {
                    error @ TrainError::OutOfMemory { .. } => {
                        let run = group.of_rank().get(failed.rank).copied().unwrap_or_default();
                        let run = &mut group.runs()[run];
                        let worded = (self.terms.why)(&run.view());
                        let why = if worded.is_empty() { error.to_string() } else { worded };
                        let outcome = ProbeOutcome::OutOfMemory { step: Some(step), why, retries: retries(run) };
                        return Ok(of(failed.rank, outcome));
                    }
                    error if error.is_refusal() => return Ok(refused(error.to_string())),
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
        Ok(of(rank, ProbeOutcome::Fits(super::ProbeFigures { step: longest, ..each[worst] })))
    }

    /// The fewest cards, at least two, on which the batch of `spec` fits.
    ///
    /// # Errors
    /// See [`GroupSearch::probe`].
    pub fn fewest_cards(&self, parallelism: Parallelism) -> Result<GroupEdge, FitError> {
        let Config { batch, accumulation, .. } = self.spec.config;
        let shares = |ranks: &usize| batch.is_multiple_of(batch_unit(parallelism, *ranks, accumulation));
        let mut counts: Vec<usize> = (2..=Ranks::MOST).filter(shares).collect();
        if counts.is_empty() {
            // The refusal says what is wrong with the batch.
            counts.push(2);
        }
        let mut edge = GroupEdge::default();
        for ranks in counts {
            let Some(probe) = self.next(batch, Parallel { parallelism, ranks })? else { return Ok(edge) };
            if probe.fits() {
                edge.best = Some(probe);
                break;
            }
            // A number of ranks that can't share the model says nothing about memory.
            if edge.beyond.is_none() || matches!(probe.outcome, ProbeOutcome::OutOfMemory { .. }) {
                edge.beyond = Some(probe);
            }
        }
        edge.complete = true;
        Ok(edge)
    }

    /// The largest batch of all ranks that fits. The search begins with the batch of `spec`.
    ///
    /// # Errors
    /// See [`GroupSearch::probe`].
    pub fn largest_batch(&self, parallel: Parallel) -> Result<GroupEdge, FitError> {
        let Config { batch, accumulation, .. } = self.spec.config;
        let unit = batch_unit(parallel.parallelism, parallel.ranks, accumulation);
        let start = (batch / unit).max(1);
        let mut probes: Vec<GroupProbe> = Vec::new();
        let found = search::largest(start, (BatchSize::MOST.get() / unit).max(1), |units| {
            let batch = units * unit;
            if let Some(known) = probes.iter().find(|probe| probe.batch == batch) {
                return Ok::<_, FitError>(Some(known.fits()));
            }
            let Some(probe) = self.next(batch, parallel)? else { return Ok(None) };
            probes.push(probe);
            Ok(probes.last().map(GroupProbe::fits))
        })?;
        let best = probes.iter().filter(|probe| probe.fits()).max_by_key(|probe| probe.batch).cloned();
        let least = best.as_ref().map_or(0, |best| best.batch);
        let beyond = probes.into_iter().filter(|probe| probe.batch > least).min_by_key(|probe| probe.batch);
        Ok(GroupEdge { best, beyond, complete: found.is_some() })
    }

    /// Makes one probe of a search and reports it as news; `None` once the search is stopped.
    fn next(&self, batch: usize, parallel: Parallel) -> Result<Option<GroupProbe>, FitError> {
        let probe = self.probe(batch, parallel)?;
        if probe.outcome == ProbeOutcome::Stopped {
            return Ok(None);
        }
        self.control.tell(SearchNews::GroupTried(&probe));
        Ok(Some(probe))
    }
}
