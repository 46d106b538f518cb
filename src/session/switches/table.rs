//! The table of switches. A new switch is one entry here; key, command line, panel, help, guide and tests read it.

use std::borrow::Cow;

use super::super::{MemoryLimit, Setup, check_settings};
use super::Scene;
use vramlab_model::DeviceKind;
use vramlab_train::{
    Amp, AttentionKernel, Config, DataPath, Float8Recipe, LossHead, Offload, OnOom, OptimizerForm, OptimizerKind,
    Retain, Schedule, Tf32, ZeroGrad,
};
use vramlab_workload::BatchSize;

/// Everything about a switch.
pub(super) struct SwitchEntry {
    /// Its name on the command line and in the event stream.
    pub word: &'static str,
    /// The key that flips it to the next value, or opens a line to write one.
    pub key: char,
    /// The key that flips it to the previous value, if there is one.
    pub back: Option<char>,
    /// Its name in the panel.
    pub label: &'static str,
    /// Its group in the panel.
    pub group: super::SwitchGroup,
    /// A description for the help on keys and the command line.
    pub help: &'static str,
    /// A shorter description for the list of keys.
    pub brief: &'static str,
    /// One sentence about what flipping it does to memory.
    pub teaches: &'static str,
    /// Its possible values.
    pub value: Value,
    /// Why it changes nothing in a run, if that is so.
    pub idle: fn(&Scene<'_>) -> Option<&'static str>,
}

/// The possible values of a switch.
pub(super) enum Value {
    /// One of a list of words; keys cycle through them.
    List {
        words: &'static [&'static str],
        /// The word that the flag without a value stands for on the command line.
        alone: Option<&'static str>,
        get: fn(&Config) -> usize,
        set: fn(&mut Config, usize),
    },
    /// A count of at least 1; keys go through `stops`, or by powers of two if there are none.
    Count { stops: &'static [&'static str], get: fn(&Config) -> usize, set: fn(&mut Config, usize) },
    /// One of a list of words that keys cycle through, or another word.
    Open {
        stops: &'static [&'static str],
        /// The word that the flag without a value stands for on the command line.
        alone: Option<&'static str>,
        /// What else may be written.
        hint: &'static str,
        get: fn(&Config) -> String,
        set: fn(&mut Config, &str) -> Result<(), String>,
    },
    /// A text; the key opens a line to write it.
    Text {
        /// What may be written.
        hint: &'static str,
        get: fn(&Setup) -> Cow<'static, str>,
        set: fn(&mut Setup, &str) -> Result<(), String>,
    },
}

/// The field's value, by the word at its position in the list.
macro_rules! one_of {
    ($values:ident of $field:ident, $words:expr) => {
        one_of!($values of $field, $words, alone None)
    };
    ($values:ident of $field:ident, $words:expr, alone $alone:expr) => {
        Value::List {
            words: &$words,
            alone: $alone,
            get: |config| position(&$values, &config.$field),
            set: |config, choice| config.$field = $values[choice],
        }
    };
}

