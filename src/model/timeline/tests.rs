//! Seeking gives what applying from the start gives.

use super::*;
use crate::model::{Lab, synthetic};

fn picture(memory: &MemoryModel) -> String {
    let segments: Vec<_> = memory.segments().map(|segment| segment.view()).collect();
    format!("{} {:?} {:?} {segments:?}", memory.position(), memory.ledger(), memory.by_category())
}

#[test]
fn the_state_at_any_event_is_that_of_a_fresh_replay() {
    let mut events = synthetic::training_run();
    events.extend(synthetic::crowded(3000).into_iter().skip(8));
    let mut log = EventLog::new(usize::MAX);
    let mut memory = MemoryModel::new();
    for event in &events {
        log.push(&memory, event.clone());
        memory.apply(event).unwrap();
    }
    assert_eq!((log.first(), log.end()), (0, events.len() as u64));
    let mut fresh = MemoryModel::new();
    for (index, event) in (0..).zip(&events) {
        assert_eq!(log.event(index), Some(event));
        if index % 97 == 0 || (index + 1).is_multiple_of(4096) || index.is_multiple_of(4096) {
            assert_eq!(picture(&log.state_at(index).unwrap()), picture(&fresh), "at {index}");
        }
        fresh.apply(event).unwrap();
    }
    assert_eq!(picture(&log.state_at(log.end()).unwrap()), picture(&memory));
    assert!(log.state_at(log.end() + 1).is_none());
    assert!(log.event(log.end()).is_none());
}

#[test]
fn an_endless_run_keeps_its_last_events_and_no_more() {
    let events = synthetic::training_run();
    let mut lab = Lab::with_events(5000);
    let mut fresh = MemoryModel::new();
    let mut total = 0;
    for _ in 0..20 {
        for event in &events {
            lab.apply(event);
            // The second time round the segments are there already: such events are left out, when seeking too.
            let _ = fresh.apply(event);
            total += 1;
        }
    }
    let log = lab.events().unwrap();
    assert_eq!(log.end(), total);
    let kept = log.end() - log.first();
    assert!((5000..=5000 + 4096).contains(&kept), "{kept} kept");
    assert!(log.state_at(log.first() - 1).is_none());
    assert_eq!(picture(&log.state_at(log.end()).unwrap()), picture(&fresh));
    assert_eq!(log.state_at(log.first()).unwrap().position(), log.first());
}
