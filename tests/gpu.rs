//! On a GPU: it computes what the processor computes, its memory behaves as the allocator expects, and it trains.
//! Without a GPU every test says that it was skipped, and passes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't be set up fails")]

#[path = "common/training.rs"]
mod training;

use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vramlab::allocator::{AllocError, Allocation, CachingAllocator, SegmentSource, Settings};
use vramlab::device::cuda;
use vramlab::device::cuda::CudaDevice;
use vramlab::device::selftest::{self, Extent, Options, Outcome, Row};
use vramlab::device::{DType, Device, Kernel, Operand, kernels};
use vramlab::model::Event;
use vramlab::train::{
    Config, Libraries, LoopStyle, Member, Observer, Parallelism, Seat, Trainer, TrainerOptions, World,
};
use vramlab::units::{Address, Bytes, MIB, StreamId};

/// Only one test runs at a time, because they measure memory.
static TURN: Mutex<()> = Mutex::new(());

/// Says why a test did nothing. Written past the test harness, which captures what passing tests print.
fn skipped(why: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(format!("skipped: {why}\n").as_bytes());
}

/// The first GPU, as long as it is this test's turn; says so if there is none.
fn gpu() -> Option<(MutexGuard<'static, ()>, CudaDevice)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match CudaDevice::open(0) {
        Ok(device) => Some((turn, device)),
        Err(error) => {
            skipped(&format!("no GPU ({error})"));
            None
        }
    }
}

#[test]
fn kernels_compute_what_the_processor_computes() {
    let Some((_turn, mut device)) = gpu() else { return };
    let options = Options { extent: Extent::Small, only: Vec::new() };
    let report = selftest::run(&mut device, &options, &mut |_| {}).unwrap();
    let failed: Vec<&Row> = report.rows.iter().filter(|row| row.outcome == Outcome::Failed).collect();
    assert!(report.passed(), "{:?} {failed:#?}", report.lost);
    assert!(report.cases() > 1000);
}

/// The elements that are checked: at both ends, and where an index no longer fits in 31 or 32 bits.
fn places(len: usize) -> impl Iterator<Item = usize> {
    let edges = [0, 1 << 30, 1 << 31, 1 << 32, len];
    edges.into_iter().flat_map(|edge: usize| edge.saturating_sub(3)..edge + 3).filter(move |&at| at < len)
}

#[track_caller]
fn assert_everywhere(device: &mut CudaDevice, operand: Operand, value: f32, what: &str) {
    for at in places(operand.len) {
        let mut bytes = [0; 2];
        device.read(operand.address.offset(operand.dtype.bytes(at)), &mut bytes, StreamId::DEFAULT).unwrap();
        let found = half::f16::from_le_bytes(bytes).to_f32();
        assert_eq!(found, value, "{what}: element {at} of {}", operand.len);
    }
}

