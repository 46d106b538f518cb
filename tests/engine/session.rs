//! A running lab, driven through its handle as a front end does.

use std::sync::Arc;
use std::time::Duration;

use vramlab::model::{Evidence, LeakCause, MarkKind, RunState, View, Why};
use vramlab::session::{self, Command, FlipDirection, LabSpec, MemoryLimit, NewRun, Session, Setup, StepSize, Switch};
use vramlab::source::{self, Picture, Request, Source};
use vramlab::train::Config;
use vramlab::units::{Bytes, StreamId};
use vramlab::workload::{Catalog, Extent, Random, Repeats, Sizes};

use crate::patience::{self, PATIENCE};

fn spec(limit: Option<Bytes>) -> LabSpec {
    let spec = LabSpec::new(Catalog::with_user_workloads(None).entry("gpt-mini").unwrap());
    LabSpec { limit: limit.map(MemoryLimit::Bytes), config: Config { batch: 8, ..spec.config }, ..spec }
}

struct Driver {
    source: Source,
}

impl Driver {
    fn start(spec: LabSpec) -> Self {
        Self { source: source::live(spec).unwrap() }
    }

    fn send(&self, command: Command) {
        self.source.request(Request::Lab(command));
    }

    fn flip(&self, word: &str) {
        self.send(Command::Flip(Switch::named(word).unwrap(), FlipDirection::Next));
    }

    fn set(&self, word: &str, value: &str) {
        self.send(Command::Set(Switch::named(word).unwrap(), value.into()));
    }

    fn last(&self) -> Arc<Picture> {
        self.source.pictures.borrow().clone()
    }

    fn finished(&self) -> u64 {
        self.last().view.steps.finished
    }

    /// Waits for a picture; fails with the last one. Some pictures are never seen, so what is waited for must stay.
    fn wait(&mut self, what: &str, wanted: impl FnMut(&Arc<Picture>) -> bool) -> Arc<Picture> {
        let pictures = &mut self.source.pictures;
        let found = patience::in_time(async { pictures.wait_for(wanted).await.unwrap().clone() });
        found.unwrap_or_else(|| {
            let last = self.source.pictures.borrow();
            panic!("waited in vain for {what}; {:?}, step {}", last.run, last.view.steps.finished)
        })
    }

    fn pause(&mut self) -> Arc<Picture> {
        self.send(Command::Pause);
        self.wait("pause", |lab| lab.run == RunState::Paused)
    }

    /// Goes on from a pause. What a thread has computed beside the run may arrive before the run goes on, and takes no
    /// time.
    fn advance(&mut self, size: StepSize) -> Arc<Picture> {
        let before = self.last().view.time;
        self.send(Command::Advance(size));
        self.wait("the next stop", |lab| lab.run == RunState::Paused && lab.view.time > before)
    }
}

/// The current value of a switch, and the requested one.
fn value(view: &View, word: &str) -> (String, Option<String>) {
    let setting = view.settings.get(word).unwrap();
    (setting.value.to_string(), setting.wanted.as_ref().map(ToString::to_string))
}

/// Whether no requested value is still to come.
fn is_settled(view: &View) -> bool {
    !view.settings.0.is_empty() && view.settings.0.iter().all(|setting| setting.wanted.is_none())
}

#[test]
fn fifty_random_flips_change_memory_only_while_they_last() {
    let usual = Setup::new(spec(None).config);
    let mut driver = Driver::start(spec(None));
    driver.wait("three steps", |lab| lab.view.steps.finished >= 3);
    driver.pause();
    let before = driver.advance(StepSize::Step).view.ledger.allocated();
    driver.send(Command::Resume);
    let mut random = Random::new(42);
    // Every switch that has values, also the leak, and empty_cache; except the attention kernels, some of which end a
    // step here.
    let levers: Vec<Switch> = Switch::levers().filter(|switch| switch.word() != "attention").collect();
    assert!(levers.contains(&Switch::named("retain").unwrap()));
    for flip in 0..50 {
        let flipped = levers.get(random.below(levers.len() + 1));
        driver.send(flipped.map_or(Command::EmptyCache, |switch| Command::Flip(*switch, FlipDirection::Next)));
        let step = driver.finished();
        if flip % 3 == 0 {
            driver.wait("a step after the flip", |lab| lab.view.steps.finished >= step + 2);
        }
    }
    let flips = driver.last().history.marks().count();
    assert!(flips > 15, "{flips} marks of fifty flips, of which two in three may fall together");
    let settled = driver.finished();
    for switch in levers {
        driver.send(Command::Set(switch, switch.value(&usual).as_ref().into()));
    }
    driver.wait("all switches back", |lab| {
        let back = Switch::levers().all(|switch| value(&lab.view, switch.word()).0 == switch.value(&usual));
        lab.view.steps.finished >= settled + 6 && is_settled(&lab.view) && back
    });
    driver.pause();
    let after = driver.advance(StepSize::Step);
    assert_eq!(after.view.ledger.allocated(), before, "{:?}", after.view.log);
    assert_eq!(after.view.malformed, 0, "{:?}", after.view.log);
}

