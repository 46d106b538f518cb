//! Switches that are flipped during training, and memory that runs out: nothing leaks, and training goes on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::sim::{CardCatalog, SimDevice};
use vramlab::model::{Category, Event, EventKind, Lab, MemoryModel, Phase, StepReport};
use vramlab::session::{Choice, DeviceChoice, Headless, LabSpec, MemoryLimit, Switch};
use vramlab::train::{
    Amp, Answer, AttentionKernel, Checkpointing, Config, DataPath, Float8Recipe, Libraries, Observer, Offload, OnOom,
    OptimizerForm, OptimizerKind, Retain, SafePoint, Tensor, TrainError, Trainer, TrainerOptions,
};
use vramlab::units::Bytes;
use vramlab::workload::{Architecture, Catalog, Data, DataKind, Extent, Repeats, Sizes};

/// A small generator: the test is the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// Another value of any switch in the lab's table, or another batch.
fn flipped(config: Config, dice: &mut Dice) -> Config {
    let levers: Vec<Switch> = Switch::levers().collect();
    let Some(switch) = levers.get(dice.roll(levers.len() + 1)) else {
        return Config { batch: [4, 8, 5][dice.roll(3)], ..config };
    };
    switch.with(&config, Choice(dice.roll(switch.values().len())))
}

fn allocated(trainer: &Trainer) -> u64 {
    trainer.memory().allocated().get()
}

/// The bytes requested and not freed, and the number of their blocks. How much larger blocks are than requested depends
/// on what was free, so on everything before.
fn held(trainer: &Trainer) -> (i64, i64) {
    let statistics = trainer.statistics();
    (statistics.requested_bytes.all.current, statistics.allocation.all.current)
}

/// Flips switches at random between steps, then flips all of them back: allocated must be what it was.
fn flip_and_return(name: &str, trainer: &mut Trainer, base: Config, finite: bool) {
    // Everything that is taken once: both library handles, those of a recompute, Adam's moments.
    for checkpointing in [Checkpointing::Off, Checkpointing::ALL, Checkpointing::Off] {
        trainer.configure(Config { checkpointing, ..base }).unwrap();
        trainer.step().unwrap();
    }
    // Products in 8 bits use cuBLASLt.
    for float8 in [Float8Recipe::Tensorwise, Float8Recipe::Off] {
        trainer.configure(Config { float8, ..base }).unwrap();
        trainer.step().unwrap();
    }
    let before = held(trainer);
    let mut dice = Dice(7);
    let mut config = base;
    for _ in 0..100 {
        let wanted = flipped(config, &mut dice);
        match trainer.configure(wanted) {
            Ok(()) => config = wanted,
            // Refused, and everything is unchanged.
            Err(TrainError::TooFewSamples { .. }) => assert_eq!(*trainer.config(), config, "{name}"),
            Err(error) => panic!("{name} {wanted:?}: {error}"),
        }
        let before = *trainer.config();
        let report = match trainer.step() {
            Ok(report) => report,
            // As in PyTorch, this attention does not exist in f32. The lab goes back to what worked.
            Err(TrainError::NoKernel { .. }) => {
                config = Config { attention: AttentionKernel::Auto, ..before };
                trainer.configure(config).unwrap();
                trainer.step().unwrap()
            }
            Err(error) => panic!("{name} {config:?}: {error}"),
        };
        assert!(!finite || report.loss.is_some_and(f32::is_finite), "{name} {config:?}");
    }
    // The gradients of a zeroed step are freed by the next set-to-none.
    trainer.configure(Config { optimizer: OptimizerKind::Sgd, ..base }).unwrap();
    trainer.step().unwrap();
    trainer.configure(base).unwrap();
    trainer.step().unwrap();
    let after = held(trainer);
    if base.data == DataPath::Fresh {
        // Sizes differ in each step; the number of blocks does not.
        assert_eq!(after.1, before.1, "{name}");
    } else {
        assert_eq!(after, before, "{name}");
    }
}

#[test]
fn a_hundred_flips_leave_not_a_byte_behind() {
    for name in ["gpt-mini", "mlp-mini", "bert-mini"] {
        let (model, batch) = crate::training::workload(name);
        let base = crate::training::variant("base", batch);
        let (mut trainer, events) = crate::training::trainer(model, base, Libraries::HOPPER);
        flip_and_return(name, &mut trainer, base, true);
        events.borrow_mut().clear();
    }
}

