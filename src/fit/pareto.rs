//! What combinations of switches cost: peak of memory against time of a step.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::{Control, FitError, ProbeFigures, ProbeOutcome, SearchNews, Terms, probe};
use crate::allocator::Settings;
use crate::model::Remedy;
use crate::model::advice::{self, MEASURES, Measure};
use crate::session::{DeviceChoice, LabSpec, Scene, Setup, Switch, settings};

/// A switch more must gain as much, in time or in peak of reserved memory.
const WORTH: f64 = 0.02;

/// A combination of switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// All switches.
    pub setup: Setup,
    /// Those that stand otherwise than in the spec, and their values.
    pub changed: Vec<(Switch, String)>,
}

/// A combination that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateCost {
    /// The combination.
    pub candidate: Candidate,
    /// What came of it.
    pub outcome: ProbeOutcome,
}

impl CandidateCost {
    /// Its figures, where it fits.
    #[must_use]
    pub const fn figures(&self) -> Option<&ProbeFigures> {
        match &self.outcome {
            ProbeOutcome::Fits(figures) => Some(figures),
            _ => None,
        }
    }
}

/// The outcome of trying combinations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pareto {
    /// Everything that was tried, fewest changes first.
    pub tried: Vec<CandidateCost>,
    /// All combinations were tried.
    pub complete: bool,
}

impl Pareto {
    /// Those that fit, are worth their switches, and that no other one beats, the fastest first: its first one is the cheapest
    /// combination that fits.
    #[must_use]
    pub fn front(&self) -> Vec<&CandidateCost> {
        front(worthwhile(&self.tried))
    }
}

/// Of what fits, what nothing beats in both peak of reserved memory and time, the fastest first. Of equals the one with the
/// fewest changes stands.
#[must_use]
pub fn front<'a>(tried: impl IntoIterator<Item = &'a CandidateCost>) -> Vec<&'a CandidateCost> {
    let mut fitting: Vec<(&CandidateCost, &ProbeFigures)> =
        tried.into_iter().filter_map(|costed| Some((costed, costed.figures()?))).collect();
    // A stable order: what comes first has fewer changes.
    fitting.sort_by_key(|(costed, figures)| (figures.step, figures.peak_reserved, costed.candidate.changed.len()));
    let mut front: Vec<&CandidateCost> = Vec::new();
    let mut lowest = None;
    for (costed, figures) in fitting {
        if lowest.is_none_or(|lowest| figures.peak_reserved < lowest) {
            lowest = Some(figures.peak_reserved);
            front.push(costed);
        }
    }
    front
}

/// Of what fits, what gains something over every combination of fewer switches, or as many: one that comes within [`WORTH`] of it
/// in peak and in time makes it idle.
#[must_use]
pub fn worthwhile(tried: &[CandidateCost]) -> Vec<&CandidateCost> {
    let mut fitting: Vec<(&CandidateCost, &ProbeFigures)> =
        tried.iter().filter_map(|costed| Some((costed, costed.figures()?))).collect();
    fitting.sort_by_key(|(costed, figures)| (costed.candidate.changed.len(), figures.step, figures.peak_reserved));
    let mut kept: Vec<(&CandidateCost, &ProbeFigures)> = Vec::new();
    for (costed, figures) in fitting {
        let as_good = |(_, known): &(&CandidateCost, &ProbeFigures)| {
            within(known.peak_reserved.get(), figures.peak_reserved.get()) && within(known.step.0, figures.step.0)
        };
        if !kept.iter().any(as_good) {
            kept.push((costed, figures));
        }
    }
    kept.into_iter().map(|(costed, _)| costed).collect()
}

/// Whether `known` is as good as `other`, but for [`WORTH`].
#[expect(clippy::cast_precision_loss, reason = "bytes and microseconds of a step")]
fn within(known: u64, other: u64) -> bool {
    known as f64 <= other as f64 * (1.0 + WORTH)
}

/// Combinations that are worth a try from `spec` on, fewest changes first; as it stands is the first.
#[must_use]
pub fn candidates(spec: &LabSpec) -> Vec<Candidate> {
    let mut all = vec![Candidate { setup: spec.setup(), changed: Vec::new() }];
    for of_switch in MEASURES.chunk_by(|one, next| one.switch == next.switch) {
        let trades = of_switch.iter().filter(|measure| !measure.trains_otherwise && !measure.free);
        let flipped: Vec<Candidate> =
            trades.flat_map(|measure| all.iter().filter_map(|base| trade(spec, base, measure))).collect();
        all.extend(flipped);
    }
    all.sort_by_key(|candidate| candidate.changed.len());
    all
}

