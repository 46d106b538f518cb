//! Words about the allocator: accounts, blocks, segments, categories.

use super::GlossaryEntry;
use crate::drawing::figures::bytes;
use crate::model::{Category, Ledger};
use crate::tui::panel::Panel::{
    Accounts, Alive, AtCursor, Configurations, Curves, Detail, Driver, Effect, Forward, Fragmentation, Gpu, Header,
    History, LedgerChart, Log, Map, Ops, Pools, Reserved, Segments, Stacked, StepCurve, StepTimes, Switches, Why,
    Worst,
};
use crate::tui::stage::Stage;
use crate::tui::when;
use crate::units::Bytes;

/// The current bytes of an account, and their share of reserved.
fn account(stage: &Stage<'_>, of: fn(&Ledger) -> Bytes) -> Option<String> {
    let ledger = &stage.shown.ledger;
    let (part, reserved) = (of(ledger), ledger.reserved());
    Some(format!(
        "{} {}, {} of reserved",
        bytes(part),
        when::words(stage.picture),
        crate::drawing::figures::percent(part.get(), reserved.get())
    ))
}

/// The current bytes of a category, and those at the last step's peak if they differ.
fn category(stage: &Stage<'_>, category: Category) -> Option<String> {
    let (now, peak) = (stage.shown.by_category, stage.view().peak_by_category);
    let index = category as usize;
    let here = format!("{} {}", bytes(now[index]), when::words(stage.picture));
    match now[index] == peak[index] {
        true => Some(here),
        false => Some(format!("{here}, {} at the peak of the last step", bytes(peak[index]))),
    }
}

/// A peak of the run, and the peak since the last reset, if there was one.
fn peak(of_run: Bytes, since_reset: Option<Bytes>) -> String {
    match since_reset {
        Some(since) => format!("{}, {} since the reset", bytes(of_run), bytes(since)),
        None => bytes(of_run),
    }
}

