//! Replays a run through another allocator: under the run's own conditions it gives the run's own figures, and under
//! others those of a run with these conditions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use proptest::prelude::*;
use vramlab::allocator::{
    AllocError, CachingAllocator, DeviceMemory, EventToken, OutOfDeviceMemory, SegmentSource, Settings,
    SimulatedDriver, Statistics, TraceEvent,
};
use vramlab::device::Device;
use vramlab::device::sim::{CardCatalog, SimDevice};
use vramlab::model::{Begins, Category, Event, EventKind, FailedRequest, Lab, Micros, NameId};
use vramlab::narration::events;
use vramlab::recording::{Frame, FrameBuilder, RecordingError, Writer};
use vramlab::snapshot::Snapshot;
use vramlab::snapshot::replay::{Conditions as Recorded, Overrides};
use vramlab::source::{RunHints, Whole, asked};
use vramlab::train::{Config, Libraries, LoopStyle, Trainer, TrainerOptions};
use vramlab::units::{Address, Bytes, DeviceIndex, MIB, StreamId};
use vramlab::whatif::{BlockAtStart, Conditions, Figures, Follower, Outcome, Places, Program, StartState, predict};

type Events = Rc<RefCell<Vec<Event>>>;

/// The memory of a device before anything runs on it.
fn memory_of(mut device: SimDevice) -> DeviceMemory {
    device.segments().memory()
}

fn card(name: &str) -> SimDevice {
    SimDevice::new(CardCatalog::with_user_cards(None).card(name).unwrap())
}

fn conditions(text: &str, card_name: &str) -> Conditions {
    Conditions::parse(text, Some(memory_of(card(card_name)))).unwrap()
}

fn train(card_name: &str, workload: &str, config: Config, conf: &str, style: LoopStyle) -> (Trainer, Events) {
    let (model, _) = crate::training::workload(workload);
    let events = Events::default();
    let settings = Settings::parse(conf).unwrap();
    let options = TrainerOptions { style, workspaces: Libraries::HOPPER, settings, ..TrainerOptions::default() };
    let trainer =
        Trainer::new(Box::new(card(card_name)), model, config, options, Box::new(Rc::clone(&events))).unwrap();
    (trainer, events)
}

/// PyTorch's statistics of a run, in the form of a prediction; `stranded` comes from the model, which knows about
/// pages.
fn figures(statistics: &Statistics, lab: &Lab) -> Figures {
    let bytes = |n: i64| Bytes(u64::try_from(n).unwrap());
    let count = |n: i64| u64::try_from(n).unwrap();
    Figures {
        reserved: bytes(statistics.reserved_bytes.all.current),
        allocated: bytes(statistics.allocated_bytes.all.current),
        peak_reserved: bytes(statistics.reserved_bytes.all.peak),
        peak_allocated: bytes(statistics.allocated_bytes.all.peak),
        stranded: lab.memory().stranded(),
        segments: lab.memory().segment_count() as u64,
        segments_allocated: count(statistics.num_device_alloc),
        segments_freed: count(statistics.num_device_free),
        retries: count(statistics.num_alloc_retries),
        ooms: count(statistics.num_ooms),
        served: 0,
    }
}

/// A run, its model, and a ghost beside it with its own conditions.
struct Beside {
    trainer: Trainer,
    events: Events,
    lab: Lab,
    ghost: Follower,
    all: Vec<Event>,
}

impl Beside {
    fn new((trainer, events): (Trainer, Events), conditions: &Conditions) -> Self {
        let ghost = Follower::new(conditions, Places::Simulated, DeviceIndex::FIRST);
        let mut beside = Self { trainer, events, lab: Lab::new(), ghost, all: Vec::new() };
        beside.follow();
        beside
    }

    fn follow(&mut self) {
        for event in self.events.take() {
            self.lab.apply(&event);
            self.ghost.apply(&event);
            self.all.push(event);
        }
    }

    fn figures(&mut self) -> Figures {
        self.follow();
        figures(&self.trainer.memory().statistics(), &self.lab)
    }

