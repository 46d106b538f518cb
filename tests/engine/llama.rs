//! Llama and its relatives compared with transformers: requests of unchanged programs on the stand-in GPU, losses on
//! the processor.

use std::cell::RefCell;
use std::num::NonZero;
use std::rc::Rc;

use serde_json::Value;
use vramlab::device::DType;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::sim::SimDevice;
use vramlab::model::{Event, Lab, Phase};
use vramlab::train::{
    Amp, AttentionKernel, Checkpointing, Config, Libraries, LoopStyle, LossHead, Observer, Offload, OptimizerForm,
    OptimizerKind, Tf32, Trainer, TrainerOptions, Workload,
};
use vramlab::units::Bytes;
use vramlab::workload::{
    Biases, Data, Decoder, DecoderSizes, DropoutPlace, Dropouts, Extent, HeadNorms, LayerPattern, Lengths,
    Llama3Scaling, Lora, Names, NormKind, NormPlaces, Preparation, Quantization, RotaryScaling, Share, Sizes,
    SlidingWindows, SoftCaps, Style, Target, Targets, WorkloadEntry,
};

use crate::alignment::{difference, made, recorded};

const MINI: DecoderSizes = DecoderSizes {
    vocab: 512,
    width: 64,
    hidden: 128,
    layers: 2,
    heads: 4,
    kv_heads: 2,
    head_size: 16,
    latent: None,
    rotated: None,
    tied: false,
    eps: 1e-6,
    theta: 1e4,
    scaling: None,
    local_theta: None,
    positions: None,
    position_scale: None,
    unrotated: LayerPattern::NONE,
    seq: 64,
    weights: DType::F32,
    style: Style { names: Names::ADAPTED, ..Style::LLAMA },
    padding: None,
    clip: None,
    query_scalar: None,
    caps: SoftCaps { scores: None, logits: None },
    logit_scale: None,
    dropouts: Dropouts { attention: 0.0, embedding: 0.0, replaces: false, residual: 0.0, place: DropoutPlace::Within },
    multipliers: None,
    windows: SlidingWindows::NONE,
    experts: None,
    tower: None,
    lora: None,
};

/// Mistral with a window that is shorter than its samples.
const WINDOWED: DecoderSizes = DecoderSizes { windows: SlidingWindows::every(24), ..MINI };

const EVERY_SECOND: Checkpointing = Checkpointing::Every(NonZero::new(2).unwrap());

/// Gemma 2 with these sizes, as its config has it.
const GEMMA_MINI: DecoderSizes = DecoderSizes {
    tied: true,
    style: Style { norm: NormKind::Centred, places: NormPlaces::Around, gemma: true, ..MINI.style },
    padding: Some(0),
    query_scalar: Some(16.0),
    caps: SoftCaps { scores: Some(50.0), logits: Some(30.0) },
    windows: SlidingWindows::some(4096, LayerPattern::EVEN),
    ..MINI
};