const AMP: [Amp; 3] = [Amp::Off, Amp::Fp16, Amp::Bf16];
const OPTIMIZERS: [OptimizerKind; 12] = [
    OptimizerKind::Sgd,
    OptimizerKind::PagedAdamW,
    OptimizerKind::PagedAdamW8bit,
    OptimizerKind::AdamW8bit,
    OptimizerKind::PagedLion,
    OptimizerKind::PagedLion8bit,
    OptimizerKind::Lion8bit,
    OptimizerKind::Lion,
    OptimizerKind::Momentum,
    OptimizerKind::Muon,
    OptimizerKind::Adam,
    OptimizerKind::AdamW,
];
const FORMS: [OptimizerForm; 3] = [OptimizerForm::Foreach, OptimizerForm::Fused, OptimizerForm::Loop];
const OFFLOAD: [Offload; 6] = [
    Offload::Off,
    Offload::Activations,
    Offload::Overlapped,
    Offload::Optimizer,
    Offload::Parameters,
    Offload::ParametersAndActivations,
];
const TF32: [Tf32; 3] = [Tf32::Off, Tf32::Convolutions, Tf32::On];
const ATTENTION: [AttentionKernel; 6] = [
    AttentionKernel::Auto,
    AttentionKernel::Math,
    AttentionKernel::Efficient,
    AttentionKernel::Flash,
    AttentionKernel::CuDnn,
    AttentionKernel::Eager,
];
const LOSS_HEADS: [LossHead; 6] = [
    LossHead::Labels,
    LossHead::LabelsCopied,
    LossHead::Shifted,
    LossHead::Chunked,
    LossHead::Fused,
    LossHead::FusedF32,
];
const FLOAT8: [Float8Recipe; 3] = [Float8Recipe::Off, Float8Recipe::Tensorwise, Float8Recipe::Rowwise];
const RETAIN: [Retain; 4] = [Retain::Off, Retain::Losses, Retain::Graph, Retain::Cycles];
const ON_OOM: [OnOom; 3] = [OnOom::Stop, OnOom::Halve, OnOom::HalveHeld];
const OFF_ON: &[&str] = &["off", "on"];

fn position<T: PartialEq>(values: &[T], value: &T) -> usize {
    values.iter().position(|candidate| candidate == value).unwrap_or(0)
}

