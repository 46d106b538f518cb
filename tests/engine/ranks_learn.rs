//! What ranks compute: their losses compared with PyTorch's and with those of one device; and what is refused because
//! it can't be shared.

use serde_json::Value;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::sim::SimDevice;
use vramlab::model::Event;
use vramlab::train::{
    Amp, Checkpointing, Config, DataPath, Float8Recipe, Libraries, LoopStyle, LossHead, Member, Observer, Offload,
    OptimizerKind, Parallelism, PipelineSchedule, Seat, Trainer, TrainerOptions, Workload, World,
};
use vramlab::units::{Bytes, MIB};

use crate::ranks::{of_model, of_world};

/// The losses of ranks that compute, by rank; each runs on a thread of its own.
fn losses(way: Parallelism, size: usize, batch: usize) -> Vec<Vec<f32>> {
    losses_of(way, size, Config::new(batch))
}

/// The same with a configuration, whose batch is that of all ranks.
fn losses_of(way: Parallelism, size: usize, config: Config) -> Vec<Vec<f32>> {
    losses_of_model(|| crate::training::workload("gpt-mini").0, way, size, config)
}

pub fn losses_of_model(
    model: impl Fn() -> Box<dyn Workload> + Copy + Send + 'static,
    way: Parallelism,
    size: usize,
    config: Config,
) -> Vec<Vec<f32>> {
    let ranks: Vec<_> = Seat::for_all(size)
        .into_iter()
        .enumerate()
        .map(|(rank, seat)| {
            std::thread::spawn(move || {
                let model = model();
                let member = Member { parallelism: way, world: World::new(size, rank).unwrap() };
                let options = TrainerOptions { member: Some(member), seat: Some(seat), ..TrainerOptions::default() };
                let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::mib(256)), threads: Some(1) }).unwrap();
                let config = Config { batch: member.samples(config.batch).unwrap(), ..config };
                let mut trainer = Trainer::new(Box::new(device), model, config, options, Box::new(Deaf)).unwrap();
                (0..6).filter_map(|_| trainer.step().unwrap().loss).collect()
            })
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

/// Weights in 16 bits: gradients are averaged in their own type. Each rank's losses are those of f32 to that precision,
/// and the same whether whole gradients are averaged or shards.
#[test]
fn ranks_in_16_bits_learn_as_in_32() {
    let config = Config { optimizer: OptimizerKind::Momentum, ..Config::new(4) };
    let learnt = |name: &'static str, way| losses_of_model(move || crate::families::workload(name), way, 2, config);
    let wide = learnt("llama-mini.base", Parallelism::Ddp);
    for name in ["llama-mini.bf16w", "llama-mini.fp16w"] {
        let whole = learnt(name, Parallelism::Ddp);
        let are_near = |ours: &[Vec<f32>], theirs: &[Vec<f32>], most: f32, what: &str| {
            for (ours, theirs) in ours.iter().flatten().zip(theirs.iter().flatten()) {
                assert!((ours - theirs).abs() < most, "{name}, {what}: {ours} for {theirs}");
            }
        };
        are_near(&whole, &wide, 5e-3, "whole gradients");
        // DDP halves gradients before it adds them.
        for way in [Parallelism::Fsdp, Parallelism::Zero2] {
            are_near(&learnt(name, way), &whole, 2e-5, way.word());
        }
    }
}

/// Adapters in f32 beside weights in 16 bits, and beside weights in 4 bits: ranks that gather these as bytes learn the
/// same as ranks that have them whole.
#[test]
fn ranks_gather_parameters_of_several_types_as_bytes() {
    let config = Config { optimizer: OptimizerKind::Momentum, ..Config::new(4) };
    for (name, most) in
        [("llama-mini.bf16wlora", 2e-5), ("llama-mini.loraallnf4f32", 1e-5), ("qwen2-mini.loraalldoublef32", 1e-5)]
    {
        let ddp = losses_of_model(move || crate::families::workload(name), Parallelism::Ddp, 2, config);
        assert!((ddp[0][0] - ddp[0][5]).abs() > 1e-3, "{name}: {ddp:?}");
        for way in [Parallelism::Fsdp, Parallelism::Zero2] {
            let ours = losses_of_model(move || crate::families::workload(name), way, 2, config);
            for (ours, theirs) in ours.iter().flatten().zip(ddp.iter().flatten()) {
                assert!((ours - theirs).abs() < most, "{name} {way}: {ours} for {theirs}");
            }
            assert_eq!(ours.concat().len(), 12);
        }
    }
}