#[test]
fn a_hundred_flips_leave_not_a_byte_of_any_workload_on_a_simulated_gpu() {
    let catalog = Catalog::with_user_workloads(None);
    for name in catalog.names() {
        let entry = catalog.entry(name).unwrap();
        let (data, path) = match entry.data {
            DataKind::Fresh => (Data::Fresh, DataPath::Fresh),
            _ => (Data::Reference, DataPath::Resident),
        };
        // At full size, logits over 128,000 tokens leave no room on a card for the kept graphs of many steps, nor do
        // the matrices of attention that is written out. Of blocks of one kind, a few do what all do.
        let large = entry.config.is_some() || entry.model == Architecture::Cs336;
        let few = |blocks: Repeats| Repeats::nearest(blocks.get().min(4));
        let sizes = if large && name != "llama-mini" && name != "cs336-mini" {
            Sizes { layers: Some(Repeats::nearest(4)), seq: Some(Extent::nearest(256)), ..Sizes::default() }
        } else {
            let stages = entry.sizes.stages.map(|stages| stages.map(few));
            Sizes { layers: entry.sizes.layers.map(few), stages, ..Sizes::default() }
        };
        let workload = entry.workload(sizes, data, 1).unwrap();
        let base = Config { data: path, ..Config::new(entry.batch.get().min(8)) };
        let options = TrainerOptions { workspaces: Libraries::HOPPER, ..TrainerOptions::default() };
        let device = Box::new(SimDevice::h200().unwrap());
        let mut trainer = Trainer::new(device, workload, base, options, Box::new(())).unwrap();
        flip_and_return(name, &mut trainer, base, false);
    }
}

#[test]
fn where_tensors_wait_and_how_a_step_is_carried_out_changes_no_loss() {
    type Change = fn(&mut Config);
    let losses = |change: Change| {
        let (model, batch) = crate::training::workload("gpt-mini");
        let mut config = Config { amp: Amp::Fp16, accumulation: 2, ..crate::training::variant("base", batch) };
        change(&mut config);
        let (mut trainer, _) = crate::training::trainer(model, config, Libraries::PROCESSOR);
        (0..5).map(|_| trainer.step().unwrap().loss.map(f32::to_bits)).collect::<Vec<_>>()
    };
    let plain = losses(|_| ());
    let changes: [(&str, Change); 21] = [
        ("pageable", |c| c.offload = Offload::Activations),
        ("page-locked", |c| (c.offload, c.pinned) = (Offload::Activations, true)),
        ("overlapped", |c| c.offload = Offload::Overlapped),
        ("overlapped and checkpointed", |c| (c.offload, c.checkpointing) = (Offload::Overlapped, Checkpointing::ALL)),
        ("checkpointed", |c| (c.offload, c.checkpointing) = (Offload::Activations, Checkpointing::ALL)),
        ("parked", |c| c.offload = Offload::Optimizer),
        ("parked page-locked", |c| (c.offload, c.pinned) = (Offload::Optimizer, true)),
        ("fused", |c| c.form = OptimizerForm::Fused),
        ("parked and fused", |c| (c.offload, c.form) = (Offload::Optimizer, OptimizerForm::Fused)),
        ("loop", |c| c.form = OptimizerForm::Loop),
        ("parameters", |c| c.offload = Offload::Parameters),
        ("parameters page-locked", |c| (c.offload, c.pinned) = (Offload::Parameters, true)),
        ("parameters and checkpointed", |c| (c.offload, c.checkpointing) = (Offload::Parameters, Checkpointing::ALL)),
        ("parameters and activations", |c| c.offload = Offload::ParametersAndActivations),
        ("parameters and activations checkpointed", |c| {
            (c.offload, c.checkpointing) = (Offload::ParametersAndActivations, Checkpointing::ALL)
        }),
        ("parameters and fused", |c| (c.offload, c.form) = (Offload::Parameters, OptimizerForm::Fused)),
        ("parameters and loop", |c| (c.offload, c.form) = (Offload::Parameters, OptimizerForm::Loop)),
        ("output dropped", |c| c.drop_output = true),
        ("losses kept", |c| c.retain = Retain::Losses),
        ("graphs kept", |c| c.retain = Retain::Graph),
        ("cycles", |c| c.retain = Retain::Cycles),
    ];
    for (name, change) in changes {
        assert_eq!(losses(change), plain, "{name}");
    }
}

