//! Pictures of a lab for tests of the screen: deterministic, computed by the real model from a synthetic run.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, OnceLock};

use vramlab::model::{
    About, Activity, AlikeRanks, DeviceKind, DriverMemory, Event, EventKind, GpuProcess, Grouping, History, Items, Lab,
    Micros, NameId, OwnUse, Parallelism, PcieTraffic, Profile, Reading, RunState, Study, Throttle, View,
};
use vramlab::session::{self, Scene, Setup, Switch};
use vramlab::source::{
    Cursor, Extent, MarkedMoment, Moment, Picture, PinnedStep, RankFigures, RankState, ShownDevice, SourceKind,
};
use vramlab::train::{Checkpointing, Config, DataPath};
use vramlab::units::Bytes;

use super::synthetic;

/// The lab's description: what is trained, and where.
pub fn about(kind: DeviceKind) -> About {
    let device = match kind {
        DeviceKind::Processor => "cpu · 2 cores",
        DeviceKind::Gpu => "cuda:0 · NVIDIA H200",
        DeviceKind::Simulated => "sim:h200 · NVIDIA H200",
        DeviceKind::Absent => "NVIDIA H200",
    };
    About {
        workload: "gpt-char".into(),
        detail: "435k parameters · B16 T64 · eager".into(),
        device: device.into(),
        kind,
        items: Items::Tokens,
        torch: vramlab::allocator::TorchVersion::default(),
        guessed: false,
        history: None,
    }
}

/// The switches at the start: pinned batches, all others at their defaults.
fn first_setup() -> Setup {
    Setup::new(Config { pinned: true, data: DataPath::Streamed, ..Config::new(16) })
}

fn settings(kind: DeviceKind, in_force: &Setup, wanted: &Setup) -> EventKind {
    let scene = Scene {
        device: kind,
        config: &wanted.config,
        no_model: false,
        trains: true,
        adversarial: false,
        fuses: true,
        attention: true,
        eager: false,
        causal: false,
        float8: false,
        blocks: true,
    };
    EventKind::Settings(Arc::new(session::settings(in_force, wanted, &scene)))
}

/// Events of a training run with an engine's reports: what runs, the switches' values, and what it is doing.
pub fn told(kind: DeviceKind, events: Vec<Event>) -> Vec<Event> {
    let mut setup = first_setup();
    let mut names: Vec<Arc<str>> = Vec::new();
    let text = |names: &[Arc<str>], id: NameId| names.get(id.0 as usize).map_or_else(String::new, ToString::to_string);
    let mut all: Vec<Event> =
        [EventKind::Begin(Arc::new(about(kind))), settings(kind, &setup, &setup), EventKind::Run(RunState::Running)]
            .map(|kind| Event::new(Micros(0), kind))
            .into();
    for event in events {
        let time = event.time;
        let mut after = None;
        match &event.kind {
            EventKind::Define { id, text } => {
                names.resize(names.len().max(id.0 as usize + 1), "".into());
                names[id.0 as usize] = Arc::clone(text);
            }
            EventKind::SwitchFlipped { switch, to, .. } => {
                let switch = Switch::named(&text(&names, *switch)).unwrap();
                switch.set(&mut setup, &text(&names, *to)).unwrap();
                after = Some(settings(kind, &setup, &setup));
            }
            _ => {}
        }
        all.push(event);
        all.extend(after.map(|kind| Event::new(time, kind)));
    }
    all
}

/// The whole synthetic run on a device of this kind. Told once for each kind, because every picture begins with it.
pub fn run_on(kind: DeviceKind) -> &'static [Event] {
    static RUNS: [OnceLock<Vec<Event>>; 4] = [const { OnceLock::new() }; 4];
    RUNS[kind as usize].get_or_init(|| told(kind, synthetic::training_run()))
}

/// The picture of a running lab with the view `view`.
pub fn state_of(view: View, run: RunState) -> Picture {
    let extent = Extent { first: 0, end: view.position, steps: view.steps.finished, time: view.time, grows: true };
    Picture {
        history: Arc::clone(&view.history),
        configurations: view.configurations.clone().into(),
        settings: Arc::clone(&view.settings),
        extent,
        view: Arc::new(View { run: run.clone(), ..view }),
        run,
        ..Picture::default()
    }
}

/// The same picture with another run state.
pub fn with_run(mut picture: Picture, run: RunState) -> Picture {
    Arc::make_mut(&mut picture.view).run = run.clone();
    Picture { run, ..picture }
}

