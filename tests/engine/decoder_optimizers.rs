//! Optimizers of decoders whose state is not AdamW's on the device: paged moments and Muon, compared with PyTorch's and with AdamW.

use std::collections::BTreeMap;

use vramlab::device::DType;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::sim::SimDevice;
use vramlab::model::{Event, EventKind};
use vramlab::train::{Libraries, LoopStyle, Member, Parallelism, Tensor, Trainer, TrainerOptions, World};
use vramlab::units::Bytes;

use crate::families::workload;
use crate::llama::configured;

/// Moments of large parameters in unified memory: the arithmetic is the same, and the allocator has less by their size.
#[test]
fn paged_moments_are_beside_the_allocator() {
    let device = || Box::new(CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap());
    let trainer = |variant: &str| {
        let workload = workload(&format!("llama-paged.{variant}"));
        let (config, style) = (configured(variant, 4), LoopStyle::Logging);
        crate::training::on(device(), workload, config, Libraries::PROCESSOR, style)
    };
    let ((mut plain, _), (mut paged, events)) = (trainer("baseadam8"), trainer("basepagedadam8"));
    for _ in 0..4 {
        assert_eq!(plain.step().unwrap().loss, paged.step().unwrap().loss);
    }
    // Both tables and the three matrices of both MLPs have 131,072 elements, and each moment has as many bytes.
    let moments = Bytes(8 * 2 * 131_072);
    let allocated = |trainer: &Trainer| trainer.statistics().allocated_bytes.all.current;
    assert_eq!(allocated(&plain) - allocated(&paged), i64::try_from(moments.get()).unwrap());
    assert_eq!((plain.memory().managed(), paged.memory().managed()), (Bytes::ZERO, moments));
    let host = |events: &[Event]| {
        let told = events.iter().filter_map(|event| match event.kind {
            EventKind::HostMemory { allocated, .. } => Some(allocated),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(host(&events.borrow()), [moments]);
    let notes =
        |event: &&Event| matches!(&event.kind, EventKind::Note { text } if text.starts_with("2.00 MiB of optimizer"));
    assert_eq!(events.borrow().iter().filter(notes).count(), 1);
    // Another optimizer drops them.
    paged.configure(configured("baseadam8", 4)).unwrap();
    assert_eq!(paged.memory().managed(), Bytes::ZERO);
    paged.step().unwrap();
}

/// The same with moments in f32: each step is that of `AdamW`, except for the order of rounding.
#[test]
fn paged_moments_in_f32_learn_as_adamw_does() {
    let losses = |variant: &str| {
        let device = Box::new(CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap());
        let workload = workload(&format!("llama-paged.{variant}"));
        let mut config = configured(variant, 4);
        config.hyper.adam_lr = 1e-3;
        let (mut trainer, _) = crate::training::on(device, workload, config, Libraries::PROCESSOR, LoopStyle::Logging);
        let losses: Vec<f32> = (0..6).map(|_| trainer.step().unwrap().loss.unwrap()).collect();
        (losses, trainer.memory().managed())
    };
    let ((plain, none), (paged, managed)) = (losses("base"), losses("basepagedadam32"));
    for (plain, paged) in plain.iter().zip(&paged) {
        assert!((plain - paged).abs() < 1e-4, "{paged} for {plain}");
    }
    // The fifth step has the same batch as the first.
    assert!(plain[4] < plain[0] - 0.1, "{plain:?}");
    assert_eq!((none, managed), (Bytes::ZERO, Bytes(8 * 8 * 131_072)));
}

/// The results of six steps of PyTorch: losses, and the weights afterwards.
#[derive(serde::Deserialize)]
struct Learned {
    losses: [f64; 6],
    weights: BTreeMap<String, Vec<f64>>,
}

/// Six steps of `torch.optim.Muon` of PyTorch 2.11 on the processor, together with AdamW, of weights in f32 and in
/// bf16. Iterations in bf16 round each product, so the differences are compared with how far the steps went.
#[test]
fn muon_learns_as_that_of_pytorch() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/optimizers/muon.json.xz");
    let file = lzma_rust2::XzReader::new(std::fs::File::open(path).unwrap(), false);
    let all: BTreeMap<String, Learned> = serde_json::from_reader(file).unwrap();
    for (name, theirs) in all {
        let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap();
        let config = configured(name.split_once('.').unwrap().1, 4);
        let (mut trainer, _) =
            crate::training::on(Box::new(device), workload(&name), config, Libraries::PROCESSOR, LoopStyle::Logging);
        let weights = |trainer: &Trainer| -> BTreeMap<String, Vec<f64>> {
            let read = |tensor: &Tensor| {
                let mut bytes = vec![0; usize::try_from(tensor.bytes().get()).unwrap()];
                trainer.memory().read(tensor, &mut bytes).unwrap();
                let f32s = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
                let bf16s = |bytes: &[u8]| f64::from(f32::from_le_bytes([0, 0, bytes[0], bytes[1]]));
                match tensor.dtype() {
                    DType::F32 => bytes.chunks_exact(4).map(f32s).collect(),
                    _ => bytes.chunks_exact(2).map(bf16s).collect(),
                }
            };
            trainer.parameters().map(|(name, tensor)| (name.to_owned(), read(tensor))).collect()
        };
        let before = weights(&trainer);
        for theirs in theirs.losses {
            let ours = f64::from(trainer.step().unwrap().loss.unwrap());
            let most = if name.contains("bf16") { 2e-3 } else { 1e-4 };
            assert!((ours - theirs).abs() < most, "{name}: a loss of {ours} for {theirs}");
        }
        let after = weights(&trainer);
        for (parameter, theirs) in &theirs.weights {
            let length = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            let (off, way) = (length(&after[parameter], theirs), length(&before[parameter], theirs));
            // Differences of gradients in bf16 grow in an iteration that stretches small singular values.
            let most = if name.contains("bf16") { 0.1 } else { 0.01 };
            assert!(off <= most * way, "{name}: {parameter} is {:.2} % of its way off", 100.0 * off / way);
        }
    }
}

/// Two optimizers that are one switch: settings that don't fit it are refused with a sentence.
#[test]
fn muon_is_refused_where_it_is_not_there() {
    let trainer = |variant: &str, parallelism: Option<Parallelism>| {
        let member = parallelism.map(|parallelism| Member { parallelism, world: World::new(2, 0).unwrap() });
        let options = TrainerOptions { member, ..TrainerOptions::default() };
        let (device, config) = (Box::new(SimDevice::h200().unwrap()), configured(variant, 2));
        let made = Trainer::new(device, workload("llama-mini.base"), config, options, Box::new(()));
        made.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(
        trainer("baseampfp16muon", None).unwrap_err(),
        "gradients of two optimizers are not unscaled here; use --amp bf16, or --opt adamw"
    );
    for parallelism in [Parallelism::Fsdp, Parallelism::Tensor] {
        assert_eq!(
            trainer("basemuon", Some(parallelism)).unwrap_err(),
            format!(
                "matrices that Muon makes orthogonal are not shared among ranks by {parallelism}; use --opt adamw, or ddp"
            )
        );
    }
    trainer("basemuon", Some(Parallelism::Ddp)).unwrap();
    trainer("basemuon", Some(Parallelism::Zero1)).unwrap();
    trainer("basemuon", None).unwrap();
}

/// Ranks that shard their state have none in unified memory.
#[test]
fn paged_moments_are_not_sharded() {
    let trainer = |parallelism| {
        let member = Member { parallelism, world: World::new(2, 0).unwrap() };
        let options = TrainerOptions { member: Some(member), ..TrainerOptions::default() };
        let (device, config) = (Box::new(SimDevice::h200().unwrap()), configured("basepagedadam32", 2));
        Trainer::new(device, workload("llama-paged.basepagedadam32"), config, options, Box::new(()))
    };
    let words = "state in unified memory is not shared among ranks by fsdp; use --opt adamw, or ddp";
    assert_eq!(trainer(Parallelism::Fsdp).err().unwrap().to_string(), words);
    trainer(Parallelism::Ddp).unwrap().step().unwrap();
}
