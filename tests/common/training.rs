//! Trainers of the reference workloads, in the variants that were measured with PyTorch.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't be set up fails")]
#![allow(dead_code, reason = "each test uses its part")]

use std::cell::RefCell;
use std::num::NonZero;
use std::rc::Rc;

use vramlab::device::Device;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::sim::SimDevice;
use vramlab::model::{Event, Lab, Phase};
use vramlab::train::{
    Amp, AttentionKernel, Checkpointing, Config, DataPath, Libraries, LoopStyle, Observer, Offload, OptimizerForm,
    OptimizerKind, Tf32, Trainer, TrainerOptions, Workload, ZeroGrad,
};
use vramlab::units::Bytes;
use vramlab::workload::{
    Catalog, Data, Extent, InferenceMode, InferencePlan, LanguageSizes, MlpSizes, Models, Repeats, ResNet, ResNetSizes,
    Sizes, VitSizes, bert, gpt, mlp, vit,
};

/// The workload `name` and its batch. A built-in workload comes from the catalog, so that a wrong number there is
/// found; others exist only in tests.
pub fn workload(name: &str) -> (Box<dyn Workload>, usize) {
    let catalog = Catalog::with_user_workloads(None);
    if catalog.names().any(|known| known == name) {
        let entry = catalog.entry(name).unwrap();
        let batch = entry.batch.get();
        return (entry.workload(Sizes::default(), Data::Reference, 1).unwrap(), batch);
    }
    let (size, count) = (Extent::nearest, Repeats::nearest);
    let language = |[vocab, context, seq, width, heads]: [usize; 5], layers| {
        let [vocab, context, seq, width, heads] = [vocab, context, seq, width, heads].map(size);
        LanguageSizes { vocab, context, seq, width, layers: count(layers), heads }
    };
    let gpt = |vocab, context, width, layers, heads, batch, seq| {
        let sizes = language([vocab, context, seq, width, heads], layers);
        (Box::new(gpt(name, sizes).unwrap()) as Box<dyn Workload>, batch)
    };
    let bert = |vocab, context, width, layers, heads, batch, seq| {
        let sizes = language([vocab, context, seq, width, heads], layers);
        (Box::new(bert(name, sizes).unwrap()) as Box<dyn Workload>, batch)
    };
    let mlp = |inputs, width, depth, classes, batch| {
        let [inputs, width, classes] = [inputs, width, classes].map(size);
        let sizes = MlpSizes { inputs, width, depth: count(depth), classes };
        (Box::new(mlp(name, sizes).unwrap()) as Box<dyn Workload>, batch)
    };
    let vit = |image, patch, width, layers, heads, classes, batch| {
        let [image, patch, width, heads, classes] = [image, patch, width, heads, classes].map(size);
        let sizes = VitSizes { image, patch, width, layers: count(layers), heads, classes };
        (Box::new(vit(name, sizes).unwrap()) as Box<dyn Workload>, batch)
    };
    let resnet = |stages: [usize; 4], classes, width, batch, image| {
        let [classes, width, image] = [classes, width, image].map(size);
        let sizes = ResNetSizes { stages: stages.map(count), classes, width, image };
        (Box::new(ResNet::new(name, sizes).unwrap()) as Box<dyn Workload>, batch)
    };
    match name {
        "vit-odd" => vit(48, 8, 48, 3, 6, 7, 5),
        "vit-med" => vit(64, 16, 256, 3, 4, 100, 12),
        "vit-l16" => vit(224, 16, 1024, 24, 16, 1000, 32),
        "gpt-odd" => gpt(1000, 48, 48, 3, 6, 5, 48),
        "gpt-wide" => gpt(300, 64, 96, 2, 3, 17, 64),
        "gpt-big" => gpt(256, 64, 128, 4, 4, 32, 64),
        "gpt-hd10" => gpt(100, 32, 40, 2, 4, 4, 24),
        "gpt-hd4" => gpt(257, 32, 32, 2, 8, 4, 32),
        "gpt-med" => gpt(2000, 256, 256, 3, 4, 8, 200),
        "mlp-odd" => mlp(48, 80, 3, 7, 6),
        "mlp-rows" => mlp(64, 200, 4, 10, 2048),
        "gpt2-medium" => gpt(50257, 1024, 1024, 24, 16, 4, 1024),
        "gpt2-s512" => gpt(50257, 1024, 768, 12, 12, 8, 512),
        "gpt2-s300" => gpt(50257, 1024, 768, 12, 12, 6, 300),
        "gpt-frames" => gpt(8192, 256, 384, 6, 6, 16, 256),
        "bert-odd" => bert(1000, 48, 48, 3, 6, 5, 48),
        "bert-wide" => bert(300, 64, 96, 2, 3, 17, 64),
        "bert-hd10" => bert(100, 32, 40, 2, 4, 4, 24),
        "bert-med" => bert(2000, 256, 256, 3, 4, 8, 200),
        "bert-s128" => bert(30522, 512, 1024, 24, 16, 32, 128),
        "bert-s200" => bert(30522, 512, 1024, 24, 16, 6, 200),
        // Rows of logits that kernels extend to whole tiles.
        "llama-odd" => {
            let entry = catalog.entry("llama-mini").unwrap();
            let sizes = Sizes { vocab: Some(size(257)), ..Sizes::default() };
            (entry.workload(sizes, Data::Reference, 1).unwrap(), entry.batch.get())
        }
        "resnet-odd" => resnet([2, 1, 2, 1], 10, 16, 12, 64),
        "resnet-med" => resnet([1, 2, 1, 1], 100, 32, 24, 96),
        other => panic!("no workload {other}"),
    }
}