#[test]
fn a_lab_trains_so_many_steps_and_begins_anew_as_it_began() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    let begun = driver.pause().view.steps.finished;
    driver.send(Command::Train(3));
    let stopped = driver.wait("three steps", |lab| lab.run == RunState::Paused && lab.view.steps.finished >= begun + 3);
    // The pause may have come within a step, which is then the first of them.
    assert!(stopped.view.steps.finished == begun + 3 && stopped.view.phase.is_none(), "{:?}", stopped.view.steps);
    driver.send(Command::Set(Switch::named("ckpt").unwrap(), "on".into()));
    driver.send(Command::Train(1));
    driver.wait("the flip", |lab| lab.run == RunState::Paused && value(&lab.view, "ckpt").0 == "on");
    driver.send(Command::Begin(NewRun(Arc::new(spec(None)))));
    let anew = driver.wait("another run", |lab| {
        lab.run == RunState::Running && lab.view.log.iter().any(|line| line.text.contains("started again"))
    });
    assert_eq!(value(&anew.view, "ckpt"), ("off".to_owned(), None), "as it was at the start");
    driver.wait("its steps", |lab| lab.view.steps.finished >= 2);
    driver.pause();
    let smaller = LabSpec { config: Config { batch: 4, ..spec(None).config }, ..spec(None) };
    driver.send(Command::Begin(NewRun(Arc::new(smaller))));
    let paused =
        driver.wait("a run after a pause", |lab| lab.run == RunState::Running && value(&lab.view, "batch").0 == "4");
    assert_eq!(paused.view.malformed, 0);
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
    driver.set("accum", "4");
    let told = |lab: &Arc<Picture>| {
        lab.view.log.iter().any(|line| line.text.starts_with("refused: batch norm needs micro-batches of 2"))
    };
    let refused = driver.wait("the refusal", told);
    let after = driver.wait("further steps", |lab| lab.view.steps.finished >= refused.view.steps.finished + 2);
    assert_eq!((after.run.clone(), value(&after.view, "accum")), (RunState::Running, ("1".to_owned(), None)));
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
    let start = driver.finished();
    let mut phases = Vec::new();
    for _ in 0..5 {
        driver.advance(StepSize::Phase);
        phases.push(driver.finished());
    }
    assert!(phases.iter().all(|finished| *finished <= start + 1), "five phases are one step: {phases:?}");
    let step = driver.advance(StepSize::Step);
    assert_eq!(step.view.steps.finished, start + 1);
}

#[test]
fn the_header_tells_of_the_switches_in_force() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1 && lab.view.about.detail.ends_with("eager"));
    driver.set("fuse", "on");
    driver.wait("fused ops", |lab| lab.view.about.detail.ends_with("fused"));
}

#[test]
fn empty_cache_returns_what_is_releasable_even_while_paused() {
    let mut driver =
        Driver::start(LabSpec { sizes: Sizes { width: Some(Extent::nearest(128)), ..Sizes::default() }, ..spec(None) });
    driver.wait("a step", |lab| lab.view.steps.finished >= 2);
    driver.pause();
    let before = driver.advance(StepSize::Step);
    driver.send(Command::EmptyCache);
    assert!(before.view.ledger.releasable > Bytes::ZERO);
    let after = driver.wait("the cache to go", |lab| {
        let freed = lab.view.traffic.segment_frees > before.view.traffic.segment_frees;
        freed && lab.view.ledger.releasable == Bytes::ZERO
    });
    assert_eq!(after.view.ledger.allocated(), before.view.ledger.allocated());
    assert_eq!(
        after.view.ledger.reserved(),
        before.view.ledger.reserved() - before.view.ledger.releasable,
        "reserved falls by exactly the releasable account"
    );
    assert_eq!(after.run, RunState::Paused);
}