#[test]
fn parked_optimizer_state_weighs_on_nothing_between_steps() {
    let run = |offload| {
        let (model, batch) = crate::training::workload("gpt-mini");
        let config = Config { offload, ..crate::training::variant("base", batch) };
        let (mut trainer, events) = crate::training::trainer(model, config, Libraries::PROCESSOR);
        trainer.step().unwrap();
        let rounded: u64 = trainer.parameters().map(|(_, t)| t.bytes().get().next_multiple_of(512)).sum();
        let host = events.borrow().iter().rev().find_map(|event| match event.kind {
            EventKind::HostMemory { allocated, .. } => Some(allocated),
            _ => None,
        });
        let bytes: u64 = trainer.parameters().map(|(_, t)| t.bytes().get()).sum();
        (allocated(&trainer), rounded, host.map(Bytes::get), bytes)
    };
    let (here, rounded, ..) = run(Offload::Off);
    let (parked, _, host, bytes) = run(Offload::Optimizer);
    assert_eq!(here - parked, 2 * rounded);
    assert_eq!(host, Some(2 * bytes), "pageable memory holds both moments to the byte");
}

/// The most bytes of parameters on the device, in forward passes and between them.
fn most_parameters(events: &[Event]) -> [u64; 2] {
    let (mut here, mut sum, mut forward, mut most) = (BTreeMap::new(), 0, false, [0; 2]);
    for event in events {
        match event.kind {
            EventKind::PhaseBegin { phase } => forward = phase == Phase::Forward,
            EventKind::PhaseEnd { .. } => forward = false,
            EventKind::Alloc { address, size, category: Category::Parameter, .. } => {
                here.insert(address, size.get());
                sum += size.get();
            }
            EventKind::FreeRequested { address, .. } => sum -= here.remove(&address).unwrap_or(0),
            _ => {}
        }
        let most = &mut most[usize::from(!forward)];
        *most = sum.max(*most);
    }
    most
}

/// Layers of every kind, two models that are trained against each other, fused norms: in forward one layer is on the
/// device, with its weight and its bias.
#[test]
fn parameters_come_for_their_layer_and_leave_again() {
    let models = ["gpt-mini", "bert-mini", "vit-mini", "resnet-mini", "dcgan-mini", "mlp-mini"];
    for (name, fuse) in models.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        let run = |offload| {
            let (model, batch) = crate::training::workload(name);
            let config = Config { offload, fuse, ..crate::training::variant("base", batch) };
            let (mut trainer, events) = crate::training::trainer(model, config, Libraries::PROCESSOR);
            let before = allocated(&trainer);
            events.borrow_mut().clear();
            let losses: Vec<_> = (0..3).map(|_| trainer.step().unwrap().loss.map(f32::to_bits)).collect();
            let most = most_parameters(&events.borrow());
            (losses, most, before, trainer)
        };
        let (losses, _, before, trainer) = run(Offload::Off);
        let mut layers = BTreeMap::<&str, u64>::new();
        for (parameter, data) in trainer.parameters() {
            let layer = parameter.rsplit_once('.').map_or(parameter, |(layer, _)| layer);
            *layers.entry(layer).or_default() += data.bytes().get().next_multiple_of(512);
        }
        let (all, largest) = (layers.values().sum::<u64>(), layers.values().max().copied());
        let (parked, [forward, _], begins, mut offloaded) = run(Offload::Parameters);
        assert_eq!(parked, losses, "{name}, fused {fuse}");
        assert_eq!(Some(forward), largest, "{name}, fused {fuse}");
        assert_eq!(before - begins, all, "{name}, fused {fuse}: none before the first step");
        // Back on the device they have the values that they would have had.
        let config = *offloaded.config();
        offloaded.configure(Config { offload: Offload::Off, ..config }).unwrap();
        let values = |trainer: &Trainer| -> Vec<Vec<u8>> {
            let read = |data: &Tensor| {
                let mut bytes = vec![0; usize::try_from(data.bytes().get()).unwrap()];
                trainer.memory().read(data, &mut bytes).unwrap();
                bytes
            };
            trainer.parameters().map(|(_, data)| read(data)).collect()
        };
        assert!(values(&offloaded) == values(&trainer), "{name}, fused {fuse}: parameters differ");
    }
}