/// The words.
pub(super) const WORDS: &[GlossaryEntry] = &[
    GlossaryEntry {
        word: "allocated",
        also: &["alloc"],
        panels: &[
            Header,
            History,
            StepCurve,
            Accounts,
            LedgerChart,
            Stacked,
            AtCursor,
            Reserved,
            Curves,
            Configurations,
            Effect,
        ],
        figure: Some(|stage| {
            let view = stage.view();
            let now = format!("{} {}", bytes(stage.shown.ledger.allocated()), when::words(stage.picture));
            let since = view.since_reset.map(|since| since.allocated);
            Some(if view.knows_peaks() { format!("{now}, peak {}", peak(view.peak_allocated, since)) } else { now })
        }),
        meaning: "bytes in blocks that tensors hold, after rounding: torch.cuda.memory_allocated. It counts blocks, not the bytes requested, and nothing that is only cached.",
    },
    GlossaryEntry {
        word: "active",
        also: &[],
        panels: &[Accounts, Detail],
        figure: Some(|stage| {
            let ledger = &stage.shown.ledger;
            Some(format!("{} {}", bytes(ledger.allocated() + ledger.pending), when::words(stage.picture)))
        }),
        meaning: "allocated plus pending: active_bytes in torch.cuda.memory_stats. A freed block stays active until every stream that used it is done with it.",
    },
    GlossaryEntry {
        word: "reserved",
        also: &[],
        panels: &[History, Accounts, LedgerChart, Reserved, Map, Curves, Configurations, Effect, Driver, Pools],
        figure: Some(|stage| {
            let view = stage.view();
            let now = format!("{} {}", bytes(stage.shown.ledger.reserved()), when::words(stage.picture));
            let since = view.since_reset.map(|since| since.reserved);
            Some(if view.knows_peaks() { format!("{now}, peak {}", peak(view.peak_reserved, since)) } else { now })
        }),
        meaning: "bytes the allocator holds from the driver, used or free: torch.cuda.memory_reserved. It falls only when whole segments are returned: by empty_cache, or before a request would fail.",
    },
    GlossaryEntry {
        word: "requested",
        also: &["asked", "asks"],
        panels: &[Detail, Accounts],
        figure: None,
        meaning: "bytes that tensors asked for, before rounding: requested_bytes in torch.cuda.memory_stats. The account live counts them.",
    },
    GlossaryEntry {
        word: "live",
        also: &[],
        panels: &[Accounts, LedgerChart, Detail],
        figure: Some(|stage| account(stage, |ledger| ledger.live)),
        meaning: "the part of allocated that was requested; the rest is rounding.",
    },
    GlossaryEntry {
        word: "rounding",
        also: &["rounded"],
        panels: &[Accounts, LedgerChart, Map, Detail],
        figure: Some(|stage| account(stage, |ledger| ledger.rounding)),
        meaning: "the part of allocated that nobody requested: sizes are rounded up to 512 bytes, and a block is not split if the rest would be too small (512 bytes; 1 MiB in the large pool).",
    },
    GlossaryEntry {
        word: "pending",
        also: &[],
        panels: &[Accounts, LedgerChart, Map, Detail],
        figure: Some(|stage| account(stage, |ledger| ledger.pending)),
        meaning: "freed by the program while another stream still uses the block (record_stream). It counts as active, not as allocated, and can't be reused yet.",
    },
    GlossaryEntry {
        word: "releasable",
        also: &["unused"],
        panels: &[Accounts, LedgerChart, Map, Why, Effect],
        figure: Some(|stage| account(stage, |ledger| ledger.releasable)),
        meaning: "bytes in wholly free segments, or wholly free pages of expandable ones. empty_cache returns them to the driver; so does the allocator before a request fails.",
    },
    GlossaryEntry {
        word: "stranded",
        also: &["strand", "stranding", "strands", "inactive", "split", "inactive_split"],
        panels: &[Accounts, LedgerChart, Fragmentation, Map, Why, Worst, Pools, Effect, Configurations, Segments],
        figure: Some(|stage| account(stage, |ledger| ledger.stranded)),
        meaning: "free bytes inside segments that some block still holds. The allocator can reuse them, the driver can't have them back. PyTorch calls them inactive_split_bytes.",
    },
    GlossaryEntry {
        word: "stranded after",
        also: &[],
        panels: &[Effect, Configurations],
        figure: None,
        meaning: "what is stranded when a step is over and its activations are gone: free bytes in segments that parameters, gradients or optimizer state keep from going back. Within a step more may be stranded.",
    },
    GlossaryEntry {
        word: "free",
        also: &[],
        panels: &[Map, Detail, Gpu, Driver, Pools, Segments],
        figure: Some(|stage| account(stage, |ledger| ledger.free())),
        meaning: "in a segment, bytes that no block holds; on the GPU, what the driver still has.",
    },
    GlossaryEntry {
        word: "fragmentation",
        also: &[],
        panels: &[Fragmentation, Accounts, Why],
        figure: Some(|stage| {
            Some(format!(
                "{:.0} % of reserved {}",
                100.0 * stage.shown.ledger.fragmentation(),
                when::words(stage.picture)
            ))
        }),
        meaning: "stranded divided by reserved. It is high when long-lived blocks lie scattered among short-lived ones.",
    },
    GlossaryEntry {
        word: "segment",
        also: &["segments", "cudaMalloc"],
        panels: &[Map, Segments, Detail, Worst, Pools, Reserved, Why],
        figure: Some(|stage| Some(format!("{} {}", stage.shown.segments.len(), when::words(stage.picture)))),
        meaning: "what one cudaMalloc returned: 2 MiB for small blocks, 20 MiB for those up to 10 MiB, else the size rounded up to 2 MiB. Blocks are cut from it; only a wholly free one can be returned.",
    },
    GlossaryEntry {
        word: "expandable",
        also: &["expand", "page", "pages", "range", "ranges", "expandable_segments"],
        panels: &[Map, Segments, Detail, Pools],
        figure: None,
        meaning: "segments that grow and shrink by pages of 2 MiB in one range of addresses (expandable_segments:True), so free space at the end fits any next request.",
    },
    GlossaryEntry {
        word: "block",
        also: &["blocks"],
        panels: &[Map, Detail, Segments, Worst, Pools],
        figure: Some(|stage| {
            let held: usize = stage.shown.segments.iter().map(|segment| segment.blocks.len()).sum();
            Some(format!("{held} held {}", when::words(stage.picture)))
        }),
        meaning: "a piece of a segment that one tensor holds, or a free piece. Free neighbours are merged.",
    },
    GlossaryEntry {
        word: "hole",
        also: &["holes"],
        panels: &[Map, Detail, Accounts, Why, Segments, Worst, Pools, Fragmentation],
        figure: Some(|stage| {
            Some(format!("largest {} {}", bytes(stage.shown.largest_hole), when::words(stage.picture)))
        }),
        meaning: "a free piece in a segment that some block still holds. The largest hole bounds what fits without more memory from the driver.",
    },
    GlossaryEntry {
        word: "largest free block",
        also: &[],
        panels: &[Accounts, Fragmentation],
        figure: Some(|stage| account(stage, |ledger| ledger.largest_free)),
        meaning: "the largest free piece, wholly free segments included. A larger request needs a new segment.",
    },
    GlossaryEntry {
        word: "pins",
        also: &["pinned by", "holds", "held", "holder"],
        panels: &[Detail, Worst, Why],
        figure: None,
        meaning: "a block pins the free bytes of its segment: they can't be returned to the driver while it lives.",
    },
    GlossaryEntry {
        word: "large",
        also: &[],
        panels: &[Map, Pools, Segments, Detail],
        figure: None,
        meaning: "the pool for blocks above 1 MiB. It never shares a segment with the small pool.",
    },
    GlossaryEntry {
        word: "small",
        also: &[],
        panels: &[Map, Pools, Segments, Detail],
        figure: None,
        meaning: "the pool for blocks up to 1 MiB, cut from segments of 2 MiB.",
    },
    GlossaryEntry {
        word: "pool",
        also: &["pools"],
        panels: &[Pools, Map, Segments, Stacked, Detail],
        figure: None,
        meaning: "a set of segments: large or small, for one stream each. A block serves only requests of its own pool.",
    },
    GlossaryEntry {
        word: "stream",
        also: &["streams", "s1", "s2"],
        panels: &[Pools, Map, Segments, Detail],
        figure: None,
        meaning: "a queue of work on the GPU: s1 is the first beside the main one. A block belongs to the stream it was allocated on; each stream has its own segments.",
    },
    GlossaryEntry {
        word: "limit",
        also: &[],
        panels: &[History, LedgerChart, Accounts, Switches, Driver],
        figure: Some(|stage| Some(stage.view().limit.map_or_else(|| "none".to_owned(), bytes))),
        meaning: "the most that may be reserved: set_per_process_memory_fraction, or --limit. A request beyond it first releases cached segments, then fails as out of memory.",
    },
    GlossaryEntry {
        word: "empty_cache",
        also: &[],
        panels: &[Switches, Effect, Log, Why, Map],
        figure: None,
        meaning: "returns every wholly free segment to the driver, when the step ends, or at once while the run is paused: torch.cuda.empty_cache(). Reserved falls by releasable, allocated stays, and the next step pays for cudaMalloc again.",
    },
    GlossaryEntry {
        word: "max_memory_allocated",
        also: &["max_memory_reserved", "reset_peak_memory_stats"],
        panels: &[Log],
        figure: Some(|stage| {
            let view = stage.view();
            let (allocated, reserved) = (bytes(view.max_memory_allocated()), bytes(view.max_memory_reserved()));
            view.knows_peaks().then(|| format!("{allocated} allocated, {reserved} reserved"))
        }),
        meaning: "the highest value since torch.cuda.reset_peak_memory_stats, or since the start. Peaks of the run on screens are those since the start, whatever was reset.",
    },
    GlossaryEntry {
        word: "out of memory",
        also: &["OOM", "on-oom", "fails", "failed"],
        panels: &[Why, Log, History, Reserved],
        figure: None,
        meaning: "a request failed even after the allocator released its cache and tried again: torch.OutOfMemoryError.",
    },
    GlossaryEntry {
        word: "address",
        also: &["addresses", "offset"],
        panels: &[Detail, Map, Segments],
        figure: None,
        meaning: "where a block begins. A selection is an address: when the cursor moves in time, the screen shows what lies there then.",
    },
    GlossaryEntry {
        word: "cell",
        also: &["cells"],
        panels: &[Map],
        figure: None,
        meaning: "one character of the map; the title says how many bytes it stands for.",
    },
    GlossaryEntry {
        word: "age",
        also: &["born", "since", "old", "dies", "freed", "taken by"],
        panels: &[Map, Detail],
        figure: None,
        meaning: "how long ago a block was allocated.",
    },
    GlossaryEntry {
        word: "parameters",
        also: &["params", "parameter"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail, Accounts],
        figure: Some(|stage| category(stage, Category::Parameter)),
        meaning: "weights and biases.",
    },
    GlossaryEntry {
        word: "gradients",
        also: &["grads", "gradient"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Gradient)),
        meaning: "the .grad of each parameter, of the same size; they live from backward until zero_grad frees them.",
    },
    GlossaryEntry {
        word: "optimizer state",
        also: &["opt", "optim", "optimizer", "exp_avg", "exp_avg_sq"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Switches, Detail],
        figure: Some(|stage| category(stage, Category::OptimizerState)),
        meaning: "what the optimizer keeps for each parameter from its first step on: SGD nothing, momentum one buffer, Adam and AdamW two (exp_avg, exp_avg_sq).",
    },
    GlossaryEntry {
        word: "activations",
        also: &["activ", "activation"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Forward, Detail],
        figure: Some(|stage| category(stage, Category::Activation)),
        meaning: "tensors that forward makes and backward needs. They grow with the batch; checkpointing drops most of them.",
    },
    GlossaryEntry {
        word: "temporaries",
        also: &["temp", "temporary"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Temporary)),
        meaning: "tensors that live within one op, or from one op of backward to the next.",
    },
    GlossaryEntry {
        word: "workspaces",
        also: &["workspace", "cuBLAS", "cuBLASLt"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Workspace)),
        meaning: "scratch memory of cuBLAS, cuDNN and reductions. cuBLAS keeps one for each stream and thread.",
    },
    GlossaryEntry {
        word: "communication",
        also: &["comm", "bucket", "all-gather", "all-reduce", "reduce-scatter", "NCCL"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, StepTimes, Detail],
        figure: Some(|stage| category(stage, Category::Communication)),
        meaning: "what ranks exchange while it is on its way: DDP's buckets, what FSDP gathers and reduces, what a stage of a pipeline receives. In the step: how long exchanges take, waiting for other ranks included, overlapped or not.",
    },
    GlossaryEntry {
        word: "inputs",
        also: &["input"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Input)),
        meaning: "the batch: tokens, images, labels.",
    },
    GlossaryEntry {
        word: "other",
        also: &[],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Other)),
        meaning: "anything else; in a snapshot without stacks, everything.",
    },
    GlossaryEntry {
        word: "category",
        also: &["categories"],
        panels: &[Stacked, Map, Detail],
        figure: None,
        meaning: "what a block is for: a parameter, a gradient, optimizer state, an activation, a temporary, a workspace, an input.",
    },
    GlossaryEntry {
        word: "account",
        also: &["accounts", "ledger"],
        panels: &[Accounts, LedgerChart, Map],
        figure: None,
        meaning: "what a reserved byte counts as: live, rounding, pending, releasable or stranded. The five always add up to reserved.",
    },
    GlossaryEntry {
        word: "context",
        also: &[],
        panels: &[Gpu, Driver],
        figure: None,
        meaning: "GPU memory of this process outside the allocator: kernels, library handles, the CUDA context. It is what the driver counts for the process, minus reserved.",
    },
    GlossaryEntry {
        word: "others",
        also: &["other processes"],
        panels: &[Gpu, Driver],
        figure: None,
        meaning: "GPU memory in use by other processes, as the driver counts it.",
    },
    GlossaryEntry {
        word: "allocator",
        also: &[],
        panels: &[Gpu, Driver, Switches],
        figure: None,
        meaning: "the share of the GPU's memory that the allocator has reserved.",
    },
    GlossaryEntry {
        word: "driver",
        also: &["NVML", "process", "processes", "used"],
        panels: &[Gpu, Driver],
        figure: None,
        meaning: "what NVML reports for the GPU: used is reserved, context and others together.",
    },
    GlossaryEntry {
        word: "ghost",
        also: &[],
        panels: &[History, Map, Accounts],
        figure: Some(|stage| {
            let ghost = stage.picture.ghost.as_ref()?;
            let (figures, text) = (ghost.figures?, ghost.conditions.to_string());
            Some(format!("{text}: reserved {} now, peak {}", bytes(figures.reserved), bytes(figures.peak_reserved)))
        }),
        meaning: "a second allocator with other settings that gets the same requests as the run's own. Its figures are predicted, \
                  not measured: they hold if the program asks for the same.",
    },
];
