//! A running lab, driven through its handle as a front end drives it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't be set up fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use vramlab::session::{
    self, Choice, Command, LabHandle, LabSpec, LabState, Lever, MemoryLimit, RunState, StepSize, Switch,
};
use vramlab::train::Config;
use vramlab::units::{Bytes, StreamId};
use vramlab::workload::{Catalog, Extent, Random, Repeats, Sizes};

fn spec(limit: Option<Bytes>) -> LabSpec {
    let spec = LabSpec::new(Catalog::with_user_workloads(None).entry("gpt-mini").unwrap());
    LabSpec { limit: limit.map(MemoryLimit::Bytes), config: Config { batch: 8, ..spec.config }, ..spec }
}

struct Driver {
    lab: LabHandle,
    runtime: tokio::runtime::Runtime,
}

impl Driver {
    fn start(spec: LabSpec) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { lab: session::start(spec).unwrap(), runtime }
    }

    fn send(&self, command: Command) {
        self.lab.commands.send(command).unwrap();
    }

    /// Waits for a state; fails with the last one after 20 s.
    fn wait(&mut self, what: &str, wanted: impl FnMut(&Arc<LabState>) -> bool) -> Arc<LabState> {
        let state = &mut self.lab.state;
        let result = self.runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(20), state.wait_for(wanted))
                .await
                .map(|found| found.unwrap().clone())
        });
        result.unwrap_or_else(|_| {
            let last = self.lab.state.borrow();
            panic!("waited in vain for {what}; {:?}, step {}", last.run, last.view.steps.finished)
        })
    }

    fn pause(&mut self) -> Arc<LabState> {
        self.send(Command::Pause);
        self.wait("pause", |lab| lab.run == RunState::Paused)
    }

    fn advance(&mut self, size: StepSize) -> Arc<LabState> {
        let before = self.lab.state.borrow().view.position;
        self.send(Command::Advance(size));
        self.wait("the next stop", |lab| lab.run == RunState::Paused && lab.view.position > before)
    }
}

#[test]
fn fifty_random_flips_change_memory_only_while_they_last() {
    let mut driver = Driver::start(spec(None));
    driver.wait("three steps", |lab| lab.view.steps.finished >= 3);
    driver.pause();
    let before = driver.advance(StepSize::Step).view.ledger.allocated();
    driver.send(Command::Resume);
    let mut random = Random::new(42);
    let levers: Vec<Lever> = session::levers().collect();
    for flip in 0..50 {
        // Every switch that has values, and empty_cache.
        let flipped = levers.get(random.below(levers.len() + 1));
        driver.send(flipped.map_or(Command::EmptyCache, |lever| Command::Next(lever.switch)));
        let step = driver.lab.state.borrow().view.steps.finished;
        if flip % 3 == 0 {
            driver.wait("a step after the flip", |lab| lab.view.steps.finished >= step + 2);
        }
    }
    let settled = driver.lab.state.borrow().view.steps.finished;
    for Lever { switch, .. } in levers {
        let first = if switch == Switch::Optimizer { Choice(3) } else { Choice(0) };
        driver.send(Command::Set(switch, first));
    }
    driver.wait("all switches back", |lab| {
        lab.view.steps.finished >= settled + 6 && lab.switches.iter().all(|s| s.pending.is_none())
    });
    driver.pause();
    let after = driver.advance(StepSize::Step);
    assert_eq!(after.view.ledger.allocated(), before, "{:?}", after.view.log);
    assert!(after.view.log.iter().all(|line| !line.text.contains("malformed")), "{:?}", after.view.log);
}

#[test]
fn a_micro_batch_too_small_for_batch_norm_is_refused_and_the_run_goes_on() {
    let entry = Catalog::with_user_workloads(None).entry("resnet-mini").unwrap();
    let spec = LabSpec::new(entry);
    let small = Config { batch: 4, accumulation: 4, ..spec.config };
    let refused = LabSpec { config: small, ..spec.clone() }.build(Box::new(())).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|why| why.contains("needs micro-batches of 2")));
    let mut driver = Driver::start(LabSpec { config: Config { batch: 4, ..spec.config }, ..spec });
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    driver.send(Command::Set(Switch::Accumulation, Choice(2)));
    let told = |lab: &Arc<LabState>| {
        lab.view.log.iter().any(|line| line.text.starts_with("refused: batch norm needs micro-batches of 2"))
    };
    let refused = driver.wait("the refusal", told);
    let after = driver.wait("further steps", |lab| lab.view.steps.finished >= refused.view.steps.finished + 2);
    let accumulation = after.switches.iter().find(|state| state.switch == Switch::Accumulation).unwrap();
    assert_eq!((after.run.clone(), &*accumulation.current), (RunState::Running, "1"));
}

