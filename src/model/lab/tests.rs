//! The lab over whole streams.

use super::*;
use crate::model::synthetic;

fn lab_of(events: &[Event]) -> Lab {
    let mut lab = Lab::new();
    for event in events {
        lab.apply(event);
    }
    lab
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
}
