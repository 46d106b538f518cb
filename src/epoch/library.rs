//! The requests of steps, by their batches.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::EpochError;
use super::kind::BatchKind;
use super::workers::share;
use crate::model::Event;
use crate::session::{DeviceChoice, LabSpec, MemoryLimit};
use crate::train::Observer;
use crate::units::Bytes;
use crate::whatif::{FirstStep, Step, StepLikeness, StepsWriter};
use crate::workload::{Data, Lengths, PlannedBatch, Repeats, Sizes};

/// The memory of a card on which every step fits.
const ENOUGH: Bytes = Bytes(1 << 42);
/// The most bytes that the requests of steps may take.
const MOST: usize = 768 << 20;
/// The number of kinds of steps that one engine runs.
const CHUNK: usize = 256;
/// From this number of kinds on, most are run with fewer layers.
const MANY: usize = 64;
/// The numbers of layers that are tried, in this order: models whose layers are of several kinds need more.
const FEWER_LAYERS: [usize; 3] = [2, 6, 12];
/// The number of steps of one structure that show how the whole model's steps follow from the small ones.
const SHOWN: usize = 8;

/// The requests of steps.
#[derive(Debug, Default)]
pub(super) struct StepLibrary {
    /// The requests up to the end of a run's first step.
    pub beginnings: HashMap<BatchKind, FirstStep>,
    /// The requests of every other step.
    pub steps: HashMap<BatchKind, Step>,
}

struct StepsJob {
    spec: LabSpec,
    lengths: Lengths,
    first: BatchKind,
    steps: Vec<BatchKind>,
}

impl StepLibrary {
    /// The requests of a step of every kind in `steps`, and of a run's first step of every kind in `firsts`.
    pub fn fill(
        spec: &LabSpec,
        lengths: &Lengths,
        firsts: &[BatchKind],
        steps: &BTreeSet<BatchKind>,
    ) -> Result<Self, EpochError> {
        let spec = roomy(spec);
        let taken = AtomicUsize::new(0);
        let run = |layers: Option<usize>, firsts: &[&BatchKind], steps: Vec<BatchKind>| {
            let layers = layers.map(Repeats::nearest).or(spec.sizes.layers);
            let spec = LabSpec { sizes: Sizes { layers, ..spec.sizes }, ..spec.clone() };
            run(&spec, lengths, (firsts, steps), &taken)
        };
        let firsts: Vec<&BatchKind> = firsts.iter().collect::<BTreeSet<_>>().into_iter().collect();
        let all: Vec<&BatchKind> = steps.iter().collect();
        let mut library = Self::default();
        library.add(run(None, &firsts, spread(&all, SHOWN))?);
        let one = firsts.get(..1).unwrap_or_default();
        if all.len() >= MANY
            && let Some(layers) = FEWER_LAYERS.into_iter().find(|layers| {
                let few = run(Some(*layers), one, spread(&all, SHOWN));
                few.is_ok_and(|few| library.follows_from(&few.steps))
            })
        {
            let small = run(Some(layers), one, steps.iter().cloned().collect())?.steps;
            let groups = by_structure(&all, &small);
            let shown =
                groups.iter().flat_map(|group| spread(group, SHOWN)).filter(|kind| !library.has(kind)).collect();
            library.add(run(None, one, shown)?);
            groups.iter().for_each(|group| library.follow(group, &small));
        }
        let rest: Vec<BatchKind> = steps.iter().filter(|kind| !library.has(kind)).cloned().collect();
        library.add(run(None, one, rest)?);
        Ok(library)
    }

    fn has(&self, kind: &BatchKind) -> bool {
        self.steps.contains_key(kind)
    }

    fn add(&mut self, other: Self) {
        self.beginnings.extend(other.beginnings);
        self.steps.extend(other.steps);
    }

    /// Whether its steps follow from the `small` ones of the same kinds, and are much longer.
    fn follows_from(&self, small: &HashMap<BatchKind, Step>) -> bool {
        let kinds: Vec<&BatchKind> = small.keys().filter(|kind| self.has(kind)).collect();
        let shorter = kinds.iter().all(|kind| match (small.get(*kind), self.steps.get(*kind)) {
            (Some(few), Some(step)) => 2 * few.blocks() <= step.blocks(),
            _ => false,
        });
        shorter && by_structure(&kinds, small).iter().all(|group| self.likeness(group, small).is_some())
    }

    /// How its steps of these kinds follow from `small` ones, as far as it has both.
    fn likeness(&self, group: &[&BatchKind], small: &HashMap<BatchKind, Step>) -> Option<StepLikeness> {
        let pairs: Vec<_> = group.iter().filter_map(|kind| Some((small.get(*kind)?, self.steps.get(*kind)?))).collect();
        StepLikeness::of(&pairs)
    }