/// Weights in 4 bits are gathered as they are stored; a cast would change them. Their storage type must be the type of
/// the other weights.
#[test]
fn weights_in_4_bits_are_sharded_in_the_type_of_the_others() {
    let mixed = Config { amp: Amp::Bf16, ..Config::new(4) };
    assert_eq!(
        refused("llama-mini.loranf4", Parallelism::Fsdp, 2, mixed),
        "fsdp would cast the bytes of weights in 4 bits; give --weights bf16 with --amp bf16, or leave --amp out"
    );
    assert_eq!(
        refused("llama-mini.bf16wloranf4u8", Parallelism::Zero2, 2, Config::new(4)),
        "weights in 4 bits are sharded as what the others are, and bnb_4bit_quant_storage is uint8 here; make it bfloat16"
    );
    assert_eq!(
        refused("qwen2-mini.loranf4", Parallelism::Fsdp, 2, Config::new(4)),
        "biases of layers in 4 bits are sharded in the type of their products alone, which is bfloat16, and weights are float32; change one of them"
    );
}

/// Gradients of a unit are reduced in one type.
#[test]
fn routers_in_f32_are_not_sharded_beside_weights_in_16_bits() {
    for way in [Parallelism::Fsdp, Parallelism::Zero2] {
        assert_eq!(
            refused("ernie45moe-mini.bf16w", way, 2, Config::new(4)),
            "gradients of weights in bfloat16 are not sharded beside those of routers in float32; use --weights fp32 or ddp"
        );
    }
}

/// Six losses of a whole decoder on the processor.
fn losses_alone(name: &str, config: Config) -> Vec<f32> {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(1) }).unwrap();
    let whole = crate::families::workload(name);
    let (mut alone, _) = crate::training::on(Box::new(device), whole, config, Libraries::PROCESSOR, LoopStyle::Logging);
    (0..6).filter_map(|_| alone.step().unwrap().loss).collect()
}

/// Two stages of a decoder learn what the whole model learns, with their batch in micro-batches. A table that is also
/// the head's weight exists twice, and each copy is trained by its own gradient alone.
#[test]
fn stages_of_decoders_learn_as_the_whole_does() {
    let minis = ["llama-mini.base", "olmo3-mini.base", "mixtral-mini.base", "gemma3-mini.base"];
    let fused = |name| (name, LossHead::Fused);
    let plain = minis.into_iter().chain(["gpt2-mini.base", "llama-mini.loraall", "llama-mini.loraallnf4f32"]);
    for (name, loss_head) in
        plain.map(|name| (name, LossHead::Labels)).chain(["llama-mini.base", "gpt2-mini.base"].map(fused))
    {
        let config = Config { optimizer: OptimizerKind::Momentum, loss_head, ..Config::new(4) };
        let alone = losses_alone(name, config);
        for schedule in [PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward] {
            let way = Parallelism::Pipeline(schedule);
            let ours = losses_of_model(move || crate::families::workload(name), way, 2, config);
            assert!(ours[0].is_empty(), "{name}");
            let off = |steps: std::ops::Range<usize>| {
                let pairs = ours[1][steps.clone()].iter().zip(&alone[steps]);
                pairs.map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max)
            };
            let gpt2 = name.starts_with("gpt2");
            let tied = name.starts_with("gemma3") || gpt2;
            assert!(off(0..if tied { 1 } else { 6 }) < 1e-5, "{name} {way}: {:?} for {alone:?}", ours[1]);
            assert!(!tied || off(1..6) > if gpt2 { 3e-5 } else { 3e-4 }, "{name} {way}: {:?} for {alone:?}", ours[1]);
        }
    }
}

