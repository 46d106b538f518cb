//! What combinations of switches cost: peak of memory against time of a step.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::{Control, Figures, FitError, News, Outcome, Terms, probe};
use crate::allocator::Settings;
use crate::session::{DeviceChoice, LabSpec, Scene, Setup, Switch};

/// The switches that trade time for memory, each with the values that are tried beside the one in force. Left out is what
/// another value always beats (fp16 beside bf16, the looped optimizer beside the fused one) and what trains something else
/// (another optimizer, another batch).
const TRADES: &[(&str, &[&str])] = &[
    ("amp", &["bf16"]),
    ("ckpt", &["on"]),
    ("accum", &["2", "4", "8"]),
    ("opt-form", &["fused"]),
    ("offload", &["activations", "overlapped", "optimizer"]),
    ("zero-grad", &["set_to_none"]),
    ("attention", &["auto"]),
    ("retain", &["off"]),
];
/// Tried on top of the combinations that turn out best: it moves the peak of reserved memory alone.
const EXPANDABLE: (&str, &str) = ("alloc-conf", "expandable_segments:True");

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
pub struct Costed {
    /// The combination.
    pub candidate: Candidate,
    /// What came of it.
    pub outcome: Outcome,
}

impl Costed {
    /// What it came to, where it fits.
    #[must_use]
    pub const fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Fits(figures) => Some(figures),
            _ => None,
        }
    }
}

/// What trying combinations came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pareto {
    /// Everything that was tried, fewest changes first.
    pub tried: Vec<Costed>,
    /// All combinations were tried.
    pub complete: bool,
}

impl Pareto {
    /// Those that fit and that no other one beats, the fastest first: its first one is the cheapest combination that fits.
    #[must_use]
    pub fn front(&self) -> Vec<&Costed> {
        front(&self.tried)
    }
}

/// Of what fits, what nothing beats in both peak of reserved memory and time, the fastest first. Of equals the one with the
/// fewest changes stands.
#[must_use]
pub fn front(tried: &[Costed]) -> Vec<&Costed> {
    let mut fitting: Vec<(&Costed, &Figures)> =
        tried.iter().filter_map(|costed| Some((costed, costed.figures()?))).collect();
    // A stable order: what comes first has fewer changes.
    fitting.sort_by_key(|(costed, figures)| (figures.step, figures.peak_reserved, costed.candidate.changed.len()));
    let mut front: Vec<&Costed> = Vec::new();
    let mut lowest = None;
    for (costed, figures) in fitting {
        if lowest.is_none_or(|lowest| figures.peak_reserved < lowest) {
            lowest = Some(figures.peak_reserved);
            front.push(costed);
        }
    }
    front
}

/// Combinations that are worth a try from `spec` on, fewest changes first; as it stands is the first.
#[must_use]
pub fn candidates(spec: &LabSpec) -> Vec<Candidate> {
    let mut all = vec![Candidate { setup: spec.setup(), changed: Vec::new() }];
    for (word, values) in TRADES {
        let Some(switch) = Switch::named(word) else { continue };
        if switch.idle(&Scene::of(spec, &spec.config)).is_some() {
            continue;
        }
        let flipped: Vec<Candidate> =
            all.iter().flat_map(|base| values.iter().filter_map(|value| flip(base, switch, value))).collect();
        all.extend(flipped);
    }
    all.sort_by_key(|candidate| candidate.changed.len());
    all
}

/// `base` with `switch` at `value`; `None` where it stands there, or can't.
fn flip(base: &Candidate, switch: Switch, value: &str) -> Option<Candidate> {
    let mut setup = base.setup.clone();
    switch.set(&mut setup, value).ok()?;
    let (before, after) = (base.setup.config.accumulation, setup.config.accumulation);
    // A batch that is cut unevenly loses samples.
    if setup == base.setup || after < before || after != before && !setup.config.batch.is_multiple_of(after) {
        return None;
    }
    let mut changed = base.changed.clone();
    changed.push((switch, value.to_owned()));
    Some(Candidate { setup, changed })
}

/// Tries combinations of switches on the batch of `spec`, `steps` steps each: on a simulated device several at a time.
///
/// # Errors
/// See [`probe`].
pub fn pareto(spec: &LabSpec, steps: u64, terms: Terms, control: &Control<'_>) -> Result<Pareto, FitError> {
    let first = candidates(spec);
    let total = first.len();
    let done = AtomicUsize::new(0);
    let mut all = Pareto { tried: cost(spec, first, steps, terms, (control, &done, total))?, complete: false };
    if spec.alloc_conf.is_empty()
        && let Some(switch) = Switch::named(EXPANDABLE.0)
        && !control.is_stopped()
    {
        let best = all.front().into_iter().filter_map(|costed| flip(&costed.candidate, switch, EXPANDABLE.1));
        // What did not fit for want of one piece may fit so; as it stands is the one that people ask about.
        let as_is = all.tried.first().and_then(|costed| flip(&costed.candidate, switch, EXPANDABLE.1));
        let mut more: Vec<Candidate> = best.collect();
        more.extend(as_is.filter(|candidate| !more.contains(candidate)));
        let total = total + more.len();
        all.tried.extend(cost(spec, more, steps, terms, (control, &done, total))?);
    }
    all.complete = !control.is_stopped();
    all.tried.retain(|costed| costed.outcome != Outcome::Stopped);
    Ok(all)
}

fn cost(
    spec: &LabSpec,
    candidates: Vec<Candidate>,
    steps: u64,
    terms: Terms,
    (control, done, total): (&Control<'_>, &AtomicUsize, usize),
) -> Result<Vec<Costed>, FitError> {
    let failed = Mutex::new(None);
    let attempt = |candidate: Candidate| -> Option<Costed> {
        if control.is_stopped() || failed.lock().is_ok_and(|failed| failed.is_some()) {
            return None;
        }
        match probe(&spec_of(spec, &candidate.setup)?, steps, terms, control) {
            Ok(outcome) => {
                let costed = Costed { candidate, outcome };
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                control.tell(News::Costed { costed: &costed, done, total });
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
fn spec_of(spec: &LabSpec, setup: &Setup) -> Option<LabSpec> {
    Some(LabSpec {
        config: setup.config,
        limit: setup.limit,
        settings: Settings::parse_for(setup.torch, &setup.alloc_conf).ok()?,
        alloc_conf: setup.alloc_conf.clone(),
        ..spec.clone()
    })
}
