//! Ranks that train together in a lab, driven through its handle as a front end does.

use std::time::Duration;

use tokio::sync::mpsc::error::TryRecvError;
use vramlab::device::sim::CardCatalog;
use vramlab::model::{Event, EventKind, Evidence, Finding, Lab, Ranks, RunState};
use vramlab::session::{
    self, Command, DeviceChoice, Feed, LabSpec, MemoryLimit, Parallel, ProcessGroup, Session, Switch,
};
use vramlab::train::{Parallelism, PipelineSchedule};
use vramlab::units::{Bytes, DeviceIndex};
use vramlab::workload::{Catalog, Data, Extent, Repeats, Sizes};

use crate::patience::{self, Stopwatch};

/// Two stages of a pipeline; the second keeps the logits and so needs more.
fn stages(limit: Option<Bytes>) -> LabSpec {
    let spec = LabSpec::new(Catalog::with_user_workloads(None).entry("gpt-mini").unwrap());
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    let size = Some(Extent::nearest(128));
    let sizes = Sizes {
        width: size,
        seq: size,
        layers: Some(Repeats::nearest(4)),
        vocab: Some(Extent::nearest(8192)),
        ..Sizes::default()
    };
    let mut spec = LabSpec {
        sizes,
        data: Data::Reference,
        device: DeviceChoice::Sim(Box::new(card)),
        limit: limit.map(MemoryLimit::Bytes),
        parallel: Some(Parallel { parallelism: Parallelism::Pipeline(PipelineSchedule::GPipe), ranks: 2 }),
        ..spec
    };
    (spec.config.batch, spec.config.data) = (8, spec.data.path());
    spec
}

/// The same on the processor, where ranks compute and wait for each other.
fn on_processor(parallelism: Parallelism, limit: Option<Bytes>) -> LabSpec {
    let parallel = Some(Parallel { parallelism, ranks: 2 });
    let spec = stages(limit);
    // Small steps, if none has to fail.
    let sizes = if limit.is_some() { spec.sizes } else { Sizes::default() };
    LabSpec { device: DeviceChoice::Cpu, parallel, sizes, ..spec }
}

struct Driver {
    session: Session,
    ranks: Ranks,
    seen: Vec<Event>,
}

impl Driver {
    fn start(spec: LabSpec) -> Self {
        Self { session: session::start(spec).unwrap(), ranks: Ranks::default(), seen: Vec::new() }
    }

    fn send(&self, command: Command) {
        self.session.commands.send(command).unwrap();
    }

    fn set(&self, word: &str, value: &str) {
        self.send(Command::Set(Switch::named(word).unwrap(), value.into()));
    }

    fn lab(&self, device: u16) -> &Lab {
        self.ranks.lab(DeviceIndex(device)).unwrap()
    }

    /// Pauses, and goes on to the end of the step.
    fn advance_a_step(&mut self) {
        self.pause();
        let place = |driver: &Self| [driver.lab(0).time(), driver.lab(1).time()];
        let paused = place(self);
        self.send(Command::Advance(session::StepSize::Step));
        self.wait("the end of the step", |driver| place(driver) != paused && driver.runs() == [&RunState::Paused; 2]);
    }

    fn finished(&self) -> [u64; 2] {
        [0, 1].map(|device| self.ranks.lab(DeviceIndex(device)).map_or(0, Lab::finished))
    }

    fn apply(&mut self, feed: Feed) {
        let events = match feed {
            Feed::Events(events) => events,
            Feed::Aside(device, kind) => vec![Event { device, ..Event::new(self.lab(device.0).time(), kind) }],
            Feed::Sensors(_) => return,
        };
        events.iter().for_each(|event| self.ranks.apply(event));
        self.seen.extend(events);
    }

    /// Takes messages until `wanted` is true; fails if none comes for too long.
    fn wait(&mut self, what: &str, wanted: impl Fn(&Self) -> bool) {
        while !wanted(self) {
            match patience::in_time(self.session.feed.recv()) {
                Some(Some(feed)) => self.apply(feed),
                _ => panic!("waited in vain for {what}; steps {:?}", self.finished()),
            }
        }
    }