#[test]
fn a_paused_lab_moves_by_op_phase_and_step() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    let paused = driver.pause();
    let op = driver.advance(StepSize::Op);
    assert!(op.view.position > paused.view.position);
    assert!(op.view.steps.finished <= paused.view.steps.finished + 1);
    driver.advance(StepSize::Step);
    let start = driver.lab.state.borrow().view.steps.finished;
    let mut phases = Vec::new();
    for _ in 0..5 {
        driver.advance(StepSize::Phase);
        phases.push(driver.lab.state.borrow().view.steps.finished);
    }
    assert!(phases.iter().all(|finished| *finished <= start + 1), "five phases are one step: {phases:?}");
    let step = driver.advance(StepSize::Step);
    assert_eq!(step.view.steps.finished, start + 1);
}

#[test]
fn the_header_tells_of_the_switches_in_force() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1 && lab.detail.ends_with("eager"));
    driver.send(Command::Set(Switch::Fuse, Choice(1)));
    driver.wait("fused ops", |lab| lab.detail.ends_with("fused"));
}

#[test]
fn empty_cache_returns_what_is_releasable_even_while_paused() {
    let mut driver =
        Driver::start(LabSpec { sizes: Sizes { width: Some(Extent::nearest(128)), ..Sizes::default() }, ..spec(None) });
    driver.wait("a step", |lab| lab.view.steps.finished >= 2);
    driver.pause();
    let before = driver.advance(StepSize::Step);
    driver.send(Command::EmptyCache);
    let after =
        driver.wait("the cache to go", |lab| lab.view.traffic.segment_frees > before.view.traffic.segment_frees);
    assert!(before.view.ledger.releasable > Bytes::ZERO);
    assert_eq!(after.view.ledger.releasable, Bytes::ZERO);
    assert_eq!(after.view.ledger.allocated(), before.view.ledger.allocated());
    assert_eq!(
        after.view.ledger.reserved(),
        before.view.ledger.reserved() - before.view.ledger.releasable,
        "reserved falls by exactly the releasable account"
    );
    assert_eq!(after.run, RunState::Paused);
}

#[test]
fn running_out_of_memory_pauses_with_an_explanation_and_a_switch_helps() {
    let size = Some(Extent::nearest(128));
    let sizes = Sizes { width: size, layers: Some(Repeats::nearest(4)), seq: size, ..Sizes::default() };
    let mut driver = Driver::start(LabSpec { sizes, ..spec(Some(Bytes::mib(60))) });
    let lab = driver.wait("out of memory", |lab| lab.run == RunState::OutOfMemory);
    assert!(lab.view.traffic.ooms >= 1);
    assert!(lab.view.findings.iter().any(|finding| finding.what.contains("out of memory")), "{:?}", lab.view.findings);
    driver.send(Command::Set(Switch::Accumulation, Choice(3)));
    driver.send(Command::Resume);
    driver.wait("training to go on", |lab| lab.run == RunState::Running && lab.view.steps.finished >= 2);
}

#[test]
fn time_on_pause_is_no_step_time() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    driver.pause();
    driver.advance(StepSize::Step);
    driver.advance(StepSize::Op);
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(1500));
    let step = driver.advance(StepSize::Step);
    let report = step.view.steps.last.clone().unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(1500));
    assert!(report.total.0 < 1_400_000, "{report:?}");
}

#[test]
fn a_dropped_handle_ends_the_run() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    let Driver { lab: LabHandle { commands, mut state, .. }, runtime } = driver;
    drop(commands);
    let ended = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(10), async { while state.changed().await.is_ok() {} }).await
    });
    assert!(ended.is_ok(), "the threads are still there");
}

#[test]
fn the_engine_ends_when_it_is_asked_to_and_says_when_it_has() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    let engine = driver.lab.engine();
    assert!(!engine.clone().has_ended());
    driver.pause();
    assert!(engine.end(Duration::from_secs(10)), "also from a pause");
    assert!(engine.has_ended() && engine.end(Duration::ZERO), "and it stays so");
}

