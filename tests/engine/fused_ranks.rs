//! Fused ops on several devices: ranks learn what they learn with the chains that those replace, in less memory, and
//! exchange the same bytes.

use std::cell::RefCell;
use std::rc::Rc;

use vramlab::model::{Category, Event, EventKind};
use vramlab::train::{
    Amp, Checkpointing, Config, LoopStyle, OptimizerForm, OptimizerKind, Parallelism, PipelineSchedule, Workload,
};
use vramlab::workload::{Catalog, Data, Extent, Repeats, Sizes};

use crate::ranks::of_model;
use crate::ranks_learn::losses_of_model;

/// A model of the catalog with four blocks, so that four stages have one each.
fn of_four_blocks(name: &'static str) -> Box<dyn Workload> {
    let entry = Catalog::with_user_workloads(None).entry(name).unwrap();
    entry.workload(Sizes { layers: Some(Repeats::nearest(4)), ..Sizes::default() }, Data::Reference, 1).unwrap()
}

/// Each rank's losses of six steps are as near to those of eager ranks as one device's are
/// ("fused_training_loses_what_eager_training_does").
fn fused_learns_as_eager(
    name: &str,
    model: impl Fn() -> Box<dyn Workload> + Copy + Send + 'static,
    way: Parallelism,
    ranks: usize,
    config: Config,
) {
    let eager = losses_of_model(model, way, ranks, config);
    let fused = losses_of_model(model, way, ranks, Config { fuse: true, ..config });
    assert!(eager.concat().len() >= 6, "{name} {way} of {ranks}: {eager:?}");
    for (rank, (eager, fused)) in eager.iter().zip(&fused).enumerate() {
        assert_eq!(eager.len(), fused.len());
        for (step, (eager, fused)) in eager.iter().zip(fused).enumerate() {
            let near = (eager - fused).abs() <= 1e-5 * eager.abs();
            assert!(near, "{name} {way}: step {step} of rank {rank} of {ranks} has {fused} for {eager}");
        }
    }
}

#[test]
fn fused_ranks_learn_as_eager_ones_do() {
    for way in Parallelism::ALL {
        for ranks in [2, 4] {
            let config = Config::new(8);
            fused_learns_as_eager("gpt-mini", || of_four_blocks("gpt-mini"), way, ranks, config);
            // Two heads of keys can't be split over four ranks.
            if way != Parallelism::Tensor || ranks == 2 {
                fused_learns_as_eager("llama-mini", || of_four_blocks("llama-mini"), way, ranks, config);
            }
        }
    }
}

/// What `--fuse` selects on a command line, blocks that run again, several micro-batches.
#[test]
fn fused_ranks_learn_as_eager_ones_do_under_other_switches() {
    let plain = Config::new(8);
    for way in [
        Parallelism::DdpView,
        Parallelism::Zero1,
        Parallelism::Zero2,
        Parallelism::Fsdp,
        Parallelism::Tensor,
        Parallelism::Pipeline(PipelineSchedule::OneForwardOneBackward),
        Parallelism::Server,
    ] {
        for config in [
            Config { form: OptimizerForm::Fused, ..plain },
            Config { form: OptimizerForm::Loop, checkpointing: Checkpointing::ALL, ..plain },
            Config { accumulation: 4, ..plain },
        ] {
            fused_learns_as_eager("gpt-mini", || of_four_blocks("gpt-mini"), way, 2, config);
        }
    }
}

/// Models without blocks, whose weights have another layout in fused convolutions, and norms after sums. Batch norm
/// over few elements amplifies rounding, so only its first losses are compared.
#[test]
fn fused_ranks_of_other_models_learn_as_eager_ones_do() {
    let config = Config { optimizer: OptimizerKind::Momentum, ..Config::new(8) };
    for (name, ways) in [
        ("bert-mini", &[Parallelism::Ddp, Parallelism::Fsdp, Parallelism::Tensor][..]),
        ("vit-mini", &[Parallelism::DdpView, Parallelism::Zero2, Parallelism::Tensor]),
        ("mlp-mini", &[Parallelism::DdpView, Parallelism::Zero1, Parallelism::Server]),
    ] {
        for &way in ways {
            fused_learns_as_eager(name, move || crate::training::workload(name).0, way, 2, config);
        }
    }
    for way in [Parallelism::Ddp, Parallelism::DdpView, Parallelism::Server] {
        let learnt = |fuse| {
            losses_of_model(|| crate::training::workload("resnet-mini").0, way, 2, Config { fuse, ..config }).concat()
        };
        let (eager, fused) = (learnt(false), learnt(true));
        for step in [0, 1, 6, 7] {
            let (eager, fused) = (eager[step], fused[step]);
            assert!((eager - fused).abs() <= 1e-4 * eager, "resnet-mini {way}: {fused} for {eager} at {step}");
        }
    }
}