/// A model, and the variant of its recording. `bf16wckpt` has weights in bf16 and checkpoints its layers, `every2`
/// checkpoints every second layer. `loraall` has adapters of rank 8 beside all of its linear layers, `nf4` has those
/// layers in 4 bits, `double` with magnitudes in 8. `unprepared` is without `prepare_model_for_kbit_training`, `trl`
/// has TRL's casts after it.
fn program(name: &str) -> (DecoderSizes, Config) {
    let (model, variant) = name.split_once('.').unwrap();
    let (sizes, batch) = match model {
        "llama-mini" => (MINI, 4),
        "llama-five" => (DecoderSizes { layers: 5, ..MINI }, 4),
        "gemma-mini" => (GEMMA_MINI, 4),
        "qwen2-mini" => (DecoderSizes { style: Style { biases: Biases::Inputs, ..Style::default() }, ..MINI }, 4),
        "mistral-mini" => (DecoderSizes { windows: SlidingWindows::every(4096), ..MINI }, 4),
        "mistral-window" => (WINDOWED, 4),
        // Rows of a mask that begin where the memory-efficient kernel can read them, and others.
        "mistral-40" => (DecoderSizes { seq: 40, ..WINDOWED }, 4),
        "mistral-61" => (DecoderSizes { seq: 61, ..WINDOWED }, 4),
        // Heads for which only matrix products remain.
        "mistral-hd10" => (DecoderSizes { head_size: 10, ..WINDOWED }, 4),
        "gemma-window" => (DecoderSizes { windows: SlidingWindows::some(24, LayerPattern::EVEN), ..GEMMA_MINI }, 4),
        "llama-vocab" => (DecoderSizes { vocab: 4096, ..MINI }, 4),
        // Llama 3.2 1B and Qwen3 0.6B with two layers each.
        "llama-1b-two" => {
            let scaling = Llama3Scaling { factor: 32.0, low: 1.0, high: 4.0, original: 8192.0 };
            let scaling = RotaryScaling::Llama3(scaling);
            let sizes = DecoderSizes { vocab: 128_256, width: 2048, hidden: 8192, heads: 32, kv_heads: 8, ..MINI };
            (DecoderSizes { head_size: 64, tied: true, scaling: Some(scaling), seq: 1024, ..sizes }, 2)
        }
        "qwen3-two" => {
            let sizes = DecoderSizes { vocab: 151_936, width: 1024, hidden: 3072, heads: 16, kv_heads: 8, ..MINI };
            let style = Style { heads: HeadNorms::Each, ..Style::default() };
            (DecoderSizes { head_size: 128, tied: true, seq: 512, style, ..sizes }, 2)
        }
        other => panic!("no model {other}"),
    };
    let has = |word: &str| variant.contains(word);
    let mut config = configured(variant, batch);
    config.data = data(name).0.path();
    let targets = match (has("loraall"), has("loraattn")) {
        (_, true) => Some(Targets::of([Target::Query, Target::Key, Target::Value, Target::Output])),
        (true, _) => Some(Targets::of(Target::ALL)),
        _ => None,
    };
    let compute = if has("f32") { DType::F32 } else { DType::Bf16 };
    let quantization =
        (has("nf4") || has("double")).then(|| Quantization { nested: has("double"), compute, storage: None });
    let dropout = Share::try_from(if has("drop") { 0.1 } else { 0.0 }).unwrap();
    let dora = has("dora");
    let prepare = match (has("unprepared"), has("trl")) {
        (true, _) => Preparation::Nothing,
        (_, true) => Preparation::Trl,
        _ => Preparation::Kbit,
    };
    let adapters = Lora { targets, dropout, dora, quantization, prepare, ..Lora::of_rank(Extent::nearest(8)) };
    let lora = has("lora").then_some(adapters);
    let seq = match (has("short"), has("long"), has("200")) {
        (true, ..) => 16,
        (_, true, _) => 640,
        (.., true) => 200,
        _ => sizes.seq,
    };
    let sizes = DecoderSizes { lora, seq, ..sizes };
    (DecoderSizes { weights: if has("bf16w") { DType::Bf16 } else { DType::F32 }, ..sizes }, config)
}

/// The switches of a recording's variant.
pub fn configured(variant: &str, batch: usize) -> Config {
    let has = |word: &str| variant.contains(word);
    let mut config = Config::new(if has("one") { 1 } else { batch });
    let step = ["ckpt", "every2", "every3"].into_iter().position(has);
    config.checkpointing =
        step.and_then(|place| NonZero::new(place + 1)).map_or(Checkpointing::Off, Checkpointing::Every);
    if let (Checkpointing::Every(apart), true) = (config.checkpointing, has("reentrant")) {
        config.checkpointing = Checkpointing::Reentrant(apart);
    }
    if has("bf16") && !has("bf16w") {
        config.amp = Amp::Bf16;
    }
    if has("ampfp16") {
        config.amp = Amp::Fp16;
    }
    if has("offload") {
        config.offload = Offload::Activations;
    }
    if has("sgd") {
        config.optimizer = OptimizerKind::Momentum;
    }
    config.optimizer = match (has("paged"), has("adam8"), has("adam32")) {
        (true, true, _) => OptimizerKind::PagedAdamW8bit,
        (true, _, true) => OptimizerKind::PagedAdamW,
        (_, true, _) => OptimizerKind::AdamW8bit,
        _ if has("muon") => OptimizerKind::Muon,
        _ if has("pagedlion8") => OptimizerKind::PagedLion8bit,
        _ if has("pagedlion32") => OptimizerKind::PagedLion,
        _ if has("lion8") => OptimizerKind::Lion8bit,
        _ if has("lion32") => OptimizerKind::Lion,
        _ => config.optimizer,
    };
    if has("fused") {
        config.form = OptimizerForm::Fused;
    }
    if has("loop") {
        config.form = OptimizerForm::Loop;
    }
    if has("clip") {
        config.hyper.clip = Some(1.0);
    }
    if has("hand") {
        config.loss_head = LossHead::Shifted;
    }
    if has("copied") {
        config.loss_head = LossHead::LabelsCopied;
    }
    if has("chunked") {
        config.loss_head = LossHead::Chunked;
    }
    if has("eager") {
        config.attention = AttentionKernel::Eager;
    }
    if has("accum2") {
        config.accumulation = 2;
    }
    if has("liger") {
        config.loss_head = if has("ligerold") { LossHead::FusedF32 } else { LossHead::Fused };
    }
    config.drop_output = has("bare");
    config.use_cache = has("cache");
    config.tiled_mlp = has("tiled");
    config
}

