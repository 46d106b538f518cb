//! The state at any position is that of a fresh replay, in bounded memory.

use proptest::prelude::*;
use vramlab::model::{Event, EventKind, Micros, Ranks};
use vramlab::recording::{Bounds, Direction, Timeline};
use vramlab::units::{Bytes, DeviceIndex};

use super::{frames_of, picture, runs, two_ranks};
use crate::synthetic;

fn pushed(events: &[Event], bounds: Bounds) -> Timeline {
    let mut timeline = Timeline::new(bounds);
    events.iter().for_each(|event| timeline.push(event));
    timeline
}

/// Bounds so tight that states are soon thinned out and events forgotten.
const TIGHT: Bounds = Bounds { frames: Bytes::kib(60), checkpoints: Bytes::kib(400) };

/// Looks at `positions` in their order.
fn assert_replays(timeline: &mut Timeline, events: &[Event], positions: impl IntoIterator<Item = u64>) {
    let mut fresh = Ranks::default();
    for position in positions {
        let Some(mut state) = timeline.at(position) else {
            assert!(position < timeline.first() || position > timeline.end(), "nothing at {position}");
            continue;
        };
        let done = usize::try_from(position).unwrap();
        if fresh.position() > position {
            fresh = Ranks::default();
        }
        events[usize::try_from(fresh.position()).unwrap()..done].iter().for_each(|event| fresh.apply(event));
        assert!(picture(&mut state) == picture(&mut fresh), "the state at {position} is not that of a replay");
        assert_eq!(timeline.event(position), events.get(done));
    }
}

#[test]
fn the_state_at_any_event_is_that_of_a_fresh_replay() {
    let mut events = runs(4);
    events.extend(two_ranks());
    let mut timeline = pushed(&events, Bounds::default());
    let end = events.len() as u64;
    assert_eq!((timeline.first(), timeline.end()), (0, end));
    assert_replays(&mut timeline, &events, (0..end).step_by(2731).chain([end - 1, end]));
    assert!(timeline.at(end + 1).is_none() && timeline.event(end).is_none());
    let now = picture(timeline.now());
    assert_eq!(picture(&mut timeline.at(end).unwrap()), now);
}

#[test]
fn events_beside_each_other_are_reached_both_ways() {
    let events = runs(2);
    let mut timeline = pushed(&events, Bounds::default());
    let middle = events.len() as u64 / 2;
    let back = (middle - 1300..middle).rev().step_by(13);
    let forth = (middle - 1300..middle).step_by(17);
    assert_replays(&mut timeline, &events, back.chain(forth));
}

#[test]
fn a_recording_gives_what_was_seen_live() {
    let events = two_ranks();
    let mut live = pushed(&events, Bounds::default());
    let mut read = Timeline::default();
    for frame in frames_of(&events, 1000) {
        read.append(frame).unwrap();
    }
    assert_eq!(read.end(), live.end());
    assert_eq!(picture(read.now()), picture(live.now()));
    assert_replays(&mut read, &events, [0, 1, 999, 1000, 1001, 5000]);
    // A repeated frame, and a missing one.
    let frames = frames_of(&events, 1000);
    assert!(read.append(frames[1].clone()).is_err());
    assert_eq!(read.end(), live.end());
}

#[test]
fn an_endless_run_stays_within_its_bounds() {
    let events = runs(60);
    let mut timeline = Timeline::new(TIGHT);
    let mut heaviest = 0;
    for (index, event) in (1_usize..).zip(&events) {
        timeline.push(event);
        if index.is_multiple_of(900) {
            timeline.close_frame();
            heaviest = heaviest.max(timeline.weight());
        }
    }
    assert!(timeline.first() > 0, "nothing was forgotten");
    assert!(heaviest < 600 << 10, "{heaviest} bytes");
    assert_eq!(timeline.end(), events.len() as u64);
    let (first, end) = (timeline.first(), timeline.end());
    assert!(timeline.at(first - 1).is_none() && timeline.event(first - 1).is_none());
    assert_replays(&mut timeline, &events, [first, first + 1, (first + end) / 2, end - 1, end]);
}

