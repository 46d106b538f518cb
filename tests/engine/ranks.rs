//! Training over several devices beside PyTorch's: requests of recorded ranks one by one, and figures of measured ones.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::Value;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::sim::SimDevice;
use vramlab::model::{DDP_BUCKET, Event};
use vramlab::train::{
    Amp, Checkpointing, Config, DataPath, Libraries, LoopStyle, LossHead, Member, Observer, Offload, OptimizerKind,
    Parallelism, PipelineSchedule, Seat, Trainer, TrainerOptions, Workload, World,
};
use vramlab::units::{Bytes, MIB};

use crate::alignment::{before_the_first_step, difference, first_called, made, peaks, recorded, without_free};
use crate::llama::configured;
use crate::training::Model;

/// A rank of several on a simulated H200.
fn of_world(
    workload: &str,
    way: Parallelism,
    place: [usize; 2],
    config: Config,
    observer: Box<dyn Observer>,
) -> Trainer {
    let (model, _) = crate::training::workload(workload);
    // PyTorch's programs of transformers' models keep the loss's value for their log.
    let style = if workload.ends_with("llama-mini") { LoopStyle::Logging } else { LoopStyle::Accumulating };
    of_model(model, style, way, place, config, observer)
}

pub fn of_model(
    model: Box<dyn Workload>,
    style: LoopStyle,
    way: Parallelism,
    [rank, size]: [usize; 2],
    mut config: Config,
    observer: Box<dyn Observer>,
) -> Trainer {
    let member = Member { parallelism: way, world: World::new(size, rank).unwrap() };
    config.batch = member.samples(config.batch).unwrap();
    let options =
        TrainerOptions { style, workspaces: Libraries::HOPPER, member: Some(member), ..TrainerOptions::default() };
    Trainer::new(Box::new(SimDevice::h200().unwrap()), model, config, options, observer).unwrap()
}

/// From the first parameter on, wrapping included. `of4` are ranks of four, recorded of PyTorch on cards that are not there; the
/// others ranks of two H200s.
fn different(name: &str, batch: usize, steps: usize) -> Option<String> {
    let words: Vec<&str> = name.split('.').collect();
    let (workload, way, rank) = (words[1], words[2].parse().unwrap(), words[3].trim_start_matches("rank"));
    let mut config = Config::new(batch);
    if words.contains(&"bf16") || words[..] == ["ranks", "gpt2", words[2], words[3]] {
        config.amp = Amp::Bf16;
    }
    if words.contains(&"ckpt") {
        config.checkpointing = Checkpointing::ALL;
    }
    if words.contains(&"clip") {
        config.hyper.clip = Some(1.0);
    }
    if words.contains(&"adam8") {
        config.optimizer = OptimizerKind::AdamW8bit;
    }
    if words.contains(&"parameters") {
        config.offload = Offload::Parameters;
    }
    if let Some(offload) = words.iter().find(|word| word.starts_with("offload")) {
        (config.offload, config.pinned) = (Offload::Activations, offload.ends_with("pinned"));
    }
    let place = [rank.parse().unwrap(), if words.contains(&"of4") { 4 } else { 2 }];
    let events: Rc<RefCell<Vec<Event>>> = Rc::default();
    let mut trainer = of_world(workload, way, place, config, Box::new(Rc::clone(&events)));
    for _ in 0..steps {
        trainer.step().unwrap();
    }
    let (mut requests, mut theirs) = (made(&events.borrow()), recorded(name));
    // In this recording PyTorch's watchdog let go of the first bucket behind the rebuild.
    if words.contains(&"adam8") {
        let bucket = first_called(&requests, &format!("{DDP_BUCKET} 0")).unwrap();
        let freed = (without_free(&mut requests, bucket), without_free(&mut theirs, bucket));
        assert!(freed.0.is_some() && freed.1.is_none_or(|theirs| freed.0.unwrap() <= theirs), "{name}: {freed:?}");
    }
    difference(&requests, &theirs).map(|different| format!("{name}: {different}"))
}