    fn wait_for_steps(&mut self, steps: u64) {
        let [first, second] = self.finished();
        self.wait("steps", |driver| {
            let now = driver.finished();
            now[0] >= first + steps && now[1] >= second + steps
        });
    }

    fn runs(&self) -> [&RunState; 2] {
        [self.lab(0).run(), self.lab(1).run()]
    }

    /// The current value of a switch on a rank.
    fn value(&self, device: u16, word: &str) -> String {
        self.lab(device).settings().get(word).map(|setting| setting.value.to_string()).unwrap_or_default()
    }

    fn pause(&mut self) {
        self.send(Command::Pause);
        self.wait("pause", |driver| driver.runs() == [&RunState::Paused; 2]);
    }

    /// Quits; fails if that takes longer than a person waits.
    fn quit(mut self) {
        let mut watch = Stopwatch::start(std::process::id());
        self.send(Command::Quit);
        while let Some(feed) = patience::in_time(self.session.feed.recv()).expect("quitting ends it") {
            drop(feed);
            assert!(watch.took() < Duration::from_secs(2), "quitting ends it soon");
        }
        assert!(watch.took() < Duration::from_secs(2), "quitting ends it soon");
    }

    /// The number of steps that a rank had finished at each flip.
    fn flips(&self, device: u16) -> Vec<u64> {
        self.lab(device).history().marks().map(|mark| mark.step).collect()
    }
}

#[test]
fn ranks_say_which_they_are_and_a_flip_reaches_all_between_the_same_two_steps() {
    let mut driver = Driver::start(stages(None));
    driver.wait_for_steps(2);
    let numbers = [0, 1].map(|device| driver.lab(device).alike().unwrap().numbers());
    assert_eq!(numbers, ["0", "1"]);
    for optimizer in ["sgd", "adamw", "sgd"] {
        driver.set("opt", optimizer);
        driver.wait("the flip", |driver| [0, 1].iter().all(|device| driver.value(*device, "opt") == optimizer));
        driver.wait_for_steps(2);
    }
    let weighed = |event: &&Event| matches!(event.kind, EventKind::Weighed(_));
    driver.wait("what flips would do", |driver| {
        [0, 1].iter().all(|device| driver.seen.iter().filter(weighed).any(|event| event.device.0 == *device))
    });
    assert_eq!(driver.flips(0).len(), 3);
    assert_eq!(driver.flips(0), driver.flips(1));
    driver.advance_a_step();
    let [first, second] = driver.finished();
    assert_eq!(first, second, "a step ends where the last rank's does");
}

/// Two blocks and the root are three groups.
#[test]
fn what_a_rank_holds_because_it_shares_is_found() {
    let found = |parallelism| {
        let spec = LabSpec { parallel: None, ..stages(None) };
        let sizes = Sizes { layers: Some(Repeats::nearest(2)), ..spec.sizes };
        let spec = LabSpec { sizes, ..spec };
        let mut group = ProcessGroup::start(&spec, Parallel { parallelism, ranks: 2 }, None).unwrap();
        (0..3).for_each(|_| drop(group.step().unwrap()));
        let view = group.runs()[0].view();
        let shared =
            |finding: &&Finding| matches!(finding.evidence, Evidence::Gathered { .. } | Evidence::Buckets { .. });
        let parameters = Bytes(4 * group.runs()[0].trainer().parameter_count() as u64);
        (view.findings.iter().find(shared).map(|finding| finding.evidence.clone()), parameters)
    };
    let (buckets, parameters) = found(Parallelism::Ddp);
    let Some(Evidence::Buckets { bytes, peak }) = buckets else { panic!("{buckets:?}") };
    assert!(bytes >= parameters && bytes < parameters + Bytes::mib(1) && peak > bytes, "{bytes} of {peak}");
    assert_eq!(found(Parallelism::DdpView).0, None, "gradients are the buckets");
    let (gathered, _) = found(Parallelism::Zero2);
    let Some(Evidence::Gathered { bytes, gathers: 3, .. }) = gathered else { panic!("{gathered:?}") };
    let (again, _) = found(Parallelism::Fsdp);
    let Some(Evidence::Gathered { bytes: fewer, gathers: 6, .. }) = again else { panic!("{again:?}") };
    assert!(fewer < bytes, "one block of them at a time");
    assert_eq!(found(Parallelism::Pipeline(PipelineSchedule::GPipe)).0, None);
}

