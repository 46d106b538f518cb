//! The lab over whole event streams.

use super::*;
use crate::{
    Category, EmptyCacheEffect, FlipTrials, MarkKind, RemedyTrial, SegmentView, StepReport, View, Why, synthetic,
};
use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{MIB, StreamId};

fn lab_of(events: &[Event]) -> Lab {
    let mut lab = Lab::new();
    for event in events {
        lab.apply(event);
    }
    lab
}

fn lines(view: &View) -> String {
    view.log.iter().map(|line| format!("{} {:?} {}", line.step, line.level, line.text)).collect::<Vec<_>>().join("\n")
}

fn marks(view: &View) -> Vec<String> {
    let mark = |mark: &crate::Mark| match &mark.kind {
        MarkKind::Flip { switch, to } => format!("{switch} {to} at {}", mark.step),
        MarkKind::EmptyCache { .. } => format!("empty_cache at {}", mark.step),
        MarkKind::OutOfMemory => format!("out of memory at {}", mark.step),
    };
    view.history.marks().map(mark).collect()
}

#[test]
fn a_training_run_is_seen_whole() {
    let events = synthetic::training_run();
    let mut lab = lab_of(&events);
    let view = lab.view();
    assert_eq!(lab.malformed(), 0);
    assert_eq!(view.position, events.len() as u64);
    assert_eq!(view.steps.finished, 30);
    assert_eq!(view.steps.skipped, 1);
    assert_eq!(view.traffic.ooms, 1);
    assert_eq!(view.by_category.iter().copied().sum::<Bytes>(), view.ledger.allocated());
    assert_eq!(view.segments.iter().map(|segment| segment.size).sum::<Bytes>(), view.ledger.reserved());
    let effect = |effect: &Arc<super::super::Effect>| match &*effect.flips {
        [] => format!("empty_cache {:?}", effect.measured),
        flips => {
            format!("{} {:?}", flips.iter().map(|flip| &*flip.switch).collect::<Vec<_>>().join(" "), effect.measured)
        }
    };
    assert_eq!(
        view.effects.iter().map(effect).collect::<Vec<_>>(),
        ["amp (4, 10)", "empty_cache (1, 1)", "ckpt (3, 10)"]
    );
    assert_eq!(marks(&view), ["amp bf16 at 10", "empty_cache at 16", "ckpt on at 20", "out of memory at 25"]);
    assert_eq!(view.history.columns(), 31, "30 steps, and one given up");
    assert_eq!(view.generated.as_ref().map(|generated| generated.step), Some(20));
    insta::assert_snapshot!(lines(&view), @r"
    10 Switch amp off → bf16
    16 Switch empty_cache returned 82.00 MiB
    20 Switch ckpt off → on
    25 Danger out of memory: 300.10 MiB asked for blocks.0.linear output
    30 Info all steps done
    ");
}

#[test]
fn the_peak_of_a_step_is_split_by_what_was_live_then() {
    let mut lab = Lab::new();
    let (mut highest, mut split) = (Bytes::ZERO, [Bytes::ZERO; 9]);
    for event in synthetic::training_run() {
        lab.apply(&event);
        match event.kind {
            EventKind::StepBegin { .. } => highest = Bytes::ZERO,
            EventKind::Alloc { .. } if lab.memory().allocated() > highest => {
                (highest, split) = (lab.memory().allocated(), lab.memory().by_category());
            }
            EventKind::StepEnd(_) => assert_eq!(lab.view().peak_by_category, split),
            _ => {}
        }
    }
    assert!(split[Category::Gradient as usize] > Bytes::ZERO);
}

#[test]
fn a_view_shares_what_did_not_change() {
    let events = synthetic::crowded(5000);
    let mut lab = lab_of(&events);
    let first = lab.view();
    assert!(Arc::ptr_eq(&first.segments, &lab.view().segments));
    let freed = first.segments[3].address.offset(first.segments[3].blocks[5].offset);
    lab.apply(&Event::new(Micros(0), EventKind::FreeRequested { address: freed }));
    let second = lab.view();
    for (index, (before, after)) in first.segments.iter().zip(second.segments.iter()).enumerate() {
        assert_eq!(Arc::ptr_eq(&before.blocks, &after.blocks), index != 3);
    }
    assert!(second.segments[3].blocks[5].pending && !first.segments[3].blocks[5].pending);
}

#[test]
fn views_with_shared_segments_equal_fresh_ones() {
    let mut lab = Lab::new();
    for (index, event) in synthetic::training_run().into_iter().enumerate() {
        lab.apply(&event);
        if index % 13 == 0 {
            let fresh: Vec<SegmentView> = lab.memory().segments().map(|segment| segment.view()).collect();
            assert_eq!(*lab.view().segments, fresh);
        }
    }
}

#[test]
fn a_damaged_stream_is_told_in_one_line_and_goes_on() {
    let events = synthetic::training_run();
    let mut lab = Lab::new();
    for event in &events[..200] {
        lab.apply(event);
    }
    for n in 0..1000 {
        lab.apply(&Event::new(Micros(n), EventKind::FreeCompleted { address: Address(n) }));
    }
    assert_eq!(lab.malformed(), 1000);
    let view = lab.view();
    let [line] = &*view.log else { panic!("one line: {}", lines(&view)) };
    assert_eq!(line.level, Level::Danger);
    assert!(line.text.ends_with("(1000 such events so far)"), "{}", line.text);
    lab.apply(&Event::new(Micros(0), EventKind::Define { id: NameId(u32::MAX), text: "far".into() }));
    assert_eq!(lab.names().get(NameId(u32::MAX)), "");
    events[200..].iter().for_each(|event| lab.apply(event));
    assert_eq!((lab.malformed(), lab.view().steps.finished), (1000, 30));
}

#[test]
fn what_empty_cache_returned_and_what_the_next_step_paid_are_told() {
    let mut events = synthetic::training_run();
    let at = events.iter().position(|event| event.kind == EventKind::EmptyCache).unwrap();
    let segments = events[at + 1..].iter().map_while(|event| match event.kind {
        EventKind::SegmentFree { size, .. } => Some(size),
        _ => None,
    });
    let segments: Vec<Bytes> = segments.collect();
    let returned: Bytes = segments.iter().copied().sum();
    let rest = events.split_off(at + 1 + segments.len());
    let reserved = lab_of(&events[..at]).memory().reserved();
    // In the middle, the screen shows what has been released so far.
    let halfway = lab_of(&events[..=at + 1]).view();
    let told = |view: &View| view.effects.last().and_then(|effect| effect.emptied);
    let so_far = EmptyCacheEffect { before: reserved, released: segments[0], frees: 1, allocs: None };
    assert_eq!(told(&halfway), Some(so_far));
    let mut lab = lab_of(&events);
    let before = lab.memory().reserved();
    let view = lab.view();
    assert!(returned > segments[0] && reserved == before + returned);
    let emptied = EmptyCacheEffect { before: reserved, released: returned, frees: segments.len() as u64, allocs: None };
    assert_eq!(told(&view), Some(emptied));
    let mark = view.history.marks().last().map(|mark| mark.kind.clone());
    assert_eq!(mark, Some(MarkKind::EmptyCache { released: returned }));
    // The next step takes segments again. The number of these calls is the price.
    let end = rest.iter().position(|event| matches!(event.kind, EventKind::StepEnd(_))).unwrap();
    let paid = rest[..end].iter().filter(|event| matches!(event.kind, EventKind::SegmentAlloc { .. })).count() as u64;
    assert!(paid > 0);
    rest[..=end].iter().for_each(|event| lab.apply(event));
    assert_eq!(told(&lab.view()), Some(EmptyCacheEffect { allocs: Some(paid), ..emptied }));
    // Segments released later, in a retry, are not its doing.
    rest[end + 1..].iter().for_each(|event| lab.apply(event));
    assert!(lab.memory().reserved() > before);
    assert_eq!(lab.view().effects[1].emptied, Some(EmptyCacheEffect { allocs: Some(paid), ..emptied }));
    let after = lab.view().effects[1].after;
    assert!(after.is_some_and(|after| after.peak_reserved.bytes() > before));
}

#[test]
fn out_of_memory_is_explained_until_a_step_ends_well() {
    let mut lab = Lab::new();
    let mut explained = 0;
    for event in synthetic::training_run() {
        lab.apply(&event);
        let found = |lab: &mut Lab| {
            let view = lab.view();
            assert_eq!(view.autopsy.is_some(), view.findings.first().is_some_and(|first| first.level == Level::Danger));
            view.autopsy.is_some()
        };
        match event.kind {
            EventKind::Oom(_) => {
                assert!(found(&mut lab));
                explained += 1;
            }
            EventKind::StepEnd(StepReport { .. }) => assert!(!found(&mut lab)),
            _ => {}
        }
    }
    assert_eq!(explained, 1);
}

#[test]
fn a_failed_request_leaves_an_autopsy_of_the_moment() {
    let events = synthetic::training_run();
    let at = events.iter().position(|event| matches!(event.kind, EventKind::Oom(_))).unwrap();
    let EventKind::Oom(request) = &events[at].kind else { panic!() };
    let mut lab = lab_of(&events[..at]);
    let before = lab.view();
    let op = lab.names().shared(before.op);
    lab.apply(&events[at]);
    let view = lab.view();
    let autopsy = view.autopsy.as_deref().unwrap();
    assert_eq!((autopsy.position, autopsy.step, &autopsy.request), (at as u64, 25, request));
    assert_eq!((autopsy.ledger, autopsy.limit), (before.ledger, before.limit));
    assert_eq!((autopsy.by_category, &autopsy.op, autopsy.phase), (before.by_category, &op, Some(Phase::Forward)));
    let over = before.ledger.reserved() + request.segment - before.limit.unwrap();
    assert_eq!(autopsy.short, over);
    let free: Bytes = autopsy.unusable.iter().filter(|part| part.why != Why::Pending).map(|part| part.bytes).sum();
    assert!(free > Bytes::ZERO);
    assert_eq!(free, before.ledger.free());
    assert!(autopsy.owners.is_sorted_by(|a, b| a.bytes >= b.bytes) && autopsy.owners.len() > 1);
    assert!(autopsy.owners.iter().any(|owner| &*owner.name == "blocks.*.fc.weight" && owner.blocks == 4));
    assert!(autopsy.modules.iter().any(|module| &*module.name == "blocks.0"));
    // Remedies are tried after the failure.
    let remedied: Arc<[RemedyTrial]> =
        [RemedyTrial { remedy: crate::Remedy::flip("ckpt", "on"), fits: true, peak_reserved: Bytes(MIB) }].into();
    lab.apply(&Event::new(Micros(0), EventKind::Remedied(Arc::clone(&remedied))));
    let tried = lab.view();
    assert_eq!(tried.autopsy.as_ref().map(|autopsy| &autopsy.remedied), Some(&remedied));
    assert_eq!(tried.findings[0].remedies, [crate::Remedy::flip("ckpt", "on")]);
    assert!(view.autopsy.as_ref().is_some_and(|autopsy| autopsy.remedied.is_empty()), "an older view stays as it was");
}

#[test]
fn a_restart_forgets_everything_but_the_log() {
    let events = synthetic::training_run();
    let mut lab = lab_of(&events);
    let before = lab.view();
    let about = Arc::new(About { workload: "another".into(), ..About::default() });
    let at = Micros(before.time.0 + 5);
    lab.apply(&Event::new(at, EventKind::Begin(Arc::clone(&about))));
    let after = lab.view();
    assert_eq!((after.position, after.time), (before.position + 1, at), "the stream goes on");
    assert_eq!(after.log, before.log);
    assert!(after.log.len() > 3);
    // Everything else is as in a new lab.
    let mut fresh = Lab::new();
    fresh.apply(&Event::new(at, EventKind::Begin(about)));
    let fresh = fresh.view();
    let untold = |view: &View| View { position: 0, begun: 0, log: Vec::new(), ..view.clone() };
    assert_eq!(format!("{:?}", untold(&after)), format!("{:?}", untold(&fresh)));
    assert_ne!(format!("{:?}", untold(&before)), format!("{:?}", untold(&fresh)));
    // The same run again gives the same.
    for event in &events {
        lab.apply(event);
    }
    let again = lab.view();
    assert_eq!((again.ledger, again.steps.finished, again.malformed), (before.ledger, 30, 0));
    assert_eq!((marks(&again), again.log.len()), (marks(&before), 2 * before.log.len()));
    assert_eq!(again.history.page(0, 64).columns.len(), before.history.page(0, 64).columns.len());
}

#[test]
fn what_the_stream_says_of_the_run_is_in_the_view() {
    let mut lab = Lab::new();
    assert_eq!(lab.view().run, RunState::Starting);
    let about = Arc::new(About { device: "cpu".into(), ..About::default() });
    let setting = |value: &str| crate::Setting { switch: "amp".into(), value: value.into(), wanted: None, idle: None };
    let settings = Arc::new(RunSettings(vec![setting("bf16")]));
    let kinds = [
        EventKind::Begin(Arc::new(About::default())),
        EventKind::Settings(Arc::new(RunSettings(vec![setting("off")]))),
        EventKind::About(Arc::clone(&about)),
        EventKind::Settings(Arc::clone(&settings)),
        EventKind::Run(RunState::Paused),
        EventKind::Limit { limit: Some(Bytes::mib(7)) },
    ];
    kinds.into_iter().for_each(|kind| lab.apply(&Event::new(Micros(1), kind)));
    let view = lab.view();
    assert_eq!((&view.about, &view.settings, view.run), (&about, &settings, RunState::Paused));
    assert_eq!(view.limit, Some(Bytes::mib(7)));
}

#[test]
fn writing_a_piece_of_text_takes_no_room_in_the_charts() {
    let mut lab = lab_of(&synthetic::training_run());
    let event = |kind| Event::new(Micros(u64::MAX), kind);
    lab.apply(&event(EventKind::StepBegin { step: 30 }));
    lab.apply(&event(EventKind::Generating));
    let (address, size) = (Address(1 << 50), Bytes::gib(20));
    lab.apply(&event(EventKind::SegmentAlloc { address, size, stream: StreamId::DEFAULT, pool: PoolKind::Large }));
    let charts = |lab: &mut Lab| {
        let view = lab.view();
        let last = *view.history.page(0, 100).columns.last().unwrap();
        (view.profiles.under_way.events, last.step, last.reserved >= size)
    };
    assert_eq!(charts(&mut lab), (0, 30, false));
    lab.apply(&event(EventKind::Generated { text: "fn".into() }));
    let small = EventKind::Alloc {
        address,
        size: Bytes(512),
        requested: Bytes(512),
        stream: StreamId::DEFAULT,
        category: Category::Other,
        name: NameId::NONE,
    };
    lab.apply(&event(small));
    assert_eq!(charts(&mut lab), (1, 30, true), "what a step does is drawn again");
}

#[test]
fn a_checkpoint_goes_on_as_the_original_does_packed_or_not() {
    let events = with_settings(synthetic::training_run());
    let checkpoint: [fn(&mut Lab) -> Lab; 2] = [|lab| lab.checkpoint(), |lab| PackedLab::of(lab).unpack()];
    for (checkpoint, at) in checkpoint
        .iter()
        .flat_map(|way| [0, 1, 777, events.len() / 2, events.len() - 1, events.len()].map(|at| (way, at)))
    {
        let mut original = lab_of(&events[..at]);
        original.view();
        let mut copy = checkpoint(&mut original);
        for event in &events[at..] {
            original.apply(event);
            copy.apply(event);
        }
        let (mut original, mut copy) = (original.view(), copy.view());
        let [whole, tail] = [&mut original, &mut copy].map(|view| std::mem::take(&mut view.history));
        assert_eq!((whole.columns(), whole.latest()), (tail.columns(), tail.latest()), "after {at} events");
        assert_eq!(format!("{original:?}"), format!("{copy:?}"), "after {at} events");
    }
}

/// A run that reports all switches after each flip, as an engine does.
fn with_settings(events: Vec<Event>) -> Vec<Event> {
    let mut all = Vec::new();
    for event in events {
        let (time, flipped) = (event.time, matches!(event.kind, EventKind::SwitchFlipped { .. }));
        all.push(event);
        if flipped || all.len() == 1 {
            let setting = crate::Setting {
                switch: "flips".into(),
                value: all.len().to_string().into(),
                wanted: None,
                idle: None,
            };
            let settings = EventKind::Settings(Arc::new(crate::RunSettings(vec![setting])));
            all.push(Event::new(time, settings));
        }
    }
    all
}

#[test]
fn every_configuration_is_kept_with_its_steps_and_its_curve() {
    let mut lab = lab_of(&with_settings(synthetic::training_run()));
    let all = lab.view().configurations;
    let told: Vec<_> = all.iter().map(|of| (of.step, of.steps, of.out_of_memory)).collect();
    assert_eq!(told, [(0, 10, false), (10, 10, false), (20, 10, true)]);
    for configuration in &all {
        let (steps, measured) = configuration.measured.unwrap();
        let curve = configuration.curve.as_ref().unwrap();
        assert!((1..=10).contains(&steps));
        assert_eq!(curve.peak().unwrap().allocated, measured.peak_allocated.bytes(), "steps are the same each");
        assert_eq!(curve.step, configuration.step + configuration.steps - 1);
    }
}

#[test]
fn configurations_of_a_checkpoint_that_goes_on_are_those_of_a_fresh_replay() {
    let events = with_settings(synthetic::training_run());
    let mut lab = Lab::new();
    let mut checkpoints = Vec::new();
    for (position, event) in events.iter().enumerate() {
        if position % 700 == 0 {
            checkpoints.push((position, lab.checkpoint()));
        }
        lab.apply(event);
    }
    let whole = lab.configurations();
    for (position, mut checkpoint) in checkpoints {
        assert_eq!(checkpoint.configurations(), lab_of(&events[..position]).configurations(), "{position}");
        events[position..].iter().for_each(|event| checkpoint.apply(event));
        assert_eq!(checkpoint.view().configurations, whole, "{position}");
    }
}

#[test]
fn what_flips_would_save_holds_until_one_is_made() {
    let mut lab = lab_of(&synthetic::training_run());
    let finished = lab.finished();
    let weighed = |step| EventKind::Weighed(Arc::new(FlipTrials { step, peak: Bytes::mib(1), flips: Vec::new() }));
    let mut apply = |kind| {
        lab.apply(&Event::new(Micros(u64::MAX), kind));
        lab.weighed.is_some()
    };
    assert!(apply(weighed(finished)));
    let name = |id| EventKind::Define { id: NameId(id), text: "amp".into() };
    for id in 900..903 {
        apply(name(id));
    }
    assert!(
        !apply(EventKind::SwitchFlipped { switch: NameId(900), from: NameId(901), to: NameId(902) }),
        "another run now"
    );
    assert!(!apply(weighed(finished)), "of the time before the flip");
    assert!(apply(weighed(finished + 2)));
}