    fn agrees(&mut self, when: &str) {
        let real = self.figures();
        assert_eq!(self.ghost.figures(), real, "{when}");
    }
}

#[test]
fn a_ghost_under_the_conditions_of_the_run_has_its_figures_at_the_end_of_every_step() {
    let cases = [
        ("gpt-mini", "base", ""),
        ("gpt-odd", "all", ""),
        ("gpt-odd", "bf16", "expandable_segments:True"),
        ("bert-odd", "accum2bf16", "roundup_power2_divisions:4"),
        ("resnet-odd", "base", ""),
        ("resnet-odd", "amp16", "expandable_segments:True"),
        ("dcgan-mini", "base", "max_split_size_mb:32"),
        ("gpt-odd", "save_on_cpu_pinned", ""),
        ("vit-odd", "pinned", ""),
        ("vit-odd", "pageable", "expandable_segments:True"),
    ];
    for (workload, variant, conf) in cases {
        let config = crate::training::variant(variant, crate::training::workload(workload).1);
        for style in [LoopStyle::Accumulating, LoopStyle::Plain] {
            let run = train("h200", workload, config, conf, style);
            let mut beside = Beside::new(run, &conditions(conf, "h200"));
            for step in 0..4 {
                beside.trainer.step().unwrap();
                beside.agrees(&format!("{workload} {variant} {conf}: step {step}"));
                if step == 1 {
                    beside.trainer.memory().empty_cache();
                    beside.agrees(&format!("{workload} {variant} {conf}: emptied"));
                }
            }
            // A program that is read as a whole gives the same result as one that is followed.
            let Outcome { figures, history, steps } =
                predict(&beside.all, DeviceIndex::FIRST, Places::Simulated, &conditions(conf, "h200"));
            assert_eq!((figures, steps), (beside.ghost.figures(), 4));
            let columns = |page: vramlab::model::Page| -> Vec<_> {
                page.columns
                    .iter()
                    .map(|column| (column.step, column.position, column.reserved, column.stranded))
                    .collect()
            };
            let real = columns(beside.lab.history().page(0, 100));
            assert_eq!(columns(history.page(0, 100)), real, "{workload} {variant} {conf}");
            assert_eq!(columns(beside.ghost.history().page(0, 100)), real);
        }
    }
}

#[test]
fn limits_retries_and_failures_are_the_runs_own() {
    for conf in ["", "expandable_segments:True", "garbage_collection_threshold:0.6", "max_split_size_mb:40"] {
        let config = crate::training::variant("base", 24);
        let run = train("h200", "resnet-med", config, conf, LoopStyle::Accumulating);
        let mut beside = Beside::new(run, &conditions(conf, "h200"));
        beside.trainer.step().unwrap();
        beside.agrees("first step");
        let held = beside.figures().reserved;
        let mut failed = 0;
        // Down to limits that don't fit, and up again.
        for percent in [95, 80, 65, 50, 35, 20, 50, 80, 100] {
            beside.trainer.set_limit(Some(Bytes(held.get() * percent / 100)));
            beside.trainer.memory().empty_cache();
            for _ in 0..2 {
                failed += u32::from(beside.trainer.step().is_err());
                beside.agrees(&format!("{conf}: {percent} %"));
            }
        }
        beside.trainer.set_limit(None);
        beside.trainer.step().unwrap();
        beside.agrees("no limit");
        let figures = beside.figures();
        assert!(failed > 0 && figures.ooms >= u64::from(failed), "{conf}: {figures:?}");
        assert!(figures.retries >= figures.ooms, "{conf}: {figures:?}");
    }
}