/// Six steps of gpt-mini, and three of gpt2 where they were recorded.
fn asks_as_pytorch_does(way: Parallelism) {
    let minis = [0, 1].map(|rank| (format!("ranks.gpt-mini.{way}.rank{rank}"), 4, 6));
    let full = [0, 1].map(|rank| (format!("ranks.gpt2.{way}.rank{rank}"), 16, 3));
    let recorded =
        if matches!(way, Parallelism::Ddp | Parallelism::Fsdp | Parallelism::Server) { &full[..] } else { &[] };
    let all = minis.iter().chain(recorded);
    let failures: Vec<String> = all.filter_map(|(name, batch, steps)| different(name, *batch, *steps)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Three steps.
#[test]
fn ranks_of_four_ask_as_pytorch_does() {
    let names = [
        ("ranks.gpt-mini.ddp.rank3.of4", 8),
        ("ranks.gpt-mini.zero1.rank0.of4", 8),
        ("ranks.gpt-mini.zero1.rank3.of4", 8),
        ("ranks.gpt-mini.fsdp.rank0.of4", 8),
        ("ranks.gpt-mini.fsdp.rank3.of4", 8),
        ("ranks.gpt-mini.zero2.rank3.of4", 8),
        ("ranks.gpt-mini.tp.rank3.of4", 4),
        ("ranks.gpt2.pp-gpipe.rank0.of4", 16),
        ("ranks.gpt2.pp-gpipe.rank1.of4", 16),
        ("ranks.gpt2.pp-gpipe.rank3.of4", 16),
        ("ranks.gpt2.pp-1f1b.rank0.of4", 16),
        ("ranks.gpt2.pp-1f1b.rank2.of4", 16),
        ("ranks.gpt2.pp-1f1b.rank3.of4", 16),
        ("ranks.gpt2.pp-1f1b.rank0.of4.bf16", 16),
        ("ranks.gpt2.pp-1f1b.rank2.of4.bf16", 16),
        ("ranks.gpt2.pp-1f1b.rank3.of4.bf16", 16),
        ("ranks.bert-mini.fsdp.rank3.of4.bf16", 8),
        ("ranks.gpt-mini.ps.rank0.of4", 8),
        ("ranks.gpt-mini.ps.rank3.of4", 8),
    ];
    let failures: Vec<String> = names.iter().filter_map(|&(name, batch)| different(name, batch, 3)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Blocks that run again in backward, of two ranks: three steps of PyTorch on cards that are not there.
#[test]
fn ranks_with_checkpoints_ask_as_pytorch_does() {
    let minis = ["fsdp", "zero2", "pp-gpipe", "pp-1f1b"]
        .into_iter()
        .flat_map(|way| [0, 1].map(|rank| (format!("ranks.gpt-mini.{way}.rank{rank}.ckpt"), 4)));
    let full = ["fsdp.rank0", "zero2.rank1", "pp-gpipe.rank0", "pp-gpipe.rank1", "pp-1f1b.rank0", "pp-1f1b.rank1"];
    let full = full.into_iter().map(|of| (format!("ranks.gpt2.{of}.bf16.ckpt"), 16));
    let failures: Vec<String> = minis.chain(full).filter_map(|(name, batch)| different(&name, batch, 3)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// What ops save waits in host memory (`save_on_cpu`), pageable or page-locked: six steps of PyTorch on cards that are not there. What a
/// sharded rank saves of parameters is copied too, while they are whole, and they are gathered in backward all the same.
#[test]
fn ranks_that_offload_ask_as_pytorch_does() {
    let ways = Parallelism::ALL.into_iter().filter(|way| *way != Parallelism::Server);
    let names = ways.flat_map(|way| {
        ["offload", "offloadpinned", "bf16.offload", "bf16.offloadpinned"]
            .into_iter()
            .flat_map(move |how| [0, 1].map(|rank| format!("ranks.gpt-mini.{way}.rank{rank}.{how}")))
    });
    let failures: Vec<String> = names.filter_map(|name| different(&name, 4, 6)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Gradients are clipped by the norm of all ranks' together: parts of each as `DTensor`s, those of stages as torchtitan sums them.
/// Three steps of PyTorch on cards that are not there.
#[test]
fn ranks_that_clip_ask_as_pytorch_does() {
    let names = ["fsdp", "zero2", "pp-1f1b", "fsdp.bf16", "pp-1f1b.bf16"].into_iter().flat_map(|of| {
        let (way, amp) = of.split_once('.').map_or((of, ""), |(way, _)| (way, ".bf16"));
        [0, 1].map(|rank| format!("ranks.gpt-mini.{way}.rank{rank}.clip{amp}"))
    });
    let failures: Vec<String> = names.filter_map(|name| different(&name, 4, 3)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// `ZeroRedundancyOptimizer` of an optimizer of bitsandbytes: each rank has the state of its share, in bytes.
#[test]
fn zero_1_in_8_bits_asks_as_pytorch_does() {
    let names = [0, 1].map(|rank| format!("ranks.gpt-mini.zero1.rank{rank}.adam8"));
    let failures: Vec<String> = names.iter().filter_map(|name| different(name, 4, 3)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Parameters wait in host memory, each layer's until it needs them: the hooks of the guide's program, on the modules that DDP wraps or
/// that a stage has. Three steps of PyTorch on cards that are not there.
#[test]
fn ranks_that_offload_parameters_ask_as_pytorch_does() {
    let names = ["ddp", "ddp-view", "pp-1f1b", "pp-gpipe", "ddp.bf16", "pp-gpipe.bf16"].into_iter().flat_map(|of| {
        let (way, amp) = of.split_once('.').map_or((of, ""), |(way, _)| (way, ".bf16"));
        [0, 1].map(|rank| format!("ranks.gpt-mini.{way}.rank{rank}.parameters{amp}"))
    });
    let failures: Vec<String> = names.filter_map(|name| different(&name, 4, 3)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Where tensors wait between their uses changes no loss of a rank, in fused ops neither, and saves memory of its device.
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
            // Only a server's rank 0 has state.
            let less =
                if (way, offload) == (Parallelism::Server, Offload::Optimizer) { waits == kept } else { waits < kept };
            assert!(less, "{way} {offload:?}: {waits} bytes beside {kept}");
        }
    }
}

/// Llama of transformers, with peft's adapters too: mixed groups of frozen weights and trained ones, of two ranks on cards that are
/// not there.
#[test]
fn sharded_adapters_ask_as_pytorch_does() {
    let of = ["llama-mini.fsdp.rank", "lora-llama-mini.fsdp.rank"].map(|run| [0, 1].map(|rank| format!("{run}{rank}")));
    let plain = of.as_flattened().iter().cloned();
    let lower = [0, 1].map(|rank| format!("lora-llama-mini.fsdp.rank{rank}.bf16"));
    let again = [0, 1].map(|rank| format!("lora-llama-mini.fsdp.rank{rank}.bf16.ckpt"));
    let all = plain.chain(lower).chain(again);
    let failures: Vec<String> = all.filter_map(|run| different(&format!("ranks.{run}"), 4, 3)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Decoders of transformers by their `config.json`, of ranks on cards that are not there: requests one by one, and what the allocator
/// says in the end.
#[test]
fn ranks_of_decoders_ask_as_those_of_transformers_do() {
    let rows = include_str!("../data/families/ranks.jsonl").lines();
    let differences: Vec<String> =
        rows.filter_map(|row| decoder_difference(&serde_json::from_str(row).unwrap())).collect();
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

fn decoder_difference(row: &Value) -> Option<String> {
    let name = row["name"].as_str().unwrap();
    let words: Vec<&str> = name.split('.').collect();
    let (mini, way, rank) = (words[1], words[2].parse().unwrap(), words[3].trim_start_matches("rank"));
    let size = if words.contains(&"of4") { 4 } else { 2 };
    let variant = words[4..].iter().find(|word| **word != "of4").unwrap_or(&"base");
    let mut model = crate::families::workload(&format!("{mini}.{variant}"));
    let events: Rc<RefCell<Vec<Event>>> = Rc::default();
    let (place, mut config) = ([rank.parse().unwrap(), size], configured(variant, 4));
    config.attention_mask = variant.contains("masked") || variant.contains("padded");
    if variant.contains("padded") {
        config.data = DataPath::Streamed;
        model = crate::padding::rows_of_one_length(mini, variant);
    }
    // Mixed precision of weights that are in 16 bits already.
    if variant.contains("reduce32") {
        config.amp = Amp::Bf16;
    }
    let mut trainer = of_model(model, LoopStyle::Logging, way, place, config, Box::new(Rc::clone(&events)));
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    let statistics = trainer.statistics();
    let (allocated, reserved) = (statistics.allocated_bytes.all, statistics.reserved_bytes.all);
    let mut ours = [allocated.current, allocated.peak, reserved.peak];
    let theirs = ["allocated", "peak", "reserved"].map(|key| row[key].as_i64().unwrap());
    let (mut requests, mut recorded) = (made(&events.borrow()), recorded(name));
    if let Some(bucket) = first_called(&requests, &format!("{DDP_BUCKET} 0")) {
        // With the bucket for as long as PyTorch had it, the same allocator says what PyTorch's says.
        let begun = before_the_first_step(&events.borrow());
        let [peak, reserved] = peaks(&recorded, begun);
        assert_eq!(peaks(&requests, begun), ours[1..], "{name}");
        ours = [ours[0], peak, reserved];
        let bytes = i64::try_from(requests[bucket].size().next_multiple_of(512)).unwrap();
        let (we_freed, they_freed) =
            (without_free(&mut requests, bucket).unwrap(), without_free(&mut recorded, bucket));
        if they_freed.is_some_and(|they_freed| they_freed < we_freed) {
            return Some(format!(
                "{name}: PyTorch has its first bucket until request {they_freed:?}, we until {we_freed}"
            ));
        }
        if they_freed.is_none() && theirs[0] == ours[0] + bytes {
            ours[0] += bytes;
        }
    }
    let difference = difference(&requests, &recorded)
        .or_else(|| (ours != theirs).then(|| format!("allocated, peak and reserved are {ours:?} for {theirs:?}")));
    difference.map(|difference| format!("{name}: {difference}"))
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

#[test]
fn ddp_asks_as_pytorch_does() {
    asks_as_pytorch_does(Parallelism::Ddp);
}

#[test]
fn ddp_with_views_asks_as_pytorch_does() {
    asks_as_pytorch_does(Parallelism::DdpView);
}

#[test]
fn zero_1_asks_as_pytorch_does() {
    asks_as_pytorch_does(Parallelism::Zero1);
}

#[test]
fn fsdp_asks_as_pytorch_does() {
    asks_as_pytorch_does(Parallelism::Fsdp);
}

#[test]
fn zero_2_asks_as_pytorch_does() {
    asks_as_pytorch_does(Parallelism::Zero2);
}

/// Recorded of PyTorch on two cards that are not there.
#[test]
fn a_parameter_server_asks_as_pytorch_does() {
    asks_as_pytorch_does(Parallelism::Server);
}

#[test]
fn pipelines_ask_as_pytorch_does() {
    asks_as_pytorch_does(Parallelism::Pipeline(PipelineSchedule::GPipe));
    asks_as_pytorch_does(Parallelism::Pipeline(PipelineSchedule::OneForwardOneBackward));
}

#[test]
fn tensor_parallelism_asks_as_pytorch_does() {
    asks_as_pytorch_does(Parallelism::Tensor);
}

/// Ranks whose first bucket outlived its rebuild: NCCL's watchdog drops finished work about every 100 ms, so that chance decides.
/// The lab never has it beside the others; peaks of these may be higher, by as much as the bucket.
const LATE_BUCKET: &[&str] = &[
    "gpt2 ddp bf16 accum 2 steps 8 rank 1",
    "gpt2 ddp bf16 steps 8 rank 0",
    "gpt2 ddp fp32 steps 6 rank 1",
    "gpt-mini ddp fp32 steps 6 rank 0",
    "gpt-mini ddp fp32 steps 6 rank 1",
    "resnet50 ddp fp32 steps 6 rank 1",
    "vit-b16 ddp bf16 steps 8 rank 0",
    "vit-b16 ddp bf16 steps 8 rank 1",
    "gpt2 ddp-view bf16 steps 8 rank 1",
    "gpt2 zero1 bf16 steps 8 rank 0",
];

/// What a bucket that is late may change.
const BY_THE_BUCKET: [&str; 4] = ["peak_allocated", "peak_reserved", "reserved", "segments"];

/// All figures but the number of allocations.
const BYTES_AND_SEGMENTS: &[&str] = &[
    "before_step",
    "forward",
    "backward",
    "optimizer",
    "zero_grad",
    "peak_allocated",
    "peak_reserved",
    "reserved",
    "segments",
];
/// Those of them that are bytes.
const BYTES: &[&str] = BYTES_AND_SEGMENTS.split_at(8).0;

/// Figures that are not exact, by run: blocks whose rest was too small to split off are other ones than PyTorch's, as they are
/// between the two ranks of one run. All others are exact, and the number of allocations always is.
const INEXACT: &[(&str, &[&str])] = &[
    ("gpt2 ddp bf16 accum 2 steps 8", &["forward", "backward", "optimizer", "zero_grad", "peak_allocated"]),
    ("gpt2 fsdp bf16 accum 2 steps 8", BYTES_AND_SEGMENTS),
    ("gpt2 fsdp bf16 steps 3", BYTES_AND_SEGMENTS),
    ("gpt2 fsdp bf16 steps 8", BYTES_AND_SEGMENTS),
    ("gpt2 fsdp fp32 steps 6", &["before_step", "forward", "backward", "optimizer", "zero_grad", "peak_allocated"]),
    (
        "gpt2 pp-1f1b bf16 steps 8",
        &["backward", "optimizer", "zero_grad", "peak_allocated", "peak_reserved", "reserved"],
    ),
    ("gpt2 pp-gpipe bf16 steps 8", &["backward", "optimizer", "zero_grad", "peak_allocated"]),
    ("gpt2 tp bf16 steps 8", BYTES),
    ("gpt2 tp fp32 steps 6", &["backward", "optimizer", "peak_reserved", "reserved", "segments"]),
    ("gpt2 zero2 bf16 accum 2 steps 8", BYTES_AND_SEGMENTS),
    ("gpt2 zero2 bf16 steps 8", BYTES_AND_SEGMENTS),
    ("vit-b16 ddp bf16 steps 8", &["forward", "backward", "optimizer"]),
    ("vit-b16 fsdp bf16 steps 8", BYTES),
];

/// How far, in percent, a figure that is not exact may be off.
fn tolerance(run: &str, figure: &str) -> f64 {
    match figure {
        "peak_reserved" | "reserved" | "segments" => 3.0,
        "before_step" if run.contains("fsdp") || run.contains("zero2") => 1.0,
        "peak_allocated" => 1.0,
        _ => 0.5,
    }
}

/// Every figure of a row: ours, and PyTorch's.
fn figures(row: &Value, seen: &Model, trainer: &Trainer) -> Vec<(&'static str, i64, i64)> {
    let statistics = trainer.statistics();
    let boundaries = crate::training::boundaries(&seen.0).map(|bytes| i64::try_from(bytes.get()).unwrap());
    let [before, forward, backward, optimizer, zero_grad] = boundaries;
    let after = &row["allocated_after"];
    let mut all = vec![
        ("before_step", before, &row["allocated_before_step"]),
        ("backward", backward, &after["backward"]),
        ("optimizer", optimizer, &after["optimizer"]),
        ("zero_grad", zero_grad, &after["zero_grad"]),
        ("peak_allocated", statistics.allocated_bytes.all.peak, &row["peak_allocated"]),
        ("peak_reserved", statistics.reserved_bytes.all.peak, &row["peak_reserved"]),
        ("reserved", statistics.reserved_bytes.all.current, &row["reserved"]),
        ("segments", statistics.segment.all.current, &row["segments"]),
        ("allocations", statistics.allocation.all.allocated, &row["allocations"]),
    ];
    // A pipeline has no boundary behind its forward.
    if after["forward"].is_i64() {
        all.push(("forward", forward, &after["forward"]));
    }
    all.into_iter().map(|(figure, ours, theirs)| (figure, ours, theirs.as_i64().unwrap())).collect()
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
fn percent(ours: i64, theirs: i64) -> f64 {
    (ours as f64 / theirs as f64 - 1.0) * 100.0
}

/// Whether a figure may be what it is, beside PyTorch's.
fn agrees(run: &str, rank: u64, parameters: i64, (figure, ours, theirs): (&str, i64, i64)) -> bool {
    let inexact = INEXACT.iter().any(|(name, figures)| *name == run && figures.contains(&figure));
    let within =
        |theirs: i64| if inexact { percent(ours, theirs).abs() <= tolerance(run, figure) } else { ours == theirs };
    let late = LATE_BUCKET.contains(&format!("{run} rank {rank}").as_str()) && BY_THE_BUCKET.contains(&figure);
    match (late, figure) {
        (false, _) => within(theirs),
        // The bucket is a block of all parameters, which the step's highest point may reach without half of its own rest.
        (true, "peak_allocated") => {
            within(theirs) || (1..=parameters + 2 * MIB.cast_signed()).contains(&(theirs - ours))
        }
        (true, _) => within(theirs) || ours < theirs,
    }
}

/// A row of the guide's table.
fn line(run: &str, rank: u64, figures: &[(&str, i64, i64)]) -> String {
    let off = |(ours, theirs): (i64, i64)| {
        if ours == theirs { "=".to_owned() } else { format!("{:+.3} %", percent(ours, theirs)) }
    };
    let of = |name: &str| {
        figures.iter().find(|(figure, ..)| *figure == name).map(|&(_, ours, theirs)| (ours, theirs)).unwrap()
    };
    #[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
    let gib = |name: &str| format!("{:.3} | {}", of(name).1 as f64 / f64::from(1 << 30), off(of(name)));
    format!("| {run} | {rank} | {} | {} | {} |\n", gib("before_step"), gib("peak_allocated"), gib("peak_reserved"))
}

/// A measured rank, trained here.
struct Compared {
    run: String,
    rank: u64,
    parameters: i64,
    figures: Vec<(&'static str, i64, i64)>,
}

fn compare(row: &Value) -> Compared {
    let (workload, rank) = (row["workload"].as_str().unwrap(), row["rank"].as_u64().unwrap());
    let way: Parallelism = row["mode"].as_str().unwrap().parse().unwrap();
    let number = |key: &str| usize::try_from(row[key].as_u64().unwrap()).unwrap();
    let mut config = Config::new(number("batch"));
    config.accumulation = number("accum");
    if row["amp"].is_string() {
        config.amp = Amp::Bf16;
    }
    if row["ckpt"] == true {
        config.checkpointing = Checkpointing::ALL;
    }
    let seen = Rc::new(RefCell::new(Model::default()));
    let mut trainer = of_world(workload, way, [number("rank"), number("world")], config, Box::new(Rc::clone(&seen)));
    for _ in 0..number("steps") {
        trainer.step().unwrap();
    }
    let accumulated = if config.accumulation > 1 { format!(" accum {}", config.accumulation) } else { String::new() };
    let amp = row["amp"].as_str().unwrap_or("fp32");
    let again = if config.checkpointing.is_on() { " ckpt" } else { "" };
    let run = format!("{workload} {way} {amp}{accumulated}{again} steps {}", number("steps"));
    let parameters = trainer.parameters().map(|(_, data)| i64::try_from(data.bytes().get()).unwrap()).sum();
    let figures = figures(row, &seen.borrow(), &trainer);
    for &(figure, ours, theirs) in &figures {
        if ours != theirs {
            println!("{run} rank {rank}: {figure} {ours} for {theirs} ({:+.3} %)", percent(ours, theirs));
        }
    }
    Compared { run, rank, parameters, figures }
}

/// Figures of PyTorch's ranks on cards that are not there.
#[test]
fn ranks_on_cards_that_are_not_there_are_pytorchs() {
    let rows = include_str!("../data/pytorch-ranks-standin.jsonl").lines();
    let mut wrong = Vec::new();
    for row in rows {
        let Compared { run, rank, figures, .. } = compare(&serde_json::from_str(row).unwrap());
        for (figure, ours, theirs) in figures {
            // When a block that a stage has sent is free again is timing, and decides into how many segments the same bytes go.
            if figure == "segments" && run.contains(" pp-") {
                continue;
            }
            let most = if figure == "allocations" { 0.0 } else { tolerance(&run, figure) };
            if percent(ours, theirs).abs() > most {
                wrong.push(format!("{run} rank {rank}: {figure} is {ours}, PyTorch's {theirs}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// All 54 ranks that were measured on two H200s, in all eight ways.
#[test]
fn measured_ranks_are_pytorchs() {
    let rows = include_str!("../data/pytorch-ranks-rows.jsonl").lines();
    let mut rows: Vec<Value> = rows.map(|line| serde_json::from_str(line).unwrap()).collect();
    let way = |row: &Value| row["mode"].as_str().unwrap().parse::<Parallelism>().unwrap();
    rows.sort_by_key(way);
    let (mut wrong, mut table) = (Vec::new(), String::new());
    for row in &rows {
        let Compared { run, rank, parameters, figures: compared } = compare(row);
        for &(figure, ours, theirs) in &compared {
            if !agrees(&run, rank, parameters, (figure, ours, theirs)) {
                wrong.push(format!("{run} rank {rank}: {figure} is {ours}, PyTorch's {theirs}"));
            }
        }
        let name = if LATE_BUCKET.contains(&format!("{run} rank {rank}").as_str()) {
            format!("{run}, late bucket")
        } else {
            run
        };
        table.push_str(&line(&name, rank, &compared));
    }
    assert_eq!(rows.len(), 54);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let head = "| run | rank | before the first step, GiB | sim | peak allocated, GiB | sim | peak reserved, GiB | sim |\n\
                |---|--:|--:|--:|--:|--:|--:|--:|\n";
    let command = "VRAMLAB_UPDATE=1 cargo test --test engine ranks writes it";
    crate::made::assert_part("lab/guide/several-gpus.md", "measured ranks", &format!("{head}{table}"), command);
}

/// Adapters under DDP: buckets hold what is trained. Figures of PyTorch 2.11 and peft 0.21.2, two ranks on cards that are not there;
/// with copies, the first bucket outlived its rebuild.
#[test]
fn ddp_shares_adapters_alone() {
    const BUCKET: i64 = 14_336;
    let rows = [
        (Parallelism::DdpView, [598_016, 69_304_832, 67_736_064, 67_736_064, 67_736_064, 920], 69_828_096),
        (Parallelism::Ddp, [598_016, 69_304_832, 67_750_400, 67_750_400, 67_736_064, 920], 69_842_432 - BUCKET),
    ];
    for (way, [before, forward, backward, optimizer, zero_grad, allocations], peak) in rows {
        let row = serde_json::json!({
            "allocated_before_step": before,
            "allocated_after": { "forward": forward, "backward": backward, "optimizer": optimizer, "zero_grad": zero_grad },
            "peak_allocated": peak,
            "peak_reserved": 71_303_168,
            "reserved": 71_303_168,
            "segments": 4,
            "allocations": allocations,
        });
        let seen = Rc::new(RefCell::new(Model::default()));
        let mut trainer = of_world("lora-llama-mini", way, [0, 2], Config::new(4), Box::new(Rc::clone(&seen)));
        for _ in 0..3 {
            trainer.step().unwrap();
        }
        for (figure, ours, theirs) in figures(&row, &seen.borrow(), &trainer) {
            assert_eq!(ours, theirs, "{way}: {figure}");
        }
    }
}

/// Losses of ranks that compute, by rank: each on a thread of its own.
fn losses(way: Parallelism, size: usize, batch: usize) -> Vec<Vec<f32>> {
    losses_of(way, size, Config::new(batch))
}

/// The same under a configuration, whose batch is that of all ranks.
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

/// Weights in 16 bits: gradients are averaged in their own type, each rank's losses are those that f32 has to that precision, and
/// the same whether whole gradients are averaged or shards.
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

/// Adapters in f32 beside weights in 16 bits, and beside those in 4 bits: what ranks gather as bytes they learn from as those that
/// have it whole.
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

/// Bytes of 4 bits are gathered as they are, which a cast would not leave, and only as what other weights are.
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

/// Six losses of a whole decoder on the processor.
fn losses_alone(name: &str, config: Config) -> Vec<f32> {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(1) }).unwrap();
    let whole = crate::families::workload(name);
    let (mut alone, _) = crate::training::on(Box::new(device), whole, config, Libraries::PROCESSOR, LoopStyle::Logging);
    (0..6).filter_map(|_| alone.step().unwrap().loss).collect()
}

/// Two stages of a decoder learn what the whole model does, their batch in micro-batches. A table that is the head's weight too is there
/// twice, and each of the two is trained by its own gradient alone.
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

/// Another batch is another program, whose stages pass on other tensors; a batch whose rows are longer than the first one's is an error, as
/// in PyTorch.
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

/// Optimizers that look at whole matrices, or at blocks of them, step what a stage has, and all that a server has, as they would alone.
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
        let muon = optimizer == OptimizerKind::Muon;
        for way in
            [Parallelism::Server, Parallelism::Zero1].into_iter().filter(|way| !(muon && *way == Parallelism::Zero1))
        {
            let ranks = losses_of(way, 2, config);
            for (ours, theirs) in ranks.iter().flatten().zip(ddp.iter().flatten()) {
                assert!((ours - theirs).abs() < 1e-4, "{way} {optimizer:?}: {ranks:?} for {ddp:?}");
            }
        }
    }
}

/// The norm that gradients are clipped by is that of all of them, wherever they are; a step that is clipped is another than one that is not.
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

/// Ranks that have a part of each layer learn what one device does, whose heads of keys and biases they share.
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

/// Why a rank of `size` is not there for a model of a name.
fn refused(name: &str, way: Parallelism, size: usize, config: Config) -> String {
    let member = Member { parallelism: way, world: World::new(size, 0).unwrap() };
    let options = TrainerOptions { member: Some(member), ..TrainerOptions::default() };
    let (device, model) = (Box::new(SimDevice::h200().unwrap()), crate::families::workload(name));
    Trainer::new(device, model, config, options, Box::new(Deaf)).err().unwrap().to_string()
}

/// Models and programs of which ranks have no parts.
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
    // A table that is the head's weight too, on a device that computes.
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
    let fused = Config { loss_head: LossHead::Fused, ..Config::new(4) };
    assert_eq!(
        refused("llama-mini.base", Parallelism::Tensor, 2, fused),
        "a fused loss has the whole head, of which each rank of tp has a part; leave --loss out"
    );
}

/// Models and programs of which there are no stages.
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
    ] {
        assert_eq!(refused(name, config), words);
    }
}

/// Hears nothing.
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

/// Six steps of two ranks, in all ways that were measured, beside the losses of two H200s.
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
