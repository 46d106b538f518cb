//! Words about training: phases and times, switches, ops, the GPU's activity, the source of a picture.

use super::GlossaryEntry;
use crate::drawing::figures;
use crate::model::Phase;
use crate::tui::panel::Panel::{
    Accounts, Alive, AtCursor, Configurations, Curves, Detail, Effect, Forward, Fragmentation, Gpu, Header, History,
    LedgerChart, Log, Loss, Map, Ops, Ranks, Reserved, Stacked, StepCurve, StepTimes, Switches, Why,
};
use crate::tui::stage::Stage;

/// The value of a switch.
fn switch(stage: &Stage<'_>, word: &str) -> Option<String> {
    stage.picture.switches().get(word).map(|setting| format!("{} now", setting.value))
}

/// The words.
pub(super) const WORDS: &[GlossaryEntry] = &[
    GlossaryEntry {
        word: "step",
        also: &["steps"],
        panels: &[Header, StepTimes, History, Log, Configurations],
        figure: Some(|stage| {
            let steps = &stage.view().steps;
            (steps.finished > 0)
                .then(|| format!("{} ms{}", figures::milliseconds(steps.median), stage.clock().of("", ", simulated")))
        }),
        meaning: "one update of the parameters: every micro-batch forward and backward, then the optimizer. Times are medians of the last steps.",
    },
    GlossaryEntry {
        word: "peak",
        also: &["fullest", "peaks"],
        panels: &[History, StepCurve, Stacked, Ops, Alive, AtCursor, Curves, Configurations, Effect, Accounts],
        figure: Some(|stage| {
            let peak = figures::bytes(stage.view().peak_allocated);
            stage.view().knows_peaks().then(|| format!("{peak} since the start"))
        }),
        meaning: "the most that was allocated, in a step or since the start: torch.cuda.max_memory_allocated.",
    },
    GlossaryEntry {
        word: "floor",
        also: &[],
        panels: &[History],
        figure: Some(|stage| {
            let last = stage.view().history.latest()?;
            Some(format!("{} in the last step", figures::bytes(last.floor)))
        }),
        meaning: "the least that was allocated in a step: what stays from step to step. A floor that rises is a leak.",
    },
    GlossaryEntry {
        word: "leak",
        also: &["retain", "losses", "graph", "cycles"],
        panels: &[History, Why, Switches],
        figure: None,
        meaning: "memory that is never freed though nothing needs it. Here: losses kept with their graph, as `total += loss` does.",
    },
    GlossaryEntry {
        word: "moment",
        also: &["moments", "event", "events", "column", "columns"],
        panels: &[StepCurve, Stacked, Reserved, LedgerChart, Fragmentation, AtCursor, Accounts, Curves],
        figure: None,
        meaning: "a column of a chart stands for several memory events and shows the one with the most allocated.",
    },
    GlossaryEntry {
        word: "□",
        also: &["more", "thin", "joined"],
        panels: &[StepCurve, Stacked],
        figure: None,
        meaning: "in place of ■: too thin to be drawn. Thin parts that lie on each other are one band, `params+optim` or `2 more`.",
    },
    GlossaryEntry {
        word: "cursor",
        also: &["now", "at"],
        panels: &[AtCursor, Stacked, Header, Reserved],
        figure: None,
        meaning: "the moment that all figures belong to: now, or the one you went back to.",
    },
    GlossaryEntry {
        word: "before",
        also: &["after"],
        panels: &[StepCurve, Effect],
        figure: None,
        meaning: "the same step before the last flip, as a line over the current one.",
    },
    GlossaryEntry {
        word: "data",
        also: &[],
        panels: &[StepTimes, StepCurve],
        figure: Some(|stage| {
            let steps = &stage.view().steps;
            (steps.finished > 0).then(|| {
                format!(
                    "{} ms{}",
                    figures::milliseconds(steps.phases[Phase::Data as usize]),
                    stage.clock().of("", ", simulated")
                )
            })
        }),
        meaning: "waiting for a batch and copying it to the device.",
    },
    GlossaryEntry {
        word: "forward",
        also: &["forw", "fw"],
        panels: &[StepTimes, StepCurve, Forward, Stacked],
        figure: Some(|stage| {
            let steps = &stage.view().steps;
            (steps.finished > 0).then(|| {
                format!(
                    "{} ms{}",
                    figures::milliseconds(steps.phases[Phase::Forward as usize]),
                    stage.clock().of("", ", simulated")
                )
            })
        }),
        meaning: "the model and the loss. Narrow charts call it fw or f, and the other phases by their first letters.",
    },
    GlossaryEntry {
        word: "backward",
        also: &["backw", "bw"],
        panels: &[StepTimes, StepCurve, Stacked],
        figure: Some(|stage| {
            let steps = &stage.view().steps;
            (steps.finished > 0).then(|| {
                format!(
                    "{} ms{}",
                    figures::milliseconds(steps.phases[Phase::Backward as usize]),
                    stage.clock().of("", ", simulated")
                )
            })
        }),
        meaning: "computes gradients; with checkpointing, parts of forward run again.",
    },
    GlossaryEntry {
        word: "optimizer step",
        also: &[],
        panels: &[StepTimes, StepCurve, Stacked],
        figure: Some(|stage| {
            let steps = &stage.view().steps;
            (steps.finished > 0).then(|| {
                format!(
                    "{} ms{}",
                    figures::milliseconds(steps.phases[Phase::Optimizer as usize]),
                    stage.clock().of("", ", simulated")
                )
            })
        }),
        meaning: "unscales gradients, updates parameters, updates the scaler.",
    },
    GlossaryEntry {
        word: "zero_grad",
        also: &["zero", "set_to_none", "zeroed"],
        panels: &[StepTimes, StepCurve, Stacked, Switches],
        figure: Some(|stage| {
            let steps = &stage.view().steps;
            (steps.finished > 0).then(|| {
                format!(
                    "{} ms{}",
                    figures::milliseconds(steps.phases[Phase::ZeroGrad as usize]),
                    stage.clock().of("", ", simulated")
                )
            })
        }),
        meaning: "frees the gradients (set_to_none) or fills them with zeros. Freed ones take no memory during the next forward.",
    },
    GlossaryEntry {
        word: "copy",
        also: &["copies", "pageable", "host"],
        panels: &[StepTimes, Gpu],
        figure: Some(|stage| {
            let steps = &stage.view().steps;
            (steps.finished > 0)
                .then(|| format!("{} ms{}", figures::milliseconds(steps.copy), stage.clock().of("", ", simulated")))
        }),
        meaning: "copies between host and device. From pinned memory they overlap with compute; from pageable memory the host waits.",
    },
    GlossaryEntry {
        word: "pinned",
        also: &["pin"],
        panels: &[Switches, StepTimes],
        figure: Some(|stage| Some(format!("{} now", figures::bytes(stage.view().host.allocated)))),
        meaning: "page-locked host memory, which the GPU can read directly: DataLoader(pin_memory=True).",
    },
    GlossaryEntry {
        word: "throughput",
        also: &["tok", "samples"],
        panels: &[Header, Configurations, Effect],
        figure: Some(|stage| {
            let (steps, about) = (&stage.view().steps, &stage.view().about);
            (steps.throughput > 0.0)
                .then(|| format!("{} {}", figures::short_count(steps.throughput), about.items.per_second()))
        }),
        meaning: "tokens or samples per second, over the last steps.",
    },
    GlossaryEntry {
        word: "loss",
        also: &[],
        panels: &[Header, Loss],
        figure: Some(|stage| {
            stage.view().steps.last.as_ref().and_then(|last| last.loss).map(|loss| format!("{loss:.3}"))
        }),
        meaning: "mean over a step's micro-batches. A simulated device computes no loss.",
    },
    GlossaryEntry {
        word: "skipped",
        also: &[],
        panels: &[Header],
        figure: Some(|stage| Some(format!("{} so far", stage.view().steps.skipped))),
        meaning: "steps whose fp16 gradients overflowed: GradScaler skips the update and halves its scale.",
    },
    GlossaryEntry {
        word: "measured effect",
        also: &["effect", "measuring", "measured", "flip", "flips", "median", "medians"],
        panels: &[Effect],
        figure: None,
        meaning: "medians of the steps before and after a flip, without the first few: peaks, stranded, step time, throughput.",
    },
    GlossaryEntry {
        word: "why",
        also: &["finding", "findings", "remedy", "try"],
        panels: &[Why],
        figure: Some(|stage| Some(format!("{} now", stage.findings().len()))),
        meaning: "findings: what the figures say, the cause, and what to do.",
    },
    GlossaryEntry {
        word: "switch",
        also: &["switches"],
        panels: &[Switches],
        figure: None,
        meaning: "settings that can change while the model trains. A flip takes effect at the next step; nothing restarts. A key goes to the next value: f×3 is f pressed three times.",
    },
    GlossaryEntry {
        word: "loss head",
        also: &["head", "labels"],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "loss")),
        meaning: "how logits become a loss: from labels as transformers does, shifted by hand, chunk by chunk, or fused with the layer that makes them, without keeping any.",
    },
    GlossaryEntry {
        word: "LoRA",
        also: &["adapter", "adapters"],
        panels: &[Header],
        figure: None,
        meaning: "low-rank adaptation: weights are frozen, and two narrow matrices beside a layer are trained. The frozen weights have no gradients and no optimizer state; activations mostly stay.",
    },
    GlossaryEntry {
        word: "QLoRA",
        also: &["nf4", "quantize", "4 bits", "bitsandbytes"],
        panels: &[Header],
        figure: None,
        meaning: "LoRA above frozen layers in 4 bits (NF4 of bitsandbytes). A layer's weight is unpacked into a block of its own for each product, forward and backward; what is between layers is f32.",
    },
    GlossaryEntry {
        word: "checkpoint",
        also: &["ckpt", "checkpointing"],
        panels: &[Switches, Configurations],
        figure: Some(|stage| switch(stage, "ckpt")),
        meaning: "activation checkpointing (torch.utils.checkpoint): a block keeps only its input and runs again in backward; with every:K one block in K, with reentrant as one function of autograd's (use_reentrant=True). Fewer activations, slower backward.",
    },
    GlossaryEntry {
        word: "AMP",
        also: &["bf16", "fp16", "autocast"],
        panels: &[Switches, Configurations],
        figure: Some(|stage| switch(stage, "amp")),
        meaning: "autocast: matrix products in 16 bits, norms and losses in 32. Activations shrink by less than half, 16-bit copies of the weights are added. fp16 needs GradScaler, bf16 does not.",
    },
    GlossaryEntry {
        word: "accumulate",
        also: &["accum", "accumulation", "micro-batch"],
        panels: &[Switches, Configurations],
        figure: Some(|stage| switch(stage, "accum")),
        meaning: "gradient accumulation: the batch is split into micro-batches with one update. Activations shrink; parameters and optimizer state do not.",
    },
    GlossaryEntry {
        word: "batch",
        also: &[],
        panels: &[Switches, Header, Configurations],
        figure: Some(|stage| switch(stage, "batch")),
        meaning: "samples per step. Activations grow with it; parameters, gradients and optimizer state do not.",
    },
    GlossaryEntry {
        word: "step form",
        also: &["form", "foreach", "fused form", "for-loop"],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "opt-form")),
        meaning: "how the optimizer steps: foreach (all parameters at once, with temporaries as large as they are), for loop (one by one), fused (one kernel).",
    },
    GlossaryEntry {
        word: "attention",
        also: &["attn", "flash", "math", "efficient", "auto"],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "attention")),
        meaning: "the kernel of scaled_dot_product_attention: flash and memory-efficient keep no scores, math keeps all of them for backward.",
    },
    GlossaryEntry {
        word: "drop output",
        also: &["drop"],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "drop-output")),
        meaning: "on: the program keeps the loss alone, and logits are gone before backward. A variable that holds the output keeps them until the step ends.",
    },
    GlossaryEntry {
        word: "mask",
        also: &["attention_mask", "padding"],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "attention-mask")),
        meaning: "which positions of a batch are padding, as a program tells its model. Where there is some, SDPA gets a mask, and flash attention is out.",
    },
    GlossaryEntry {
        word: "FP8",
        also: &["float8", "e4m3", "e5m2", "torchao"],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "fp8")),
        meaning: "numbers of 8 bits under a scale. torchao rounds both factors of every product of a linear layer to them; in eager mode what is saved for backward keeps its type.",
    },
    GlossaryEntry {
        word: "offload",
        also: &["offloaded"],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "offload")),
        meaning: "keeps saved activations, optimizer state or parameters in host memory and copies them back when needed.",
    },
    GlossaryEntry {
        word: "fuse",
        also: &["eager", "fused", "fusion"],
        panels: &[Switches, Header],
        figure: Some(|stage| switch(stage, "fuse")),
        meaning: "fuses ops as torch.compile would: fewer temporaries. The curve is no longer eager PyTorch's.",
    },
    GlossaryEntry {
        word: "TF32",
        also: &[],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "tf32")),
        meaning: "32-bit matrix products with a 10-bit mantissa: faster, same memory.",
    },
    GlossaryEntry {
        word: "schedule",
        also: &["lr", "lin", "constant"],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "schedule")),
        meaning: "how the learning rate changes from step to step.",
    },
    GlossaryEntry {
        word: "alloc-conf",
        also: &["PYTORCH_ALLOC_CONF", "conf"],
        panels: &[Switches],
        figure: Some(|stage| switch(stage, "alloc-conf")),
        meaning: "settings of the allocator, in the syntax of PYTORCH_ALLOC_CONF.",
    },
    GlossaryEntry {
        word: "configuration",
        also: &["base", "configurations", "baseline", "best"],
        panels: &[Configurations, Curves, Switches],
        figure: None,
        meaning: "one setting of all switches. Each that was in force has a row with the medians of its steps.",
    },
    GlossaryEntry {
        word: "op",
        also: &["ops"],
        panels: &[Ops, AtCursor, Detail, Header, StepCurve],
        figure: Some(|stage| Some(stage.view().names.get(stage.view().op).to_owned()).filter(|op| !op.is_empty())),
        meaning: "one operation of the model or of backward (which ends in Backward), with the path of its module.",
    },
    GlossaryEntry {
        word: "module",
        also: &["modules", "place", "path"],
        panels: &[Ops, Forward, Stacked, Map],
        figure: None,
        meaning: "a part of the model, by its path: blocks.3 is the fourth block. In a PyTorch snapshot, the source file.",
    },
    GlossaryEntry {
        word: "calls",
        also: &["call"],
        panels: &[Ops, Forward],
        figure: None,
        meaning: "how often it ran in the window.",
    },
    GlossaryEntry {
        word: "host ms",
        also: &["host time", "time"],
        panels: &[Ops],
        figure: None,
        meaning: "time the host spends in the op; the GPU may still be working afterwards.",
    },
    GlossaryEntry {
        word: "taken",
        also: &["took", "takes"],
        panels: &[Ops, Alive],
        figure: None,
        meaning: "bytes of the blocks that an op allocated.",
    },
    GlossaryEntry {
        word: "kept",
        also: &["keep", "keeps", "stays", "stay"],
        panels: &[Ops, Forward],
        figure: None,
        meaning: "bytes still alive when the op ends; for a module, when backward begins.",
    },
    GlossaryEntry {
        word: "at peak",
        also: &["alive"],
        panels: &[Ops, AtCursor],
        figure: None,
        meaning: "bytes the op allocated that are alive at the peak of the window.",
    },
    GlossaryEntry {
        word: "tag",
        also: &["survived", "gone"],
        panels: &[Alive],
        figure: None,
        meaning: "a marked moment: the screen shows what was allocated since and is still alive, and what is gone.",
    },
    GlossaryEntry {
        word: "shape",
        also: &["output", "dtype", "hook"],
        panels: &[Forward],
        figure: None,
        meaning: "shape of the tensor a module returns, as a forward hook sees it.",
    },
    GlossaryEntry {
        word: "busy",
        also: &[],
        panels: &[Gpu],
        figure: None,
        meaning: "share of the time in which some kernel ran on the GPU. It does not say how much of the GPU that kernel used.",
    },
    GlossaryEntry {
        word: "tensor",
        also: &["tensors"],
        panels: &[Gpu, Stacked, Map],
        figure: None,
        meaning: "on the GPU: share of cycles in which tensor cores were busy. As a grouping: by the names of blocks.",
    },
    GlossaryEntry {
        word: "DRAM",
        also: &["memory"],
        panels: &[Gpu],
        figure: None,
        meaning: "share of the GPU's memory bandwidth in use.",
    },
    GlossaryEntry {
        word: "occupancy",
        also: &["SM", "SMs"],
        panels: &[Gpu],
        figure: None,
        meaning: "warps resident on the GPU's multiprocessors, of the most they can hold.",
    },
    GlossaryEntry {
        word: "PCIe",
        also: &[],
        panels: &[Gpu],
        figure: None,
        meaning: "traffic between host and GPU, in and out.",
    },
    GlossaryEntry {
        word: "held back",
        also: &["power", "power limit"],
        panels: &[Gpu],
        figure: None,
        meaning: "the GPU runs below its clock because of power, temperature or a setting.",
    },
    GlossaryEntry {
        word: "simulated",
        also: &["sim"],
        panels: &[Header, StepTimes],
        figure: None,
        meaning: "times come from a model of the named card: its arithmetic and bandwidth. Requests for memory are real.",
    },
    GlossaryEntry {
        word: "processor",
        also: &["cpu"],
        panels: &[Header],
        figure: None,
        meaning: "the model trains on this machine's processor; memory is laid out as on a GPU.",
    },
    GlossaryEntry {
        word: "recording",
        also: &["rec", "recorded", "whole run"],
        panels: &[Header, Log],
        figure: None,
        meaning: "a file of everything that happened; the cursor can go anywhere in it.",
    },
    GlossaryEntry {
        word: "snapshot",
        also: &[],
        panels: &[Header],
        figure: None,
        meaning: "a file written by torch.cuda.memory._dump_snapshot: segments, blocks and the last events.",
    },
    GlossaryEntry {
        word: "noise",
        also: &["same", "differ", "difference"],
        panels: &[Effect, Configurations],
        figure: None,
        meaning: "a difference no larger than the spread among steps of one configuration.",
    },
    GlossaryEntry {
        word: "MiB",
        also: &["KiB", "GiB", "MB", "GB"],
        panels: &[Map, Gpu, StepTimes],
        figure: None,
        meaning: "2^20 bytes; KiB are 2^10, GiB 2^30. Rates in MB/s and GB/s count 10^6 and 10^9 bytes.",
    },
    GlossaryEntry {
        word: "history",
        also: &[],
        panels: &[History],
        figure: None,
        meaning: "one column for each step, or for several: the highest and the lowest allocated, and reserved.",
    },
    GlossaryEntry {
        word: "GPU",
        also: &["MHz", "W", "C"],
        panels: &[Gpu, Header],
        figure: None,
        meaning: "the card as its driver sees it: whose memory is whose, and how busy it is.",
    },
    GlossaryEntry {
        word: "rank",
        also: &["ranks", "world"],
        panels: &[Ranks, Header],
        figure: None,
        meaning: "one of several processes that train together, each with a GPU and an allocator of its own. Ranks that ask for the same blocks in the same order are computed once and share a row.",
    },
    GlossaryEntry {
        word: "worst",
        also: &[],
        panels: &[Ranks],
        figure: None,
        meaning: "the rank that ran out of memory, else the one that reserved most: the others need no larger card.",
    },
    GlossaryEntry {
        word: "log",
        also: &[],
        panels: &[Log],
        figure: None,
        meaning: "flips, refusals and findings, each with its step.",
    },
    GlossaryEntry {
        word: "filter",
        also: &[],
        panels: &[Map],
        figure: None,
        meaning: "words that a name, an op or a category must contain; other blocks are drawn faint.",
    },
];
