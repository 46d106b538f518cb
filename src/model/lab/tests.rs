//! The lab over whole streams.

use super::*;
use crate::model::Pool;
use crate::model::{Category, StepReport, synthetic};
use crate::units::{Address, StreamId};

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
    assert_eq!(view.effects.iter().map(|effect| effect.key).collect::<String>(), "mec");
    assert_eq!(view.history.marks().map(|mark| mark.key).collect::<String>(), "mec!");
    assert_eq!(view.generated.as_ref().map(|generated| generated.step), Some(20));
    insta::assert_snapshot!(lines(&view), @r"
    10 Switch AMP off → bf16
    16 Switch empty_cache returned 82.00 MiB
    20 Switch checkpointing off → on
    25 Danger out of memory: 300.10 MiB asked for blocks.0.linear output
    30 Info all steps done
    ");
}

#[test]
fn the_peak_of_a_step_is_split_by_what_was_live_then() {
    let mut lab = Lab::new();
    let (mut highest, mut split) = (Bytes::ZERO, [Bytes::ZERO; 8]);
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
    lab.apply(&Event { time: Micros(0), kind: EventKind::FreeRequested { address: freed } });
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
        lab.apply(&Event { time: Micros(n), kind: EventKind::FreeCompleted { address: Address(n) } });
    }
    assert_eq!(lab.malformed(), 1000);
    let view = lab.view();
    let [line] = &*view.log else { panic!("one line: {}", lines(&view)) };
    assert_eq!(line.level, Level::Danger);
    assert!(line.text.ends_with("(1000 such events so far)"), "{}", line.text);
    lab.apply(&Event { time: Micros(0), kind: EventKind::Define { id: NameId(u32::MAX), text: "far".into() } });
    assert_eq!(lab.names().get(NameId(u32::MAX)), "");
    events[200..].iter().for_each(|event| lab.apply(event));
    assert_eq!((lab.malformed(), lab.view().steps.finished), (1000, 30));
}

#[test]
fn what_empty_cache_returned_is_told_while_it_happens() {
    let mut events = synthetic::training_run();
    let at = events.iter().position(|event| event.kind == EventKind::EmptyCache).unwrap();
    let segments = events[at + 1..].iter().map_while(|event| match event.kind {
        EventKind::SegmentFree { size, .. } => Some(size),
        _ => None,
    });
    let segments: Vec<Bytes> = segments.collect();
    let returned: Bytes = segments.iter().copied().sum();
    let rest = events.split_off(at + 1 + segments.len());
    let mut lab = lab_of(&events);
    let before = lab.memory().reserved();
    let view = lab.view();
    assert!(returned > Bytes::ZERO);
    assert_eq!(view.effects.last().and_then(|effect| effect.released), Some(returned));
    assert_eq!(view.history.marks().last().map(|mark| mark.text.clone()), Some(format!("−{returned}")));
    // Segments that go back later, on a retry, are not its doing.
    rest.iter().for_each(|event| lab.apply(event));
    assert!(lab.memory().reserved() > before);
    assert_eq!(lab.view().effects[1].released, Some(returned));
    let after = lab.view().effects[1].after;
    assert!(after.is_some_and(|after| after.peak_reserved > before));
}

#[test]
fn out_of_memory_is_explained_until_a_step_ends_well() {
    let mut lab = Lab::new();
    let mut explained = 0;
    for event in synthetic::training_run() {
        lab.apply(&event);
        let found = |lab: &mut Lab| lab.view().findings.first().is_some_and(|first| first.level == Level::Danger);
        match event.kind {
            EventKind::Oom { .. } => {
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
fn writing_a_piece_of_text_takes_no_room_in_the_chart() {
    let mut lab = lab_of(&synthetic::training_run());
    let columns = lab.view().history.events();
    let event = |kind| Event { time: Micros(u64::MAX), kind };
    lab.apply(&event(EventKind::Generating));
    let (address, size) = (Address(1 << 50), Bytes::mib(20));
    lab.apply(&event(EventKind::SegmentAlloc { address, size, stream: StreamId::DEFAULT, pool: Pool::Large }));
    assert_eq!(lab.view().history.events(), columns);
    lab.apply(&event(EventKind::Generated { text: "fn".into() }));
    lab.apply(&event(EventKind::SegmentFree { address, size }));
    assert_eq!(lab.view().history.events(), columns + 1);
}