/// The same picture with another view.
pub fn edited(mut picture: Picture, edit: impl FnOnce(&mut View)) -> Picture {
    edit(Arc::make_mut(&mut picture.view));
    picture.settings = Arc::clone(&picture.view.settings);
    picture.configurations = picture.view.configurations.clone().into();
    picture
}

fn lab_until(kind: DeviceKind, mut stop: impl FnMut(&Event) -> bool) -> Lab {
    let mut lab = Lab::new();
    for event in run_on(kind) {
        lab.apply(event);
        if stop(event) {
            break;
        }
    }
    lab
}

/// The synthetic run up to the first event that `stop` accepts.
pub fn view_until(stop: impl FnMut(&Event) -> bool) -> View {
    lab_until(DeviceKind::Processor, stop).view()
}

/// Accepts an event in the middle of the forward pass of step `wanted`, where much is alive.
fn mid_forward(wanted: u64) -> impl FnMut(&Event) -> bool {
    let mut in_step = false;
    let mut ops = 0;
    move |event| {
        match &event.kind {
            EventKind::StepBegin { step } => (in_step, ops) = (*step == wanted, 0),
            EventKind::OpEnd => ops += 1,
            _ => {}
        }
        in_step && ops == 13
    }
}

/// In the middle of the forward pass of step `wanted`, where much is alive.
pub fn in_forward(wanted: u64) -> View {
    view_until(mid_forward(wanted))
}

/// After the last event.
pub fn finished() -> View {
    view_until(|_| false)
}

/// Just after a request failed.
pub fn out_of_memory() -> View {
    view_until(|event| matches!(event.kind, EventKind::Oom(_)))
}

/// The picture of a lab after the first of `events` that goes on: memory is shown at the peak of its last step.
pub fn going_on(lab: &mut Lab, events: &[Event]) -> Picture {
    let picture = state_of(lab.view(), RunState::Running);
    let marked = lab.last_peak().map(|peak| marked_at(events, peak, Moment::StepPeak, lab.last_profile().cloned()));
    Picture { marked, ..picture }
}

/// A mark after this many of `events`.
pub fn marked_at(events: &[Event], position: u64, moment: Moment, step: Option<Arc<Profile>>) -> MarkedMoment {
    let mut then = Lab::new();
    events[..usize::try_from(position).unwrap()].iter().for_each(|event| then.apply(event));
    MarkedMoment { moment, view: Arc::new(then.view()), step, ghost: None }
}

pub fn running() -> Picture {
    going_on(&mut lab_until(DeviceKind::Processor, mid_forward(22)), run_on(DeviceKind::Processor))
}

/// A paused lab, with a flipped switch that is not in force yet.
pub fn paused() -> Picture {
    let mut lab = lab_until(DeviceKind::Processor, mid_forward(12));
    let mut setup = first_setup();
    Switch::named("amp").unwrap().set(&mut setup, "bf16").unwrap();
    let mut wanted = setup.clone();
    wanted.config.checkpointing = Checkpointing::ALL;
    lab.apply(&Event::new(lab.time(), settings(DeviceKind::Processor, &setup, &wanted)));
    state_of(lab.view(), RunState::Paused)
}

pub fn starting() -> Picture {
    let mut lab = Lab::new();
    lab.apply(&Event::new(Micros(0), EventKind::Begin(Arc::new(about(DeviceKind::Processor)))));
    state_of(lab.view(), RunState::Starting)
}

/// A picture of the whole run whose cursor looks back into step 12.
pub fn looking_back() -> Picture {
    let whole = finished();
    let step: Option<Arc<Profile>> =
        view_until(|event| matches!(&event.kind, EventKind::StepEnd(report) if report.step == 12)).profiles.last;
    let history: Arc<History> = Arc::clone(&whole.history);
    let view = in_forward(12);
    Picture {
        cursor: Cursor::At(view.position),
        history,
        step,
        view: Arc::new(view),
        ..state_of(whole, RunState::Running)
    }
}

/// The same picture with a study of step `wanted`, for a screen that needs one.
pub fn studied(picture: Picture, wanted: u64) -> Picture {
    let events = run_on(picture.view.about.kind);
    let begins = |event: &Event| matches!(event.kind, EventKind::StepBegin { step } if step == wanted);
    let ends = |event: &Event| matches!(&event.kind, EventKind::StepEnd(report) if report.step == wanted);
    let (begin, end) = (events.iter().position(begins).unwrap(), events.iter().position(ends).unwrap() + 1);
    let mut before = Lab::new();
    events[..begin].iter().for_each(|event| before.apply(event));
    let (from, to) = (begin as u64, end as u64);
    let study = Study::of(from..to, before.memory(), before.names(), Grouping::Category, |each| {
        (from..).zip(&events[begin..end]).for_each(|(position, event)| each(position, event));
    });
    Picture { study: Some(Arc::new(study)), ..picture }
}

