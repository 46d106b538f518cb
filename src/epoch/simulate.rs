//! Simulates an epoch on an allocator, step by step.

use std::collections::BTreeSet;

use super::error::EpochError;
use super::kind::{BatchKind, kind};
use super::library::StepLibrary;
use super::quantiles::Quantiles;
use super::workers::share;
use crate::session::LabSpec;
use crate::units::Bytes;
use crate::whatif::{Conditions, Repeater, StepPeaks};
use crate::workload::{Epochs, LengthPolicy, Lengths, PlannedBatch};

/// The most steps of a simulated epoch.
pub const MOST_STEPS: u64 = 1 << 20;

/// A variant to simulate: a batching, under some conditions.
#[derive(Clone, Debug)]
pub struct EpochRequest {
    /// How samples become batches.
    pub policy: LengthPolicy,
    /// The conditions.
    pub conditions: Conditions,
}

/// The figures of an epoch.
#[derive(Clone, Debug, Default)]
pub struct Epoch {
    /// The peaks of every completed step.
    pub steps: Vec<StepPeaks>,
    /// The batches of the step that ran out of memory; `None` if all steps fit. If the model itself did not fit,
    /// `steps` is empty and so are these batches.
    pub failed: Option<Vec<PlannedBatch>>,
    /// The completed step with the most allocated memory: its index, counted from 0, and its batches.
    pub largest: Option<(usize, Vec<PlannedBatch>)>,
    /// The positions of all batches, and how many of them hold a token.
    pub positions: [u64; 2],
    /// The most memory that was reserved, also before the first step.
    most_reserved: Bytes,
}

impl Epoch {
    /// Whether all `count` steps were completed.
    #[must_use]
    pub const fn is_whole(&self, count: u64) -> bool {
        self.steps.len() as u64 == count
    }

    /// Statistics of the peaks of reserved memory.
    #[must_use]
    pub fn reserved(&self) -> Option<Quantiles> {
        Quantiles::of(self.steps.iter().map(|step| step.reserved))
    }

    /// Statistics of the peaks of allocated memory.
    #[must_use]
    pub fn allocated(&self) -> Option<Quantiles> {
        Quantiles::of(self.steps.iter().map(|step| step.allocated))
    }

    /// The share of padding among the positions.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share, to be shown")]
    pub fn padding(&self) -> f64 {
        let [all, tokens] = self.positions;
        1.0 - tokens as f64 / all.max(1) as f64
    }
}

/// The batches of an epoch in their order; a step takes the next few of them.
struct BatchPlan {
    batches: Vec<PlannedBatch>,
    in_step: usize,
}

impl BatchPlan {
    fn of(spec: &LabSpec, lengths: &Lengths, steps: u64) -> Self {
        let in_step = spec.config.accumulation.max(1);
        let mut epochs = Epochs::new(lengths, spec.config.micro_batch());
        let batches = (0..steps.saturating_mul(in_step as u64)).map(|number| epochs.batch(number)).collect();
        Self { batches, in_step }
    }

    fn steps(&self) -> impl Iterator<Item = &[PlannedBatch]> {
        self.batches.chunks(self.in_step)
    }
}

/// Simulates `steps` steps of `spec` for every requested variant; the results are in the order of the requests.
///
/// # Errors
/// [`EpochError`].
pub fn simulate(
    spec: &LabSpec,
    lengths: &Lengths,
    steps: u64,
    asked: &[EpochRequest],
) -> Result<Vec<Epoch>, EpochError> {
    let steps = steps.min(MOST_STEPS);
    let lengths = spec.workload.packed(lengths.clone(), spec.sizes);
    let policies: Vec<LengthPolicy> =
        LengthPolicy::ALL.into_iter().filter(|policy| asked.iter().any(|asked| asked.policy == *policy)).collect();
    let plans = share(&policies, |policy| BatchPlan::of(spec, &lengths.under(*policy), steps));
    let masked = spec.config.attention_mask;
    let kind = |batches: &[PlannedBatch]| kind(batches, masked);
    let firsts: Vec<BatchKind> = plans.iter().filter_map(|plan| plan.steps().next().map(kind)).collect();
    let kinds: BTreeSet<BatchKind> = plans.iter().flat_map(|plan| plan.steps().skip(1).map(kind)).collect();
    let library = StepLibrary::fill(spec, &lengths, &firsts, &kinds)?;
    let plan = |policy| policies.iter().position(|known| *known == policy).and_then(|at| plans.get(at));
    let played = |asked: &&EpochRequest| {
        let epoch = plan(asked.policy).map(|plan| play(plan, &asked.conditions, (&library, masked)));
        epoch.unwrap_or_default()
    };
    // If so little is reserved that no garbage is collected, the variant needs no simulation of its own.
    let collects = |asked: &&EpochRequest| asked.conditions.settings.garbage_collection_threshold > 0.0;
    let (collecting, others): (Vec<&EpochRequest>, Vec<&EpochRequest>) = asked.iter().partition(collects);
    let epochs = share(&others, played);
    let same = |asked: &EpochRequest| {
        let is_same = |(other, epoch): &(&&EpochRequest, &Epoch)| {
            other.policy == asked.policy
                && epoch.is_whole(steps)
                && asked.conditions.collect_nothing_beside(&other.conditions, epoch.most_reserved)
        };
        others.iter().zip(&epochs).find(is_same).map(|(_, epoch)| epoch.clone())
    };
    let collected = share(&collecting, |asked| same(asked).unwrap_or_else(|| played(asked)));
    let (mut epochs, mut collected) = (epochs.into_iter(), collected.into_iter());
    let next = |asked: &EpochRequest| if collects(&asked) { collected.next() } else { epochs.next() };
    Ok(asked.iter().filter_map(next).collect())
}

fn play(plan: &BatchPlan, conditions: &Conditions, (library, masked): (&StepLibrary, bool)) -> Epoch {
    let positions = plan.batches.iter().map(|batch| u64::from(batch.samples) * u64::from(batch.length)).sum();
    let tokens = plan.batches.iter().map(|batch| batch.tokens).sum();
    let mut epoch = Epoch { positions: [positions, tokens], ..Epoch::default() };
    let mut most = None;
    let mut repeater = None;
    for batches in plan.steps() {
        let kind = kind(batches, masked);
        let peaks = match &mut repeater {
            None => {
                let Some(beginning) = library.beginnings.get(&kind) else { break };
                let Some(begun) = Repeater::begin(conditions, beginning) else { break };
                repeater.insert(begun).first(beginning)
            }
            Some(repeater) => {
                let Some(step) = library.steps.get(&kind) else { break };
                repeater.step(step)
            }
        };
        match peaks {
            Some(peaks) => {
                if most < Some(peaks.allocated) {
                    most = Some(peaks.allocated);
                    epoch.largest = Some((epoch.steps.len(), batches.to_vec()));
                }
                epoch.steps.push(peaks);
            }
            None => {
                epoch.failed = Some(batches.to_vec());
                break;
            }
        }
    }
    epoch.most_reserved = repeater.map_or(Bytes::ZERO, |repeater| repeater.most_reserved());
    epoch
}