#[test]
fn a_prediction_is_what_a_run_under_those_conditions_comes_to() {
    let confs = [
        "expandable_segments:True",
        "max_split_size_mb:128",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[2:4,16:2,>:8],max_non_split_rounding_mb:40",
        "large_segment_size_mb:24",
    ];
    for (workload, variant) in
        [("resnet-odd", "base"), ("gpt-med", "bf16"), ("dcgan-mini", "base"), ("vit-med", "pinned")]
    {
        let batch = crate::training::workload(workload).1;
        let config = crate::training::variant(variant, batch);
        let mut plain = train("h200", workload, config, "", LoopStyle::Plain);
        for _ in 0..4 {
            plain.0.step().unwrap();
        }
        let program = Program::of(&plain.1.take(), DeviceIndex::FIRST, Places::Simulated);
        for conf in confs {
            let mut real =
                Beside::new(train("h200", workload, config, conf, LoopStyle::Plain), &conditions(conf, "h200"));
            for _ in 0..4 {
                real.trainer.step().unwrap();
            }
            assert_eq!(
                program.replay(&conditions(conf, "h200")).figures,
                real.figures(),
                "{workload} {variant} {conf}"
            );
        }
    }
}

#[test]
fn a_ghost_that_begins_late_holds_what_the_run_holds() {
    let config = crate::training::variant("base", 16);
    let (mut trainer, events) = train("h200", "gpt-mini", config, "", LoopStyle::Accumulating);
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    let mut lab = Lab::new();
    let mut position = 0;
    for event in events.take() {
        lab.apply(&event);
        position += 1;
    }
    let mut held: Vec<_> = lab
        .memory()
        .segments()
        .flat_map(|segment| {
            let (address, stream) = (segment.address(), segment.stream());
            let blocks: Vec<_> = segment.blocks().collect();
            blocks.into_iter().filter(|block| !block.pending).map(move |block| {
                (block.born, BlockAtStart { address: address.offset(block.offset), requested: block.requested, stream })
            })
        })
        .collect();
    held.sort_by_key(|(born, _)| *born);
    let mut ghost = Follower::begin(
        &conditions("", "h200"),
        Places::Simulated,
        (DeviceIndex::FIRST, position),
        held.into_iter().map(|(_, held)| held),
        None,
        (lab.finished(), lab.history().columns()),
    );
    assert_eq!((ghost.since(), ghost.position()), (3, position));
    assert_eq!(ghost.figures().allocated, lab.memory().allocated());
    for _ in 0..3 {
        trainer.step().unwrap();
        for event in events.take() {
            lab.apply(&event);
            ghost.apply(&event);
        }
        assert_eq!(ghost.figures().allocated, lab.memory().allocated());
    }
    assert_eq!(ghost.finished(), 6);
    let page = ghost.history().page(0, 10);
    let steps: Vec<u64> = page.columns.iter().map(|column| column.step).collect();
    assert_eq!(steps, [0, 0, 0, 3, 4, 5], "columns stand where the run's own do");
    assert!(page.columns[2].reserved == Bytes::ZERO && page.columns[3].reserved > Bytes::ZERO);
}

#[test]
fn what_failed_in_the_run_may_fit_and_the_other_way_round() {
    let mut run = Vec::new();
    let mut tell = |kind| run.push(Event::new(Micros(0), kind));
    let alloc = |n: u64, size: Bytes| EventKind::Alloc {
        address: Address(n << 40),
        size,
        requested: size,
        stream: StreamId::DEFAULT,
        category: Category::Other,
        name: NameId::NONE,
    };
    tell(EventKind::Limit { limit: Some(Bytes::mib(100)) });
    tell(EventKind::StepBegin { step: 0 });
    tell(alloc(1, Bytes::mib(60)));
    tell(EventKind::Oom(std::sync::Arc::new(FailedRequest {
        requested: Bytes::mib(60),
        rounded: Bytes::mib(60),
        segment: Bytes::mib(60),
        pool: vramlab::allocator::PoolKind::Large,
        stream: StreamId::DEFAULT,
        device_free: Bytes::gib(1),
        name: NameId::NONE,
        attempts: Vec::new(),
    })));
    tell(EventKind::FreeRequested { address: Address(1 << 40) });
    tell(EventKind::FreeCompleted { address: Address(1 << 40) });
    tell(EventKind::FreeRequested { address: Address(77) });
    let of = |text: &str| {
        let conditions = Conditions::parse(text, None).unwrap();
        predict(&run, DeviceIndex::FIRST, Places::Simulated, &conditions).figures
    };
    let own = of("");
    assert_eq!((own.ooms, own.served, own.peak_reserved), (1, 0, Bytes::mib(60)));
    let more = of("limit:200MiB");
    assert_eq!((more.ooms, more.served, more.peak_reserved), (0, 1, Bytes::mib(120)));
    let less = of("limit:50MiB");
    assert_eq!((less.ooms, less.peak_reserved, less.allocated), (2, Bytes::ZERO, Bytes::ZERO));
}