/// A program of PyTorch 2.11 with the hooks of `lab/guide/switches/offload.md` on the stand-in GPU, in its sixth step:
/// allocated before the first step and after forward, backward, optimizer and zero_grad; peaks of allocated and
/// reserved; the number of all requests.
#[test]
fn offloaded_parameters_take_what_they_take_in_pytorch() {
    let known: [(&str, &str, [u64; 8]); 3] = [
        (
            "mlp",
            "base",
            [134_479_872, 1_208_484_864, 638_571_008, 638_571_008, 202_637_824, 1_598_985_728, 1_717_567_488, 1303],
        ),
        (
            "gpt2",
            "base",
            [1_048_576, 16_435_520_512, 569_062_912, 569_062_912, 69_206_528, 23_024_772_096, 26_487_029_760, 10_305],
        ),
        (
            "gpt2",
            "bf16ckpt",
            [1_048_576, 7_415_335_424, 570_766_848, 570_766_848, 70_255_104, 10_709_962_240, 11_234_443_264, 14_512],
        ),
    ];
    for (name, variant, known) in known {
        let (model, batch) = crate::training::workload(name);
        let config = Config { offload: Offload::Parameters, ..crate::training::variant(variant, batch) };
        let (mut trainer, events) = crate::training::simulated(model, config);
        for _ in 0..6 {
            trainer.step().unwrap();
        }
        let mut lab = Lab::new();
        events.borrow().iter().for_each(|event| lab.apply(event));
        let statistics = trainer.statistics();
        let peaks = [
            statistics.allocated_bytes.all.peak,
            statistics.reserved_bytes.all.peak,
            statistics.allocation.all.allocated,
        ];
        let ours = crate::training::boundaries(&lab)
            .map(Bytes::get)
            .into_iter()
            .chain(peaks.map(|peak| u64::try_from(peak).unwrap()));
        assert_eq!(ours.collect::<Vec<_>>(), known, "{name} {variant}");
    }
}

#[test]
fn kept_losses_cost_a_block_each_and_kept_graphs_what_was_saved() {
    let grows = |retain| {
        let (model, batch) = crate::training::workload("gpt-mini");
        let config = Config { retain, ..crate::training::variant("base", batch) };
        let (mut trainer, _) = crate::training::trainer(model, config, Libraries::PROCESSOR);
        trainer.step().unwrap();
        trainer.step().unwrap();
        let before = allocated(&trainer);
        trainer.step().unwrap();
        let rise = allocated(&trainer) - before;
        trainer.configure(Config { retain: Retain::Off, ..config }).unwrap();
        trainer.step().unwrap();
        let (model, _) = crate::training::workload("gpt-mini");
        let (mut fresh, _) =
            crate::training::trainer(model, Config { retain: Retain::Off, ..config }, Libraries::PROCESSOR);
        fresh.step().unwrap();
        assert_eq!(allocated(&trainer), allocated(&fresh), "turned off, everything goes");
        rise
    };
    assert_eq!(grows(Retain::Losses), 512);
    assert!(grows(Retain::Graph) > 500_000, "activations of two layers");
}

#[test]
fn cycles_keep_outputs_until_the_collector_comes() {
    let (model, batch) = crate::training::workload("gpt-mini");
    let config = Config { retain: Retain::Cycles, ..crate::training::variant("base", batch) };
    let (mut trainer, events) = crate::training::trainer(model, config, Libraries::PROCESSOR);
    let left: Vec<u64> = (0..40)
        .map(|_| {
            trainer.step().unwrap();
            allocated(&trainer)
        })
        .collect();
    // The logits of a step and its loss; what autograd saved was freed in the backward pass.
    let (vocab, positions) = (257, 32);
    let rise = (batch * positions * vocab * 4 + 512) as u64;
    let rises: Vec<i64> = left.windows(2).map(|pair| pair[1] as i64 - pair[0] as i64).collect();
    let falls: Vec<usize> = (0..rises.len()).filter(|&at| rises[at] < 0).collect();
    assert_eq!(falls, [14, 30], "every sixteenth step: {rises:?}");
    for at in (1..rises.len()).filter(|at| !falls.contains(at)) {
        assert_eq!(rises[at], rise as i64, "step {at}");
    }
    let told = events
        .borrow()
        .iter()
        .filter(|event| matches!(&event.kind, EventKind::Note { text } if text.contains("garbage collector came")))
        .count();
    assert_eq!(told, 2);
    trainer.configure(Config { retain: Retain::Off, ..config }).unwrap();
    trainer.step().unwrap();
    assert_eq!(allocated(&trainer), left[15], "broken up, the cycles are gone");
}

