//! Pictures of a lab for tests of the screen: deterministic, made by the real model from a synthetic run.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use vramlab::model::{Event, EventKind, Lab, View};
use vramlab::session::{self, LabState, RunState, Setup};
use vramlab::train::{Amp, Config};

use super::synthetic;

/// A lab whose picture is `view`.
pub fn state_of(view: View, run: RunState) -> LabState {
    let paused = run == RunState::Paused;
    let mut setup = Setup::new(Config::new(16));
    (setup.config.amp, setup.config.pinned) = (Amp::Bf16, true);
    let mut wanted = setup.clone();
    wanted.config.checkpointing = paused;
    let switches = session::panel(&setup, &wanted);
    LabState {
        view: Arc::new(view),
        run,
        switches,
        workload: "gpt-char".to_owned(),
        detail: "435k parameters · B16 T64 · adamw · eager".to_owned(),
        device: "cpu · 2 cores".to_owned(),
        simulated: false,
        items: "tok/s",
    }
}

/// The synthetic run up to the first event that `stop` accepts.
pub fn view_until(mut stop: impl FnMut(&Event) -> bool) -> View {
    let mut lab = Lab::new();
    for event in synthetic::training_run() {
        lab.apply(&event);
        if stop(&event) {
            break;
        }
    }
    lab.view()
}

/// In the middle of the forward pass of step `wanted`, where much is alive.
pub fn in_forward(wanted: u64) -> View {
    let mut in_step = false;
    let mut ops = 0;
    view_until(|event| {
        match &event.kind {
            EventKind::StepBegin { step } => (in_step, ops) = (*step == wanted, 0),
            EventKind::OpEnd => ops += 1,
            _ => {}
        }
        in_step && ops == 13
    })
}

/// After the last event.
pub fn finished() -> View {
    view_until(|_| false)
}

/// Just after a request failed.
pub fn out_of_memory() -> View {
    view_until(|event| matches!(event.kind, EventKind::Oom { .. }))
}

pub fn running() -> LabState {
    state_of(in_forward(22), RunState::Running)
}

pub fn paused() -> LabState {
    state_of(in_forward(12), RunState::Paused)
}

pub fn starting() -> LabState {
    LabState {
        workload: "gpt-char".to_owned(),
        device: "cpu · 2 cores".to_owned(),
        items: "tok/s",
        ..LabState::default()
    }
}