fn always(_: &Scene<'_>) -> Option<&'static str> {
    None
}

fn trained(scene: &Scene<'_>) -> Option<&'static str> {
    (!scene.trains).then_some("nothing is trained here")
}

use super::SwitchGroup::{Memory, Training};

/// Every switch, in the order of the panel's groups.
pub(super) const TABLE: &[SwitchEntry] = &[
    SwitchEntry {
        word: "amp",
        key: 'm',
        back: None,
        label: "AMP",
        group: Training,
        help: "mixed precision: 16-bit activations, and casts of the weights",
        brief: "mixed precision: 16-bit activations",
        teaches: "Activations shrink by less than half: every weight gets a 16-bit copy, and the casts are allocations too.",
        value: one_of!(AMP of amp, ["off", "fp16", "bf16"]),
        idle: |scene| scene.no_model.then_some("there is no model to cast"),
    },
    SwitchEntry {
        word: "ckpt",
        key: 'c',
        back: None,
        label: "checkpoint",
        group: Memory,
        help: "activation checkpointing: keep less, recompute in backward",
        brief: "checkpointing: recompute in backward",
        teaches: "Backward computes activations again instead of keeping them: less memory, a slower step.",
        value: Value::Open {
            stops: &["off", "on", "every:2", "every:4", "reentrant"],
            alone: Some("on"),
            hint: "every:K checkpoints one block in K, reentrant:K with use_reentrant=True",
            get: |config| config.checkpointing.to_string(),
            set: |config, text| {
                config.checkpointing = text.parse()?;
                Ok(())
            },
        },
        idle: |scene| trained(scene).or((!scene.blocks).then_some("this model has no blocks")),
    },
    SwitchEntry {
        word: "accum",
        key: 'a',
        back: None,
        label: "accumulate",
        group: Memory,
        help: "gradient accumulation: smaller micro-batches, fewer activations",
        brief: "accumulation: smaller micro-batches",
        teaches: "Smaller micro-batches shrink activations; parameters and optimizer state stay.",
        value: Value::Count {
            stops: &["1", "2", "4", "8"],
            get: |config| config.accumulation,
            set: |config, count| config.accumulation = count,
        },
        idle: trained,
    },
    SwitchEntry {
        word: "pin",
        key: 'p',
        back: None,
        label: "pinned",
        group: Training,
        help: "pinned batches: copied while the device computes",
        brief: "pinned batches: copied beside the compute",
        teaches: "Page-locked batches are copied beside the computation, from blocks that are kept for reuse.",
        value: Value::List {
            words: OFF_ON,
            alone: Some("on"),
            get: |config| usize::from(config.pinned),
            set: |config, choice| config.pinned = choice == 1,
        },
        idle: |scene| {
            let resident = matches!(scene.config.data, DataPath::Resident | DataPath::Fresh);
            (resident && scene.config.offload == Offload::Off).then_some("its batches stay on the device")
        },
    },
    SwitchEntry {
        word: "opt",
        key: 'o',
        back: None,
        label: "optimizer",
        group: Training,
        help: "optimizer: no state, 1 or 2 times the parameters, or bytes",
        brief: "optimizer: how much state it keeps",
        teaches: "Its state is 0, 1 or 2 times the parameters, or 1 or 2 bytes each, created in its first step; a paged one's is beside the allocator.",
        value: one_of!(OPTIMIZERS of optimizer, [
            "sgd",
            "paged_adamw_32bit",
            "paged_adamw_8bit",
            "adamw_8bit",
            "paged_lion_32bit",
            "paged_lion_8bit",
            "lion_8bit",
            "lion_32bit",
            "momentum",
            "muon",
            "adam",
            "adamw",
        ]),
        idle: trained,
    },
    SwitchEntry {
        word: "zero-grad",
        key: 'z',
        back: None,
        label: "zero_grad",
        group: Memory,
        help: "zero_grad: free the gradients, or keep them filled with zeros",
        brief: "zero_grad: free gradients, or zero them",
        teaches: "Zeroed gradients stay allocated through the next forward; set_to_none frees them.",
        value: Value::List {
            words: &["set_to_none", "zeroed"],
            alone: None,
            get: |config| usize::from(config.zero_grad == ZeroGrad::Zeroed),
            set: |config, choice| {
                config.zero_grad = if choice == 1 { ZeroGrad::Zeroed } else { ZeroGrad::SetToNone };
            },
        },
        idle: trained,
    },
    SwitchEntry {
        word: "opt-form",
        key: 'O',
        back: None,
        label: "step form",
        group: Training,
        help: "optimizer step: foreach, fused or loop; temporaries differ",
        brief: "optimizer step: foreach, fused or loop",
        teaches: "foreach takes a copy of all parameters, the loop two of one parameter, the fused kernel none.",
        value: one_of!(FORMS of form, ["foreach", "fused", "loop"]),
        idle: trained,
    },
    SwitchEntry {
        word: "batch",
        key: 'B',
        back: Some('b'),
        label: "batch",
        group: Training,
        help: "samples a step, over all micro-batches; activations follow",
        brief: "samples a step, over all micro-batches",
        teaches: "Activations grow with it; parameters, gradients and optimizer state do not.",
        value: Value::Count { stops: &[], get: |config| config.batch, set: |config, count| config.batch = count },
        idle: |scene| scene.no_model.then_some("there is no model to feed"),
    },
    SwitchEntry {
        word: "offload",
        key: 'f',
        back: None,
        label: "offload",
        group: Memory,
        help: "keep activations, optimizer state or parameters on the host",
        brief: "keep activations or state on the host",
        teaches: "What the device does not need now waits in host memory; the step pays for the copies.",
        value: one_of!(OFFLOAD of offload, [
            "off",
            "activations",
            "overlapped",
            "optimizer",
            "parameters",
            "parameters+activations",
        ]),
        idle: trained,
    },
    SwitchEntry {
        word: "attention",
        key: 'A',
        back: None,
        label: "attention",
        group: Training,
        help: "attention kernel: only math keeps a matrix per head",
        brief: "attention: only math keeps a matrix",
        teaches: "Math keeps a matrix of rows × rows per head for backward; the fused kernels keep one number per row.",
        value: one_of!(ATTENTION of attention, ["auto", "math", "efficient", "flash", "cudnn", "eager"]),
        idle: |scene| match scene.attention {
            true => scene.eager.then_some("attention of this model is eager alone"),
            false => Some("this model has no attention"),
        },
    },
    SwitchEntry {
        word: "loss",
        key: 'C',
        back: None,
        label: "loss head",
        group: Memory,
        help: "loss of Llama-like models: how many logits are there at once",
        brief: "loss: how many logits are there at once",
        teaches: "Logits over a large vocabulary are cast to f32 and shifted; a loss fused with its head never has them all.",
        value: one_of!(LOSS_HEADS of loss_head, ["labels", "labels-copied", "shifted", "chunked", "fused", "fused-f32"]),
        idle: |scene| if scene.causal { trained(scene) } else { Some("only Llama-like models have this loss") },
    },
    SwitchEntry {
        word: "drop-output",
        key: 'U',
        back: None,
        label: "drop output",
        group: Memory,
        help: "keep the loss alone: the model's output goes before backward",
        brief: "the model's output goes before backward",
        teaches: "Who keeps the loss alone has no logits in memory while backward runs; an output that has a name stays there.",
        value: Value::List {
            words: OFF_ON,
            alone: Some("on"),
            get: |config| usize::from(config.drop_output),
            set: |config, choice| config.drop_output = choice == 1,
        },
        idle: |scene| {
            let logits = !(scene.causal && scene.config.loss_head.is_fused()) || scene.config.use_cache;
            trained(scene)
                .or(scene.adversarial.then_some("made images go through both models"))
                .or((!logits).then_some("a fused loss has no logits"))
        },
    },
    SwitchEntry {
        word: "attention-mask",
        key: 'M',
        back: None,
        label: "attn mask",
        group: Training,
        help: "pass attention_mask: which positions are padding",
        brief: "attention_mask: positions that are padding",
        teaches: "A batch with padding reaches SDPA with a mask: no flash attention, keys and values for every head, and a mask of numbers in every layer.",
        value: Value::List {
            words: OFF_ON,
            alone: Some("on"),
            get: |config| usize::from(config.attention_mask),
            set: |config, choice| config.attention_mask = choice == 1,
        },
        idle: |scene| if scene.causal { trained(scene) } else { Some("only Llama-like models take one here") },
    },
    SwitchEntry {
        word: "fp8",
        key: '8',
        back: None,
        label: "FP8",
        group: Training,
        help: "FP8: linear layers multiply in 8 bits, as torchao has it",
        brief: "FP8: linear layers multiply in 8 bits",
        teaches: "In eager mode weights and saved inputs stay as they are; each product takes copies of its factors, in f32 and in 8 bits, for a moment.",
        value: one_of!(FLOAT8 of float8, ["off", "tensorwise", "rowwise"], alone Some("tensorwise")),
        idle: |scene| match scene.float8 {
            true => trained(scene),
            false => Some("only Llama-like models have it here, and no adapters"),
        },
    },
    SwitchEntry {
        word: "tf32",
        key: 't',
        back: None,
        label: "TF32",
        group: Training,
        help: "TF32: faster matrix products on tensor cores of a GPU",
        brief: "TF32: faster matrix products on a GPU",
        teaches: "Faster products on tensor cores; only cuDNN's workspaces change. No effect on the processor.",
        value: one_of!(TF32 of tf32, ["off", "conv", "on"], alone Some("on")),
        idle: |scene| match scene.device {
            DeviceKind::Processor => Some("the processor has no TF32"),
            _ => scene.no_model.then_some("there are no products"),
        },
    },
    SwitchEntry {
        word: "schedule",
        key: 's',
        back: None,
        label: "schedule",
        group: Training,
        help: "learning rate: constant or cosine; takes no memory",
        brief: "learning rate: constant or cosine",
        teaches: "A factor on the learning rate: it takes no memory.",
        value: Value::List {
            words: &["constant", "cosine"],
            alone: None,
            get: |config| usize::from(config.schedule == Schedule::Cosine),
            set: |config, choice| config.schedule = if choice == 1 { Schedule::Cosine } else { Schedule::Constant },
        },
        idle: trained,
    },
    SwitchEntry {
        word: "fuse",
        key: 'F',
        back: None,
        label: "fuse",
        group: Training,
        help: "fused ops: no intermediates, unlike eager PyTorch",
        brief: "fused ops: no intermediates",
        teaches: "Fused ops skip what eager ones write between them: the curve is no longer eager PyTorch's.",
        value: Value::List {
            words: &["off", "on", "norms"],
            alone: Some("on"),
            get: |config| usize::from(config.fuse) + usize::from(config.fuse && config.gates_as_written),
            set: |config, choice| (config.fuse, config.gates_as_written) = (choice > 0, choice == 2),
        },
        idle: |scene| match (scene.no_model, scene.fuses) {
            (true, _) => Some("there are no ops to fuse"),
            (_, false) => Some("its ops stay as the course has them"),
            _ => None,
        },
    },
    SwitchEntry {
        word: "retain",
        key: 'r',
        back: None,
        label: "leak",
        group: Memory,
        help: "leak: keep each step's loss, graph, or output in a cycle",
        brief: "leak: keep each step's loss or graph",
        teaches: "Kept losses cost 512 bytes a step, their graphs all saved tensors; cycles keep outputs until Python's collector runs.",
        value: one_of!(RETAIN of retain, ["off", "losses", "graph", "cycles"]),
        idle: trained,
    },
    SwitchEntry {
        word: "on-oom",
        key: 'X',
        back: None,
        label: "on OOM",
        group: Memory,
        help: "out of memory: stop, or halve the batch and try again",
        brief: "out of memory: stop, or halve the batch",
        teaches: "A batch that halves itself finds one that fits; inside the except block the failed step's tensors still live.",
        value: one_of!(ON_OOM of on_oom, ["stop", "halve", "halve_held"]),
        idle: trained,
    },
    SwitchEntry {
        word: "limit",
        key: 'L',
        back: None,
        label: "limit",
        group: Memory,
        help: "memory limit on reserved, such as 8GiB or 50%",
        brief: "memory limit, such as 8GiB or 50%",
        teaches: "The most that may be reserved, in bytes or as a share of the device. What is held stays until empty_cache.",
        value: Value::Text {
            hint: "bytes or a share of the device: 8GiB, 512MiB, 50%; empty: no limit",
            get: |setup| setup.limit.map_or("none".into(), |limit| limit.to_string().into()),
            set: |setup, text| {
                setup.limit = match text {
                    "" | "none" | "off" => None,
                    limit => Some(limit.parse::<MemoryLimit>()?),
                };
                Ok(())
            },
        },
        idle: always,
    },
    SwitchEntry {
        word: "alloc-conf",
        key: 'x',
        back: None,
        label: "allocator",
        group: Memory,
        help: "PYTORCH_ALLOC_CONF, such as expandable_segments:True",
        brief: "PYTORCH_ALLOC_CONF: allocator settings",
        teaches: "PYTORCH_ALLOC_CONF, for what is allocated from now on: segments that are there stay until empty_cache.",
        value: Value::Text {
            hint: "the syntax of PYTORCH_ALLOC_CONF; empty: the defaults",
            get: |setup| match &*setup.alloc_conf {
                "" => "default".into(),
                text => text.to_owned().into(),
            },
            set: |setup, text| {
                let text = if text == "default" { "" } else { text };
                check_settings(setup.torch, text)?;
                setup.alloc_conf = text.into();
                Ok(())
            },
        },
        idle: always,
    },
];

/// A count within its bounds.
pub(super) fn count(text: &str) -> Result<usize, String> {
    text.parse::<BatchSize>().map(BatchSize::get).map_err(|error| error.to_string())
}
