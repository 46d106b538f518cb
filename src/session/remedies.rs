//! What would have made a request fit: each candidate is tried, on a simulated device with the same memory, before it is
//! told.

use std::time::{Duration, Instant};

use super::{DeviceChoice, LabSpec, MemoryLimit, Scene, Setup, Switch};
use crate::allocator::Settings;
use crate::device::sim::{Card, CardCatalog, SimDevice};
use crate::model::{Remedied, Remedy};
use crate::train::{Libraries, TrainError};
use crate::units::Bytes;

/// Steps that must go through: optimizer state is born in the first, and the second carries it.
const STEPS: usize = 3;
/// After this long no further candidate is begun.
const PATIENCE: Duration = Duration::from_millis(2500);
/// Remedies that fit, and that are enough to choose from.
const ENOUGH: usize = 4;
/// The card whose libraries and driver a trial has.
const CARD: &str = "h200";

/// A run that ran out of memory.
#[derive(Clone, Debug)]
pub struct Shortage {
    /// What is trained.
    pub spec: LabSpec,
    /// How, when memory ran out.
    pub setup: Setup,
    /// Memory of the device.
    pub memory: Bytes,
    /// What PyTorch's libraries would see of it.
    pub libraries: Libraries,
    /// Steps finished before: a leak shows only after several.
    pub steps: u64,
}

impl Shortage {
    /// Tries what may help, the gentlest first; stops when enough helped, or time is up.
    #[must_use]
    pub fn try_remedies(&self) -> Vec<Remedied> {
        let begun = Instant::now();
        let mut tried: Vec<Remedied> = Vec::new();
        for (remedy, setup) in self.candidates() {
            let fits = tried.iter().filter(|tried| tried.fits).count();
            if fits >= ENOUGH || begun.elapsed() > PATIENCE {
                break;
            }
            // Of one switch the first value that helps is told, else the last that did not.
            let same =
                |tried: &Remedied| switch_of(&tried.remedy) == switch_of(&remedy) && switch_of(&remedy).is_some();
            if tried.iter().any(|tried| tried.fits && same(tried)) {
                continue;
            }
            tried.retain(|tried| !same(tried));
            if let Some(outcome) = self.attempt(&setup) {
                tried.push(Remedied { remedy, fits: outcome.is_ok(), peak_reserved: outcome.unwrap_or_default() });
            }
        }
        tried.sort_by_key(|tried| !tried.fits);
        tried
    }

    fn candidates(&self) -> Vec<(Remedy, Setup)> {
        let scene = Scene::of(&self.spec, &self.setup.config);
        let mut all = Vec::new();
        let mut flip = |word: &'static str, value: &'static str| {
            let Some(switch) = Switch::named(word).filter(|switch| switch.idle(&scene).is_none()) else { return };
            let mut setup = self.setup.clone();
            if switch.value(&setup) != value && switch.set(&mut setup, value).is_ok() {
                all.push((Remedy::flip(word, value), setup));
            }
        };
        flip("retain", "off");
        if self.setup.alloc_conf.is_empty() {
            flip("alloc-conf", "expandable_segments:True");
        }
        flip("ckpt", "on");
        for (count, value) in [(2, "2"), (4, "4"), (8, "8")] {
            if count > self.setup.config.accumulation && count <= self.setup.config.batch {
                flip("accum", value);
            }
        }
        if self.setup.config.amp == crate::train::Amp::Off {
            flip("amp", "bf16");
        }
        flip("offload", "activations");
        flip("opt", "sgd");
        let mut batch = self.setup.clone();
        while batch.config.batch > 1 {
            batch.config.batch /= 2;
            batch.config.accumulation = batch.config.accumulation.min(batch.config.batch);
            all.push((Remedy::SmallerBatch { batch: batch.config.batch as u64 }, batch.clone()));
        }
        if self.setup.limit.is_some() {
            all.push((Remedy::HigherLimit, Setup { limit: None, ..self.setup.clone() }));
        }
        all
    }

    /// The same steps under `setup`: what they reserved at most, or that they did not go through. `None` where they can't be
    /// tried.
    fn attempt(&self, setup: &Setup) -> Option<Result<Bytes, ()>> {
        let card = Card { memory: self.memory, context_mib: 0, ..CardCatalog::with_user_cards(None).card(CARD).ok()? };
        let spec = LabSpec {
            device: DeviceChoice::Sim(Box::new(card.clone())),
            config: setup.config,
            limit: setup.limit.map(|limit| MemoryLimit::Bytes(limit.of(self.memory))),
            settings: Settings::parse_for(setup.torch, &setup.alloc_conf).ok()?,
            alloc_conf: setup.alloc_conf.clone(),
            kernels: None,
            ..self.spec.clone()
        };
        let built = spec.build_on(Box::new(SimDevice::new(card)), self.libraries, Box::new(()), false);
        let mut trainer = match built {
            Ok(trainer) => trainer,
            Err(super::BuildError::TooSmall { .. }) => return Some(Err(())),
            Err(_) => return None,
        };
        for _ in 0..STEPS {
            match trainer.step() {
                Ok(_) => {}
                Err(TrainError::OutOfMemory { .. }) => return Some(Err(())),
                Err(_) => return None,
            }
        }
        let peak = trainer.statistics().reserved_bytes.all.peak;
        Some(Ok(Bytes(u64::try_from(peak).unwrap_or_default())))
    }
}

/// What kind of remedy it is: of each kind one is told.
fn switch_of(remedy: &Remedy) -> Option<&str> {
    match remedy {
        Remedy::Flip { switch, .. } => Some(switch),
        Remedy::SmallerBatch { .. } => Some("batch"),
        Remedy::EmptyCache | Remedy::HigherLimit | Remedy::KeepNumbers => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Catalog;

    fn shortage(limit: Bytes) -> Shortage {
        let spec = LabSpec::new(Catalog::with_user_workloads(None).entry("gpt-mini").unwrap());
        let setup = Setup { limit: Some(MemoryLimit::Bytes(limit)), ..spec.setup() };
        Shortage { spec, setup, memory: Bytes::gib(8), libraries: Libraries::PROCESSOR, steps: 3 }
    }

    #[test]
    fn what_is_told_to_fit_fits() {
        let mut shortage = shortage(Bytes::mib(22));
        shortage.setup.config.batch = 128;
        let tried = shortage.try_remedies();
        assert!(tried.iter().any(|tried| tried.fits), "{tried:?}");
        for tried in tried.iter().filter(|tried| tried.fits && tried.remedy != Remedy::HigherLimit) {
            assert!(tried.peak_reserved <= Bytes::mib(22), "{tried:?}");
            let (_, setup) = shortage.candidates().into_iter().find(|(remedy, _)| *remedy == tried.remedy).unwrap();
            assert_eq!(shortage.attempt(&setup), Some(Ok(tried.peak_reserved)));
        }
        assert_eq!(shortage.attempt(&shortage.setup.clone()), Some(Err(())), "as it is it does not fit");
    }

    #[test]
    fn where_nothing_fits_nothing_is_said_to() {
        let tried = shortage(Bytes::kib(100)).try_remedies();
        assert!(tried.iter().all(|tried| !tried.fits || tried.remedy == Remedy::HigherLimit), "{tried:?}");
    }
}