#[test]
fn the_program_can_empty_the_cache_every_so_many_steps() {
    let config = crate::training::variant("base", 24);
    let (mut trainer, events) = train("h200", "resnet-med", config, "", LoopStyle::Plain);
    for _ in 0..4 {
        trainer.step().unwrap();
    }
    let program = Program::of(&events.take(), DeviceIndex::FIRST, Places::Simulated);
    let plain = program.replay(&conditions("", "h200")).figures;
    let emptied = program.replay(&conditions("empty_cache_every:2", "h200")).figures;
    assert_eq!(emptied.allocated, plain.allocated);
    assert!(
        emptied.reserved < plain.reserved && emptied.segments_freed > plain.segments_freed,
        "{emptied:?} {plain:?}"
    );
}

/// Recordings of PyTorch on an H200, with `torch.cuda.memory_stats()` at their end.
#[test]
fn histories_of_pytorch_come_to_pytorchs_figures() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.to_string_lossy().ends_with(".pickle.xz"));
    names.sort();
    let mut compared = 0;
    for path in names {
        let snapshot = Snapshot::open(&path).unwrap();
        let recorded = Recorded::find(&path, &snapshot, &Overrides::default()).unwrap();
        let Some(device) = (0..snapshot.device_count()).find(|device| !snapshot.device_trace(*device).is_empty())
        else {
            continue;
        };
        let mut run = Vec::new();
        let mut lab = Lab::new();
        let report = events(&snapshot, device, &recorded, None, |event| {
            lab.apply(&event);
            run.push(event);
        });
        if report.first_mismatch.is_some() {
            continue;
        }
        let mut conditions = Conditions::new(recorded.settings.clone());
        conditions.limit = recorded.limit;
        conditions.device = recorded.device_bytes.map(|total| DeviceMemory { free: total, total });
        let ghost = predict(&run, DeviceIndex::FIRST, Places::Recorded, &conditions).figures;
        let memory = lab.memory();
        let mine = (ghost.reserved, ghost.allocated, ghost.stranded, ghost.segments, ghost.peak_reserved, ghost.ooms);
        let real = (
            memory.reserved(),
            memory.allocated(),
            memory.stranded(),
            memory.segment_count() as u64,
            memory.peak_reserved(),
            memory.traffic().ooms,
        );
        compared += 1;
        assert_eq!(mine, real, "{}", path.display());
    }
    assert!(compared > 25, "{compared}");
}

/// Histories that begin late, in a ring buffer or with private pools: what existed when they began exists in the
/// replay, too.
#[test]
fn histories_that_begin_late_come_to_what_was_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers");
    let mut late = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if !path.to_string_lossy().ends_with(".pickle.xz") {
            continue;
        }
        let whole = Whole::read(&path, None, |_| {}).unwrap();
        let run = asked(&whole, RunHints::default(), |_, _| {}).unwrap().swap_remove(0);
        let again = run.again().figures;
        assert!(run.is_exact(&again), "{}: {:?} {again:?}", path.display(), run.facts.figures);
        let mine = (again.segments_allocated, again.segments_freed, again.stranded);
        let real = (run.facts.figures.segments_allocated, run.facts.figures.segments_freed, run.facts.figures.stranded);
        assert_eq!(mine, real, "{}", path.display());
        if run.program.starting(&run.facts.conditions) == StartState::Recorded {
            late += 1;
            assert_ne!(run.facts.begins, Some(Begins::First));
            let other = run.under("expandable_segments:True,large_segment_size_mb:64").unwrap();
            assert_eq!(run.program.starting(&other), StartState::Anew);
            // What was held is held in the replay, too.
            let (blocks, bytes) = run.program.held_at_start();
            let figures = run.program.replay(&other).figures;
            assert!(blocks > 0 && figures.peak_allocated >= bytes, "{}: {figures:?}", path.display());
        }
    }
    assert!(late >= 5, "{late}");
}