/// Its samples, and the number of steps. The lengths differ from batch to batch if the recording's name says so.
fn data(name: &str) -> (Data, u64) {
    if !name.contains("lengths") {
        return (Data::Reference, 3);
    }
    let batches = [64, 17, 100, 33, 128, 5, 90, 64, 31, 77];
    let samples = batches.into_iter().flat_map(|length| [length; 4]).collect();
    (Data::Lengths(Lengths::new(samples, None, 1).unwrap()), batches.len() as u64)
}

fn decoder_on(sizes: DecoderSizes, data: Data) -> Box<dyn Workload> {
    Box::new(Decoder::new("llama", sizes, data, 1).unwrap())
}

fn decoder(sizes: DecoderSizes) -> Box<dyn Workload> {
    Box::new(Decoder::new("llama", sizes, Data::Reference, 1).unwrap())
}

/// From the first parameter on, including the construction of the model: three steps.
#[test]
fn they_ask_as_transformers_does() {
    let names = [
        "llama-mini.base",
        "llama-mini.bf16",
        "llama-mini.bf16w",
        "llama-mini.bf16ckpt",
        "llama-mini.bf16wckpt",
        "llama-mini.bf16wone",
        "llama-mini.bf16wsgd",
        "llama-mini.bf16wfused",
        "llama-1b-two.bf16w",
        "qwen3-two.bf16w",
        "llama-mini.bf16wlora",
        "llama-mini.bf16lora",
        "llama-mini.bf16wckptlora",
        "llama-mini.bf16wloraall",
        "qwen3-two.bf16loraallclip",
        "llama-mini.bf16weager",
        "llama-mini.bf16eager",
        "llama-mini.bf16wckpteager",
        "llama-mini.bf16wloraeager",
        "llama-mini.bf16wcache",
        "llama-mini.bf16cache",
        "llama-mini.bf16whand",
        "llama-mini.bf16hand",
        "llama-mini.bf16wclip",
        "llama-mini.bf16wchunked",
        "gemma-mini.base",
        "gemma-mini.bf16",
        "gemma-mini.bf16w",
        "gemma-mini.bf16wckpt",
        "gemma-mini.bf16weager",
        "gemma-mini.bf16eager",
        "gemma-mini.bf16wloraattn",
        "mistral-mini.bf16w",
        "mistral-window.base",
        "mistral-window.bf16",
        "mistral-window.bf16w",
        "mistral-window.bf16wckpt",
        "mistral-window.bf16wone",
        "mistral-window.bf16wloraall",
        "mistral-40.base",
        "mistral-61.base",
        "mistral-61.bf16",
        "mistral-61.bf16w",
        "mistral-61.baseone",
        "mistral-61.bf16wone",
        "mistral-hd10.base",
        "mistral-hd10.bf16w",
        "gemma-window.base",
        "gemma-window.bf16",
        "gemma-window.bf16w",
        "gemma-window.bf16wckpt",
        "gemma-window.bf16weager",
        "llama-five.bf16every2",
        "llama-five.bf16wevery2",
        "llama-five.bf16wevery3",
        "llama-five.bf16wevery2lora",
        "llama-five.bf16wevery2eager",
        "llama-five.bf16wevery2cache",
        "llama-five.bf16wckptcache",
        "llama-mini.lengths.base",
        "llama-mini.lengths.bf16",
        "llama-mini.lengths.bf16w",
        "llama-mini.lengths.bf16wckpt",
        "llama-mini.lengths.bf16wlora",
    ];
    let failures = names.into_iter().filter_map(|name| {
        let (sizes, config) = program(name);
        let (data, steps) = data(name);
        let (device, workload) = (Box::new(SimDevice::h200().unwrap()), decoder_on(sizes, data));
        let (mut trainer, events) =
            crate::training::on(device, workload, config, Libraries::HOPPER, LoopStyle::Logging);
        for _ in 0..steps {
            trainer.step().unwrap();
        }
        let ours = made(&events.borrow());
        difference(&ours, &recorded(name)).map(|difference| format!("{name}: {difference}"))
    });
    let failures: Vec<String> = failures.collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// bitsandbytes' `Linear4bit` under peft's adapters, from `from_pretrained` on: the loading,
/// `prepare_model_for_kbit_training` unless it is left out, three steps.
const QUANTIZED: [&str; 25] = [
    "llama-mini.bf16wnf4loraall",
    "llama-mini.bf16wnf4lora",
    "llama-mini.bf16wdoubleloraall",
    "llama-mini.bf16nf4loraall",
    "llama-mini.f32nf4loraall",
    "llama-mini.bf16wckptnf4loraall",
    "llama-mini.bf16wckptdoublelora",
    "llama-mini.bf16woneshortnf4loraall",
    "qwen2-mini.bf16wnf4loraall",
    "qwen3-two.bf16wckptonedoubleloraall",
    "llama-mini.bf16wnf4loradora",
    "llama-mini.bf16nf4loraalldora",
    "llama-mini.bf16wdoubleloraalldora",
    "llama-mini.bf16wckptnf4loraalldora",
    "llama-mini.f32nf4loraalldora",
    "llama-mini.bf16wnf4loradoradrop",
    "llama-mini.bf16nf4loradoradrop",
    "llama-mini.bf16wckptdoubleloraalldoradrop",
    "qwen2-mini.bf16wnf4loraalldora",
    "llama-mini.bf16wnf4loraunprepared",
    "llama-mini.bf16wckptdoubleloraallunprepared",
    "llama-mini.bf16nf4loraallunprepared",
    "llama-mini.bf16nf4loraalltrl",
    "llama-mini.bf16ckptdoubleloraalltrl",
    "llama-mini.bf16oneshortnf4loratrl",
];

/// DeepSpeed 0.19's `TiledMLP`, and the loss of Liger 0.8.5 and 0.4.2, which includes the head.
const OF_OTHERS: [&str; 12] = [
    "llama-mini.basetiledlongone",
    "llama-mini.bf16wtiledlongone",
    "llama-mini.bf16wtiled200one",
    "llama-mini.bf16tiledlongone",
    "llama-mini.bf16wckpttiledlongone",
    "llama-mini.bf16wloraalltiledlongone",
    "llama-mini.bf16wloraallckpttiledlongone",
    "llama-vocab.bf16wliger",
    "llama-vocab.bf16wligerold",
    "llama-vocab.bf16wloraligerold",
    "llama-vocab.bf16wckptloraligeroldone",
    "llama-vocab.bf16wckptliger",
];

#[test]
fn tiles_and_fused_losses_ask_as_deepspeed_and_liger_do() {
    let failures = differences(&OF_OTHERS, || Box::new(SimDevice::h200().unwrap()));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    let options = || CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(1) };
    let failures = differences(&OF_OTHERS, || Box::new(CpuDevice::open(options()).unwrap()));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// The requests that differ from the recording, on a device.
fn differences(names: &[&str], device: impl Fn() -> Box<dyn vramlab::device::Device>) -> Vec<String> {
    let failures = names.iter().filter_map(|name| {
        let (sizes, config) = program(name);
        let workload = decoder_on(sizes, Data::Reference);
        let (mut trainer, events) =
            crate::training::on(device(), workload, config, Libraries::HOPPER, LoopStyle::Logging);
        for _ in 0..3 {
            trainer.step().unwrap();
        }
        difference(&made(&events.borrow()), &recorded(name)).map(|difference| format!("{name}: {difference}"))
    });
    failures.collect()
}

#[test]
fn layers_in_4_bits_ask_as_those_of_bitsandbytes_do() {
    let failures = differences(&QUANTIZED, || Box::new(SimDevice::h200().unwrap()));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    let mini: Vec<_> = QUANTIZED.into_iter().filter(|name| name.contains("mini")).collect();
    let options = || CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(1) };
    let failures = differences(&mini, || Box::new(CpuDevice::open(options()).unwrap()));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// The same requests on a device that computes: kernels access only live blocks.
#[test]
fn the_processor_asks_as_the_simulated_card_does() {
    for name in [
        "llama-mini.base",
        "llama-mini.bf16",
        "llama-mini.bf16w",
        "llama-mini.bf16wckpt",
        "llama-mini.bf16wlora",
        "llama-mini.bf16lora",
        "llama-mini.bf16wckpteager",
        "llama-mini.bf16wloraeager",
        "llama-mini.bf16cache",
        "llama-mini.bf16whand",
        "llama-mini.bf16wclip",
        "llama-mini.bf16wchunked",
        "gemma-mini.base",
        "gemma-mini.bf16wckpt",
        "gemma-mini.bf16eager",
        "mistral-window.base",
        "mistral-window.bf16wckpt",
        "mistral-61.bf16",
        "mistral-hd10.base",
        "mistral-hd10.bf16w",
        "gemma-window.bf16w",
        "llama-five.bf16wevery2",
        "llama-five.bf16wevery2lora",
        "llama-mini.lengths.bf16w",
        "llama-mini.lengths.bf16wckpt",
    ] {
        let (sizes, config) = program(name);
        let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(1) }).unwrap();
        let (data, steps) = data(name);
        let workload = decoder_on(sizes, data);
        let (mut trainer, events) =
            crate::training::on(Box::new(device), workload, config, Libraries::HOPPER, LoopStyle::Logging);
        for _ in 0..steps {
            trainer.step().unwrap();
        }
        assert_eq!(difference(&made(&events.borrow()), &recorded(name)), None, "{name}");
    }
}

