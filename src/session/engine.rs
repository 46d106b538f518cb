//! The engine thread: trains until it is told to stop, and survives steps that fail.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::broken::{RunFailure, back};
use super::force::{flip, note_first_values};
use super::gate::{Chore, Gate, WEIGHED};
use super::rank_processes::RankProcesses;
use super::{BuildError, Command, Feeder, LabSpec, Setup, Shortage, lockstep, switches};
use vramlab_allocator::units::DeviceIndex;
use vramlab_device::DeviceError;
use vramlab_model::{EventKind, RunState};
use vramlab_train::{Observer, TrainError, Trainer};

/// Trains as `spec` says until all steps are done, the front end quits, or something fails for good. If the device is
/// lost, the processor can take over. `build` makes the trainer; `processes` are those of the other ranks, if each rank
/// is a process.
pub(super) fn train(
    mut spec: LabSpec,
    mut processes: Option<RankProcesses>,
    commands: Receiver<Command>,
    feeder: Feeder,
    build: impl Fn(&LabSpec, Box<dyn Observer>) -> Result<Trainer, BuildError>,
) {
    let gate = Rc::new(RefCell::new(Gate::new(commands, feeder, &spec)));
    gate.borrow_mut().begin(&spec);
    loop {
        let ended = match spec.parallel {
            Some(parallel) => lockstep::run(&spec, parallel, processes.as_mut(), &gate),
            None => run(&spec, &gate, &build),
        };
        let processor = match &ended {
            Ok(()) => false,
            Err(broken) if broken.lost => gate.borrow_mut().offer_processor(&broken.why),
            Err(broken) => {
                gate.borrow_mut().wait(RunState::Failed(Arc::clone(&broken.why)));
                false
            }
        };
        let next = gate.borrow_mut().take_next();
        if let Some((next, why)) = next {
            drop(ended);
            spec = Arc::unwrap_or_clone(next);
            gate.borrow_mut().begin_anew(&spec, &why);
            continue;
        }
        let Err(RunFailure { why, kept, .. }) = ended else { return };
        if !processor {
            return;
        }
        drop(kept);
        let setup = gate.borrow().wanted().clone();
        // The processes of the ranks leave; threads of this process take over.
        processes = None;
        spec = spec.on_processor(&setup);
        gate.borrow_mut().begin_anew(&spec, &format!("{why}; started again on the processor"));
    }
}