/// A history of PyTorch's is replayed in the same way whatever file it is in.
#[test]
fn a_recording_of_a_history_is_asked_anew_as_the_history_is() {
    for name in ["strangers/timm-convnext-ring", "strangers/cuda-graphs", "traces/gpt-mini.all"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.pickle.xz"));
        let whole = Whole::read(&path, None, |_| {}).unwrap();
        let mut writer = Writer::new(Vec::new()).unwrap();
        let mut open = FrameBuilder::new(0);
        let mut write = |frame: Option<Frame>| frame.iter().for_each(|frame| writer.write(frame).unwrap());
        whole
            .each(0..whole.end(), |_, event| {
                open.push(event);
                if open.is_full() {
                    write(open.finish());
                }
                Ok::<_, RecordingError>(())
            })
            .unwrap();
        write(open.finish());
        let again = Whole::recording(&writer.into_inner()[..]).unwrap();
        assert_eq!(again.end(), whole.end());
        let device_bytes = Some(Bytes::gib(139));
        let [of_snapshot, of_recording] = [&whole, &again]
            .map(|whole| asked(whole, RunHints { device_bytes, limit: None }, |_, _| {}).unwrap().swap_remove(0));
        assert_eq!(of_recording.facts.begins, of_snapshot.facts.begins, "{name}");
        for conf in ["", "expandable_segments:True", "max_split_size_mb:64"] {
            let figures = |run: &vramlab::whatif::RecordedRun| run.program.replay(&run.under(conf).unwrap()).figures;
            assert_eq!(figures(&of_recording), figures(&of_snapshot), "{name} {conf}");
        }
    }
}

/// A simulated driver whose other streams finish when the test says so.
#[derive(Clone)]
struct Streams {
    driver: Rc<RefCell<SimulatedDriver>>,
    recorded: Rc<Cell<u64>>,
    done: Rc<Cell<u64>>,
}

impl SegmentSource for Streams {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.driver.borrow_mut().malloc(size)
    }

    fn free(&mut self, address: Address, size: Bytes) {
        self.driver.borrow_mut().free(address, size);
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.driver.borrow_mut().reserve_range(size)
    }

    fn release_range(&mut self, address: Address, size: Bytes) {
        self.driver.borrow_mut().release_range(address, size);
    }

    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory> {
        self.driver.borrow_mut().map(address, size, page)
    }

    fn unmap(&mut self, address: Address, size: Bytes) {
        self.driver.borrow_mut().unmap(address, size);
    }

    fn memory(&self) -> DeviceMemory {
        self.driver.borrow().memory()
    }

    fn record_event(&mut self, _: StreamId) -> EventToken {
        self.recorded.set(self.recorded.get() + 1);
        EventToken(self.recorded.get())
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        event.0 <= self.done.get()
    }

    fn wait_event(&mut self, event: EventToken) {
        self.done.set(self.done.get().max(event.0));
    }
}

#[derive(Clone, Debug)]
enum Move {
    Take(u64, u64),
    Free(usize),
    /// Another stream uses a block.
    Use(usize),
    /// The work of other streams so far is done.
    Done,
    EmptyCache,
    Limit(Option<u64>),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let size = prop_oneof![4 => 1..MIB, 3 => MIB..12 * MIB, 2 => 12 * MIB..90 * MIB];
    let one = prop_oneof![
        12 => (size, prop_oneof![4 => Just(0_u64), 1 => Just(7_u64)]).prop_map(|(size, stream)| Move::Take(size, stream)),
        9 => any::<usize>().prop_map(Move::Free),
        2 => any::<usize>().prop_map(Move::Use),
        1 => Just(Move::Done),
        1 => Just(Move::EmptyCache),
        1 => proptest::option::weighted(0.8, 100..500_u64).prop_map(Move::Limit),
    ];
    proptest::collection::vec(one, 1..300)
}

