//! The cost of combinations of switches: peak memory against time per step.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::{Control, FitError, ProbeFigures, ProbeOutcome, SearchNews, Terms, probe};
use crate::allocator::Settings;
use crate::model::Remedy;
use crate::model::advice::{self, MEASURES, Measure};
use crate::session::{DeviceChoice, LabSpec, Scene, Setup, Switch, settings};

/// The least gain of one more switch, in time or in the reserved peak, as a share.
const WORTH: f64 = 0.02;

/// A combination of switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The values of all switches.
    pub setup: Setup,
    /// The switches whose values differ from the spec's, with their values.
    pub changed: Vec<(Switch, String)>,
}

/// A combination that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateCost {
    /// The combination.
    pub candidate: Candidate,
    /// The result.
    pub outcome: ProbeOutcome,
}

impl CandidateCost {
    /// The figures, if the combination fits.
    #[must_use]
    pub const fn figures(&self) -> Option<&ProbeFigures> {
        match &self.outcome {
            ProbeOutcome::Fits(figures) => Some(figures),
            _ => None,
        }
    }
}

/// The result of trying combinations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pareto {
    /// All combinations that were tried, fewest changes first.
    pub tried: Vec<CandidateCost>,
    /// True if all combinations were tried.
    pub complete: bool,
}

impl Pareto {
    /// The combinations that fit, are worth their switches, and are not beaten by any other, the fastest first. The
    /// first is the cheapest combination that fits.
    #[must_use]
    pub fn front(&self) -> Vec<&CandidateCost> {
        front(worthwhile(&self.tried))
    }
}

/// The combinations that fit and that no other beats in both the reserved peak and time, the fastest first. Of equal
/// ones, the one with fewest changes.
#[must_use]
pub fn front<'a>(tried: impl IntoIterator<Item = &'a CandidateCost>) -> Vec<&'a CandidateCost> {
    let mut fitting: Vec<(&CandidateCost, &ProbeFigures)> =
        tried.into_iter().filter_map(|costed| Some((costed, costed.figures()?))).collect();
    // The sort is stable, so combinations with fewer changes come first.
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

/// The combinations that fit and gain something over every combination with as many switches or fewer. A combination is
/// dropped if such a one comes within [`WORTH`] of it in both peak and time.
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

/// True if `known` is as good as `other`, within [`WORTH`].
#[expect(clippy::cast_precision_loss, reason = "bytes and microseconds of a step")]
fn within(known: u64, other: u64) -> bool {
    known as f64 <= other as f64 * (1.0 + WORTH)
}

/// Combinations worth trying, starting from `spec`, fewest changes first. The first is `spec` itself.
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

/// `base` with one more measure; `None` if that is not a trade there.
fn trade(spec: &LabSpec, base: &Candidate, measure: &Measure) -> Option<Candidate> {
    let scene = Scene::of(spec, &base.setup.config);
    let standing = settings(&base.setup, &base.setup, &scene);
    if measure.trades(&standing) { flip(base, measure.remedy()) } else { None }
}

/// `base` after a flip; `None` if the flip is not possible.
fn flip(base: &Candidate, remedy: Remedy) -> Option<Candidate> {
    let Remedy::Flip { switch, value } = remedy else { return None };
    let switch = Switch::named(&switch)?;
    let mut setup = base.setup.clone();
    switch.set(&mut setup, &value).ok()?;
    let mut changed = base.changed.clone();
    changed.push((switch, value.into_owned()));
    Some(Candidate { setup, changed })
}

/// `base` with all measures that take no time; `None` if it has them already, or none exists.
fn with_what_is_free(spec: &LabSpec, base: &Candidate) -> Option<Candidate> {
    let free = MEASURES.iter().filter(|measure| measure.free);
    free.fold(None, |changed, measure| trade(spec, changed.as_ref().unwrap_or(base), measure).or(changed))
}

/// `base` with expandable segments in addition to its allocator settings; `None` if they are on.
fn expandable(spec: &LabSpec, base: &Candidate) -> Option<Candidate> {
    let standing = settings(&base.setup, &base.setup, &Scene::of(spec, &base.setup.config));
    flip(base, advice::expandable_segments(&standing, base.setup.torch)?)
}

/// Tries combinations of switches on the batch of `spec`, with `steps` steps each. On a simulated device several are
/// tried at a time.
///
/// # Errors
/// See [`probe()`].
pub fn pareto(spec: &LabSpec, steps: u64, terms: Terms, control: &Control<'_>) -> Result<Pareto, FitError> {
    let first = candidates(spec);
    let mut total = first.len();
    let done = AtomicUsize::new(0);
    let mut all = Pareto { tried: cost(spec, first, steps, terms, (control, &done, total))?, complete: false };
    // Measures that take no time don't make another combination, and expandable segments change only the reserved peak.
    // Both are tried on top of the combinations that turn out best.
    let on_top: [fn(&LabSpec, &Candidate) -> Option<Candidate>; 2] = [with_what_is_free, expandable];
    for with in on_top {
        if control.is_stopped() {
            break;
        }
        let best = all.front().into_iter().filter_map(|costed| with(spec, &costed.candidate));
        // A combination that failed for lack of one large piece may fit with these. The spec itself is what people ask about.
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
        // A real device has its memory and its time only once.
        DeviceChoice::Cpu | DeviceChoice::Cuda(_) => candidates.into_iter().filter_map(attempt).collect(),
    };
    match failed.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(tried),
    }
}

/// `spec` with the switches of `setup`; `None` if its allocator settings are refused.
pub(super) fn spec_of(spec: &LabSpec, setup: &Setup) -> Option<LabSpec> {
    Some(LabSpec {
        config: setup.config,
        limit: setup.limit,
        settings: Settings::parse_for(setup.torch, &setup.alloc_conf).ok()?,
        alloc_conf: setup.alloc_conf.clone(),
        ..spec.clone()
    })
}
