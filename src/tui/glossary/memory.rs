//! Words of the allocator: accounts, blocks, segments, what memory is for.

use super::Entry;
use crate::model::{Category, Ledger};
use crate::tui::figures::bytes;
use crate::tui::panel::Panel::{
    Accounts, Alive, AtCursor, Configurations, Curves, Detail, Driver, Effect, Forward, Fragmentation, Gpu, Header,
    Held, History, LedgerChart, Log, Map, Ops, Pools, Segments, Stacked, StepCurve, Switches, Why, Worst,
};
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// An account now, and its part of reserved.
fn account(stage: &Stage<'_>, of: fn(&Ledger) -> Bytes) -> Option<String> {
    let ledger = &stage.shown.ledger;
    let (part, reserved) = (of(ledger), ledger.reserved());
    Some(format!("{} now, {} of reserved", bytes(part), crate::tui::figures::percent(part.get(), reserved.get())))
}

/// Bytes of a category now, and at the peak of the last step.
fn category(stage: &Stage<'_>, category: Category) -> Option<String> {
    let (now, peak) = (stage.shown.by_category, stage.view().peak_by_category);
    let index = category as usize;
    Some(format!("{} now, {} at the peak of the last step", bytes(now[index]), bytes(peak[index])))
}

/// The words.
pub(super) const WORDS: &[Entry] = &[
    Entry {
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
            Held,
            Curves,
            Configurations,
            Effect,
        ],
        figure: Some(|stage| {
            let view = stage.view();
            let now = bytes(stage.shown.ledger.allocated());
            Some(if view.knows_peaks() { format!("{now} now, peak {}", bytes(view.peak_allocated)) } else { now })
        }),
        meaning: "bytes of blocks that tensors hold, rounded up as the allocator hands them out: torch.cuda.memory_allocated. It counts blocks, not what was asked for (see requested), and not what is cached.",
    },
    Entry {
        word: "active",
        also: &[],
        panels: &[Accounts, Detail],
        figure: Some(|stage| {
            let ledger = &stage.shown.ledger;
            Some(format!("{} now", bytes(ledger.allocated() + ledger.pending)))
        }),
        meaning: "allocated and pending together: active_bytes of torch.cuda.memory_stats. A freed block stays active until every stream that read it has passed.",
    },
    Entry {
        word: "reserved",
        also: &["resvd"],
        panels: &[History, Accounts, LedgerChart, Held, Map, Curves, Configurations, Effect, Driver, Pools],
        figure: Some(|stage| {
            let view = stage.view();
            let now = bytes(stage.shown.ledger.reserved());
            Some(if view.knows_peaks() { format!("{now} now, peak {}", bytes(view.peak_reserved)) } else { now })
        }),
        meaning: "bytes that the allocator holds from the driver, in blocks or free: torch.cuda.memory_reserved. It falls only when whole segments go back: by empty_cache, or when a request would else fail.",
    },
    Entry {
        word: "requested",
        also: &["asked", "asks"],
        panels: &[Detail, Accounts],
        figure: None,
        meaning: "bytes that tensors asked for, before the allocator rounded them up: requested_bytes of torch.cuda.memory_stats. The account live has them.",
    },
    Entry {
        word: "live",
        also: &[],
        panels: &[Accounts, LedgerChart, Detail],
        figure: Some(|stage| account(stage, |ledger| ledger.live)),
        meaning: "of allocated, the bytes that were asked for; the rest is rounding.",
    },
    Entry {
        word: "rounding",
        also: &["rounded"],
        panels: &[Accounts, LedgerChart, Map, Detail],
        figure: Some(|stage| account(stage, |ledger| ledger.rounding)),
        meaning: "of allocated, what was not asked for: sizes are rounded up to 512 bytes, and a block is not split where the rest would be too small (512 bytes; 1 MiB in the pool of large ones).",
    },
    Entry {
        word: "pending",
        also: &[],
        panels: &[Accounts, LedgerChart, Map, Detail],
        figure: Some(|stage| account(stage, |ledger| ledger.pending)),
        meaning: "freed by the program, but another stream that used the block has not got there yet (record_stream): counted in active, not in allocated, and nobody can have it.",
    },
    Entry {
        word: "releasable",
        also: &["unused"],
        panels: &[Accounts, LedgerChart, Map, Why, Effect],
        figure: Some(|stage| account(stage, |ledger| ledger.releasable)),
        meaning: "free bytes in segments (or pages of expandable ranges) that no block holds: empty_cache gives them back to the driver, and so does the allocator before it fails.",
    },
    Entry {
        word: "stranded",
        also: &["strand", "stranding", "strands", "inactive", "split", "inactive_split"],
        panels: &[Accounts, LedgerChart, Fragmentation, Map, Why, Worst, Pools, Effect, Configurations, Segments],
        figure: Some(|stage| account(stage, |ledger| ledger.stranded)),
        meaning: "free bytes inside segments that some block holds: the allocator can use them, the driver can not have them back. PyTorch calls them inactive split: inactive_split_bytes.",
    },
    Entry {
        word: "free",
        also: &[],
        panels: &[Map, Detail, Gpu, Driver, Pools, Segments],
        figure: Some(|stage| account(stage, |ledger| ledger.free())),
        meaning: "of a segment, what no block holds; of the GPU, what the driver would still give.",
    },
    Entry {
        word: "fragmentation",
        also: &[],
        panels: &[Fragmentation, Accounts, Why],
        figure: Some(|stage| Some(format!("{:.0} % of reserved now", 100.0 * stage.shown.ledger.fragmentation()))),
        meaning: "stranded over reserved. High where long-lived blocks lie scattered between short-lived ones.",
    },
    Entry {
        word: "segment",
        also: &["segments", "cudaMalloc"],
        panels: &[Map, Segments, Detail, Worst, Pools, Held, Why],
        figure: Some(|stage| Some(format!("{} now", stage.shown.segments.len()))),
        meaning: "what one cudaMalloc gave: 2 MiB for small blocks, 20 MiB for those up to 10 MiB, else the size rounded up to 2 MiB. Blocks are cut from it; only a wholly free one goes back.",
    },
    Entry {
        word: "expandable",
        also: &["page", "pages", "range", "ranges", "expandable_segments"],
        panels: &[Map, Segments, Detail, Pools],
        figure: None,
        meaning: "segments that grow and shrink by pages of 2 MiB within one range of addresses (expandable_segments:True): what is free at the end fits whatever comes next.",
    },
    Entry {
        word: "block",
        also: &["blocks"],
        panels: &[Map, Detail, Segments, Worst, Pools],
        figure: Some(|stage| {
            Some(format!("{} held now", stage.shown.segments.iter().map(|segment| segment.blocks.len()).sum::<usize>()))
        }),
        meaning: "a piece of a segment that one tensor holds, or a free one between. Freed neighbours become one.",
    },
    Entry {
        word: "hole",
        also: &["holes"],
        panels: &[Map, Detail, Accounts, Why, Segments, Worst, Pools, Fragmentation],
        figure: Some(|stage| Some(format!("largest {} now", bytes(stage.shown.largest_hole)))),
        meaning: "a free piece of a segment that some block holds. The largest one bounds what fits without more memory from the driver.",
    },
    Entry {
        word: "largest free block",
        also: &[],
        panels: &[Accounts, Fragmentation],
        figure: Some(|stage| account(stage, |ledger| ledger.largest_free)),
        meaning: "the largest free piece of all, wholly free segments included: a larger request needs another segment.",
    },
    Entry {
        word: "pins",
        also: &["pinned by", "holds", "held", "holder"],
        panels: &[Detail, Worst, Why],
        figure: None,
        meaning: "a block pins the free bytes of its segment: they can not go back to the driver while it lives.",
    },
    Entry {
        word: "large",
        also: &[],
        panels: &[Map, Pools, Segments, Detail],
        figure: None,
        meaning: "the pool of blocks above 1 MiB. Its blocks and those of the small pool never share a segment.",
    },
    Entry {
        word: "small",
        also: &[],
        panels: &[Map, Pools, Segments, Detail],
        figure: None,
        meaning: "the pool of blocks up to 1 MiB, cut from segments of 2 MiB.",
    },
    Entry {
        word: "pool",
        also: &["pools"],
        panels: &[Pools, Map, Segments, Stacked, Detail],
        figure: None,
        meaning: "blocks of one kind: large or small, each of one stream. A block serves only requests of its own pool.",
    },
    Entry {
        word: "stream",
        also: &["streams"],
        panels: &[Pools, Map, Segments, Detail],
        figure: None,
        meaning: "a queue of work on the GPU. A block belongs to the stream that it was taken for; another one has segments of its own.",
    },
    Entry {
        word: "limit",
        also: &[],
        panels: &[History, LedgerChart, Accounts, Switches, Driver],
        figure: Some(|stage| stage.view().limit.map(bytes)),
        meaning: "the most that may be reserved: per_process_memory_fraction, or --limit. A request beyond it fails as out of memory, after cached segments were given back.",
    },
    Entry {
        word: "empty_cache",
        also: &[],
        panels: &[Switches, Effect, Log, Why, Map],
        figure: None,
        meaning: "gives every wholly free segment back to the driver: torch.cuda.empty_cache(). Reserved falls by releasable, allocated stays; the next step pays cudaMalloc again.",
    },
    Entry {
        word: "out of memory",
        also: &["OOM", "fails", "failed"],
        panels: &[Why, Log, History, Held],
        figure: None,
        meaning: "a request failed though the allocator gave back what it could and tried again: torch.OutOfMemoryError.",
    },
    Entry {
        word: "address",
        also: &["addresses", "offset"],
        panels: &[Detail, Map, Segments],
        figure: None,
        meaning: "where a block begins. What a person selects is an address: the cursor moves in time, and the screen tells what lies there then.",
    },
    Entry {
        word: "cell",
        also: &["cells"],
        panels: &[Map],
        figure: None,
        meaning: "a character of the map; the title says how many bytes it stands for.",
    },
    Entry {
        word: "age",
        also: &["born", "since", "old", "dies", "freed", "taken by"],
        panels: &[Map, Detail],
        figure: None,
        meaning: "how long ago a block was taken.",
    },
    Entry {
        word: "parameters",
        also: &["params", "parameter"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail, Accounts],
        figure: Some(|stage| category(stage, Category::Parameter)),
        meaning: "weights and biases that are trained.",
    },
    Entry {
        word: "gradients",
        also: &["grads", "gradient"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Gradient)),
        meaning: "the .grad of parameters: as large as they are, from backward until zero_grad drops them.",
    },
    Entry {
        word: "optimizer state",
        also: &["opt", "optim", "optimizer", "exp_avg", "exp_avg_sq"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Switches, Detail],
        figure: Some(|stage| category(stage, Category::OptimizerState)),
        meaning: "what the optimizer keeps for each parameter, made in its first step: SGD nothing, momentum one buffer, Adam and AdamW two (exp_avg, exp_avg_sq).",
    },
    Entry {
        word: "activations",
        also: &["activ", "activation"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Forward, Detail],
        figure: Some(|stage| category(stage, Category::Activation)),
        meaning: "what forward makes and backward needs: they grow with the batch, checkpointing drops most of them.",
    },
    Entry {
        word: "temporaries",
        also: &["temp", "temporary"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Temporary)),
        meaning: "tensors that live within one op, or between two ops of backward.",
    },
    Entry {
        word: "workspaces",
        also: &["works", "workspace", "cuBLAS", "cuBLASLt"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Workspace)),
        meaning: "scratch memory of cuBLAS, cuDNN and of reductions; cuBLAS keeps its own for each stream and thread.",
    },
    Entry {
        word: "inputs",
        also: &["input"],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Input)),
        meaning: "batches: tokens, images, labels.",
    },
    Entry {
        word: "other",
        also: &[],
        panels: &[Map, StepCurve, Stacked, AtCursor, Ops, Alive, Detail],
        figure: Some(|stage| category(stage, Category::Other)),
        meaning: "what is none of these; in a snapshot without stacks, everything.",
    },
    Entry {
        word: "category",
        also: &["categories"],
        panels: &[Stacked, Map, Detail],
        figure: None,
        meaning: "what a block is for: a parameter, a gradient, optimizer state, an activation, a temporary, a workspace, an input.",
    },
    Entry {
        word: "account",
        also: &["accounts", "ledger"],
        panels: &[Accounts, LedgerChart, Map],
        figure: None,
        meaning: "where a reserved byte stands: live, rounding, pending, releasable, stranded. The five add up to reserved at every event.",
    },
    Entry {
        word: "context",
        also: &[],
        panels: &[Gpu, Driver],
        figure: None,
        meaning: "GPU memory of this process beside the allocator's: kernels, library handles, the CUDA context. What the driver says of the process less what the allocator holds.",
    },
    Entry {
        word: "others",
        also: &["other processes"],
        panels: &[Gpu, Driver],
        figure: None,
        meaning: "GPU memory that the driver says is in use and that is not this process's.",
    },
    Entry {
        word: "allocator",
        also: &[],
        panels: &[Gpu, Driver, Switches],
        figure: None,
        meaning: "of the GPU's memory, what the allocator has reserved.",
    },
    Entry {
        word: "driver",
        also: &["NVML", "process", "processes", "used"],
        panels: &[Gpu, Driver],
        figure: None,
        meaning: "what NVML tells of the GPU: used is reserved, context and others together.",
    },
    Entry {
        word: "ghost",
        also: &[],
        panels: &[History, Map, Accounts],
        figure: Some(|stage| {
            let ghost = stage.picture.ghost.as_ref()?;
            let (figures, text) = (ghost.figures?, ghost.conditions.to_string());
            Some(format!("{text}: reserved {} now, peak {}", bytes(figures.reserved), bytes(figures.peak_reserved)))
        }),
        meaning: "another allocator under other settings, asked what the run's own is asked; what it comes to is predicted: \
                  nobody ran it, and the program is taken to do the same",
    },
];