/// Whether blocks are completed and then memory goes back to the driver, for one request.
fn completes_then_releases(events: &[EventKind]) -> bool {
    let completed = events.iter().position(|event| matches!(event, EventKind::FreeCompleted { .. }));
    let released = events.iter().rposition(|event| matches!(event, EventKind::SegmentFree { .. }));
    completed.zip(released).is_some_and(|(completed, released)| completed < released)
}

const CONFS: [&str; 5] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:24",
    "roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:[2:4,>:2]",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_come_to_the_same(program in moves(), conf in 0..CONFS.len()) {
        let memory = DeviceMemory { free: Bytes::mib(550), total: Bytes::mib(600) };
        let driver = SimulatedDriver::new(memory.total, memory.total - memory.free);
        let streams = Streams { driver: Rc::new(RefCell::new(driver)), recorded: Rc::default(), done: Rc::default() };
        let settings = Settings::parse(CONFS[conf]).unwrap();
        let mut real = CachingAllocator::new(streams.clone(), settings, Vec::<TraceEvent>::new());
        let conditions = Conditions::parse(CONFS[conf], Some(memory)).unwrap();
        let mut ghost = Follower::new(&conditions, Places::Simulated, DeviceIndex::FIRST);
        ghost.apply(&Event::new(Micros(0), EventKind::StepBegin { step: 0 }));
        let mut lab = Lab::new();
        let mut live: Vec<Address> = Vec::new();
        let mut names = BTreeMap::new();
        let mut retries = 0;
        for (at, step) in program.into_iter().enumerate() {
            let mut told = Vec::new();
            match step {
                Move::Take(size, stream) => match real.malloc(Bytes(size), StreamId(stream)) {
                    Ok(block) => live.push(block.address),
                    Err(AllocError::OutOfMemory(error)) => {
                        let failed = FailedRequest::new(&error, NameId::NONE);
                        names.insert(at, failed);
                    }
                    Err(error) => panic!("{error}"),
                },
                Move::Free(index) if !live.is_empty() => {
                    let address = live.swap_remove(index % live.len());
                    real.free(address).unwrap();
                }
                Move::Use(index) if !live.is_empty() => real.record_stream(live[index % live.len()], StreamId(9)),
                Move::Done => streams.done.set(streams.recorded.get()),
                Move::EmptyCache => {
                    told.push(EventKind::EmptyCache);
                    real.empty_cache();
                }
                Move::Limit(limit) => {
                    real.set_limit(limit.map(Bytes::mib));
                    told.push(EventKind::Limit { limit: limit.map(Bytes::mib) });
                }
                Move::Free(_) | Move::Use(_) => {}
            }
            for event in real.sink_mut().drain(..) {
                told.push(match (event, names.remove(&at)) {
                    (TraceEvent::Oom { .. }, Some(failed)) => EventKind::Oom(std::sync::Arc::new(failed)),
                    (event, failed) => {
                        if let Some(failed) = failed {
                            names.insert(at, failed);
                        }
                        EventKind::of_trace(&event, Category::Other, NameId::NONE)
                    }
                });
            }
            let ambiguous = completes_then_releases(&told);
            for kind in told {
                let event = Event::new(Micros(0), kind);
                lab.apply(&event);
                ghost.apply(&event);
            }
            // An event that is no request shows what the events before it meant.
            ghost.apply(&Event::new(Micros(0), EventKind::OpEnd));
            let (told, real) = (ghost.figures(), figures(real.statistics(), &lab));
            // No event shows whether a request that waited for another stream tried again; from there on the two
            // differ. Nor does an event show whether blocks were completed before a request that released a cached one,
            // or because it tried again.
            if told.retries != real.retries || (ambiguous && real.retries == retries) {
                break;
            }
            retries = real.retries;
            prop_assert_eq!(told, real, "{}", at);
        }
    }
}
