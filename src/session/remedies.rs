//! Remedies for failed requests, and flips that would lower a peak. Each candidate is tried on a simulated device with
//! the same memory before it is advised.

use super::{DeviceChoice, LabSpec, MemoryLimit, Parallel, Scene, Setup, Switch, switches};
use vramlab_allocator::Settings;
use vramlab_allocator::units::Bytes;
use vramlab_device::sim::{Card, CardCatalog, SimDevice};
use vramlab_model::advice::{self, MEASURES, Measure};
use vramlab_model::{Event, FlipTrials, Remedy, RemedyTrial};
use vramlab_train::{Answer, Config, Libraries, Observer, OnOom, SafePoint, TrainError};

/// How many steps must go through: the first creates the optimizer state, the second carries it.
const STEPS: usize = 3;
/// After this many requests for memory, which take some seconds, no further candidate is tried. Counting requests makes
/// the trials, and so recordings of them, the same on every machine.
const MOST_REQUESTS: u64 = 300_000;
/// How many remedies that fit are enough to choose from.
const ENOUGH: usize = 4;
/// The switch that makes a run leak.
const LEAK: &str = "retain";
/// The card whose libraries and driver a trial uses.
const CARD: &str = "h200";

/// A run on which other switches are tried, because it ran out of memory or to know what they would save.
#[derive(Clone, Debug)]
pub struct Shortage {
    /// What is trained.
    pub spec: LabSpec,
    /// The switches when memory ran out.
    pub setup: Setup,
    /// The device's memory.
    pub memory: Bytes,
    /// What PyTorch's libraries see of the device.
    pub libraries: Libraries,
    /// Steps finished before, because a leak shows only after several.
    pub steps: u64,
}

impl Shortage {
    /// Tries remedies, the gentlest first. Stops when enough helped or time is up.
    #[must_use]
    pub fn try_remedies(&self) -> Vec<RemedyTrial> {
        let mut requests = 0;
        let mut tried: Vec<RemedyTrial> = Vec::new();
        for (remedy, setup) in self.candidates() {
            let fits = tried.iter().filter(|tried| tried.fits).count();
            // With a leak, any other remedy would fit for some steps only.
            let leak_ends = tried.iter().any(|tried| tried.fits && switch_of(&tried.remedy) == Some(LEAK));
            if fits >= ENOUGH || leak_ends || requests > MOST_REQUESTS {
                break;
            }
            // For each switch, the first value that helps is kept, or else the last one that did not.
            let same =
                |tried: &RemedyTrial| switch_of(&tried.remedy) == switch_of(&remedy) && switch_of(&remedy).is_some();
            if tried.iter().any(|tried| tried.fits && same(tried)) {
                continue;
            }
            tried.retain(|tried| !same(tried));
            if let Some(outcome) = self.attempt(&setup, &mut requests, &|| true) {
                tried.push(RemedyTrial {
                    remedy,
                    fits: outcome.is_ok(),
                    peak_reserved: outcome.map_or(Bytes::ZERO, |peaks| peaks.reserved),
                });
            }
        }
        tried.sort_by_key(|tried| !tried.fits);
        tried
    }

    fn candidates(&self) -> Vec<(Remedy, Setup)> {
        let scene = Scene::of(&self.spec, &self.setup.config);
        let standing = switches::settings(&self.setup, &self.setup, &scene);
        let mut measures = MEASURES.iter().filter(|measure| measure.helps(&standing)).map(Measure::remedy).peekable();
        let leak = measures.next_if(|remedy| switch_of(remedy) == Some(LEAK));
        let expandable = advice::expandable_segments(&standing, self.setup.torch);
        let flips = leak.into_iter().chain(expandable).chain(measures);
        let mut all: Vec<_> = flips.filter_map(|remedy| self.flipped(remedy)).collect();
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

    /// What each flip that may lower a step's peak does to it; `None` if not even the current run can be tried.
    #[must_use]
    pub fn weigh(&self) -> Option<FlipTrials> {
        self.weigh_while(&|| true)
    }

    /// Like [`Shortage::weigh`], as long as somebody `wants` the result; `None` once nobody does.
    pub(super) fn weigh_while<W: Fn() -> bool + Clone + 'static>(&self, wants: &W) -> Option<FlipTrials> {
        let mut requests = 0;
        let peak = self.attempt(&self.setup, &mut requests, wants)?.ok()?.allocated;
        let scene = Scene::of(&self.spec, &self.setup.config);
        let standing = switches::settings(&self.setup, &self.setup, &scene);
        let mut flips = Vec::new();
        for remedy in advice::against_any(&standing) {
            if requests > MOST_REQUESTS {
                break;
            }
            let Some((remedy, setup)) = self.flipped(remedy) else { continue };
            if let Some(Ok(peaks)) = self.attempt(&setup, &mut requests, wants) {
                flips.push((remedy, peaks.allocated));
            }
            if !wants() {
                return None;
            }
        }
        Some(FlipTrials { step: self.steps, peak, flips })
    }