/// The configuration of a variant.
pub fn variant(name: &str, batch: usize) -> Config {
    let mut config = Config::new(batch);
    match name {
        "base" => {}
        "amp16" => config.amp = Amp::Fp16,
        "bf16" => config.amp = Amp::Bf16,
        "ckpt" => config.checkpointing = Checkpointing::ALL,
        "accum4" => config.accumulation = 4,
        "all" => (config.amp, config.checkpointing, config.accumulation) = (Amp::Fp16, Checkpointing::ALL, 4),
        "sgd" => config.optimizer = OptimizerKind::Momentum,
        "every2" => config.checkpointing = Checkpointing::Every(NonZero::new(2).unwrap()),
        "bf16every2" => {
            (config.amp, config.checkpointing) = (Amp::Bf16, Checkpointing::Every(NonZero::new(2).unwrap()));
        }
        "bf16ckpt" => (config.amp, config.checkpointing) = (Amp::Bf16, Checkpointing::ALL),
        "ckptreentrant" => config.checkpointing = Checkpointing::Reentrant(NonZero::<usize>::MIN),
        "bf16ckptreentrant" => {
            (config.amp, config.checkpointing) = (Amp::Bf16, Checkpointing::Reentrant(NonZero::<usize>::MIN));
        }
        "accum2bf16" => (config.amp, config.accumulation) = (Amp::Bf16, 2),
        "ckptaccum2" => (config.checkpointing, config.accumulation) = (Checkpointing::ALL, 2),
        "bare" => config.drop_output = true,
        "bf16bare" => (config.amp, config.drop_output) = (Amp::Bf16, true),
        "bf16ckptaccum2bare" => {
            (config.amp, config.checkpointing, config.accumulation) = (Amp::Bf16, Checkpointing::ALL, 2);
            config.drop_output = true;
        }
        "adam" => config.optimizer = OptimizerKind::Adam,
        "sgd0" => config.optimizer = OptimizerKind::Sgd,
        "adamwd" => (config.optimizer, config.hyper.weight_decay) = (OptimizerKind::Adam, Some(0.1)),
        "sgdwd" => (config.optimizer, config.hyper.weight_decay) = (OptimizerKind::Momentum, Some(0.1)),
        "zeroed" => config.zero_grad = ZeroGrad::Zeroed,
        "tf32" => config.tf32 = Tf32::On,
        // The switches of recordings made with the shortest loop.
        "math" => (config.amp, config.attention) = (Amp::Bf16, AttentionKernel::Math),
        "math32" => config.attention = AttentionKernel::Math,
        "efficient" => (config.amp, config.attention) = (Amp::Bf16, AttentionKernel::Efficient),
        "flash" => (config.amp, config.attention) = (Amp::Bf16, AttentionKernel::Flash),
        "cudnn" => (config.amp, config.attention) = (Amp::Bf16, AttentionKernel::CuDnn),
        "fused" => config.form = OptimizerForm::Fused,
        "fusedadam" => (config.optimizer, config.form) = (OptimizerKind::Adam, OptimizerForm::Fused),
        "loop" => config.form = OptimizerForm::Loop,
        "loopadam" => (config.optimizer, config.form) = (OptimizerKind::Adam, OptimizerForm::Loop),
        "sgdloop" => (config.optimizer, config.form) = (OptimizerKind::Momentum, OptimizerForm::Loop),
        "sgdfused" => (config.optimizer, config.form) = (OptimizerKind::Momentum, OptimizerForm::Fused),
        "save_on_cpu" => (config.amp, config.offload) = (Amp::Bf16, Offload::Activations),
        "save_on_cpu_pinned" => (config.offload, config.pinned) = (Offload::Activations, true),
        "save_on_cpu_bf16_pinned" => {
            (config.amp, config.offload, config.pinned) = (Amp::Bf16, Offload::Activations, true);
        }
        "pageable" | "pinned" => {
            (config.amp, config.data, config.pinned) = (Amp::Bf16, DataPath::Host, name == "pinned");
        }
        "tf32ckpt" => (config.tf32, config.checkpointing) = (Tf32::On, Checkpointing::ALL),
        other => panic!("no variant {other}"),
    }
    config
}

/// The arithmetic of a program that does not set it: convolutions may round to TensorFloat-32.
pub fn untold(config: Config) -> Config {
    Config { tf32: Tf32::Convolutions, ..config }
}

