//! Decoders that get a mask of padding (`attention_mask`): requests and figures compared with transformers on the
//! stand-in GPU, losses compared with transformers on the processor.

use std::collections::BTreeMap;

use serde_json::Value;
use vramlab::device::DType;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::train::{AttentionKernel, Checkpointing, Config, Libraries, LoopStyle, LossHead, Trainer, Workload};
use vramlab::units::Bytes;
use vramlab::workload::{Data, Extent, Lengths, Lora, Sizes, Target, Targets, WorkloadEntry};

use crate::alignment::{difference, made, recorded, requests_are_made_on_ada, rows_are_made};
use crate::llama::configured;

/// Tokens of samples, four a batch: with padding, without any, and batches of two at the end. Row lengths are multiples
/// of 16, of 8, and of neither.
const SAMPLES: [u32; 38] = [
    64, 40, 17, 9, 17, 16, 3, 11, 100, 61, 77, 20, 33, 33, 33, 33, 128, 1, 127, 90, 5, 2, 5, 4, 90, 17, 80, 33, 64, 63,
    1, 24, 31, 30, 8, 16, 77, 5,
];
/// Samples of a model with long rows, two a batch.
const LONG: [u32; 6] = [300, 1000, 700, 513, 1024, 90];

fn samples(lengths: &[u32]) -> Data {
    Data::Lengths(Lengths::new(lengths.to_vec(), None, 1).unwrap())
}

/// The `config.json` of each mini.
fn minis() -> BTreeMap<String, Value> {
    let mut all: BTreeMap<String, Value> = serde_json::from_str(include_str!("../data/families/minis.json")).unwrap();
    let own: BTreeMap<String, Value> = serde_json::from_str(include_str!("../data/padding/minis.json")).unwrap();
    all.extend(own);
    all
}

/// Four batches of four samples; in each, one sample fills its row.
const FULL: [u32; 16] = [64, 40, 17, 9, 64, 16, 3, 11, 64, 61, 64, 20, 33, 33, 33, 64];

/// The model of a rank's recording, whose stages pass on rows of one length.
pub fn rows_of_one_length(mini: &str, variant: &str) -> Box<dyn Workload> {
    let mut entry = WorkloadEntry::of_config(mini, serde_json::from_value(minis()[mini].clone()).unwrap());
    let weights = if variant.contains("bf16w") { DType::Bf16 } else { DType::F32 };
    entry.config.as_mut().unwrap().dtype = Some(weights.label().to_owned());
    let sizes = Sizes { seq: Some(Extent::nearest(64)), ..Sizes::default() };
    entry.workload(sizes, samples(&FULL), 1).unwrap()
}

/// A model with samples of these lengths, in f32.
pub fn rows_of(mini: &str, lengths: &[u32]) -> Box<dyn Workload> {
    rows_in(None, mini, lengths)
}

/// The same with weights of this type.
pub fn rows_in(weights: Option<DType>, mini: &str, lengths: &[u32]) -> Box<dyn Workload> {
    let mut entry = WorkloadEntry::of_config(mini, serde_json::from_value(minis()[mini].clone()).unwrap());
    if let Some(weights) = weights {
        entry.config.as_mut().unwrap().dtype = Some(weights.label().to_owned());
    }
    let sizes = Sizes { seq: Some(Extent::nearest(64)), ..Sizes::default() };
    entry.workload(sizes, samples(lengths), 1).unwrap()
}

/// A recorded program: its model, its batches, its switches, and the number of steps.
fn program(name: &str) -> (Box<dyn Workload>, Config, u64) {
    let [mini, batches, variant] = name.splitn(3, '.').collect::<Vec<_>>()[..] else { panic!("no program {name}") };
    let has = |word: &str| variant.contains(word);
    let (data, batch, steps) = match batches {
        "ones" => (Data::Reference, 4, 3),
        "big" => (samples(&LONG), 2, 3),
        _ => (samples(&SAMPLES), 4, 10),
    };
    let mut entry = WorkloadEntry::of_config(mini, serde_json::from_value(minis()[mini].clone()).unwrap());
    let weights = if has("bf16w") { DType::Bf16 } else { DType::F32 };
    entry.config.as_mut().unwrap().dtype = Some(weights.label().to_owned());
    let targets =
        if has("loraall") { Some(Targets::of(Target::ALL)) } else { crate::families::recorded_targets(&minis()[mini]) };
    entry.lora = has("lora").then(|| Lora { targets, ..Lora::of_rank(Extent::nearest(8)) });
    let sizes = Sizes { seq: Some(Extent::nearest(64)), ..Sizes::default() };
    let config = Config { data: data.path(), attention_mask: true, ..configured(variant, batch) };
    (entry.workload(sizes, data, 1).unwrap(), config, steps)
}

