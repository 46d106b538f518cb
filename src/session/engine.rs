//! The engine thread: trains until told to stop, and survives running out of memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender};

use super::gate::Gate;
use super::publisher::Update;
use super::{Command, LabSpec, RunState, switches};
use crate::train::{Config, TrainError, Trainer};

/// Trains as `spec` says until all steps are done, the front end quits, or something fails for good.
pub(super) fn train(spec: &LabSpec, commands: Receiver<Command>, updates: SyncSender<Update>) {
    let gate = Rc::new(RefCell::new(Gate::new(commands, updates, spec.config, spec.pace())));
    let mut trainer = match spec.build(Box::new(Rc::clone(&gate))) {
        Ok(trainer) => trainer,
        Err(error) => {
            gate.borrow_mut().wait(RunState::Failed(error.to_string()));
            return;
        }
    };
    gate.borrow_mut().describe(spec.about(Some(&trainer)));
    note_first_values(&trainer, spec);
    gate.borrow_mut().in_force(*trainer.config());
    gate.borrow_mut().announce(RunState::Running);
    let mut finished = 0;
    while !gate.borrow().ended() {
        let wanted = *gate.borrow().wanted();
        if wanted != *trainer.config() {
            flip(&mut trainer, &wanted, &gate);
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
    for (key, switch, from, to) in switches::differences(&Config::new(spec.config.batch), &spec.config) {
        trainer.note_switch(key, switch, from, to);
    }
}

/// Marks each changed switch in the event stream and puts the new configuration in force. Where its batches do not fit,
/// the old one stays.
fn flip(trainer: &mut Trainer, wanted: &Config, gate: &Rc<RefCell<Gate>>) {
    let old = *trainer.config();
    for (key, switch, from, to) in switches::differences(&old, wanted) {
        trainer.note_switch(key, switch, from, to);
    }
    if trainer.configure(*wanted).is_err() {
        for (key, switch, from, to) in switches::differences(wanted, &old) {
            trainer.note_switch(key, switch, from, to);
        }
        gate.borrow_mut().refuse();
    }
    gate.borrow_mut().in_force(*trainer.config());
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