fn losses(sizes: DecoderSizes, mut configure: impl FnMut(&mut Config)) -> Vec<f64> {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap();
    let mut config = Config::new(4);
    configure(&mut config);
    let (mut trainer, _) =
        crate::training::on(Box::new(device), decoder(sizes), config, Libraries::PROCESSOR, LoopStyle::Logging);
    (0..6).map(|_| f64::from(trainer.step().unwrap().loss.unwrap())).collect()
}

/// transformers 5.17 on PyTorch 2.11's processor, with the reference weights and tokens and the reference's AdamW.
#[test]
fn losses_are_those_of_transformers() {
    let llama = [
        6.250_148_773_193_359,
        6.249_896_049_499_512,
        6.257_341_384_887_695,
        6.263_141_632_080_078,
        5.979_738_235_473_633,
        6.025_241_851_806_641,
    ];
    let qwen = [
        6.272_452_831_268_311,
        6.259_371_280_670_166,
        6.231_182_575_225_83,
        6.253_818_988_800_049,
        5.991_620_540_618_896_5,
        6.039_442_062_377_93,
    ];
    let style = Style { heads: HeadNorms::Each, ..Style::default() };
    for (sizes, theirs) in [(MINI, llama), (DecoderSizes { tied: true, style, ..MINI }, qwen)] {
        for checkpointing in [Checkpointing::Off, Checkpointing::ALL, EVERY_SECOND] {
            let ours = losses(sizes, |config| config.checkpointing = checkpointing);
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert!((ours - theirs).abs() < 1e-4, "{ours} for {theirs}, checkpointing {checkpointing}");
            }
        }
    }
    // In bf16 every op of PyTorch rounds, but some of ours are one kernel.
    let narrow =
        [losses(DecoderSizes { weights: DType::Bf16, ..MINI }, |_| {}), losses(MINI, |config| config.amp = Amp::Bf16)];
    for (ours, theirs) in narrow.iter().flat_map(|losses| losses.iter().zip(llama)) {
        assert!((ours - theirs).abs() < 1e-2, "{ours} for {theirs}");
    }
}