    /// Adds the other steps of these kinds, if they follow from small ones.
    fn follow(&mut self, group: &[&BatchKind], small: &HashMap<BatchKind, Step>) {
        let Some(likeness) = self.likeness(group, small).map(Arc::new) else { return };
        for kind in group {
            let follows = || StepLikeness::step(&likeness, small.get(*kind)?);
            if !self.has(kind)
                && let Some(step) = follows()
            {
                self.steps.insert((*kind).clone(), step);
            }
        }
    }
}

/// About `count` of the kinds: the first, the last, and some in between that are neighbours, because neighbours are
/// aligned differently.
fn spread(kinds: &[&BatchKind], count: usize) -> Vec<BatchKind> {
    let last = kinds.len().saturating_sub(1);
    let places = (0..count).map(|n| n * last / count.max(1) + n % 2).chain([last]);
    let places: BTreeSet<usize> = places.collect();
    places.into_iter().filter_map(|place| kinds.get(place).map(|kind| (*kind).clone())).collect()
}

/// Groups the kinds by the structure of their small steps.
fn by_structure<'a>(kinds: &[&'a BatchKind], small: &HashMap<BatchKind, Step>) -> Vec<Vec<&'a BatchKind>> {
    let mut groups: Vec<(&Step, Vec<&BatchKind>)> = Vec::new();
    for &kind in kinds {
        let Some(step) = small.get(kind) else { continue };
        match groups.iter_mut().find(|(first, _)| first.is_of_one_structure_with(step)) {
            Some((_, group)) => group.push(kind),
            None => groups.push((step, vec![kind])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Runs the first steps and the others, on as many engines as there are cores.
fn run(
    spec: &LabSpec,
    lengths: &Lengths,
    (firsts, steps): (&[&BatchKind], Vec<BatchKind>),
    taken: &AtomicUsize,
) -> Result<StepLibrary, EpochError> {
    let mut library = StepLibrary::default();
    let chunks = steps.len().div_ceil(CHUNK).max(if firsts.len() > 1 { firsts.len() } else { steps.len().min(2) });
    let jobs: Vec<StepsJob> = (0..chunks)
        .filter_map(|number| {
            let first = (*firsts.get(number % firsts.len().max(1))?).clone();
            let steps = steps.iter().skip(number).step_by(chunks).cloned().collect();
            Some(StepsJob { spec: spec.clone(), lengths: lengths.clone(), first, steps })
        })
        .collect();
    for (job, done) in jobs.iter().zip(share(&jobs, |job| job.run(taken))) {
        let (beginning, steps) = done?;
        library.beginnings.insert(job.first.clone(), beginning);
        library.steps.extend(job.steps.iter().cloned().zip(steps));
    }
    Ok(library)
}

impl StepsJob {
    /// Runs the first step, one step of each kind, and one more: what a step leaves shows only when another follows.
    fn run(&self, taken: &AtomicUsize) -> Result<(FirstStep, Vec<Step>), EpochError> {
        let kinds: Vec<&BatchKind> = [&self.first].into_iter().chain(&self.steps).chain([&self.first]).collect();
        let batches: Arc<[PlannedBatch]> = kinds.iter().flat_map(|kind| kind.iter().map(planned)).collect();
        let data = Data::Lengths(self.lengths.in_batches(batches));
        let writer = Rc::new(RefCell::new(StepRecorder(StepsWriter::default())));
        let mut trainer = LabSpec { data, ..self.spec.clone() }.build(Box::new(Rc::clone(&writer)))?;
        for _ in &kinds {
            trainer.step()?;
            if taken.load(Ordering::Relaxed) + writer.borrow().0.bytes() > MOST {
                return Err(EpochError::TooManyLengths);
            }
        }
        let writer = std::mem::take(&mut writer.borrow_mut().0);
        let (beginning, mut steps) = writer.finish()?;
        steps.truncate(self.steps.len());
        taken.fetch_add(steps.iter().map(Step::bytes).sum(), Ordering::Relaxed);
        Ok((beginning, steps))
    }
}

const fn planned(&(samples, length, padded): &(u32, u32, bool)) -> PlannedBatch {
    let tokens = samples as u64 * length as u64 - padded as u64;
    PlannedBatch { samples, length, longest: None, tokens }
}

/// The same on a card where every step fits.
fn roomy(spec: &LabSpec) -> LabSpec {
    let mut roomy = LabSpec { limit: None, ..spec.clone() };
    if let DeviceChoice::Sim(card) = &mut roomy.device {
        // A share of the card means a share of the real card.
        roomy.preallocate = spec.preallocate.map(|pool| MemoryLimit::Bytes(pool.of(card.memory)));
        card.memory = ENOUGH;
    }
    roomy
}

/// Records the requests of steps.
struct StepRecorder(StepsWriter);

impl Observer for StepRecorder {
    fn event(&mut self, event: Event) {
        self.0.push(&event);
    }
}