#[test]
fn indices_beyond_32_bits_reach_what_they_mean() {
    let Some((_turn, mut device)) = gpu() else { return };
    const ROWS: usize = 131_200;
    const COLS: usize = 32_768;
    const LEN: usize = ROWS * COLS;
    let size = DType::F16.bytes(LEN);
    let mut source = device.segments();
    if source.memory().free < Bytes(2 * size.get() + (2 << 30)) {
        skipped(&format!("less than {} of the GPU's memory are free", Bytes(2 * size.get())));
        return;
    }
    let segments = [(); 2].map(|()| source.malloc(size).unwrap());
    let [a, b] = segments.map(|address| Operand { address, dtype: DType::F16, len: LEN });
    let sums = source.malloc(Bytes::mib(2)).unwrap();
    let row = Operand { address: sums, dtype: DType::F16, len: COLS };
    fn run<'k>(device: &mut CudaDevice, kernel: impl Into<Kernel<'k>>) {
        device.launch(&kernel.into(), StreamId::DEFAULT).unwrap();
    }
    run(&mut device, kernels::Elementwise::Fill { dst: a, value: 0.125 });
    assert_everywhere(&mut device, a, 0.125, "fill");
    run(&mut device, kernels::Elementwise::Scale { src: a, dst: b, factor: 2.0 });
    assert_everywhere(&mut device, b, 0.25, "scale");
    run(&mut device, kernels::Elementwise::Add { a, b, dst: a });
    assert_everywhere(&mut device, a, 0.375, "add");
    run(&mut device, kernels::Sums::Columns { src: b, dst: row, rows: ROWS, cols: COLS });
    assert_everywhere(&mut device, row, 32_800.0, "column_sum");
    run(&mut device, kernels::Softmax::Forward { src: a, dst: a, cols: COLS });
    assert_everywhere(&mut device, a, 1.0 / COLS as f32, "softmax");
    run(&mut device, kernels::Elementwise::Fill { dst: row, value: 1.5 });
    run(&mut device, kernels::Elementwise::Add { a: b, b: row, dst: a });
    assert_everywhere(&mut device, a, 1.75, "add a repeated row");
    run(&mut device, kernels::Elementwise::Cast { src: b, dst: a });
    assert_everywhere(&mut device, a, 0.25, "cast");
    run(&mut device, kernels::Elementwise::Fill { dst: a, value: 0.0 });
    let (shape, strides) = ([1, ROWS, 2, COLS / 2], [LEN, COLS, COLS / 2, 1]);
    let (src, dst, dst_strides) = (b.address, a.address, [LEN, COLS / 2, LEN / 2, 1]);
    run(&mut device, kernels::Strided::Copy { src, dst, dtype: DType::F16, shape, src_strides: strides, dst_strides });
    assert_everywhere(&mut device, a, 0.25, "copy_strided");
    source.free(sums, Bytes::mib(2));
    for segment in segments {
        source.free(segment, size);
    }
}

type Allocator = CachingAllocator<Box<dyn SegmentSource>, ()>;

fn allocator(device: &mut CudaDevice, settings: &str) -> Allocator {
    CachingAllocator::new(device.segments(), Settings::parse(settings).unwrap(), ())
}

/// Fills every block with its own number, and checks it from the first byte to the last.
fn blocks_keep_what_was_written(device: &mut CudaDevice, settings: &str) {
    let mut allocator = allocator(device, settings);
    let mut held: Vec<(Allocation, f32)> = Vec::new();
    for round in 0_u64..60 {
        let size = Bytes([512, 3000, 700 * 1024, 3 * MIB, 11 * MIB, 40 * MIB][(round * 7 % 6) as usize]);
        let block = allocator.malloc(size, StreamId::DEFAULT).unwrap();
        let value = round as f32;
        let len = usize::try_from(block.requested.get() / 4).unwrap();
        let dst = Operand { address: block.address, dtype: DType::F32, len };
        device.launch(&kernels::Elementwise::Fill { dst, value: f64::from(value) }.into(), StreamId::DEFAULT).unwrap();
        held.push((block, value));
        if round % 3 == 2 {
            let (block, value) = held.remove((round * 5 % held.len() as u64) as usize);
            assert_holds(device, block, value);
            allocator.free(block.address).unwrap();
        }
        if round == 30 {
            allocator.empty_cache();
        }
    }
    for (block, value) in held {
        assert_holds(device, block, value);
        allocator.free(block.address).unwrap();
    }
    allocator.empty_cache();
    assert_eq!(allocator.reserved(), Bytes::ZERO);
}

#[track_caller]
fn assert_holds(device: &mut CudaDevice, block: Allocation, value: f32) {
    let size = block.requested.get() / 4 * 4;
    for at in [0, size / 2 / 4 * 4, size - 4] {
        let mut bytes = [0; 4];
        device.read(block.address.offset(Bytes(at)), &mut bytes, StreamId::DEFAULT).unwrap();
        assert_eq!(f32::from_le_bytes(bytes), value, "byte {at} of {}", block.requested);
    }
}