/// Another batch is another program, whose stages pass on other tensors. A batch whose rows are longer than those of
/// the first is an error, as in PyTorch.
#[test]
fn stages_pass_on_what_another_batch_needs_but_rows_of_one_length() {
    let way = Parallelism::Pipeline(PipelineSchedule::OneForwardOneBackward);
    for rank in [0, 1] {
        let trained = |batches: &[usize]| {
            let mut trainer = of_world("gpt-mini", way, [rank, 2], Config::new(batches[0]), Box::new(Deaf));
            for batch in batches {
                trainer.configure(Config::new(*batch)).unwrap();
                trainer.step().unwrap();
            }
            trainer.statistics().allocated_bytes.all
        };
        let (grown, large) = (trained(&[4, 32]), trained(&[32, 32]));
        assert_eq!((grown.current, grown.peak), (large.current, large.peak), "rank {rank}");
        let rows = crate::padding::rows_of("llama-mini", &[17, 17, 17, 17, 64, 64, 64, 64]);
        let config = Config { data: DataPath::Streamed, ..Config::new(4) };
        let mut trainer = of_model(rows, LoopStyle::Logging, way, [rank, 2], config, Box::new(Deaf));
        trainer.step().unwrap();
        let error = trainer.step().unwrap_err().to_string();
        assert!(error.contains("rows of the length alone that it found"), "{error}");
    }
}

/// Optimizers that work on whole matrices, or on blocks of them, step the matrices of a stage, and all matrices of a
/// server, as they would on one device.
#[test]
fn optimizers_of_whole_parameters_learn_the_same() {
    for optimizer in
        [OptimizerKind::AdamW8bit, OptimizerKind::PagedLion8bit, OptimizerKind::PagedAdamW, OptimizerKind::Muon]
    {
        let config = Config { optimizer, ..Config::new(4) };
        let alone = losses_alone("llama-mini.base", config);
        let way = Parallelism::Pipeline(PipelineSchedule::OneForwardOneBackward);
        let stages = losses_of_model(|| crate::families::workload("llama-mini.base"), way, 2, config);
        for (ours, theirs) in stages[1].iter().zip(&alone) {
            assert!((ours - theirs).abs() < 1e-4, "{optimizer:?}: {:?} for {alone:?}", stages[1]);
        }
        let ddp = losses_of(Parallelism::Ddp, 2, config);
        for way in [Parallelism::Server, Parallelism::Zero1] {
            let ranks = losses_of(way, 2, config);
            for (ours, theirs) in ranks.iter().flatten().zip(ddp.iter().flatten()) {
                assert!((ours - theirs).abs() < 1e-4, "{way} {optimizer:?}: {ranks:?} for {ddp:?}");
            }
        }
    }
}

/// Gradients are clipped by the norm of all of them, wherever they are; a clipped step differs from an unclipped one.
#[test]
fn gradients_are_clipped_by_the_norm_of_all_ranks() {
    let mut config = Config { optimizer: OptimizerKind::Momentum, ..Config::new(4) };
    let free = losses_of(Parallelism::Ddp, 2, config);
    config.hyper.clip = Some(0.05);
    let ddp = losses_of(Parallelism::Ddp, 2, config);
    let apart = |ours: &[Vec<f32>], theirs: &[Vec<f32>]| {
        let pairs = ours.iter().flatten().zip(theirs.iter().flatten());
        pairs.map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max)
    };
    assert!(apart(&free, &ddp) > 1e-3, "{free:?} {ddp:?}");
    for way in [Parallelism::Fsdp, Parallelism::Zero2] {
        let ours = losses_of(way, 2, config);
        assert!(apart(&ours, &ddp) < 1e-5, "{way}: {ours:?} for {ddp:?}");
    }
    for name in ["llama-mini.base", "llama-mini.bf16w"] {
        let alone = [losses_alone(name, config)];
        let way = Parallelism::Pipeline(PipelineSchedule::GPipe);
        let stages = losses_of_model(move || crate::families::workload(name), way, 2, config);
        let most = if name.ends_with("bf16w") { 0.02 } else { 1e-5 };
        assert!(apart(&stages[1..], &alone) < most, "{name}: {stages:?} for {alone:?}");
    }
}