#[test]
fn a_run_that_goes_on_returns_when_its_step_ends_what_was_promised() {
    let mut driver =
        Driver::start(LabSpec { sizes: Sizes { width: Some(Extent::nearest(128)), ..Sizes::default() }, ..spec(None) });
    let before = driver.wait("a few steps", |lab| lab.view.steps.finished >= 4);
    let promised = before.view.rested.releasable;
    assert!(promised > Bytes::ZERO);
    let frees = before.view.traffic.segment_frees;
    driver.send(Command::EmptyCache);
    driver.wait("the cache to go", |lab| lab.view.traffic.segment_frees > frees);
    let returned = |mark: &vramlab::model::Mark| match mark.kind {
        MarkKind::EmptyCache { released } => Some(released),
        _ => None,
    };
    let lab = driver.wait("its mark", |lab| lab.view.history.marks().any(|mark| returned(mark).is_some()));
    assert_eq!(lab.view.history.marks().find_map(returned), Some(promised));
}

#[test]
fn running_out_of_memory_pauses_with_an_explanation_and_a_switch_helps() {
    let size = Some(Extent::nearest(128));
    let sizes = Sizes { width: size, layers: Some(Repeats::nearest(4)), seq: size, ..Sizes::default() };
    let mut driver = Driver::start(LabSpec { sizes, ..spec(Some(Bytes::mib(60))) });
    let lab = driver.wait("out of memory", |lab| lab.run == RunState::OutOfMemory);
    assert!(lab.view.traffic.ooms >= 1);
    let found = |finding: &vramlab::model::Finding| matches!(finding.evidence, Evidence::OutOfMemory { .. });
    assert!(lab.view.findings.iter().any(found), "{:?}", lab.view.findings);
    let autopsy = lab.view.autopsy.as_ref().unwrap();
    assert_eq!(autopsy.limit, Some(Bytes::mib(60)));
    assert!(autopsy.ledger.reserved() + autopsy.request.segment > Bytes::mib(60) && autopsy.short > Bytes::ZERO);
    // With the settings as they are, a piece that is large enough would have been used.
    assert!(autopsy.unusable.iter().all(|part| part.why != Why::NotSplit), "{:?}", autopsy.unusable);
    let free: Bytes = autopsy.unusable.iter().filter(|part| part.why != Why::Pending).map(|part| part.bytes).sum();
    assert_eq!(free, autopsy.ledger.free());
    driver.set("accum", "8");
    driver.send(Command::Resume);
    driver.wait("training to go on", |lab| lab.run == RunState::Running && lab.view.steps.finished >= 2);
}

#[test]
fn time_on_pause_is_no_step_time() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    driver.pause();
    driver.advance(StepSize::Step);
    // On a busy machine a step may last as long as a short pause; then a longer pause shows it.
    let pauses = [400, 1600, 6400];
    let told = pauses.map(|pause| pause * 1000).into_iter().find_map(|pause| {
        driver.advance(StepSize::Op);
        std::thread::sleep(Duration::from_micros(pause));
        let step = driver.advance(StepSize::Step);
        step.view.steps.last.clone().filter(|report| report.total.0 < pause)
    });
    assert!(told.is_some(), "steps last as long as their pauses");
}

#[test]
fn dropped_commands_end_the_run() {
    let Session { commands, mut feed, .. } = session::start(spec(None)).unwrap();
    for _ in 0..20 {
        feed.blocking_recv().unwrap();
    }
    drop(commands);
    let ended = patience::in_time(async { while feed.recv().await.is_some() {} });
    assert!(ended.is_some(), "the engine is still there");
}