/// GPT-2 on a simulated H200 under a limit: allocated bytes whenever a step begins, or begins again, and the result of
/// the last step.
fn attempts(on_oom: OnOom, gib: u64) -> (Vec<u64>, Headless, Result<StepReport, TrainError>) {
    let entry = Catalog::with_user_workloads(None).entry("gpt2").unwrap();
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    let config = Config { on_oom, ..Config::new(entry.batch.get()) };
    let limit = Some(MemoryLimit::Bytes(Bytes::gib(gib)));
    let device = DeviceChoice::Sim(Box::new(card));
    let spec = LabSpec { device, config, limit, data: Data::Reference, ..LabSpec::new(entry) };
    let seen = Rc::new(RefCell::new((MemoryModel::new(), Vec::new())));
    let listener = Rc::clone(&seen);
    let listens = Box::new(move |event: &Event| {
        let (memory, begins) = &mut *listener.borrow_mut();
        memory.apply(event).unwrap();
        if matches!(event.kind, EventKind::StepBegin { .. }) {
            begins.push(memory.allocated().get());
        }
    });
    let mut run = Headless::start_before(spec, Some(listens)).unwrap();
    let mut last = run.step();
    for _ in 1..3 {
        if last.is_err() {
            break;
        }
        last = run.step();
    }
    let begins = seen.borrow().1.clone();
    (begins, run, last)
}

/// A loop of PyTorch 2.11 that catches `torch.cuda.OutOfMemoryError`, halves the batch and tries again, under the same
/// limits: its allocator had the same allocated bytes at that time. (It has no sum of losses, which is a block of 512
/// bytes.)
#[test]
fn a_batch_that_halves_itself_does_so_with_what_pytorch_has_allocated() {
    let (begins, mut run, last) = attempts(OnOom::Halve, 16);
    assert!(last.is_ok());
    assert_eq!(begins[..2], [499_607_552, 533_686_272], "behind the except block the step is gone, workspaces stay");
    assert_eq!(begins[2], 1_571_409_920 + 512, "a whole step of batch 8");
    let view = run.view();
    assert_eq!((run.trainer().config().batch, view.traffic.ooms), (8, 1));
    assert_eq!(view.settings.get("batch").map(|batch| batch.value.to_string()), Some("8".to_owned()));
    assert_eq!(view.peak_reserved, Bytes(16_957_571_072));
}

#[test]
fn within_the_except_block_the_failed_step_lives_on_as_in_pytorch() {
    // Allocated bytes when each smaller batch is tried. Under 16 GiB PyTorch's third and later tries find other holes.
    let known: [(u64, usize, &[u64]); 2] = [
        (16, 1, &[16_900_263_424, 17_101_991_424]),
        // The second step fails in backward: what forward saved is there, the current gradients are not.
        (22, 2, &[17_937_986_560, 22_826_390_528, 23_506_826_240, 23_519_370_240]),
    ];
    for (gib, from, held) in known {
        let (begins, mut run, last) = attempts(OnOom::HalveHeld, gib);
        assert!(matches!(last, Err(TrainError::OutOfMemory { .. })), "no smaller batch fits beside it");
        assert_eq!(begins[from..from + held.len()], *held, "{gib} GiB");
        assert_eq!(run.trainer().config().batch, 1);
        let view = run.view();
        assert_eq!(view.traffic.ooms, 5, "batches of 16, 8, 4, 2 and 1");
        assert!(view.ledger.allocated() < Bytes::gib(2), "the exception has left the program: {:?}", view.ledger);
    }
}

#[test]
fn a_changed_optimizer_gives_its_state_back_at_once() {
    let (model, batch) = crate::training::workload("gpt-mini");
    let base = crate::training::variant("base", batch);
    let (mut trainer, _) = crate::training::trainer(model, base, Libraries::PROCESSOR);
    trainer.step().unwrap();
    let with_adam = allocated(&trainer);
    let rounded: u64 = trainer.parameters().map(|(_, t)| t.bytes().get().next_multiple_of(512)).sum();
    trainer.configure(Config { optimizer: OptimizerKind::Sgd, ..base }).unwrap();
    assert_eq!(with_adam - allocated(&trainer), 2 * rounded);
    trainer.step().unwrap();
    trainer.configure(Config { optimizer: OptimizerKind::Momentum, ..base }).unwrap();
    assert_eq!(with_adam - allocated(&trainer), 2 * rounded, "momentum is born in the next step");
    trainer.step().unwrap();
    assert_eq!(with_adam - allocated(&trainer), rounded);
}