/// Ranks that have a part of each layer learn what one device learns; they share its heads of keys and its biases.
#[test]
fn parts_of_decoders_learn_as_the_whole_does() {
    for name in [
        "llama-mini.base",
        "qwen2-mini.base",
        "olmo1-mini.base",
        "qwen3-mini.base",
        "olmo2-mini.base",
        "glm-mini.base",
        "phi3-mini.base",
        "mixtral-mini.base",
        "qwen3moe-mini.base",
        "qwen2moe-mini.base",
        "llama-biased.base",
        "neox-mini.base",
        "neox-serial.base",
        "phi-mini.base",
    ] {
        let config = Config { optimizer: OptimizerKind::Momentum, ..Config::new(4) };
        let alone = losses_alone(name, config);
        assert!((alone[0] - alone[5]).abs() > 1e-3, "{name}: {alone:?}");
        for ours in losses_of_model(move || crate::families::workload(name), Parallelism::Tensor, 2, config) {
            for (ours, theirs) in ours.iter().zip(&alone) {
                assert!((ours - theirs).abs() < 1e-5, "{name}: {ours} for {theirs}");
            }
            assert_eq!(ours.len(), 6);
        }
    }
}

/// Why there is no rank of `size` for a model with this name.
fn refused(name: &str, way: Parallelism, size: usize, config: Config) -> String {
    let member = Member { parallelism: way, world: World::new(size, 0).unwrap() };
    let options = TrainerOptions { member: Some(member), ..TrainerOptions::default() };
    let (device, model) = (Box::new(SimDevice::h200().unwrap()), crate::families::workload(name));
    Trainer::new(device, model, config, options, Box::new(Deaf)).err().unwrap().to_string()
}

/// Models and programs that can't be split into parts.
#[test]
fn what_layers_are_not_split_of_is_said() {
    let of_llama = "tp does not split what this family has beside Llama's layers; use ddp or fsdp";
    for (name, size, words) in [
        ("cohere-norms.base", 2, of_llama),
        (
            "stablelm-mini.base",
            2,
            "transformers splits no layers of this family, whose tp_plan names none; use ddp or fsdp",
        ),
        (
            "llama-mini.lora",
            2,
            "peft makes adapters for whole layers, and those that transformers' tp splits fail beside them; use ddp or fsdp",
        ),
        ("llama-mini.base", 3, "4 attention heads can't be split over 3 ranks; take as many ranks as divide them"),
        ("llama-mini.base", 4, "2 heads of keys can't be split over 4 ranks; take as many ranks as divide them"),
    ] {
        assert_eq!(refused(name, Parallelism::Tensor, size, Config::new(4)), words, "{name}");
    }
    // A table that is also the head's weight, on a device that computes.
    let member = Member { parallelism: Parallelism::Tensor, world: World::new(2, 0).unwrap() };
    let seat = Seat::for_all(2).into_iter().next();
    let options = TrainerOptions { member: Some(member), seat, ..TrainerOptions::default() };
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::mib(256)), threads: Some(1) }).unwrap();
    let model = crate::families::workload("ernie45-mini.base");
    let error = Trainer::new(Box::new(device), model, Config::new(4), options, Box::new(Deaf)).err().unwrap();
    let words = "tp splits a table that is the head's weight too on simulated cards alone; use ddp or fsdp";
    assert_eq!(error.to_string(), words);
    // The second layer's window is shorter than its rows.
    let (model, way) = (crate::families::workload("ministral-mini.base"), Parallelism::Tensor);
    let mut trainer = of_model(model, LoopStyle::Logging, way, [0, 2], Config::new(4), Box::new(Deaf));
    assert_eq!(
        trainer.step().unwrap_err().to_string(),
        "tp does not repeat a single head of keys for all heads of a rank, as masks and eager attention want it; use fewer ranks"
    );
    let scaled = Config { amp: Amp::Fp16, ..Config::new(4) };
    assert_eq!(
        refused("llama-mini.base", Parallelism::Tensor, 2, scaled),
        "GradScaler fails with tp_plan: _amp_foreach_non_finite_check_and_unscale_ takes no mixed torch.Tensor and DTensor; use --amp \
         bf16, or ddp or fsdp"
    );
    let fused = Config { loss_head: LossHead::Fused, ..Config::new(4) };
    assert_eq!(
        refused("llama-mini.base", Parallelism::Tensor, 2, fused),
        "a fused loss has the whole head, of which each rank of tp has a part; leave --loss out"
    );
}