/// One run, from building the model to the last step.
fn run(
    spec: &LabSpec,
    gate: &Rc<RefCell<Gate>>,
    build: &impl Fn(&LabSpec, Box<dyn Observer>) -> Result<Trainer, BuildError>,
) -> Result<(), RunFailure> {
    let observer = Box::new(Rc::clone(gate));
    let mut trainer = build(spec, observer).map_err(|error| RunFailure::new(&error, Vec::new()))?;
    gate.borrow_mut().describe(spec.about(Some(&trainer)));
    gate.borrow_mut().watch(trainer.sensors());
    note_first_values(&trainer, spec);
    gate.borrow_mut().in_force(spec.setup());
    gate.borrow_mut().announce(RunState::Running);
    gate.borrow_mut().wait_if_asked();
    let mut finished = 0;
    // After this many steps flips are weighed: what would they save compared with the current switches?
    let mut due = WEIGHED;
    let mut proven = None;
    while !gate.borrow().ended() {
        let (present, wanted) = (gate.borrow().present().clone(), gate.borrow().wanted().clone());
        if wanted != present {
            let flipped = flip(&mut trainer, &present, &wanted);
            let setup = match flipped {
                Ok(setup) => setup,
                Err(error) => return Err(RunFailure::new(&error.into(), vec![trainer])),
            };
            gate.borrow_mut().in_force(setup);
            gate.borrow_mut().describe(spec.about(Some(&trainer)));
            due = finished + WEIGHED;
        }
        if spec.steps.is_some_and(|steps| finished >= steps) {
            rest(gate, &trainer, RunState::Finished);
            continue;
        }
        let stepped = trainer.step();
        let shrank = gate.borrow_mut().follow_batch(trainer.config().batch);
        if shrank {
            gate.borrow_mut().describe(spec.about(Some(&trainer)));
        }
        let error = match stepped {
            Ok(_) => {
                finished += 1;
                proven = Some(gate.borrow().present().clone());
                if finished == due {
                    let setup = gate.borrow().present().clone();
                    gate.borrow_mut().weigh(shortage(spec, setup, &trainer, finished), DeviceIndex::FIRST);
                }
                continue;
            }
            Err(TrainError::Stopped) => break,
            Err(error) => error,
        };
        // A device that is gone can't give memory either, and its kernels fail.
        let (error, gone) = match (error, trainer.check_device()) {
            (error @ TrainError::Device(DeviceError::Lost { .. }), _) => (error, true),
            (_, Err(lost)) => (lost.into(), true),
            (error, Ok(())) => (error, false),
        };
        if gone {
            return Err(RunFailure::new(&BuildError::Train(error), vec![trainer]));
        }
        let setup = gate.borrow().present().clone();
        let before = proven.clone().map(|proven| back(&error, &setup, proven)).filter(|before| *before != setup);
        if let Some(before) = before.filter(|_| *gate.borrow().wanted() == setup) {
            let changed = switches::differences(&setup, &before);
            let changed: Vec<_> =
                changed.map(|changed| format!("{} back to {}", changed.switch.label(), changed.to)).collect();
            trainer.memory().emit(EventKind::Note {
                text: format!("the step did not go through; from the next one on {}", changed.join(", ")).into(),
            });
            gate.borrow_mut().ask_for(before);
        }
        let state = match error {
            TrainError::OutOfMemory { .. } => RunState::OutOfMemory,
            error => RunState::StepFailed(error.to_string().into()),
        };
        if state == RunState::OutOfMemory {
            gate.borrow_mut()
                .try_remedies(shortage(spec, setup, &trainer, finished), DeviceIndex::FIRST, |tried| tried);
        }
        rest(gate, &trainer, state);
    }
    Ok(())
}

/// The current run, for trials of other switches.
fn shortage(spec: &LabSpec, setup: Setup, trainer: &Trainer, finished: u64) -> Shortage {
    let (memory, libraries) = (trainer.device_info().memory, trainer.libraries());
    Shortage { spec: spec.clone(), setup, memory, libraries, steps: finished }
}

