//! The weight that is computed for a long run is the weight that it has: bounds on memory depend on it.
//!
//! There is one test, because it measures its own process.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that can't measure must fail")]

#[path = "common/synthetic.rs"]
mod synthetic;

use vramlab::model::{Event, EventKind, Micros};
use vramlab::recording::Timeline;

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Short steps, whose history is the largest part of the states' weight: if it were not counted, bounds would bound
/// nothing.
#[test]
fn what_a_long_run_is_said_to_weigh_is_what_it_weighs() {
    const STEPS: usize = 150_000;
    let run = synthetic::training_run();
    let is_border = |kind: &EventKind| matches!(kind, EventKind::StepBegin { .. } | EventKind::StepEnd(_));
    let step: Vec<EventKind> =
        run.iter().map(|event| &event.kind).filter(|kind| is_border(kind)).take(2).cloned().collect();
    let mut timeline = Timeline::default();
    let before = resident();
    for at in 0..STEPS {
        step.iter().for_each(|kind| timeline.push(&Event::new(Micros(7919 * at as u64), kind.clone())));
    }
    let (weighs, said) = (resident().saturating_sub(before), timeline.weight() as u64);
    assert!(weighs <= 2 * said + (6 << 20), "it weighs {weighs} bytes and is said to weigh {said}");
}