/// Models and programs that can't be split into stages.
#[test]
fn what_stages_are_not_made_of_is_said() {
    let refused = |name: &str, config: Config| {
        refused(name, Parallelism::Pipeline(PipelineSchedule::OneForwardOneBackward), 2, config)
    };
    let plain = Config::new(4);
    for (name, config, words) in [
        ("granite-mini.base", plain, "this model can't be cut into the stages of a pipeline here; use ddp or fsdp"),
        (
            "llama-mini.base",
            Config { use_cache: true, ..plain },
            "--use-cache is for one device; leave it out with --parallel",
        ),
        (
            "llama-mini.base",
            Config { checkpointing: "reentrant".parse().unwrap(), ..plain },
            "--ckpt reentrant is for one device; use --ckpt on with --parallel",
        ),
    ] {
        assert_eq!(refused(name, config), words);
    }
}

/// An observer that ignores everything.
struct Deaf;

impl Observer for Deaf {
    fn event(&mut self, _: Event) {}
}

fn are_close(run: &str, ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len(), "{run}");
    for (step, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert!((ours - theirs).abs() <= 1e-4 * theirs.abs(), "{run}: step {step} has {ours}, PyTorch {theirs}");
    }
}

/// Six steps of two ranks, in all measured ways, compared with the losses of two H200s.
#[test]
fn ranks_that_compute_learn_as_pytorchs_do() {
    for way in Parallelism::ALL {
        let ours = losses(way, 2, 4);
        let rows = include_str!("../data/pytorch-ranks-rows.jsonl").lines();
        let rows = rows.map(|line| serde_json::from_str::<Value>(line).unwrap());
        for row in rows.filter(|row| row["mode"] == way.word() && row["workload"] == "gpt-mini") {
            let rank = usize::try_from(row["rank"].as_u64().unwrap()).unwrap();
            // A stage that is not the last has no loss.
            if ours[rank].is_empty() {
                continue;
            }
            #[expect(clippy::cast_possible_truncation, reason = "losses are f32")]
            let theirs: Vec<f32> =
                row["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap() as f32).collect();
            are_close(&format!("{way} rank {rank}"), &ours[rank], &theirs);
        }
        assert!(!ours[1].is_empty());
    }
}

/// Four ranks that share a batch learn the same in every way; four that split layers learn what one device learns.
#[test]
fn four_ranks_learn_the_same_in_every_way() {
    let ddp = losses(Parallelism::Ddp, 4, 8);
    for way in [Parallelism::DdpView, Parallelism::Zero1, Parallelism::Zero2, Parallelism::Fsdp, Parallelism::Server] {
        for (rank, ours) in losses(way, 4, 8).iter().enumerate() {
            are_close(&format!("{way} rank {rank} of 4"), ours, &ddp[rank]);
        }
    }
    let (model, batch) = crate::training::workload("gpt-mini");
    let (mut alone, _) = crate::training::trainer(model, Config::new(batch), Libraries::PROCESSOR);
    let alone: Vec<f32> = (0..6).filter_map(|_| alone.step().unwrap().loss).collect();
    are_close("tp of 4", &losses(Parallelism::Tensor, 4, batch)[3], &alone);
}

/// Where tensors wait between their uses changes no loss of a rank, also with fused ops, and saves memory of its
/// device.
#[test]
fn ranks_that_offload_learn_the_same_in_less_memory() {
    for way in Parallelism::ALL {
        for fuse in [false, true] {
            let plain = Config { fuse, ..Config::new(4) };
            let kept = losses_of(way, 2, plain);
            for offload in [Offload::Activations, Offload::Overlapped, Offload::Optimizer] {
                assert_eq!(losses_of(way, 2, Config { offload, ..plain }), kept, "{way} {offload:?}, fused {fuse}");
            }
        }
        let peak = |offload| {
            let config = Config { offload, amp: Amp::Bf16, ..Config::new(16) };
            let mut trainer = of_world("gpt2", way, [1, 2], config, Box::new(Deaf));
            for _ in 0..2 {
                trainer.step().unwrap();
            }
            trainer.statistics().allocated_bytes.all.peak
        };
        let kept = peak(Offload::Off);
        for offload in [Offload::Activations, Offload::Overlapped, Offload::Optimizer] {
            let waits = peak(offload);
            // With a parameter server, only rank 0 has state.
            let less =
                if (way, offload) == (Parallelism::Server, Offload::Optimizer) { waits == kept } else { waits < kept };
            assert!(less, "{way} {offload:?}: {waits} bytes beside {kept}");
        }
    }
}

/// Shards on the host (`CPUOffloadPolicy`) are stepped there. Results are the same, and between steps devices have no
/// shards, gradients or state.
#[test]
fn shards_on_the_host_learn_the_same() {
    for way in [Parallelism::Fsdp, Parallelism::Zero2] {
        for optimizer in [OptimizerKind::AdamW, OptimizerKind::Momentum] {
            for (clip, accumulation) in [(None, 1), (Some(0.05), 1), (None, 2)] {
                let mut plain = Config { optimizer, accumulation, ..Config::new(4) };
                plain.hyper.clip = clip;
                let kept = losses_of(way, 2, plain);
                for pinned in [false, true] {
                    let parked = Config { offload: Offload::Parameters, pinned, ..plain };
                    assert_eq!(losses_of(way, 2, parked), kept, "{way} {optimizer:?} {clip:?} {accumulation}");
                }
            }
        }
        let between_steps = |offload| {
            let config = Config { offload, amp: Amp::Bf16, ..Config::new(16) };
            let mut trainer = of_world("gpt2", way, [1, 2], config, Box::new(Deaf));
            trainer.step().unwrap();
            trainer.statistics().allocated_bytes.all.current
        };
        let (kept, parked) = (between_steps(Offload::Off), between_steps(Offload::Parameters));
        // Shards and two moments of each, in f32: half of GPT-2's 124 million parameters.
        let shards = 3 * 4 * 124_439_808 / 2;
        assert!(kept - parked >= shards, "{way}: {kept} and {parked} bytes between steps");
        // The batches, and workspaces of two threads.
        assert!(parked < 66 * MIB.cast_signed(), "{way}: {parked} bytes between steps");
    }
}

/// The place of shards is given when a model is wrapped, as in PyTorch.
#[test]
fn shards_stay_where_they_were_wrapped() {
    let parked = Config { offload: Offload::Parameters, ..Config::new(4) };
    let mut trainer = of_world("gpt-mini", Parallelism::Fsdp, [0, 2], parked, Box::new(Deaf));
    trainer.step().unwrap();
    let config = Config { batch: 2, offload: Offload::Off, ..parked };
    let error = trainer.configure(config).unwrap_err().to_string();
    assert_eq!(error, "fsdp has its shards where it was told at the start; start again with --offload, or --pin");
    trainer.configure(Config { batch: 2, ..parked }).unwrap();
    trainer.step().unwrap();
}

/// Mixed precision on ranks that compute: under autocast they learn what one device learns under it. With FSDP2's
/// policy instead, they learn what 32 bits learn, to the precision of 16.
#[test]
fn ranks_in_mixed_precision_learn_as_one_device_does() {
    let apart = |ours: &[f32], theirs: &[f32]| {
        assert_eq!(ours.len(), theirs.len());
        ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max)
    };
    for amp in [Amp::Fp16, Amp::Bf16] {
        let config = Config { amp, optimizer: OptimizerKind::Momentum, ..Config::new(4) };
        let (model, _) = crate::training::workload("gpt-mini");
        let (mut alone, _) = crate::training::trainer(model, config, Libraries::PROCESSOR);
        let alone: Vec<f32> = (0..6).filter_map(|_| alone.step().unwrap().loss).collect();
        let ddp = losses_of(Parallelism::Ddp, 2, config);
        let rounded = if amp == Amp::Fp16 { 1e-3 } else { 8e-3 };
        for way in Parallelism::ALL.into_iter().filter(|way| amp != Amp::Fp16 || *way != Parallelism::Server) {
            for (rank, ours) in losses_of(way, 2, config).iter().enumerate().filter(|(_, ours)| !ours.is_empty()) {
                let (theirs, most) = match way {
                    Parallelism::Tensor | Parallelism::Pipeline(_) => (&alone, rounded),
                    _ if way.shards_parameters() => (&ddp[rank], rounded),
                    _ => (&ddp[rank], 1e-4),
                };
                let apart = apart(ours, theirs);
                assert!(apart < most, "{way} {amp:?} rank {rank}: {apart}, {ours:?} for {theirs:?}");
            }
        }
    }
}