/// Asserts the losses, each to 1e-4.
#[track_caller]
fn assert_near(ours: &[f64], theirs: [f64; 6]) {
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!((ours - theirs).abs() < 1e-4, "{ours} for {theirs}");
    }
}

/// The same for peft 0.21, for eager attention and for `clip_grad_norm_`. An adapter's first matrix is uniform, as in
/// `nn.Linear`.
#[test]
fn losses_are_those_of_peft() {
    let lora = |targets| DecoderSizes { lora: Some(Lora { targets, ..Lora::of_rank(Extent::nearest(8)) }), ..MINI };
    for checkpointing in [Checkpointing::Off, Checkpointing::ALL, EVERY_SECOND] {
        let learn = |config: &mut Config| {
            config.checkpointing = checkpointing;
            config.hyper.adam_lr = 0.02;
        };
        assert_near(
            &losses(lora(None), learn),
            [
                6.250_148_773_193_359,
                6.249_313_831_329_346,
                6.260_679_244_995_117,
                6.258_282_661_437_988,
                6.224_476_814_270_019_5,
                6.201_788_902_282_715,
            ],
        );
        assert_near(
            &losses(lora(Some(Targets::of(Target::ALL))), learn),
            [
                6.250_148_773_193_359,
                6.252_508_640_289_307,
                6.250_558_376_312_256,
                6.256_089_210_510_254,
                6.196_333_408_355_713,
                6.214_821_815_490_723,
            ],
        );
    }
    let clipped = losses(MINI, |config| {
        config.optimizer = OptimizerKind::Sgd;
        config.hyper.sgd_lr = 1.0;
        config.hyper.clip = Some(0.5);
    });
    assert_near(
        &clipped,
        [
            6.250_148_773_193_359,
            6.248_896_598_815_918,
            6.254_682_540_893_555,
            6.264_181_137_084_961,
            6.037_646_770_477_295,
            5.990_292_072_296_143,
        ],
    );
    // However attention and loss are computed, the losses are the same.
    let plain = losses(MINI, |_| {});
    let ways: [fn(&mut Config); 9] = [
        |config| config.loss_head = LossHead::Chunked,
        |config| config.loss_head = LossHead::Fused,
        |config| config.loss_head = LossHead::FusedF32,
        |config| config.tiled_mlp = true,
        |config| (config.tiled_mlp, config.checkpointing) = (true, Checkpointing::ALL),
        |config| (config.tiled_mlp, config.offload) = (true, Offload::ParametersAndActivations),
        |config| config.attention = AttentionKernel::Eager,
        |config| config.loss_head = LossHead::Shifted,
        |config| config.use_cache = true,
    ];
    for way in ways {
        for (ours, plain) in losses(MINI, way).iter().zip(&plain) {
            assert!((ours - plain).abs() < 1e-5, "{ours} for {plain}");
        }
    }
    // Seven positions make chunks of one: the last has nothing to learn.
    let short = DecoderSizes { seq: 7, ..lora(None) };
    for batch in [1, 4] {
        let of = |head| losses(short, |config| (config.batch, config.loss_head) = (batch, head));
        let plain = of(LossHead::Labels);
        for head in [LossHead::Chunked, LossHead::Fused, LossHead::FusedF32] {
            for (plain, other) in plain.iter().zip(of(head)) {
                assert!((plain - other).abs() < 1e-5, "{other} for {plain}, {head:?}");
            }
        }
    }
}