/// Parts of decoders of transformers: sums of experts, and norms after projections.
#[test]
fn fused_parts_of_decoders_learn_as_eager_ones_do() {
    let config = Config { optimizer: OptimizerKind::Momentum, ..Config::new(4) };
    for name in [
        "llama-mini.base",
        "qwen3-mini.base",
        "olmo2-mini.base",
        "phi3-mini.base",
        "mixtral-mini.base",
        "neox-mini.base",
        "qwen2moe-mini.base",
    ] {
        fused_learns_as_eager(name, move || crate::families::workload(name), Parallelism::Tensor, 2, config);
    }
}

/// The peak of a rank, and the bytes that it requested because ranks share work: three steps on a simulated card.
fn peak_and_shared(model: Box<dyn Workload>, way: Parallelism, rank: usize, config: Config) -> [i64; 2] {
    let events: Rc<RefCell<Vec<Event>>> = Rc::default();
    let mut trainer = of_model(model, LoopStyle::Logging, way, [rank, 2], config, Box::new(Rc::clone(&events)));
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    let shared: u64 = events
        .borrow()
        .iter()
        .map(|event| match event.kind {
            EventKind::Alloc { requested, category: Category::Communication, .. } => requested.get(),
            _ => 0,
        })
        .sum();
    [trainer.statistics().allocated_bytes.all.peak, i64::try_from(shared).unwrap()]
}

/// Logits of a head that is split unevenly lie side by side, without the room that one device leaves between rows.
#[test]
fn fused_parts_of_an_odd_head_are_gathered() {
    let entry = Catalog::with_user_workloads(None).entry("llama-mini").unwrap();
    let sizes = Sizes { vocab: Some(Extent::nearest(300)), ..Sizes::default() };
    let model = || entry.clone().workload(sizes, Data::Reference, 1).unwrap();
    let of = |fuse| peak_and_shared(model(), Parallelism::Tensor, 0, Config { amp: Amp::Bf16, fuse, ..Config::new(4) });
    let ([peak, _], [fused_peak, _]) = (of(false), of(true));
    assert!(fused_peak <= peak, "{fused_peak} bytes are more than {peak}");
}

/// Buckets, gathered parameters and what stages receive are those of eager ranks, also in 16 bits, where ops pass
/// 16-bit copies on.
#[test]
fn fused_ranks_share_what_eager_ones_do_and_need_no_more() {
    for name in ["gpt-mini", "llama-mini", "bert-mini"] {
        for way in Parallelism::ALL {
            if matches!(way, Parallelism::Pipeline(_)) && name == "bert-mini" {
                continue;
            }
            for amp in [Amp::Off, Amp::Bf16] {
                for rank in [0, 1] {
                    let config = Config { amp, ..Config::new(8) };
                    let of = |config| peak_and_shared(crate::training::workload(name).0, way, rank, config);
                    let ([peak, shared], [fused_peak, fused_shared]) =
                        (of(config), of(Config { fuse: true, ..config }));
                    let run = format!("{name} {way} {amp:?} rank {rank}");
                    // The gradient of an MLP's first matrix comes out of its product in f32; with several micro-batches
                    // it does so while the activations are alive.
                    let wider = if amp == Amp::Bf16 { 32 * 128 * 2 } else { 0 };
                    assert!(fused_peak <= peak + wider, "{run}: {fused_peak} bytes are more than {peak}");
                    // Sums of parts are made where the parts are.
                    let same = if way == Parallelism::Tensor { fused_shared <= shared } else { fused_shared == shared };
                    assert!(same, "{run}: {fused_shared} bytes are shared for {shared}");
                }
            }
        }
    }
}