#[test]
fn frames_of_single_events_are_cheap_to_cross() {
    let mut timeline = Timeline::default();
    let idle = |time| Event::new(Micros(time), EventKind::HostMemory { allocated: Bytes(time), reserved: Bytes(time) });
    let mut checkpoints = 0;
    for time in 0..3000 {
        timeline.push(&idle(time));
        timeline.close_frame();
        checkpoints += u32::from(timeline.frames(time).count() == 1);
    }
    assert_eq!(checkpoints, 3000);
    assert_eq!(timeline.frames(0).count(), 3000);
    let lab = |ranks: &mut Ranks| ranks.lab_mut(DeviceIndex::FIRST).unwrap().view().host.allocated;
    assert_eq!(lab(&mut timeline.at(1500).unwrap()), Bytes(1499));
}

#[test]
fn a_recorder_takes_the_frames_that_it_has_not_yet() {
    let events = synthetic::training_run();
    let mut timeline = Timeline::default();
    let (mut written, mut taken) = (0, Vec::new());
    for chunk in events.chunks(333) {
        chunk.iter().for_each(|event| timeline.push(event));
        timeline.close_frame();
        timeline.close_frame();
        let new: Vec<_> = timeline.frames(written).cloned().collect();
        assert_eq!(new.len(), 1);
        written = new[0].end();
        taken.extend(new);
    }
    assert_eq!(taken.iter().flat_map(super::events_of).collect::<Vec<_>>(), events);
}

#[test]
fn events_are_found_both_ways_and_handed_over() {
    let events = runs(3);
    let mut timeline = Timeline::default();
    for (index, event) in events.iter().enumerate() {
        timeline.push(event);
        if index % 1700 == 0 {
            timeline.close_frame();
        }
    }
    let end = events.len() as u64;
    let wanted = |event: &Event| matches!(event.kind, EventKind::StepBegin { .. });
    let all: Vec<u64> = (0..).zip(&events).filter(|(_, event)| wanted(event)).map(|(index, _)| index).collect();
    let (mut forward, mut from) = (Vec::new(), 0);
    while let Some(found) = timeline.find(from, Direction::Forward, wanted) {
        forward.push(found);
        from = found + 1;
    }
    assert_eq!(forward, all);
    let (mut backward, mut from) = (Vec::new(), u64::MAX);
    while let Some(found) = timeline.find(from, Direction::Backward, wanted) {
        backward.push(found);
        from = found;
    }
    backward.reverse();
    assert_eq!(backward, all);
    assert_eq!(timeline.find(end, Direction::Forward, |_| true), None);
    assert_eq!(timeline.find(u64::MAX, Direction::Forward, |_| true), None);
    assert_eq!(timeline.find(0, Direction::Backward, |_| true), None);

    for range in [0..10, 1690..1720, 0..end, end - 5..end + 100, end..end + 1, 7..7] {
        let mut handed = Vec::new();
        timeline.events(range.clone(), |index, event| handed.push((index, event.clone())));
        let kept = range.start.min(end)..range.end.min(end);
        assert_eq!(handed.len() as u64, kept.end - kept.start);
        assert!(handed.iter().all(|(index, event)| *event == events[usize::try_from(*index).unwrap()]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_visits_of_a_growing_timeline_agree_with_replays(
        tight in any::<bool>(),
        visits in prop::collection::vec((1_usize..4000, 0.0..1.0, any::<bool>()), 1..20),
    ) {
        let events = runs(3);
        let mut timeline = Timeline::new(if tight { TIGHT } else { Bounds::default() });
        let mut done = 0;
        for (more, place, close) in visits {
            let next = (done + more).min(events.len());
            events[done..next].iter().for_each(|event| timeline.push(event));
            done = next;
            if close {
                timeline.close_frame();
            }
            let (first, end) = (timeline.first(), timeline.end());
            let position = first + ((end - first) as f64 * place) as u64;
            assert_replays(&mut timeline, &events[..done], [position, position.saturating_sub(1), position + 1]);
        }
    }
}