#[test]
fn a_batch_that_does_not_fit_goes_back_to_the_one_that_did() {
    let mut driver = Driver::start(spec(Some(Bytes::mib(60))));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    let batch = |lab: &LabState| {
        let state = lab.switches.iter().find(|state| state.switch == Switch::Batch).cloned().unwrap();
        (state.current.to_string(), state.pending.map(String::from))
    };
    let stopped = |lab: &LabState| lab.run == RunState::OutOfMemory;
    let mut lab = driver.lab.state.borrow().clone();
    while !stopped(&lab) {
        let before = batch(&lab).0;
        driver.send(Command::Next(Switch::Batch));
        let finished = driver.lab.state.borrow().view.steps.finished;
        lab = driver.wait("a step or the end of memory", |lab| {
            stopped(lab) || (lab.view.steps.finished >= finished + 2 && batch(lab).0 != before)
        });
    }
    let (failed, back) = batch(&lab);
    let back = back.expect("the batch goes back");
    assert_eq!(back.parse::<u32>().unwrap() * 2, failed.parse::<u32>().unwrap());
    driver.send(Command::Resume);
    let finished = lab.view.steps.finished;
    let after = driver.wait("training to go on", |lab| lab.view.steps.finished >= finished + 2);
    assert_eq!(batch(&after), (back, None));
}

#[test]
fn a_limit_below_the_model_fails_with_a_sentence() {
    let mut driver = Driver::start(spec(Some(Bytes::mib(1))));
    let lab = driver.wait("failure", |lab| matches!(lab.run, RunState::Failed(_)));
    let RunState::Failed(reason) = &lab.run else { unreachable!() };
    assert!(reason.contains("does not fit in 1.00 MiB"), "{reason}");
}

#[test]
fn pinned_batches_come_through_the_copy_streams_own_segment() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    driver.send(Command::Next(Switch::Pinned));
    let streams = |lab: &LabState| lab.view.segments.iter().any(|segment| segment.stream != StreamId::DEFAULT);
    let lab = driver.wait("a segment of the copy stream", |lab| streams(lab));
    assert!(lab.view.host.reserved > Bytes::ZERO, "page-locked blocks are kept");
    driver.send(Command::Next(Switch::Pinned));
    driver.wait("page-locked memory to go back", |lab| lab.view.host.reserved == Bytes::ZERO);
}

#[test]
fn a_limit_and_allocator_settings_are_put_in_force_between_steps() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    driver.send(Command::Settings("expandable_segments:True".into()));
    let value = |lab: &LabState, switch| {
        let state = lab.switches.iter().find(|state| state.switch == switch).unwrap();
        (state.current.to_string(), state.pending.is_some())
    };
    driver.wait("the settings", |lab| value(lab, Switch::Settings) == ("expandable_segments:True".into(), false));
    driver.send(Command::EmptyCache);
    driver.wait("a segment that grows", |lab| lab.view.segments.iter().any(|segment| segment.expandable));
    driver.send(Command::Limit(Some(MemoryLimit::Bytes(Bytes::mib(1)))));
    driver.wait("the limit", |lab| value(lab, Switch::Limit) == ("1.00 MiB".into(), false));
    // What is cached already is no new reservation; in the middle of a step little of it can be given back.
    let emptied = |driver: &mut Driver| {
        let step = driver.lab.state.borrow().view.steps.finished;
        driver.send(Command::EmptyCache);
        driver.wait("what comes of it", |lab| lab.run == RunState::OutOfMemory || lab.view.steps.finished >= step + 2)
    };
    let lab = (0..20).map(|_| emptied(&mut driver)).find(|lab| lab.run == RunState::OutOfMemory).unwrap();
    assert_eq!(lab.view.limit, Some(Bytes::mib(1)));
    driver.send(Command::Limit(None));
    driver.send(Command::Resume);
    let step = lab.view.steps.finished;
    driver.wait("training to go on", |lab| lab.run == RunState::Running && lab.view.steps.finished >= step + 2);
}

#[test]
fn a_leak_is_found_and_ends_with_its_switch() {
    let mut driver = Driver::start(spec(None));
    driver.wait("three steps", |lab| lab.view.steps.finished >= 3);
    let before = driver.pause().view.steps.finished;
    driver.send(Command::Set(Switch::Retain, Choice(2)));
    driver.send(Command::Resume);
    let leaking = |lab: &Arc<LabState>| lab.view.findings.iter().any(|finding| finding.what.contains("a leak"));
    let lab = driver.wait("the leak to be found", |lab| lab.view.steps.finished >= before + 6 && leaking(lab));
    assert!(lab.view.findings.iter().any(|finding| finding.what.contains("graphs")), "{:?}", lab.view.findings);
    driver.send(Command::Set(Switch::Retain, Choice(0)));
    driver.wait("the leak to end", |lab| !leaking(lab) && lab.switches.iter().all(|state| state.pending.is_none()));
}