#[test]
fn out_of_memory_is_survived_wherever_it_strikes() {
    let (model, batch) = crate::training::workload("gpt-wide");
    let base = crate::training::variant("base", batch);
    let (mut trainer, events) = crate::training::trainer(model, base, Libraries::PROCESSOR);
    let idle = allocated(&trainer);
    let reserved = u64::try_from(trainer.statistics().reserved_bytes.all.current).unwrap();
    let mut struck = 0;
    // With every limit the step gets a little further.
    for extra in 0..40 {
        trainer.set_limit(Some(Bytes(reserved + extra * (2 << 20))));
        match trainer.step() {
            Err(TrainError::OutOfMemory { .. }) => {
                struck += 1;
                assert!(trainer.statistics().num_ooms >= struck);
                if trainer.steps() == 0 {
                    // Only moments that already existed may stay.
                    trainer.configure(Config { optimizer: OptimizerKind::Sgd, ..base }).unwrap();
                    trainer.configure(base).unwrap();
                    assert_eq!(allocated(&trainer), idle, "limit +{} MiB", 2 * extra);
                }
            }
            Err(other) => panic!("{other}"),
            Ok(report) => assert!(report.loss.is_some_and(f32::is_finite)),
        }
        trainer.empty_cache();
    }
    assert!(struck > 5, "{struck}");
    assert!(events.borrow().iter().any(|e| matches!(e.kind, EventKind::Oom(_))));
    trainer.set_limit(None);
    let losses: Vec<f32> = (0..4).map(|_| trainer.step().unwrap().loss.unwrap()).collect();
    assert!(losses.iter().all(|l| l.is_finite()), "{losses:?}");
}

/// Stops at the n-th safe point, and empties the cache at every seventh.
struct Impatient {
    left: Rc<Cell<u32>>,
    asked: bool,
}

impl Observer for Impatient {
    fn event(&mut self, _: Event) {}

    fn safe_point(&mut self, _: SafePoint) -> Answer {
        let left = self.left.get();
        if left % 7 == 3 && !std::mem::replace(&mut self.asked, true) {
            return Answer::EmptyCache;
        }
        self.asked = false;
        self.left.set(left.saturating_sub(1));
        if left == 1 { Answer::Stop } else { Answer::Continue }
    }
}

#[test]
fn a_stop_at_any_safe_point_unwinds_the_step() {
    let (model, batch) = crate::training::workload("gpt-mini");
    let config = crate::training::variant("all", batch);
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(1) }).unwrap();
    let left = Rc::new(Cell::new(0));
    let observer = Impatient { left: Rc::clone(&left), asked: false };
    let options = TrainerOptions::default();
    let mut trainer = Trainer::new(Box::new(device), model, config, options, Box::new(observer)).unwrap();
    trainer.step().unwrap();
    let finished = allocated(&trainer);
    let loss = 512;
    for points in (1..540).step_by(37) {
        left.set(points);
        assert!(matches!(trainer.step(), Err(TrainError::Stopped)), "{points}");
        assert_eq!(allocated(&trainer), finished - loss, "{points}");
        left.set(0);
    }
    assert!(trainer.step().unwrap().loss.is_some_and(f32::is_finite));
    assert_eq!(allocated(&trainer), finished);
}

#[test]
fn the_same_switches_give_the_same_losses_whatever_came_between() {
    let every_second = "every:2".parse().unwrap();
    let run = |interrupted: bool| {
        let (model, batch) = crate::training::workload("gpt-mini");
        let base = crate::training::variant("base", batch);
        let (mut trainer, _) = crate::training::trainer(model, base, Libraries::PROCESSOR);
        let mut losses = Vec::new();
        for step in 0..8 {
            // Checkpointing and empty_cache change memory, not arithmetic.
            if interrupted {
                let checkpointing = [Checkpointing::ALL, Checkpointing::Off, every_second][step % 3];
                trainer.configure(Config { checkpointing, ..base }).unwrap();
                trainer.empty_cache();
            }
            losses.push(trainer.step().unwrap().loss.unwrap().to_bits());
        }
        losses
    };
    assert_eq!(run(false), run(true));
}