/// The same picture with step `wanted` pinned.
pub fn pinned(picture: Picture, wanted: u64) -> Picture {
    let ends = |event: &Event| matches!(&event.kind, EventKind::StepEnd(report) if report.step == wanted);
    let events = run_on(picture.view.about.kind);
    let mut lab = lab_until(picture.view.about.kind, ends);
    let study = studied(picture.clone(), wanted).study;
    let peak = lab.last_peak().unwrap();
    let step = lab.view().profiles.last.unwrap();
    let view = marked_at(events, peak, Moment::Cursor, None).view;
    Picture { pinned: Some(Arc::new(PinnedStep { view, step, study })), ..picture }
}

/// The same picture as a recording's.
pub fn recorded() -> Picture {
    let live = looking_back();
    let extent = Extent { grows: false, ..live.extent };
    with_run(Picture { kind: SourceKind::Recording("gpt-char.vram".into()), extent, ..live }, RunState::Finished)
}

/// The same picture as the second of three runs of ranks that train together; one of them represents two ranks.
pub fn with_ranks(picture: Picture) -> Picture {
    let of = |ranks: &[u16], figures: [u64; 3]| {
        let [allocated, peak_allocated, peak_reserved] = figures.map(Bytes::mib);
        let alike = AlikeRanks { parallelism: Some(Parallelism::Fsdp), world: 4, ranks: ranks.to_vec() };
        let step = picture.shown_step().cloned().map(Arc::new);
        RankFigures {
            alike: Arc::new(alike),
            allocated,
            peak_allocated,
            peak_reserved,
            state: RankState::Trains,
            step_time: Micros(20_400),
            exchange: Micros(3_100),
            step,
            own: None,
            simulated: true,
            stage: false,
            foreign_contexts: Arc::default(),
        }
    };
    let ranks = Arc::new([of(&[0], [196, 212, 226]), of(&[1, 2], [188, 204, 218]), of(&[3], [180, 196, 210])]);
    let about = |view: &mut View| {
        let about = Arc::make_mut(&mut view.about);
        about.detail = format!("fsdp, rank 1 of 4 · {}", about.detail).into();
    };
    Picture { ranks, device: ShownDevice { place: 1, of: 3 }, ..edited(picture, about) }
}

/// The driver's reading on an H200 when `held` of its memory belongs to the allocator.
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
pub fn on_gpu() -> Picture {
    let mut lab = lab_until(DeviceKind::Gpu, mid_forward(22));
    let reading = Arc::new(reading(Bytes::mib(16_218)));
    lab.apply(&Event::new(lab.time(), EventKind::Reading(reading)));
    going_on(&mut lab, run_on(DeviceKind::Gpu))
}

/// The same lab on a simulated card: its times come from a model, and it has no losses.
pub fn simulated() -> Picture {
    let mut lab = Lab::new();
    let mut stop = mid_forward(22);
    for mut event in run_on(DeviceKind::Simulated).iter().cloned() {
        if let EventKind::StepEnd(report) = &mut event.kind {
            report.loss = None;
        }
        lab.apply(&event);
        if stop(&event) {
            break;
        }
    }
    going_on(&mut lab, run_on(DeviceKind::Simulated))
}

/// The picture with a study of the last whole step, or of the whole run.
pub fn with_study(picture: Picture, grouping: Grouping, whole: bool) -> Picture {
    let events = run_on(picture.view.about.kind);
    let end = usize::try_from(picture.view.position).unwrap();
    let begins = |event: &Event| matches!(event.kind, EventKind::StepBegin { .. });
    let ends = |event: &Event| matches!(event.kind, EventKind::StepEnd(_));
    let until = events[..end].iter().rposition(ends).map_or(end, |index| index + 1);
    let from = events[..until].iter().rposition(begins).unwrap_or(0);
    let range = if whole { 0..end } else { from..until };
    let mut lab = Lab::new();
    events[..range.start].iter().for_each(|event| lab.apply(event));
    let positions = range.start as u64..range.end as u64;
    let study = Study::of(positions.clone(), lab.memory(), lab.names(), grouping, |each| {
        positions.clone().zip(&events[range.clone()]).for_each(|(position, event)| each(position, event));
    });
    Picture { study: Some(Arc::new(study)), ..picture }
}
