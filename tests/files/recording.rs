//! Recordings: what is encoded comes back, damage is reported, and the state at any event is that of a replay.

mod codec;
mod damage;
mod file;
mod prelude;
mod timeline;

use std::sync::Arc;

use vramlab::allocator::{Attempt, DeviceMemory, PoolId, PoolKind, Refusal};
use vramlab::model::{
    About, Activity, AlikeRanks, Category, CopyDirection, DeviceKind, DriverMemory, Event, EventKind, FailedRequest,
    FlipTrials, GpuProcess, Items, LessonAnswer, LessonNote, LessonPart, Micros, NameId, OwnUse, Parallelism,
    PcieTraffic, Phase, Presence, Ranks, Reading, Remedy, RemedyTrial, RunSettings, RunState, Setting, StepReport,
    Throttle, Xid,
};
use vramlab::recording::{Frame, FrameBuilder};
use vramlab::units::{Address, Bytes, DeviceIndex, StreamId};

/// Frames of `events`, with at most `most` of them in each.
fn frames_of(events: &[Event], most: usize) -> Vec<Frame> {
    let mut builder = FrameBuilder::new(0);
    let mut frames = Vec::new();
    for chunk in events.chunks(most) {
        for event in chunk {
            builder.push(event);
            if builder.is_full() {
                frames.extend(builder.finish());
            }
        }
        frames.extend(builder.finish());
    }
    frames
}

/// The events of a frame.
fn events_of(frame: &Frame) -> Vec<Event> {
    frame.unpack().unwrap().events().map(|event| event.unwrap()).collect()
}

/// A training run repeated `times` times; each is a run that begins anew.
fn runs(times: usize) -> Vec<Event> {
    let run = crate::synthetic::training_run();
    let length = run.last().unwrap().time.0 + 1;
    let again = |index: usize| {
        let later = Micros(length * index as u64);
        let begin = Event::new(later, EventKind::Begin(Arc::new(About::default())));
        let moved = run.iter().map(move |event| Event { time: Micros(event.time.0 + later.0), ..event.clone() });
        std::iter::once(begin).chain(moved).collect::<Vec<_>>()
    };
    (0..times).flat_map(again).collect()
}

/// Two ranks that train the same, with their events in turn.
fn two_ranks() -> Vec<Event> {
    let on = |event: &Event, device| Event { device: DeviceIndex(device), ..event.clone() };
    crate::synthetic::training_run().iter().flat_map(|event| [on(event, 0), on(event, 1)]).collect()
}

/// Everything visible in a state.
fn picture(ranks: &mut Ranks) -> String {
    let mut text = format!("{} of {} beyond {}", ranks.position(), ranks.len(), ranks.beyond());
    for index in 0..ranks.len() {
        let lab = ranks.lab_mut(DeviceIndex(u16::try_from(index).unwrap())).unwrap();
        let mut view = lab.view();
        // A state to go on from knows only the end of its history.
        let history = std::mem::take(&mut view.history);
        text.push_str(&format!("\n{view:?}\n{} {:?}", history.columns(), history.latest()));
    }
    text
}