/// Batches from a loader differ between ranks that each have a part of the whole batch, as batches that stay on the
/// device do.
#[test]
fn ranks_take_turns_with_batches_that_are_streamed() {
    for way in [Parallelism::Ddp, Parallelism::Fsdp, Parallelism::Tensor] {
        let resident = losses(way, 2, 4);
        let streamed = losses_of(way, 2, Config { data: DataPath::Streamed, ..Config::new(4) });
        assert_eq!(streamed, resident, "{way}");
    }
    let names = [Parallelism::Ddp, Parallelism::Tensor].map(|way| {
        let rows = crate::padding::rows_of("llama-mini", &[17, 33, 64, 20]);
        let config = Config { data: DataPath::Streamed, ..Config::new(4) };
        of_model(rows, LoopStyle::Logging, way, [0, 2], config, Box::new(Deaf)).alike_ranks()
    });
    assert_eq!(names, [vec![0, 1], vec![0, 0]], "ranks with batches of their own are runs of their own");
}

/// Layers in 8 bits: ranks that share a batch learn the same whether they have whole weights or gather them, and nearly
/// what 32 bits learn. Scales are those of each rank's own tokens.
#[test]
fn ranks_in_8_bits_learn_the_same_in_every_way() {
    let wide = Config { optimizer: OptimizerKind::Momentum, ..Config::new(4) };
    let config = Config { float8: Float8Recipe::Tensorwise, ..wide };
    let learnt = |way, config| losses_of_model(|| crate::families::workload("llama-mini.base"), way, 2, config);
    let (ddp, wide) = (learnt(Parallelism::Ddp, config), learnt(Parallelism::Ddp, wide));
    let apart = |ours: &[Vec<f32>], theirs: &[Vec<f32>]| {
        let pairs = ours.iter().flatten().zip(theirs.iter().flatten());
        pairs.map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max)
    };
    assert_eq!(ddp.concat().len(), 12);
    let rounded = apart(&ddp, &wide);
    assert!(rounded > 1e-5 && rounded < 5e-3, "{rounded}: {ddp:?} in 8 bits for {wide:?}");
    for way in [Parallelism::DdpView, Parallelism::Fsdp, Parallelism::Zero2] {
        let ours = learnt(way, config);
        assert!(apart(&ours, &ddp) < 1e-4, "{way}: {ours:?} for {ddp:?}");
    }
}