/// A trainer on the processor, and the events that it writes.
pub fn trainer(workload: Box<dyn Workload>, config: Config, library: Libraries) -> (Trainer, Rc<RefCell<Vec<Event>>>) {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(2)), threads: Some(2) }).unwrap();
    on(Box::new(device), workload, config, library, LoopStyle::Accumulating)
}

/// A trainer on a simulated H200, and the events that it writes.
pub fn simulated(workload: Box<dyn Workload>, config: Config) -> (Trainer, Rc<RefCell<Vec<Event>>>) {
    on(Box::new(SimDevice::h200().unwrap()), workload, config, Libraries::HOPPER, LoopStyle::Accumulating)
}

/// The same for the shortest loop, which kept PyTorch's default: convolutions in TF32.
pub fn simulated_plain(workload: Box<dyn Workload>, mut config: Config) -> (Trainer, Rc<RefCell<Vec<Event>>>) {
    config.tf32 = Tf32::Convolutions;
    on(Box::new(SimDevice::h200().unwrap()), workload, config, Libraries::HOPPER, LoopStyle::Plain)
}

/// Feeds a trainer's events to the model, and keeps none of them.
#[derive(Default)]
pub struct Model(pub Lab);

impl Observer for Model {
    fn event(&mut self, event: Event) {
        self.0.apply(&event);
    }
}

/// Allocated bytes before the first step, and after forward, backward, optimizer and zero_grad of the last step.
pub fn boundaries(lab: &Lab) -> [Bytes; 5] {
    let boundaries = lab.boundaries();
    let after = |phase| boundaries.after(phase).unwrap();
    let [_, forward, backward, optimizer, zero_grad] = Phase::ALL;
    let before = boundaries.before_first_step().unwrap();
    [before, after(forward), after(backward), after(optimizer), after(zero_grad)]
}

/// A trainer on `device`, and the events that it writes.
pub fn on(
    device: Box<dyn Device>,
    workload: Box<dyn Workload>,
    config: Config,
    library: Libraries,
    style: LoopStyle,
) -> (Trainer, Rc<RefCell<Vec<Event>>>) {
    let events = Rc::new(RefCell::new(Vec::new()));
    let options = TrainerOptions { style, workspaces: library, ..TrainerOptions::default() };
    let trainer = Trainer::new(device, workload, config, options, Box::new(Rc::clone(&events))).unwrap();
    (trainer, events)
}

/// The inference of a recording: `gpt-mini.inf_half`, `gpt2_inference_no_grad_half`.
pub fn inference_recording(name: &str) -> Option<(&str, InferencePlan)> {
    let (workload, mode) = name.split_once(".inf_").or_else(|| name.split_once("_inference_"))?;
    let (mode, half) = match mode {
        "half" | "no_grad_half" => (InferenceMode::NoGrad, true),
        "no_grad" => (InferenceMode::NoGrad, false),
        "mode" => (InferenceMode::InferenceMode, false),
        "eval" => (InferenceMode::Eval, false),
        "train" => (InferenceMode::Train, false),
        other => panic!("no inference {other}"),
    };
    Some((workload, InferencePlan { mode, half, models: Models::One }))
}

/// What a recording of the shortest loop ran, as WORKLOAD.VARIANT, and its number of steps.
pub fn plain_recording(name: &str) -> (String, usize) {
    match name {
        "gpt2_bf16_attention_math" => ("gpt2.math".into(), 12),
        "gpt2_bf16_attention_efficient" => ("gpt2.efficient".into(), 12),
        "gpt2_bf16_attention_flash" => ("gpt2.flash".into(), 12),
        "gpt2_bf16_attention_cudnn" => ("gpt2.cudnn".into(), 12),
        "gpt2_fp32_attention_math" => ("gpt2.math32".into(), 12),
        "bert_attn_math_bf16" => ("bert-large.math.batch4".into(), 3),
        "bert_attn_efficient_bf16" => ("bert-large.efficient.batch4".into(), 3),
        "bert_attn_flash_bf16" => ("bert-large.flash.batch4".into(), 3),
        "gpt2_bf16_save_on_cpu" => ("gpt2.save_on_cpu".into(), 6),
        "gpt2_bf16_save_on_cpu_pinned" => ("gpt2.save_on_cpu_bf16_pinned".into(), 6),
        "gpt2_zero_grad_zeroed" => ("gpt2.zeroed".into(), 12),
        "gpt2_adam" => ("gpt2.adam".into(), 12),
        "gpt2_adamw_fused" => ("gpt2.fused".into(), 12),
        "gpt2_adamw_loop" => ("gpt2.loop".into(), 12),
        "gpt2_sgd_plain" => ("gpt2.sgd0".into(), 12),
        "vit-b16_bf16_loader_pageable" => ("vit-b16.pageable".into(), 12),
        "vit-b16_bf16_loader_pinned" => ("vit-b16.pinned".into(), 12),
        "resnet50_amp_loader_pageable" => ("resnet50.pageable".into(), 12),
        "resnet50_amp_loader_pinned" => ("resnet50.pinned".into(), 12),
        other => (other.into(), 4),
    }
}
