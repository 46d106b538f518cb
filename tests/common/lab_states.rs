//! Pictures of a lab for tests of the screen: deterministic, made by the real model from a synthetic run.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use vramlab::model::{
    Activity, DriverMemory, Event, EventKind, GpuProcess, Lab, OwnUse, PcieTraffic, Reading, Throttle, View,
};
use vramlab::session::{self, LabState, RunState, Setup};
use vramlab::train::{Amp, Config};
use vramlab::units::Bytes;

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

/// What the driver of an H200 would say while `held` of it are the allocator's.
pub fn reading(held: Bytes) -> Reading {
    let (used, total) = (held + Bytes::mib(532) + Bytes::mib(3_400), Bytes::mib(143_156));
    let own = held + Bytes::mib(532);
    Reading {
        memory: Some(DriverMemory {
            used,
            free: total - used,
            kept_by_driver: Some(Bytes::mib(615)),
            own: OwnUse::Listed(own),
            held,
        }),
        busy: Some(97),
        memory_busy: Some(58),
        power: Some(612.4),
        power_limit: Some(700.0),
        temperature: Some(64),
        sm_clock: Some(1755),
        memory_clock: Some(3201),
        throttles: vec![Throttle::PowerCap],
        processes: vec![GpuProcess { pid: 4711, used: Some(own), own: true }],
        pcie: Some(PcieTraffic { to_device: Bytes(12_400_000_000), to_host: Bytes(310_000_000) }),
        activity: Some(Activity {
            multiprocessors: Some(91.0),
            occupancy: Some(38.2),
            tensor: Some(43.0),
            dram: Some(61.4),
        }),
        xid: None,
    }
}

/// The same lab on a GPU.
pub fn on_gpu() -> LabState {
    let mut state = running();
    let mut view = (*state.view).clone();
    view.gpu = Some(Arc::new(reading(Bytes::mib(16_218))));
    state.view = Arc::new(view);
    state.device = "cuda:0 · NVIDIA H200".to_owned();
    state
}