/// A gradient that overflows on one rank makes all ranks skip the step: the rate lets weights grow beyond what 16 bits
/// hold.
#[test]
fn all_ranks_skip_a_step_in_which_one_overflows() {
    for way in Parallelism::ALL.into_iter().filter(|way| *way != Parallelism::Server) {
        let mut config = Config { amp: Amp::Fp16, optimizer: OptimizerKind::Sgd, ..Config::new(4) };
        config.hyper.sgd_lr = 50.0;
        let ranks: Vec<_> = Seat::for_all(2)
            .into_iter()
            .enumerate()
            .map(|(rank, seat)| {
                std::thread::spawn(move || {
                    let member = Member { parallelism: way, world: World::new(2, rank).unwrap() };
                    let options =
                        TrainerOptions { member: Some(member), seat: Some(seat), ..TrainerOptions::default() };
                    let device =
                        CpuDevice::open(CpuOptions { memory: Some(Bytes::mib(256)), threads: Some(1) }).unwrap();
                    let config = Config { batch: member.samples(config.batch).unwrap(), ..config };
                    let (model, _) = crate::training::workload("gpt-mini");
                    let mut trainer = Trainer::new(Box::new(device), model, config, options, Box::new(Deaf)).unwrap();
                    let steps = (0..8).map(|_| trainer.step().unwrap().optimizer_ran).collect::<Vec<bool>>();
                    (steps, trainer.loss_scale())
                })
            })
            .collect();
        let ranks: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        assert_eq!(ranks[0], ranks[1], "{way}");
        let (steps, scale) = &ranks[0];
        assert!(steps.contains(&false) && steps.contains(&true), "{way}: {steps:?}");
        let skipped = i32::try_from(steps.iter().filter(|ran| !**ran).count()).unwrap();
        assert_eq!(*scale, Some(65536.0 * 0.5_f64.powi(skipped)), "{way}");
    }
}

/// They compute the same as without.
#[test]
fn ranks_with_checkpoints_learn_the_same() {
    for way in [Parallelism::Fsdp, Parallelism::Pipeline(PipelineSchedule::OneForwardOneBackward)] {
        let plain = losses(way, 2, 4);
        let again = losses_of(way, 2, Config { checkpointing: Checkpointing::ALL, ..Config::new(4) });
        assert_eq!(plain, again, "{way}");
    }
}