#[test]
fn segments_are_allocated_and_given_back() {
    let Some((_turn, mut device)) = gpu() else { return };
    blocks_keep_what_was_written(&mut device, "");
}

#[test]
fn expandable_segments_are_mapped_and_unmapped() {
    let Some((_turn, mut device)) = gpu() else { return };
    blocks_keep_what_was_written(&mut device, "expandable_segments:True");
}

#[test]
fn memory_runs_out_at_the_limit_and_at_the_devices_end() {
    let Some((_turn, mut device)) = gpu() else { return };
    for settings in ["", "expandable_segments:True"] {
        let mut allocator = allocator(&mut device, settings);
        allocator.set_limit(Some(Bytes::mib(64)));
        let kept = allocator.malloc(Bytes::mib(30), StreamId::DEFAULT).unwrap();
        let refused = |result: Result<Allocation, AllocError>| match result {
            Err(AllocError::OutOfMemory(told)) => *told,
            other => panic!("{settings}: {other:?}"),
        };
        let told = refused(allocator.malloc(Bytes::mib(60), StreamId::DEFAULT));
        assert_eq!((told.limit, told.requested), (Some(Bytes::mib(64)), Bytes::mib(60)));
        allocator.free(kept.address).unwrap();
        let kept = allocator.malloc(Bytes::mib(60), StreamId::DEFAULT).unwrap();
        allocator.free(kept.address).unwrap();
        // The driver does not have so much memory: it says so, and goes on working.
        allocator.set_limit(None);
        let beyond = Bytes(device.info().memory.get() + (1 << 30));
        let told = refused(allocator.malloc(beyond, StreamId::DEFAULT));
        assert_eq!(told.requested, beyond);
        let after = allocator.malloc(Bytes::mib(4), StreamId::DEFAULT).unwrap();
        assert_ne!(after.address, Address(0));
        allocator.free(after.address).unwrap();
        allocator.empty_cache();
    }
}

fn losses(workload: &str, variant: &str, steps: usize) -> Vec<f32> {
    let device = CudaDevice::open(0).unwrap();
    let (compute_capability, multiprocessors) = device.capability();
    let multiprocessors = usize::try_from(multiprocessors).unwrap();
    let libraries = Libraries { compute_capability, multiprocessors, workspaces: true };
    let (model, config) = configured(workload, variant);
    let (mut trainer, _) = training::on(Box::new(device), model, config, libraries, LoopStyle::Accumulating);
    (0..steps).map(|_| trainer.step().unwrap().loss.unwrap()).collect()
}

fn configured(workload: &str, variant: &str) -> (Box<dyn vramlab::train::Workload>, Config) {
    let (model, batch) = training::workload(workload);
    (model, training::variant(variant, batch))
}

#[test]
fn training_lowers_the_loss_as_on_the_processor_and_twice_alike() {
    const STEPS: usize = 12;
    let Some((_turn, device)) = gpu() else { return };
    drop(device);
    for (workload, variant, tolerance) in [
        ("gpt-mini", "base", 1e-3),
        ("gpt-mini", "bf16", 2e-2),
        ("gpt-mini", "all", 2e-2),
        ("gpt-odd", "base", 1e-3),
        ("bert-mini", "base", 1e-3),
        ("vit-mini", "base", 1e-3),
        ("mlp-mini", "sgd", 1e-3),
        ("resnet-mini", "base", 3e-2),
        ("dcgan-mini", "base", 3e-2),
    ] {
        let first = losses(workload, variant, STEPS);
        assert_eq!(first, losses(workload, variant, STEPS), "{workload} {variant}: two runs differ");
        if !matches!(workload, "dcgan-mini" | "resnet-mini") {
            assert!(
                first[STEPS - 4..].iter().sum::<f32>() < first[..4].iter().sum(),
                "{workload} {variant}: {first:?}"
            );
        }
        let (model, config) = configured(workload, variant);
        let (mut trainer, _) = training::trainer(model, config, Libraries::PROCESSOR);
        for (step, &loss) in first.iter().enumerate().take(4) {
            let expected = trainer.step().unwrap().loss.unwrap();
            let near = ((loss - expected) / expected).abs() <= tolerance;
            assert!(near, "{workload} {variant}, step {step}: {loss}, on the processor {expected}");
        }
    }
}

