//! The engine thread: trains until told to stop, and survives running out of memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender};

use super::gate::Gate;
use super::publisher::Update;
use super::{Command, LabSpec, RunState, Setup, switches};
use crate::model::EventKind;
use crate::train::{Config, TrainError, Trainer};

/// Trains as `spec` says until all steps are done, the front end quits, or something fails for good.
pub(super) fn train(spec: &LabSpec, commands: Receiver<Command>, updates: SyncSender<Update>) {
    let gate = Rc::new(RefCell::new(Gate::new(commands, updates, spec.setup(), spec.pace())));
    let mut trainer = match spec.build(Box::new(Rc::clone(&gate))) {
        Ok(trainer) => trainer,
        Err(error) => {
            gate.borrow_mut().wait(RunState::Failed(error.to_string()));
            return;
        }
    };
    gate.borrow_mut().describe(spec.about(Some(&trainer)));
    gate.borrow_mut().watch(trainer.sensors());
    note_first_values(&trainer, spec);
    gate.borrow_mut().in_force(spec.setup());
    gate.borrow_mut().announce(RunState::Running);
    let mut finished = 0;
    while !gate.borrow().ended() {
        let (present, wanted) = (gate.borrow().present().clone(), gate.borrow().wanted().clone());
        if wanted != present {
            let setup = flip(&mut trainer, &present, &wanted);
            gate.borrow_mut().in_force(setup);
        }
        if spec.steps.is_some_and(|steps| finished >= steps) {
            rest(&gate, &trainer, RunState::Finished);
            continue;
        }
        match trainer.step() {
            Ok(_) => finished += 1,
            Err(TrainError::Stopped) => break,
            Err(TrainError::OutOfMemory { .. }) => rest(&gate, &trainer, RunState::OutOfMemory),
            Err(error) => {
                gate.borrow_mut().wait(RunState::Failed(error.to_string()));
                break;
            }
        }
    }
}

/// Tells the model which switches do not begin at their usual value.
fn note_first_values(trainer: &Trainer, spec: &LabSpec) {
    note(trainer, &Setup::new(Config::new(spec.config.batch)), &spec.setup());
}

fn note(trainer: &Trainer, from: &Setup, to: &Setup) {
    for flipped in switches::differences(from, to) {
        trainer.note_switch(flipped.key, flipped.label, &flipped.from, &flipped.to);
    }
}

/// Marks each changed switch in the event stream and puts what is wanted in force; returns what then is. Where new batches
/// do not fit, the old configuration stays; where PyTorch would refuse allocator settings, the old ones do.
fn flip(trainer: &mut Trainer, present: &Setup, wanted: &Setup) -> Setup {
    let mut setup = wanted.clone();
    let refused = |trainer: &Trainer, why: String| trainer.memory().emit(EventKind::Note { text: why.into() });
    if setup.alloc_conf != present.alloc_conf
        && let Err(error) = trainer.apply_alloc_conf(&setup.alloc_conf)
    {
        refused(trainer, format!("allocator settings refused: {error}"));
        setup.alloc_conf = present.alloc_conf.clone();
    }
    note(trainer, present, &setup);
    if setup.limit != present.limit {
        trainer.set_limit(setup.limit.map(|limit| limit.of(trainer.device_info().memory)));
    }
    if setup.config != present.config && trainer.configure(setup.config).is_err() {
        refused(trainer, "the batches of that configuration do not fit: it stays as it was".to_owned());
        let asked = setup.clone();
        setup.config = present.config;
        note(trainer, &asked, &setup);
    }
    setup
}

/// Waits between steps; the cache can be emptied meanwhile.
fn rest(gate: &Rc<RefCell<Gate>>, trainer: &Trainer, state: RunState) {
    loop {
        gate.borrow_mut().wait(state.clone());
        if !gate.borrow_mut().take_empty_cache() {
            return;
        }
        trainer.empty_cache();
    }
}