    fn flipped(&self, remedy: Remedy) -> Option<(Remedy, Setup)> {
        let Remedy::Flip { switch, value } = &remedy else { return None };
        let mut setup = self.setup.clone();
        Switch::named(switch)?.set(&mut setup, value).ok()?;
        Some((remedy, setup))
    }

    /// Runs the same steps under `setup`. Returns their peaks, or that they failed; `None` if they can't be tried, or
    /// nobody `wants` the result any more. Adds up their requests.
    fn attempt<W: Fn() -> bool + Clone + 'static>(
        &self,
        setup: &Setup,
        requests: &mut u64,
        wants: &W,
    ) -> Option<Result<Peaks, ()>> {
        let card = Card { memory: self.memory, context_mib: 0, ..CardCatalog::with_user_cards(None).card(CARD).ok()? };
        let spec = LabSpec {
            device: DeviceChoice::Sim(Box::new(card.clone())),
            config: Config { on_oom: OnOom::Stop, ..setup.config },
            limit: setup.limit.map(|limit| MemoryLimit::Bytes(limit.of(self.memory))),
            settings: Settings::parse_for(setup.torch, &setup.alloc_conf).ok()?,
            alloc_conf: setup.alloc_conf.clone(),
            kernels: None,
            ..self.spec.clone()
        };
        let built =
            spec.build_on(Box::new(SimDevice::new(card)), self.libraries, Box::new(While(wants.clone())), false);
        let mut trainer = match built {
            Ok(trainer) => trainer,
            Err(super::BuildError::TooSmall { .. }) => return Some(Err(())),
            Err(_) => return None,
        };
        let stepped = (0..STEPS).try_for_each(|_| trainer.step().map(drop));
        let statistics = trainer.statistics();
        *requests += u64::try_from(statistics.allocation.all.allocated).unwrap_or_default();
        match stepped {
            Ok(()) => {}
            Err(TrainError::OutOfMemory { .. }) => return Some(Err(())),
            Err(_) => return None,
        }
        let peak = |peak: i64| Bytes(u64::try_from(peak).unwrap_or_default());
        Some(Ok(Peaks {
            allocated: peak(statistics.allocated_bytes.all.peak),
            reserved: peak(statistics.reserved_bytes.all.peak),
        }))
    }
}

/// Ends a step whose result nobody wants any more.
struct While<W>(W);

impl<W: Fn() -> bool> Observer for While<W> {
    fn event(&mut self, _: Event) {}

    fn safe_point(&mut self, _: SafePoint) -> Answer {
        if (self.0)() { Answer::Continue } else { Answer::Stop }
    }
}

/// The peaks of some steps.
struct Peaks {
    allocated: Bytes,
    reserved: Bytes,
}

/// The switch that a remedy flips. One remedy is shown per switch.
fn switch_of(remedy: &Remedy) -> Option<&str> {
    match remedy {
        Remedy::Flip { switch, .. } => Some(switch),
        Remedy::SmallerBatch { .. } => Some("batch"),
        Remedy::EmptyCache
        | Remedy::HigherLimit
        | Remedy::KeepNumbers
        | Remedy::Detach
        | Remedy::LetGo
        | Remedy::BreakCycles
        | Remedy::ChooseGpu => None,
    }
}