/// `base` with a measure more; `None` where it is no trade there.
fn trade(spec: &LabSpec, base: &Candidate, measure: &Measure) -> Option<Candidate> {
    let scene = Scene::of(spec, &base.setup.config);
    let standing = settings(&base.setup, &base.setup, &scene);
    if measure.trades(&standing) { flip(base, measure.remedy()) } else { None }
}

/// `base` after a flip; `None` where it can't be made.
fn flip(base: &Candidate, remedy: Remedy) -> Option<Candidate> {
    let Remedy::Flip { switch, value } = remedy else { return None };
    let switch = Switch::named(&switch)?;
    let mut setup = base.setup.clone();
    switch.set(&mut setup, &value).ok()?;
    let mut changed = base.changed.clone();
    changed.push((switch, value.into_owned()));
    Some(Candidate { setup, changed })
}

/// `base` with all that takes no time; `None` where it has that, or nothing of it is there.
fn with_what_is_free(spec: &LabSpec, base: &Candidate) -> Option<Candidate> {
    let free = MEASURES.iter().filter(|measure| measure.free);
    free.fold(None, |changed, measure| trade(spec, changed.as_ref().unwrap_or(base), measure).or(changed))
}

/// `base` with expandable segments beside what its allocator settings are; `None` where they are on.
fn expandable(spec: &LabSpec, base: &Candidate) -> Option<Candidate> {
    let standing = settings(&base.setup, &base.setup, &Scene::of(spec, &base.setup.config));
    flip(base, advice::expandable_segments(&standing, base.setup.torch)?)
}

/// Tries combinations of switches on the batch of `spec`, `steps` steps each: on a simulated device several at a time.
///
/// # Errors
/// See [`probe()`].
pub fn pareto(spec: &LabSpec, steps: u64, terms: Terms, control: &Control<'_>) -> Result<Pareto, FitError> {
    let first = candidates(spec);
    let mut total = first.len();
    let done = AtomicUsize::new(0);
    let mut all = Pareto { tried: cost(spec, first, steps, terms, (control, &done, total))?, complete: false };
    // What takes no time is no other combination, and expandable segments move the peak of reserved memory alone: both are tried on top of
    // the combinations that turn out best.
    let on_top: [fn(&LabSpec, &Candidate) -> Option<Candidate>; 2] = [with_what_is_free, expandable];
    for with in on_top {
        if control.is_stopped() {
            break;
        }
        let best = all.front().into_iter().filter_map(|costed| with(spec, &costed.candidate));
        // What did not fit for want of one piece may fit so; as it stands is the one that people ask about.
        let as_is = all.tried.first().and_then(|costed| with(spec, &costed.candidate));
        let mut more: Vec<Candidate> = best.collect();
        more.extend(as_is.filter(|candidate| !more.contains(candidate)));
        total += more.len();
        all.tried.extend(cost(spec, more, steps, terms, (control, &done, total))?);
    }
    all.complete = !control.is_stopped();
    all.tried.retain(|costed| costed.outcome != ProbeOutcome::Stopped);
    Ok(all)
}

fn cost(
    spec: &LabSpec,
    candidates: Vec<Candidate>,
    steps: u64,
    terms: Terms,
    (control, done, total): (&Control<'_>, &AtomicUsize, usize),
) -> Result<Vec<CandidateCost>, FitError> {
    let failed = Mutex::new(None);
    let attempt = |candidate: Candidate| -> Option<CandidateCost> {
        if control.is_stopped() || failed.lock().is_ok_and(|failed| failed.is_some()) {
            return None;
        }
        match probe(&spec_of(spec, &candidate.setup)?, steps, terms, control) {
            Ok(outcome) => {
                let costed = CandidateCost { candidate, outcome };
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                control.tell(SearchNews::Costed { costed: &costed, done, total });
                Some(costed)
            }
            Err(error) => {
                if let Ok(mut failed) = failed.lock() {
                    *failed = Some(error);
                }
                None
            }
        }
    };
    let tried = match spec.device {
        DeviceChoice::Sim(_) => candidates.into_par_iter().filter_map(attempt).collect(),
        // A real device has its memory and its time once.
        DeviceChoice::Cpu | DeviceChoice::Cuda(_) => candidates.into_iter().filter_map(attempt).collect(),
    };
    match failed.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(tried),
    }
}

/// `spec` with all switches as in `setup`; `None` where its allocator settings are refused.
pub(super) fn spec_of(spec: &LabSpec, setup: &Setup) -> Option<LabSpec> {
    Some(LabSpec {
        config: setup.config,
        limit: setup.limit,
        settings: Settings::parse_for(setup.torch, &setup.alloc_conf).ok()?,
        alloc_conf: setup.alloc_conf.clone(),
        ..spec.clone()
    })
}