#[test]
fn what_a_rank_can_not_have_no_rank_has() {
    let mut driver = Driver::start(stages(None));
    driver.wait_for_steps(1);
    // The batch gives no half micro-batches.
    driver.set("batch", "6");
    driver.wait("what is wrong with it", |driver| {
        let said = |event: &Event| matches!(&event.kind, EventKind::Notice { text } if text.contains("micro-batches"));
        [0, 1].iter().all(|device| driver.seen.iter().any(|event| event.device.0 == *device && said(event)))
    });
    driver.wait_for_steps(2);
    for device in [0, 1] {
        let batch = driver.lab(device).settings().get("batch").unwrap();
        assert_eq!((&*batch.value, batch.wanted.as_deref()), ("8", None));
    }
}

#[test]
fn memory_that_a_rank_lacks_stops_all_and_more_of_it_helps() {
    let mut driver = Driver::start(stages(Some(Bytes::mib(130))));
    driver.wait("out of memory", |driver| {
        driver.ranks.len() == 2 && driver.runs() == [&RunState::Paused, &RunState::OutOfMemory]
    });
    assert!(driver.lab(1).autopsy().is_some() && driver.lab(0).autopsy().is_none());
    let said: Vec<String> =
        driver.ranks.lab_mut(DeviceIndex(0)).unwrap().view().log.iter().map(|line| line.text.to_string()).collect();
    assert!(
        said.iter().any(|line| line == "rank 1 ran out of memory; this rank has ended the step and waits"),
        "{said:?}"
    );
    driver.wait("what would help", |driver| {
        let told = |event: &Event| matches!(event.kind, EventKind::Remedied(_)) && event.device == DeviceIndex(1);
        driver.seen.iter().any(told)
    });
    assert!(matches!(driver.session.feed.try_recv(), Err(TryRecvError::Empty)), "all wait");
    driver.set("limit", "none");
    driver.send(Command::Resume);
    driver.wait_for_steps(2);
    assert_eq!(driver.runs(), [&RunState::Running; 2]);
    driver.advance_a_step();
    let [first, second] = driver.finished();
    assert_eq!(first, second, "the one that failed has caught up");
    driver.send(Command::Resume);
    driver.send(Command::Quit);
    let feed = &mut driver.session.feed;
    let ended = patience::in_time(async { while feed.recv().await.is_some() {} });
    assert!(ended.is_some(), "quitting ends it");
}

#[test]
fn ranks_of_the_processor_train_in_the_lab_in_every_way() {
    for parallelism in Parallelism::ALL {
        let mut driver = Driver::start(on_processor(parallelism, None));
        driver.wait_for_steps(2);
        let has_loss = |event: &Event| matches!(&event.kind, EventKind::StepEnd(report) if report.loss.is_some());
        assert!(driver.seen.iter().any(has_loss), "{parallelism}: they compute");
        driver.set("opt", "sgd");
        driver.wait("the flip", |driver| [0, 1].iter().all(|device| driver.value(*device, "opt") == "sgd"));
        driver.wait_for_steps(1);
        assert_eq!(driver.flips(0), driver.flips(1), "{parallelism}");
        driver.advance_a_step();
        let [first, second] = driver.finished();
        assert_eq!(first, second, "{parallelism}: a step ends where the last rank's does");
        let times = driver.seen.iter().filter(|event| !matches!(event.kind, EventKind::Weighed(_)));
        assert!(times.is_sorted_by_key(|event| event.time), "{parallelism}: told in the order of time");
        driver.quit();
    }
}

#[test]
fn a_pause_of_ranks_that_compute_is_no_part_of_their_steps() {
    let mut driver = Driver::start(on_processor(Parallelism::Ddp, None));
    driver.wait_for_steps(2);
    // On a busy machine a step may last as long as a short pause; then a longer pause shows it.
    let told = [500, 2000, 8000].into_iter().any(|pause| {
        driver.pause();
        let (paused, before) = (driver.lab(0).time(), driver.seen.len());
        std::thread::sleep(Duration::from_millis(pause));
        driver.send(Command::EmptyCache);
        driver.send(Command::Resume);
        driver.wait("an empty cache", |driver| {
            let emptied = |event: &&Event| matches!(event.kind, EventKind::EmptyCache);
            let of = |device| driver.seen[before..].iter().filter(emptied).any(|event| event.device.0 == device);
            of(0) && of(1)
        });
        let passed = driver.lab(0).time().0 - paused.0;
        driver.wait_for_steps(2);
        let steps = driver.seen[before..].iter().filter_map(|event| match &event.kind {
            EventKind::StepEnd(report) => Some(report.total.0),
            _ => None,
        });
        passed.max(steps.max().unwrap()) < pause * 1000
    });
    assert!(told, "steps last as long as their pauses");
    driver.quit();
}