/// Waits between steps. Meanwhile the cache can be emptied and peaks can be reset.
fn rest(gate: &Rc<RefCell<Gate>>, trainer: &Trainer, state: RunState) {
    loop {
        gate.borrow_mut().wait(state.clone());
        let chore = gate.borrow_mut().take_chore();
        match chore {
            Some(Chore::EmptyCache) => trainer.empty_cache(),
            Some(Chore::ResetPeaks) => trainer.reset_peak_memory_stats(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::Duration;

    use tokio::sync::watch;

    use super::super::{DeviceChoice, Feed, FlipDirection, Switch};
    use super::*;
    use vramlab_allocator::units::StreamId;
    use vramlab_device::cpu::{CpuDevice, CpuOptions};
    use vramlab_device::{DType, Device, DeviceError, DeviceInfo, Kernel, Wrapper};
    use vramlab_model::View;
    use vramlab_train::{Config, Libraries};
    use vramlab_workload::{Catalog, Data};

    /// The processor, pretending to be a GPU that fails and that has no kernels in half precision.
    struct FallingDevice {
        info: DeviceInfo,
        inner: CpuDevice,
        launches_left: u32,
    }

    impl FallingDevice {
        fn after(launches_left: u32) -> Self {
            let inner = CpuDevice::open(CpuOptions::default()).unwrap();
            let info = DeviceInfo { id: "cuda:0".to_owned(), name: "NVIDIA H200".to_owned(), ..inner.info().clone() };
            Self { info, inner, launches_left }
        }

        fn alive(&mut self) -> Result<(), DeviceError> {
            self.launches_left = self.launches_left.saturating_sub(1);
            if self.launches_left > 0 {
                return Ok(());
            }
            Err(DeviceError::Lost { device: self.info.id.clone(), reason: "it has fallen off its bus".to_owned() })
        }
    }

    impl Wrapper for FallingDevice {
        fn wrapped(&self) -> &dyn Device {
            &self.inner
        }
        fn wrapped_mut(&mut self) -> &mut dyn Device {
            &mut self.inner
        }
        fn info(&self) -> &DeviceInfo {
            &self.info
        }
        fn launch(&mut self, kernel: &Kernel<'_>, stream: StreamId) -> Result<(), DeviceError> {
            self.alive()?;
            if kernel.work().dtype == DType::F16 {
                let (device, reason) = (self.info.id.clone(), format!("{} in f16", kernel.name()));
                return Err(DeviceError::Unsupported { operation: kernel.name(), device, reason });
            }
            self.inner.launch(kernel, stream)
        }
    }

    /// Longer than anything here takes on any machine.
    const PATIENCE: Duration = Duration::from_secs(120);

    struct EngineLab {
        commands: Sender<Command>,
        /// The model's view after each batch of the feed.
        view: watch::Receiver<Arc<View>>,
        runtime: tokio::runtime::Runtime,
    }

    impl EngineLab {
        /// A lab whose GPU is lost after this many kernel launches.
        fn start(launches: u32) -> Self {
            let workload = Catalog::with_user_workloads(None).entry("mlp-mini").unwrap();
            let data = Data::Reference;
            let config = Config::new(workload.batch.get());
            let spec = LabSpec { device: DeviceChoice::Cuda(0), config, data, ..LabSpec::new(workload) };
            let (commands, inbox) = channel();
            let (feeder, mut feed) = Feeder::pair(64);
            let (views, view) = watch::channel(Arc::<View>::default());
            thread::spawn(move || {
                let mut lab = vramlab_model::Lab::new();
                while let Some(fed) = feed.blocking_recv() {
                    if let Feed::Events(events) = fed {
                        events.iter().for_each(|event| lab.apply(event));
                        views.send_replace(Arc::new(lab.view()));
                    }
                }
            });
            thread::spawn(move || {
                train(spec, None, inbox, feeder, |spec, observer| match spec.device {
                    DeviceChoice::Cuda(_) => {
                        let device = Box::new(FallingDevice::after(launches));
                        spec.build_on(device, Libraries::PROCESSOR, observer, false)
                    }
                    _ => spec.build(observer),
                });
            });
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            Self { commands, view, runtime }
        }

        fn wait(&mut self, what: &str, wanted: impl FnMut(&Arc<View>) -> bool) -> Arc<View> {
            let found = self.runtime.block_on(async {
                let found = tokio::time::timeout(PATIENCE, self.view.wait_for(wanted)).await;
                found.ok().and_then(|found| found.ok().map(|view| Arc::clone(&view)))
            });
            found.unwrap_or_else(|| panic!("waited in vain for {what}: {:?}", self.view.borrow().run))
        }

        fn flip(&self, word: &str) {
            self.commands.send(Command::Flip(Switch::named(word).unwrap(), FlipDirection::Next)).unwrap();
        }
    }

    /// The value of a switch in force, and the wanted one.
    fn value(view: &View, word: &str) -> (String, Option<String>) {
        let setting = view.settings.get(word).unwrap();
        (setting.value.to_string(), setting.wanted.as_ref().map(ToString::to_string))
    }

    #[test]
    fn a_lost_gpu_leaves_its_charts_and_the_processor_takes_over_with_the_same_switches() {
        let mut lab = EngineLab::start(1500);
        lab.wait("a step", |view| view.steps.finished >= 1);
        lab.flip("accum");
        let lost = lab.wait("the loss", |view| matches!(view.run, RunState::Lost(_)));
        let RunState::Lost(reason) = &lost.run else { panic!() };
        assert_eq!(&**reason, "cuda:0 is gone: it has fallen off its bus");
        assert!(lost.about.device.starts_with("cuda:0"), "{:?}", lost.about);
        assert!(lost.steps.finished > 1 && !lost.segments.is_empty(), "what was known stays");
        assert!(lost.ledger.allocated().get() > 0);
        lab.commands.send(Command::Resume).unwrap();
        lab.commands.send(Command::UseProcessor).unwrap();
        let anew = lab.wait("steps of the processor", |view| {
            view.run == RunState::Running && view.about.device.starts_with("cpu")
        });
        assert!(anew.log.iter().any(|line| line.text.contains("again on the processor")), "{:?}", anew.log);
        let position = anew.position;
        assert!(position > lost.position, "one stream, however many runs");
        let anew = lab.wait("steps", |view| view.steps.finished >= 3 && view.position > position);
        assert_eq!(value(&anew, "accum"), ("2".to_owned(), None), "the switches are as they were");
        assert_eq!(anew.malformed, 0, "nothing of the run before is in the way of the new one");
        assert!(anew.history.columns() <= anew.steps.finished + 1, "its charts are the new run's");
        lab.commands.send(Command::Quit).unwrap();
    }

    #[test]
    fn peaks_are_reset_while_the_lab_rests() {
        let mut lab = EngineLab::start(u32::MAX);
        lab.wait("steps", |view| view.steps.finished >= 2);
        lab.commands.send(Command::Train(1)).unwrap();
        let paused = lab.wait("the pause", |view| view.run == RunState::Paused);
        assert!(paused.since_reset.is_none());
        lab.commands.send(Command::ResetPeaks).unwrap();
        let reset = lab.wait("the reset", |view| view.since_reset.is_some());
        let since = reset.since_reset.unwrap();
        assert_eq!((since.allocated, since.reserved), (reset.ledger.allocated(), reset.ledger.reserved()));
        assert!(since.allocated < reset.peak_allocated && reset.peak_allocated == paused.peak_allocated);
        lab.commands.send(Command::Train(1)).unwrap();
        let after = lab.wait("a step", |view| view.steps.finished > paused.steps.finished);
        assert_eq!(after.max_memory_allocated(), after.peak_allocated, "a step is like the others");
        lab.commands.send(Command::Quit).unwrap();
    }

    #[test]
    fn a_step_that_fails_leaves_the_switches_that_worked() {
        let mut lab = EngineLab::start(u32::MAX);
        lab.wait("a step", |view| view.steps.finished >= 1);
        lab.flip("amp");
        let failed = lab.wait("the failure", |view| matches!(view.run, RunState::StepFailed(_)));
        let RunState::StepFailed(reason) = &failed.run else { panic!() };
        assert!(reason.starts_with("cuda:0 has no kernel for") && reason.ends_with("in f16"), "{reason}");
        assert_eq!(value(&failed, "amp"), ("fp16".to_owned(), Some("off".to_owned())), "as before the flip");
        let told = failed.log.iter().any(|line| line.text.ends_with("from the next one on AMP back to off"));
        assert!(told, "{:?}", failed.log);
        let finished = failed.steps.finished;
        lab.commands.send(Command::Resume).unwrap();
        let after = lab.wait("steps", |view| view.steps.finished >= finished + 2);
        assert_eq!((after.run.clone(), value(&after, "amp")), (RunState::Running, ("off".to_owned(), None)));
        // A quick lab may have made any number of steps since.
        let mut steps = (0..after.history.columns()).filter_map(|index| after.history.column(0, index));
        assert!(steps.any(|column| column.failed), "the step given up is marked");
        lab.commands.send(Command::Quit).unwrap();
    }

    #[test]
    fn who_has_seen_enough_of_a_lost_gpu_can_leave() {
        let mut lab = EngineLab::start(1);
        lab.wait("the loss", |view| matches!(view.run, RunState::Lost(_)));
        lab.commands.send(Command::Quit).unwrap();
        let ended = lab.runtime.block_on(async {
            let ended = async { while lab.view.changed().await.is_ok() {} };
            tokio::time::timeout(PATIENCE, ended).await
        });
        assert!(ended.is_ok(), "the engine is still there");
    }
}