/// The same on top of bitsandbytes' own values: `dequantize_4bit(quantize_4bit(weight))` of 0.50, plain and nested,
/// with peft's adapters.
#[test]
fn losses_above_layers_in_4_bits_are_those_of_bitsandbytes() {
    let plain = [
        6.250_236_988_067_627,
        6.252_892_017_364_502,
        6.253_649_711_608_887,
        6.252_139_568_328_857,
        6.170_916_557_312_012,
        6.237_492_561_340_332,
    ];
    let nested = [
        6.250_237_941_741_943,
        6.252_896_785_736_084,
        6.253_600_597_381_592,
        6.252_169_609_069_824,
        6.170_733_451_843_262,
        6.237_754_821_777_344,
    ];
    let dora_plain = [
        6.250_236_988_067_627,
        6.255_091_667_175_293,
        6.264_396_667_480_469,
        6.270_721_435_546_875,
        6.183_592_796_325_684,
        6.202_095_508_575_44,
    ];
    let dora_nested = [
        6.250_237_941_741_943,
        6.255_097_389_221_191,
        6.264_688_014_984_131,
        6.270_668_983_459_473,
        6.184_473_514_556_885,
        6.201_695_442_199_707,
    ];
    let adapted = |quantization, dora| {
        let lora = Lora { targets: Some(Targets::of(Target::ALL)), dora, ..Lora::of_rank(Extent::nearest(8)) };
        DecoderSizes { lora: Some(Lora { quantization: Some(quantization), ..lora }), ..MINI }
    };
    let sizes = |quantization| adapted(quantization, false);
    let cases = [(false, false, plain), (true, false, nested), (false, true, dora_plain), (true, true, dora_nested)];
    for (is_nested, dora, theirs) in cases {
        let exact = adapted(Quantization { nested: is_nested, compute: DType::F32, storage: None }, dora);
        for checkpointing in [Checkpointing::Off, Checkpointing::ALL] {
            let learn = |config: &mut Config| {
                config.checkpointing = checkpointing;
                config.hyper.adam_lr = 0.02;
            };
            assert_near(&losses(exact, learn), theirs);
        }
        // Products in bf16, and a batch whose products use packed weights.
        let narrow = adapted(Quantization { nested: is_nested, compute: DType::Bf16, storage: None }, dora);
        for (ours, theirs) in losses(narrow, |config| config.hyper.adam_lr = 0.02).iter().zip(theirs) {
            assert!((ours - theirs).abs() < 1e-2, "{ours} for {theirs}");
        }
    }
    let short = DecoderSizes { seq: 7, ..sizes(Quantization { nested: true, compute: DType::Bf16, storage: None }) };
    let one = losses(short, |config| config.batch = 1);
    let whole =
        losses(DecoderSizes { lora: short.lora.map(|lora| Lora { quantization: None, ..lora }), ..short }, |config| {
            config.batch = 1;
        });
    for (ours, whole) in one.iter().zip(whole) {
        assert!((ours - whole).abs() < 2e-2, "{ours} for {whole} of whole weights");
    }
}

/// Gemma 2 with SDPA, which ignores the cap of scores, and eagerly, with a low cap and a window shorter than the
/// samples.
#[test]
fn losses_are_those_of_gemma() {
    let sizes = DecoderSizes { query_scalar: Some(24.0), ..GEMMA_MINI };
    let gemma = [
        6.253_172_397_613_525,
        6.257_019_042_968_75,
        6.254_200_935_363_77,
        6.243_734_359_741_211,
        6.107_921_123_504_639,
        6.122_074_604_034_424,
    ];
    for checkpointing in [Checkpointing::Off, Checkpointing::ALL, EVERY_SECOND] {
        assert_near(&losses(sizes, |config| config.checkpointing = checkpointing), gemma);
    }
    let eager = |config: &mut Config| config.attention = AttentionKernel::Eager;
    assert_near(&losses(sizes, eager), gemma);
    // A cap that is reached.
    let capped = DecoderSizes { caps: SoftCaps { logits: Some(0.5), ..sizes.caps }, ..sizes };
    let plain = losses(capped, |_| {});
    for head in [LossHead::Shifted, LossHead::Chunked, LossHead::Fused, LossHead::FusedF32] {
        for (ours, plain) in losses(capped, |config| config.loss_head = head).iter().zip(&plain) {
            assert!((ours - plain).abs() < 1e-5, "{ours} for {plain}, {head:?}");
        }
    }
    let caps = SoftCaps { scores: Some(0.5), ..sizes.caps };
    assert_near(
        &losses(DecoderSizes { windows: SlidingWindows::some(8, LayerPattern::EVEN), caps, ..sizes }, eager),
        [
            6.253_012_180_328_369,
            6.277_179_718_017_578,
            6.258_500_576_019_287,
            6.253_396_511_077_881,
            6.027_228_355_407_715,
            6.055_864_810_943_604,
        ],
    );
}

