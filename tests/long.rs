//! A lab of any length: what it keeps of millions of events stays within its bounds, and so does the process.
//!
//! There is one test, because it measures its own process.
#![allow(clippy::unwrap_used, reason = "a test that can't measure must fail")]

use std::fs;
use std::time::{Duration, Instant};

use vramlab::device::sim::CardCatalog;
use vramlab::model::Grouping;
use vramlab::session::{DeviceChoice, LabSpec, Speed};
use vramlab::source::{self, Request, StudyRequest, Window};
use vramlab::workload::Catalog;

/// Events in each part of the run. The first part fills what pictures take; states between events go on to fill
/// their room.
const PART: u64 = 2_000_000;
const PARTS: u64 = 4;
/// The most that events and the states between them may take in a run of this length, in MiB.
const ALL: u64 = 48;
/// The most that the later parts may add together: events take less than a byte each, so 2 MiB a part, and states as
/// much. How much more the system's allocator holds depends on the largest burst of pictures, which comes in an earlier
/// or a later part.
const LATER: u64 = 20;

/// Memory of this process, in MiB.
fn held() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[test]
fn a_lab_that_runs_for_millions_of_events_takes_bounded_memory() {
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    let spec = LabSpec::new(Catalog::with_user_workloads(None).entry("gpt2").unwrap());
    let spec = LabSpec { device: DeviceChoice::Sim(Box::new(card)), speed: Speed::Max, ..spec };
    let lab = source::live(spec).unwrap();
    // As a screen does: it studies the step, and takes every picture.
    lab.request(Request::Study(Some(StudyRequest { window: Window::Step, grouping: Grouping::Category })));
    let end = || lab.pictures.borrow().extent.end;
    let deadline = Instant::now() + Duration::from_secs(600);
    let wait_for = |events: u64| {
        while end() < events {
            assert!(Instant::now() < deadline, "{} events after ten minutes", end());
            std::thread::sleep(Duration::from_millis(33));
        }
        let pictured = lab.pictures.borrow().clone();
        println!("{:>9} events, {:>6} steps: {} MiB", pictured.extent.end, pictured.extent.steps, held());
        held()
    };
    let begun = wait_for(20_000);
    let parts: Vec<u64> = (1..=PARTS).map(|part| wait_for(part * PART)).collect();
    let most = parts.iter().max().unwrap();
    assert!(most - begun.min(*most) < ALL, "{begun} MiB at the start, then {parts:?}");
    assert!(parts[parts.len() - 1] < parts[0] + LATER, "{begun} MiB at the start, then {parts:?}");
    assert_eq!(lab.pictures.borrow().extent.first, 0, "nothing is forgotten yet");
}