/// One event of every kind, with values at the ends of their ranges.
fn every_kind() -> Vec<EventKind> {
    let (name, address, size) = (NameId(7), Address(0x7f00_0000_0200), Bytes(512));
    let report = |loss| StepReport {
        step: u64::MAX,
        loss,
        total: Micros(5),
        phases: [Micros(0), Micros(1), Micros(2), Micros(3), Micros(u64::MAX)],
        copy: Micros(9),
        exchange: Micros(3),
        items: 1,
        optimizer_ran: false,
    };
    let setting = |wanted: Option<&str>, idle: Option<&str>| Setting {
        switch: "amp".into(),
        value: "off".into(),
        wanted: wanted.map(Into::into),
        idle: idle.map(Into::into),
    };
    let request = FailedRequest {
        requested: Bytes(u64::MAX),
        rounded: Bytes(2),
        segment: Bytes(3),
        pool: PoolKind::Large,
        stream: StreamId(4),
        device_free: Bytes(5),
        name,
        attempts: vec![
            Attempt::Search { blocks: 1, largest: size },
            Attempt::CollectGarbage { released: size },
            Attempt::Grow { segment: size, refusal: Refusal::Limit },
            Attempt::ReleaseOversize { released: size },
            Attempt::ReleaseCached { released: Bytes::ZERO },
        ],
    };
    let remedied = |remedy| RemedyTrial { remedy, fits: true, peak_reserved: size };
    let reading = Reading {
        memory: Some(DriverMemory { own: OwnUse::Listed(size), ..DriverMemory::default() }),
        power: Some(f32::NEG_INFINITY),
        throttles: vec![Throttle::Heat, Throttle::Setting],
        processes: vec![GpuProcess { pid: 1, used: None, own: true }],
        pcie: Some(PcieTraffic::default()),
        activity: Some(Activity { dram: Some(0.25), ..Activity::default() }),
        xid: Some(Xid(79)),
        ..Reading::default()
    };
    let about = || {
        Arc::new(About {
            workload: "gpt-mini".into(),
            detail: "B16 · 漢".into(),
            device: "".into(),
            kind: DeviceKind::Simulated,
            items: Items::Tokens,
            torch: vramlab::allocator::TorchVersion::V2_13,
            guessed: true,
            history: None,
        })
    };
    let mut kinds = vec![
        EventKind::Define { id: name, text: "blocks.0\u{1b}".into() },
        EventKind::SegmentAlloc { address, size, stream: StreamId(u64::MAX), pool: PoolKind::Small },
        EventKind::SegmentFree { address, size },
        EventKind::SegmentMap {
            address,
            size,
            stream: StreamId(1),
            pool: PoolKind::Large,
            range: Address(u64::MAX),
            page: Bytes::mib(2),
        },
        EventKind::SegmentUnmap { address: Address(1), size: Bytes(3) },
        EventKind::Relabel { address, category: Category::Gradient, name: NameId(u32::MAX) },
        EventKind::FreeRequested { address: Address(u64::MAX) },
        EventKind::FreeCompleted { address: Address(u64::MAX) },
        EventKind::FreeCompleted { address: Address(u64::MAX - 1) },
        EventKind::Oom(Arc::new(request)),
        EventKind::Remedied(Arc::new([
            remedied(Remedy::EXPANDABLE),
            remedied(Remedy::SmallerBatch { batch: 8 }),
            remedied(Remedy::EmptyCache),
            remedied(Remedy::HigherLimit),
            remedied(Remedy::KeepNumbers),
        ])),
        EventKind::Weighed(Arc::new(FlipTrials {
            step: 2,
            peak: size,
            flips: vec![(Remedy::EXPANDABLE, Bytes::ZERO)],
        })),
        EventKind::EmptyCache,
        EventKind::ResetPeaks,
        EventKind::Limit { limit: None },
        EventKind::Limit { limit: Some(Bytes(u64::MAX)) },
        EventKind::StepBegin { step: 1 },
        EventKind::OpBegin { name },
        EventKind::OpEnd,
        EventKind::StepEnd(report(None)),
        EventKind::StepEnd(report(Some(f32::MIN_POSITIVE))),
        EventKind::Begin(about()),
        EventKind::About(about()),
        EventKind::Settings(Arc::new(RunSettings(vec![setting(None, Some("why")), setting(Some("bf16"), None)]))),
        EventKind::SwitchFlipped { switch: name, from: NameId(1), to: NameId(2) },
        EventKind::Copy { direction: CopyDirection::ToHost, bytes: size, pinned: true, duration: Micros(3) },
        EventKind::HostMemory { allocated: size, reserved: Bytes(u64::MAX) },
        EventKind::Generating,
        EventKind::Generated { text: "fn ".into() },
        EventKind::Reading(Arc::new(reading)),
        EventKind::Notice { text: "no".into() },
        EventKind::Note { text: "".into() },
        EventKind::Stack { name, frames: [NameId(0), NameId(u32::MAX)].into() },
        EventKind::Stack { name, frames: Arc::from([]) },
    ];
    for parallelism in [None, Some(Parallelism::Zero1)] {
        kinds.push(EventKind::AlikeRanks(Arc::new(AlikeRanks { parallelism, world: 1024, ranks: vec![0, 513] })));
    }
    kinds.push(EventKind::ForeignContexts([0, u16::MAX].into()));
    kinds.push(EventKind::PrivatePool { address, pool: PoolId(7, u32::MAX) });
    kinds.extend([LessonPart::Reading, LessonPart::Asked, LessonPart::Over, LessonPart::Acting].map(|doing| {
        EventKind::Lesson(Arc::new(LessonNote {
            learner: "Ada ✓".into(),
            lesson: "empty-cache".into(),
            title: "".into(),
            step: u32::MAX,
            steps: 0,
            doing,
            halves: 5,
            answered: 3,
            questions: 4,
            answers: vec![LessonAnswer { step: 1, title: "".into(), said: "B. é".into(), halves: Some(2) }],
            seconds: u32::MAX,
        }))
    }));
    for category in Category::ALL {
        let (requested, stream) = (Bytes(500), StreamId::DEFAULT);
        kinds.push(EventKind::Alloc { address, size, requested, stream, category, name });
    }
    for phase in Phase::ALL {
        kinds.extend([EventKind::PhaseBegin { phase }, EventKind::PhaseEnd { phase }]);
    }
    let states = [
        RunState::Starting,
        RunState::Running,
        RunState::Paused,
        RunState::OutOfMemory,
        RunState::StepFailed("why".into()),
        RunState::Finished,
        RunState::Lost("xid".into()),
        RunState::Failed("".into()),
    ];
    kinds.extend(states.map(EventKind::Run));
    // After everything that format 6 has: what 7 adds, and what 8 adds.
    kinds.push(EventKind::DeviceMemory(DeviceMemory { free: Bytes::ZERO, total: Bytes(u64::MAX) }));
    kinds.extend([Presence::There, Presence::Silent(u32::MAX), Presence::Gone].map(EventKind::Presence));
    kinds
}