/// SDPA with the mask of a window that is shorter than the samples, and eager attention with the same.
#[test]
fn losses_within_windows_are_those_of_transformers() {
    let of_24 = [6.253_828_05, 6.253_213_88, 6.257_410_53, 6.261_987_69, 5.960_904_12, 6.019_811_15];
    let of_8 = [6.250_051_98, 6.248_213_29, 6.268_434_05, 6.252_782_34, 5.936_766_15, 6.008_021_83];
    let gemma = [6.246_983_05, 6.265_738_49, 6.261_133_67, 6.242_248_54, 6.060_835_84, 6.095_508_1];
    let of_gemma = DecoderSizes { windows: SlidingWindows::some(24, LayerPattern::EVEN), ..GEMMA_MINI };
    let shorter = DecoderSizes { windows: SlidingWindows::every(8), ..MINI };
    for (sizes, theirs) in [(WINDOWED, of_24), (shorter, of_8), (of_gemma, gemma)] {
        for checkpointing in [Checkpointing::Off, Checkpointing::ALL] {
            assert_near(&losses(sizes, |config| config.checkpointing = checkpointing), theirs);
        }
    }
    for kernel in [AttentionKernel::Eager, AttentionKernel::Math, AttentionKernel::Efficient] {
        assert_near(&losses(WINDOWED, |config| config.attention = kernel), of_24);
    }
    let narrow = losses(DecoderSizes { weights: DType::Bf16, ..WINDOWED }, |_| {});
    for (ours, theirs) in narrow.iter().zip(of_24) {
        assert!((ours - theirs).abs() < 1e-2, "{ours} for {theirs}");
    }
}

