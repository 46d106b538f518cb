//! What steps ask for, by their batches.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::EpochError;
use super::workers::share;
use crate::model::Event;
use crate::session::{DeviceChoice, LabSpec, MemoryLimit};
use crate::train::Observer;
use crate::units::Bytes;
use crate::whatif::{Beginning, Step, StepsWriter};
use crate::workload::{Data, Lengths, PlannedBatch};

/// Memory of a card on which every step fits.
const ENOUGH: Bytes = Bytes(1 << 42);
/// Bytes that may be taken for what steps ask for.
const MOST: usize = 768 << 20;
/// Steps whose kinds one engine runs.
const CHUNK: usize = 256;

/// Rows and positions of the batches of a step, and whether some hold padding.
pub(super) type Kind = Box<[(u32, u32, bool)]>;

/// The kind of a step of these batches; `masked` where a program says what is padding, and so asks for more where there is some.
pub(super) fn kind(batches: &[PlannedBatch], masked: bool) -> Kind {
    batches.iter().map(|batch| (batch.samples, batch.length, masked && batch.is_padded())).collect()
}

/// What steps ask for.
#[derive(Debug, Default)]
pub(super) struct Library {
    /// Up to the end of a first step.
    pub beginnings: HashMap<Kind, Beginning>,
    /// Every other one.
    pub steps: HashMap<Kind, Step>,
}

struct StepsJob {
    spec: LabSpec,
    lengths: Lengths,
    first: Kind,
    steps: Vec<Kind>,
}

impl Library {
    /// Runs a step of every kind in `steps`, and one of each in `firsts` as the first of a run.
    pub fn fill(spec: &LabSpec, lengths: &Lengths, firsts: &[Kind], steps: BTreeSet<Kind>) -> Result<Self, EpochError> {
        let roomy = roomy(spec);
        let firsts: BTreeSet<&Kind> = firsts.iter().collect();
        let firsts: Vec<&Kind> = firsts.into_iter().collect();
        let steps: Vec<Kind> = steps.into_iter().collect();
        let chunks = steps.len().div_ceil(CHUNK).max(firsts.len());
        let jobs: Vec<StepsJob> = (0..chunks)
            .filter_map(|number| {
                let first = (*firsts.get(number % firsts.len().max(1))?).clone();
                let steps = steps.iter().skip(number).step_by(chunks).cloned().collect();
                Some(StepsJob { spec: roomy.clone(), lengths: lengths.clone(), first, steps })
            })
            .collect();
        let taken = AtomicUsize::new(0);
        let mut library = Self::default();
        for (job, done) in jobs.iter().zip(share(&jobs, |job| job.run(&taken))) {
            let (beginning, steps) = done?;
            library.beginnings.insert(job.first.clone(), beginning);
            library.steps.extend(job.steps.iter().cloned().zip(steps));
        }
        Ok(library)
    }
}

impl StepsJob {
    /// The first step, one of each kind, and one more: what a step leaves shows when another follows.
    fn run(&self, taken: &AtomicUsize) -> Result<(Beginning, Vec<Step>), EpochError> {
        let kinds: Vec<&Kind> = [&self.first].into_iter().chain(&self.steps).chain([&self.first]).collect();
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

/// The same where every step fits.
fn roomy(spec: &LabSpec) -> LabSpec {
    let mut roomy = LabSpec { limit: None, ..spec.clone() };
    if let DeviceChoice::Sim(card) = &mut roomy.device {
        // A share of the card is one of the real card.
        roomy.preallocate = spec.preallocate.map(|pool| MemoryLimit::Bytes(pool.of(card.memory)));
        card.memory = ENOUGH;
    }
    roomy
}

/// Keeps what steps ask for.
struct StepRecorder(StepsWriter);

impl Observer for StepRecorder {
    fn event(&mut self, event: Event) {
        self.0.push(&event);
    }
}