/// An observer that ignores everything.
struct Deaf;

impl Observer for Deaf {
    fn event(&mut self, _: Event) {}
}

/// The losses of two ranks, by rank; each runs on a GPU and a thread of its own. Rank 1 leaves before step `leaves`, as
/// a failed rank would.
fn losses_of_ranks(way: Parallelism, leaves: usize) -> Vec<Vec<f32>> {
    let train = |rank: usize, seat: Arc<Seat>| {
        let (model, batch) = training::workload("gpt-mini");
        let member = Member { parallelism: way, world: World::new(2, rank).unwrap() };
        let device = CudaDevice::open(u32::try_from(rank).unwrap()).unwrap();
        let (compute_capability, multiprocessors) = device.capability();
        let multiprocessors = usize::try_from(multiprocessors).unwrap();
        let workspaces = Libraries { compute_capability, multiprocessors, workspaces: true };
        let options = TrainerOptions {
            member: Some(member),
            seat: Some(Arc::clone(&seat)),
            workspaces,
            ..TrainerOptions::default()
        };
        let config = Config::new(member.samples(batch).unwrap());
        let mut trainer = Trainer::new(Box::new(device), model, config, options, Box::new(Deaf)).unwrap();
        let mut losses = Vec::new();
        for step in 0..6 {
            if rank == 1 && step == leaves {
                seat.fail();
                return losses;
            }
            match trainer.step() {
                Ok(report) => losses.extend(report.loss),
                Err(_) if seat.failed().is_some() => return losses,
                Err(error) => panic!("{way} rank {rank}: {error}"),
            }
        }
        trainer.memory().synchronize();
        seat.meet();
        losses
    };
    std::thread::scope(|scope| {
        let ranks = Seat::for_all(2).into_iter().enumerate();
        let ranks: Vec<_> = ranks.map(|(rank, seat)| scope.spawn(move || train(rank, seat))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Whether there are two GPUs and NCCL; says so if not.
fn two_gpus() -> bool {
    let why = cuda::usable(1).and_then(|()| cuda::prepare_ranks());
    why.map_err(|why| skipped(&format!("no two GPUs ({why})"))).is_ok()
}

#[test]
fn ranks_learn_as_pytorchs_do() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !two_gpus() {
        return;
    }
    for way in Parallelism::ALL {
        let ours = losses_of_ranks(way, usize::MAX);
        let rows = include_str!("data/pytorch-ranks-rows.jsonl").lines();
        let rows = rows.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        for row in rows.filter(|row| row["mode"] == way.word() && row["workload"] == "gpt-mini") {
            let rank = usize::try_from(row["rank"].as_u64().unwrap()).unwrap();
            let theirs = row["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap());
            for (step, (ours, theirs)) in ours[rank].iter().zip(theirs).enumerate() {
                let near = (f64::from(*ours) - theirs).abs() <= 1e-4 * theirs.abs();
                assert!(near, "{way} rank {rank}, step {step}: {ours}, PyTorch {theirs}");
            }
        }
        assert_eq!(ours[1].len(), 6, "{way}");
    }
}

#[test]
fn a_rank_that_fails_leaves_no_other_waiting() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !two_gpus() {
        return;
    }
    for way in [Parallelism::Ddp, Parallelism::Fsdp, Parallelism::Tensor] {
        let losses = losses_of_ranks(way, 2);
        assert!(losses[0].len() <= 3 && losses[1].len() == 2, "{way}: {losses:?}");
    }
}