/// Every recorded row: requests one by one from the first parameter on, and the allocator's statistics at the end.
#[test]
fn padded_batches_ask_as_those_of_transformers_do() {
    rows_are_made(include_str!("../data/padding/rows.jsonl"), program);
}

/// A card with flash attention, which takes no mask: requests one by one.
#[test]
fn padded_batches_ask_an_ada_card_as_those_of_transformers_do() {
    requests_are_made_on_ada(&ADA, program);
}

const ADA: [&str; 5] = [
    "llama-mini.padded.base",
    "llama-mini.padded.bf16w",
    "llama-mini.ones.bf16w",
    "mistral-mini.padded.bf16",
    "gemma3-window.padded.bf16w",
];

/// The position of padding affects no request: a recording with all padding before the samples.
#[test]
fn padding_on_the_left_asks_alike() {
    for variant in ["base", "bf16w"] {
        let [right, left] = ["padded", "left"].map(|side| recorded(&format!("llama-mini.{side}.{variant}")));
        assert_eq!(difference(&right, &left), None, "{variant}");
    }
}

fn on_the_processor(workload: Box<dyn Workload>, config: Config) -> Trainer {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap();
    crate::training::on(Box::new(device), workload, config, Libraries::PROCESSOR, LoopStyle::Logging).0
}

fn losses(mut trainer: Trainer, steps: usize) -> Vec<f64> {
    (0..steps).map(|_| f64::from(trainer.step().unwrap().loss.unwrap())).collect()
}

/// Six steps with the reference's weights, tokens and AdamW, in f32.
#[test]
fn padded_batches_learn_as_those_of_transformers_do() {
    let all: BTreeMap<String, [f64; 6]> = serde_json::from_str(include_str!("../data/padding/losses.json")).unwrap();
    for (name, theirs) in all {
        for checkpointing in [Checkpointing::Off, Checkpointing::ALL] {
            let (workload, config, _) = program(&name);
            let ours = losses(on_the_processor(workload, Config { checkpointing, ..config }), 6);
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert!((ours - theirs).abs() < 1e-4, "{name}, checkpointing {checkpointing}: {ours} for {theirs}");
            }
        }
    }
}

/// The same requests on a device that computes: kernels access only live blocks.
#[test]
fn the_processor_asks_for_padded_batches_as_the_simulated_card_does() {
    for name in [
        "llama-mini.padded.base",
        "llama-mini.padded.bf16w",
        "llama-mini.padded.bf16wckpt",
        "llama-mini.padded.bf16weager",
        "llama-mini.ones.bf16w",
        "mistral-window.padded.bf16w",
        "mistral-hd10.padded.base",
        "gemma-window.padded.bf16",
    ] {
        let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(1) }).unwrap();
        let (workload, config, steps) = program(name);
        let (mut trainer, events) =
            crate::training::on(Box::new(device), workload, config, Libraries::HOPPER, LoopStyle::Logging);
        for _ in 0..steps {
            trainer.step().unwrap();
        }
        assert_eq!(difference(&made(&events.borrow()), &recorded(name)), None, "{name}");
    }
}

/// A llama-mini on batches of these samples; the first of each batch is as long as the rows.
fn trained(batches: &[[u32; 4]], configure: impl Fn(&mut Config)) -> Vec<f64> {
    let (_, mut config, _) = program("llama-mini.padded.base");
    configure(&mut config);
    let entry = WorkloadEntry::of_config("llama-mini", serde_json::from_value(minis()["llama-mini"].clone()).unwrap());
    let workload = entry.workload(Sizes::default(), samples(batches.as_flattened()), 1).unwrap();
    losses(on_the_processor(workload, config), batches.len())
}

/// Padding counts nowhere: not in a loss, and not in a gradient, which the next loss would show. It makes no difference
/// whether there is a mask, because padding comes after a sample, nor which kernel reads the mask or how the loss is
/// computed.
#[test]
fn what_says_that_it_is_padding_changes_no_loss() {
    let batches = [[64, 40, 17, 9], [17, 16, 3, 11], [100, 61, 77, 20], [33, 33, 33, 33], [90, 17, 80, 33]];
    let masked = trained(&batches, |_| {});
    let ways: [fn(&mut Config); 6] = [
        |config| config.attention_mask = false,
        |config| config.loss_head = LossHead::Shifted,
        |config| config.loss_head = LossHead::Chunked,
        |config| config.loss_head = LossHead::Fused,
        |config| config.attention = AttentionKernel::Math,
        |config| config.attention = AttentionKernel::Eager,
    ];
    for way in ways {
        for (ours, masked) in trained(&batches, way).iter().zip(&masked) {
            assert!((ours - masked).abs() < 1e-5, "{ours} for {masked}");
        }
    }
}