#[test]
fn a_source_that_is_let_go_ends_the_run() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    let engine = driver.source.engine().unwrap();
    let Driver { source, .. } = driver;
    assert!(!engine.has_ended());
    drop(source);
    patience::wait(|| engine.has_ended(), || "the engine to end".to_owned());
}

#[test]
fn the_engine_ends_when_it_is_asked_to_and_says_when_it_has() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    let engine = driver.source.engine().unwrap();
    assert!(!engine.clone().has_ended());
    driver.pause();
    assert!(engine.end(PATIENCE), "also from a pause");
    assert!(engine.has_ended() && engine.end(Duration::ZERO), "and it stays so");
}

#[test]
fn a_batch_that_does_not_fit_goes_back_to_the_one_that_did() {
    let mut driver = Driver::start(spec(Some(Bytes::mib(60))));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    let batch = |lab: &Picture| value(&lab.view, "batch");
    let stopped = |lab: &Picture| lab.run == RunState::OutOfMemory;
    let mut lab = driver.last();
    while !stopped(&lab) {
        let before = batch(&lab).0;
        driver.flip("batch");
        let finished = driver.finished();
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
    driver.flip("pin");
    let streams = |lab: &Picture| lab.view.segments.iter().any(|segment| segment.stream != StreamId::DEFAULT);
    let lab = driver.wait("a segment of the copy stream", |lab| streams(lab));
    assert!(lab.view.host.reserved > Bytes::ZERO, "page-locked blocks are kept");
    driver.flip("pin");
    driver.wait("page-locked memory to go back", |lab| lab.view.host.reserved == Bytes::ZERO);
}

#[test]
fn a_limit_and_allocator_settings_are_put_in_force_between_steps() {
    let mut driver = Driver::start(spec(None));
    driver.wait("a step", |lab| lab.view.steps.finished >= 1);
    driver.set("alloc-conf", "expandable_segments:True");
    driver.wait("the settings", |lab| value(&lab.view, "alloc-conf") == ("expandable_segments:True".into(), None));
    let grows = |lab: &Arc<Picture>| lab.view.segments.iter().any(|segment| segment.expandable);
    // In the middle of a step little of the cache goes back, and what stays may serve everything that follows.
    let grown = (0..20).any(|_| {
        let step = driver.finished();
        driver.send(Command::EmptyCache);
        grows(&driver.wait("a segment that grows", |lab| grows(lab) || lab.view.steps.finished >= step + 2))
    });
    assert!(grown, "no segment grows");
    driver.set("limit", "1MiB");
    driver.wait("the limit", |lab| value(&lab.view, "limit") == ("1.00 MiB".into(), None));
    // Cached memory is no new reservation; in the middle of a step little of it can be given back.
    let emptied = |driver: &mut Driver| {
        let step = driver.finished();
        driver.send(Command::EmptyCache);
        driver.wait("what comes of it", |lab| lab.run == RunState::OutOfMemory || lab.view.steps.finished >= step + 2)
    };
    let lab = (0..20).map(|_| emptied(&mut driver)).find(|lab| lab.run == RunState::OutOfMemory).unwrap();
    assert_eq!(lab.view.limit, Some(Bytes::mib(1)));
    driver.set("limit", "none");
    driver.send(Command::Resume);
    let step = lab.view.steps.finished;
    driver.wait("training to go on", |lab| lab.run == RunState::Running && lab.view.steps.finished >= step + 2);
}

#[test]
fn a_leak_is_found_and_ends_with_its_switch() {
    let mut driver = Driver::start(spec(None));
    driver.wait("three steps", |lab| lab.view.steps.finished >= 3);
    let before = driver.pause().view.steps.finished;
    driver.set("retain", "graph");
    driver.send(Command::Resume);
    let leak = |lab: &Picture| {
        lab.view.findings.iter().find_map(|finding| match &finding.evidence {
            Evidence::Leak { cause, .. } => Some(*cause),
            _ => None,
        })
    };
    let lab = driver.wait("the leak to be found", |lab| lab.view.steps.finished >= before + 6 && leak(lab).is_some());
    assert_eq!(leak(&lab), Some(LeakCause::Graphs), "{:?}", lab.view.findings);
    driver.set("retain", "off");
    driver.wait("the leak to end", |lab| leak(lab).is_none() && is_settled(&lab.view));
}