/// Keys of a `config.json` that are supported, and keys that are refused.
#[test]
fn a_config_json_is_a_model_or_a_sentence() {
    let text = |more: &str| {
        format!(
            r#"{{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "rope_scaling": null,
            "bos_token_id": 1, "torch_dtype": "bfloat16", "use_cache": true, "hidden_act": "silu"{more}}}"#
        )
    };
    let build = |more: &str| {
        let config = serde_json::from_str(&text(more)).unwrap();
        let entry = vramlab::workload::WorkloadEntry::of_config("mine", config);
        entry.workload(Sizes::default(), Data::Reference, 1).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(build(""), Ok(()));
    assert_eq!(build(r#", "mlp_bias": false, "quantization_config": null, "attention_dropout": 0.0"#), Ok(()));
    for (more, words) in [
        (r#", "residual_multiplier": 0.22"#, "mine: residual_multiplier asks for something that llama does not have"),
        (
            r#", "quantization_config": {"bits": 4}"#,
            "mine: quantization_config: bits asks for something that is not there",
        ),
        (
            r#", "quantization_config": {"load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}"#,
            "the layers of mine are in 4 bits, which no step changes; add --lora",
        ),
        (r#", "num_local_experts": 8"#, "mine: num_local_experts asks for something that llama does not have"),
        (r#", "attention_dropout": -0.1"#, "attention_dropout is -0.1; use a number from 0 on, below 1"),
        (
            r#", "rope_parameters": {"rope_type": "proportional"}"#,
            "rope_type 'proportional' is not there; there are default, dynamic, linear, llama3 and yarn",
        ),
        (r#", "rope_parameters": {"rope_type": "yarn"}"#, "rope_type 'yarn' needs a factor above 0"),
        (
            r#", "rope_parameters": {"type": "dynamic", "factor": 2.0}"#,
            "rope_type 'dynamic' needs a max_position_embeddings above 0",
        ),
        (r#", "partial_rotary_factor": 0.5"#, "partial_rotary_factor asks for heads that are rotated in part"),
        (r#", "head_dim": 15"#, "heads of 15 elements"),
    ] {
        let error = build(more).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let other = text("").replace("\"llama\"", "\"mamba\"");
    let entry = vramlab::workload::WorkloadEntry::of_config("mine", serde_json::from_str(&other).unwrap());
    let error = entry.workload(Sizes::default(), Data::Reference, 1).err().unwrap().to_string();
    assert_eq!(
        error,
        "mine: model_type 'mamba' is not there; write its sizes into a config.json of the nearest that is: arcee, bloom, cohere, cohere2, cwm, deepseek_v2, deepseek_v3, dots1, ernie4_5, ernie4_5_moe, exaone4, falcon, gemma, gemma2, gemma3, gemma3_text, glm, glm4, glm4_moe, glm4_moe_lite, gpt2, gpt_neox, gpt_oss, granite, granitemoe, granitemoehybrid, granitemoeshared, helium, hunyuan_v1_dense, llama, llama4, llama4_text, ministral, ministral3, mistral, mistral3, mixtral, nemotron, olmo, olmo2, olmo3, olmoe, opt, phi, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe, seed_oss, smollm3, stablelm, starcoder2, vaultgemma"
    );
}

/// Rows of PyTorch 2.11 and transformers 5.17 on an H200. Each includes one block of 512 bytes that torchaudio
/// allocated before the model, which is subtracted here.
#[test]
fn rows_of_an_h200_are_equal() {
    let (torchaudio, mut differences) = (512, Vec::new());
    for line in include_str!("../data/pytorch-llm-rows.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let number = |value: &Value| value.as_i64().unwrap();
        let keys = ["model", "dtype", "method", "targets", "optimizer", "ckpt", "attn", "loss", "clip", "cache"];
        let name = keys.map(|key| format!("{key} {}", row[key])).join(", ");
        let mut entry = WorkloadEntry::of_config(&name, serde_json::from_value(row["config"].clone()).unwrap());
        let weights = if row["dtype"] == "bf16" { DType::Bf16 } else { DType::F32 };
        entry.config.as_mut().unwrap().dtype = Some(weights.label().to_owned());
        if row["method"] == "lora" {
            let rank = Extent::nearest(usize::try_from(number(&row["r"])).unwrap());
            let targets = serde_json::from_value(row["targets"].clone()).unwrap();
            entry.lora = Some(Lora { targets, ..Lora::of_rank(rank) });
        }
        let seq = Extent::nearest(usize::try_from(number(&row["seq"])).unwrap());
        let workload = entry.workload(Sizes { seq: Some(seq), ..Sizes::default() }, Data::Reference, 1).unwrap();
        let mut config = Config::new(usize::try_from(number(&row["batch"])).unwrap());
        config.checkpointing = if row["ckpt"] == true { Checkpointing::ALL } else { Checkpointing::Off };
        config.tf32 = Tf32::Convolutions;
        config.hyper.clip = row["clip"].as_f64();
        config.use_cache = row["cache"] == true;
        if row["attn"] == "eager" {
            config.attention = AttentionKernel::Eager;
        }
        if row["loss"] == "hand" {
            config.loss_head = LossHead::Shifted;
        }
        if row["dtype"] == "autocast" {
            config.amp = Amp::Bf16;
        }
        match row["optimizer"].as_str().unwrap() {
            "adamw-fused" => config.form = OptimizerForm::Fused,
            "sgd" => config.optimizer = OptimizerKind::Sgd,
            "sgd-momentum" => config.optimizer = OptimizerKind::Momentum,
            _ => {}
        }
        let lab = Rc::new(RefCell::new(Lab::new()));
        let followed = Rc::clone(&lab);
        let device = Box::new(SimDevice::h200().unwrap());
        let style = LoopStyle::Logging;
        let options = TrainerOptions { style, workspaces: Libraries::HOPPER, ..TrainerOptions::default() };
        let mut trainer = Trainer::new(device, workload, config, options, Box::new(Followed(followed))).unwrap();
        for _ in 0..number(&row["steps"]) {
            trainer.step().unwrap();
        }
        let statistics = trainer.statistics();
        let lab = lab.borrow();
        let boundaries = lab.boundaries();
        let after = |phase| i64::try_from(boundaries.after(phase).unwrap().get()).unwrap();
        let before = i64::try_from(boundaries.before_first_step().unwrap().get()).unwrap();
        let ours = [
            before,
            after(Phase::Forward),
            after(Phase::Backward),
            after(Phase::Optimizer),
            after(Phase::ZeroGrad),
            statistics.allocated_bytes.all.peak,
        ];
        let at = &row["allocated_after"];
        let theirs = [
            &row["allocated_before_step"],
            &at["forward"],
            &at["backward"],
            &at["optimizer"],
            &at["zero_grad"],
            &row["peak_allocated"],
        ];
        let theirs = theirs.map(|value| number(value) - torchaudio);
        if ours != theirs {
            differences.push(format!("{name}: allocated {ours:?} for {theirs:?}"));
        }
        let ours = [
            statistics.reserved_bytes.all.peak,
            statistics.reserved_bytes.all.current,
            statistics.segment.all.current,
            statistics.allocation.all.allocated + 1,
        ];
        let theirs = ["peak_reserved", "reserved", "segments", "allocations"].map(|key| number(&row[key]));
        if ours != theirs {
            differences.push(format!("{name}: reserved {ours:?} for {theirs:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The model of memory, fed by a trainer.
struct Followed(Rc<RefCell<Lab>>);

impl Observer for Followed {
    fn event(&mut self, event: Event) {
        self.0.borrow_mut().apply(&event);
    }
}