/// Remedies that were tried on one rank, in terms of all ranks.
pub(super) fn of_all_ranks(tried: Vec<RemedyTrial>, parallel: Parallel) -> Vec<RemedyTrial> {
    let ranks = if parallel.parallelism.splits_batch() { parallel.ranks } else { 1 };
    let of_all = |tried: RemedyTrial| match tried.remedy {
        Remedy::SmallerBatch { batch } => {
            RemedyTrial { remedy: Remedy::SmallerBatch { batch: batch * ranks as u64 }, ..tried }
        }
        _ => tried,
    };
    tried.into_iter().map(of_all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_workload::Catalog;

    fn shortage(limit: Bytes) -> Shortage {
        let spec = LabSpec::new(Catalog::with_user_workloads(None).entry("gpt-mini").unwrap());
        let setup = Setup { limit: Some(MemoryLimit::Bytes(limit)), ..spec.setup() };
        Shortage { spec, setup, memory: Bytes::gib(8), libraries: Libraries::PROCESSOR, steps: 3 }
    }

    #[test]
    fn what_flips_save_is_what_they_save() {
        let run = shortage(Bytes::gib(8));
        let weighed = run.weigh().unwrap();
        assert_eq!(run.weigh_while(&|| false), None, "nobody wants to know");
        let under = |remedy: &Remedy| {
            run.attempt(&run.flipped(remedy.clone()).unwrap().1, &mut 0, &|| true).unwrap().unwrap().allocated
        };
        assert_eq!(weighed.peak, run.attempt(&run.setup, &mut 0, &|| true).unwrap().unwrap().allocated);
        assert!(!weighed.flips.is_empty());
        assert!(weighed.flips.iter().all(|(remedy, peak)| under(remedy) == *peak), "{weighed:?}");
        assert!(weighed.flips.iter().any(|(_, peak)| *peak < weighed.peak), "{weighed:?}");
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
            assert_eq!(shortage.attempt(&setup, &mut 0, &|| true).unwrap().unwrap().reserved, tried.peak_reserved);
        }
        assert!(
            shortage.attempt(&shortage.setup.clone(), &mut 0, &|| true).unwrap().is_err(),
            "as it is it does not fit"
        );
    }

    #[test]
    fn nothing_is_tried_that_is_set_or_undoes_what_helps() {
        let mut shortage = shortage(Bytes::mib(22));
        shortage.setup.config.offload = vramlab_train::Offload::Optimizer;
        (shortage.setup.config.batch, shortage.setup.config.accumulation) = (6, 2);
        shortage.setup.alloc_conf = "max_split_size_mb:64".into();
        let flips = |shortage: &Shortage| -> Vec<String> {
            let words = |remedy: &Remedy| match remedy {
                Remedy::Flip { switch, value } => Some(format!("{switch} {value}")),
                _ => None,
            };
            shortage.candidates().iter().filter_map(|(remedy, _)| words(remedy)).collect()
        };
        let tried = flips(&shortage);
        assert_eq!(tried[0], "alloc-conf expandable_segments:True,max_split_size_mb:64");
        assert!(tried.iter().all(|flip| !flip.starts_with("offload") && !flip.starts_with("accum")), "{tried:?}");
        shortage.setup.alloc_conf = "max_split_size_mb:64,expandable_segments: True".into();
        assert!(flips(&shortage).iter().all(|flip| !flip.starts_with("alloc-conf")));
        shortage.setup.config.retain = vramlab_train::Retain::Graph;
        assert_eq!(flips(&shortage)[0], "retain off");
    }

    #[test]
    fn with_a_leak_only_its_end_is_advised() {
        let mut shortage = shortage(Bytes::mib(40));
        shortage.setup.config.retain = vramlab_train::Retain::Graph;
        let tried = shortage.try_remedies();
        let [only] = &*tried else { panic!("{tried:?}") };
        assert!(only.fits && switch_of(&only.remedy) == Some(LEAK), "{tried:?}");
    }

    #[test]
    fn where_nothing_fits_nothing_is_said_to() {
        let tried = shortage(Bytes::kib(100)).try_remedies();
        assert!(tried.iter().all(|tried| !tried.fits || tried.remedy == Remedy::HigherLimit), "{tried:?}");
    }
}