#[test]
fn a_rank_of_the_processor_that_lacks_memory_stops_all_and_they_begin_again() {
    let pipeline = Parallelism::Pipeline(PipelineSchedule::GPipe);
    let mut driver = Driver::start(on_processor(pipeline, Some(Bytes::mib(130))));
    driver.wait("out of memory", |driver| {
        driver.ranks.len() == 2 && driver.runs() == [&RunState::Paused, &RunState::OutOfMemory]
    });
    assert!(driver.lab(1).autopsy().is_some() && driver.lab(0).autopsy().is_none());
    let said: Vec<String> =
        driver.ranks.lab_mut(DeviceIndex(0)).unwrap().view().log.iter().map(|line| line.text.to_string()).collect();
    assert!(said.iter().any(|line| line.starts_with("rank 1 ran out of memory; this rank")), "{said:?}");
    assert!(said.iter().any(|line| line.ends_with("the run begins again from the same weights")), "{said:?}");
    driver.wait("what would help", |driver| {
        let told = |event: &Event| matches!(event.kind, EventKind::Remedied(_)) && event.device == DeviceIndex(1);
        driver.seen.iter().any(told)
    });
    driver.set("limit", "none");
    driver.send(Command::Resume);
    driver.wait("the first step", |driver| driver.finished()[0] == 0);
    driver.wait_for_steps(2);
    assert_eq!(driver.runs(), [&RunState::Running; 2]);
    assert_eq!([0, 1].map(|device| driver.value(device, "limit")), ["none"; 2]);
    driver.quit();
}

#[test]
fn another_way_begins_again_with_the_switches_as_they_are() {
    for spec in [stages(None), on_processor(Parallelism::Pipeline(PipelineSchedule::GPipe), None)] {
        let mut driver = Driver::start(spec);
        driver.wait_for_steps(2);
        driver.set("opt", "sgd");
        driver.wait("the flip", |driver| [0, 1].iter().all(|device| driver.value(*device, "opt") == "sgd"));
        driver.pause();
        let way = |driver: &Driver| driver.lab(0).alike().and_then(|alike| alike.parallelism);
        for expected in [PipelineSchedule::OneForwardOneBackward].map(Parallelism::Pipeline).into_iter().chain([
            Parallelism::Server,
            Parallelism::Ddp,
            Parallelism::DdpView,
            Parallelism::Zero1,
        ]) {
            driver.send(Command::NextWay);
            driver.wait("another way", |driver| way(driver) == Some(expected));
            driver.wait("the pause", |driver| driver.lab(0).run() == &RunState::Paused);
            assert_eq!((driver.value(0, "opt"), driver.lab(0).finished()), ("sgd".to_owned(), 0));
            let words = format!("started again with {expected}, from the same weights");
            let said = |event: &Event| matches!(&event.kind, EventKind::Note { text } if **text == words);
            assert!(driver.seen.iter().any(said), "{words}");
        }
        driver.send(Command::Resume);
        driver.wait("steps", |driver| driver.lab(0).finished() >= 2);
        driver.quit();
    }
}

#[test]
fn who_leaves_ranks_in_the_midst_of_a_step_waits_for_none() {
    for parallelism in [Parallelism::Fsdp, Parallelism::Pipeline(PipelineSchedule::OneForwardOneBackward)] {
        let mut spec = on_processor(parallelism, None);
        spec.sizes.width = Some(Extent::nearest(512));
        let mut driver = Driver::start(spec);
        driver.wait("the first op", |driver| driver.seen.iter().any(|event| matches!(event.kind, EventKind::OpEnd)));
        driver.quit();
    }
}
