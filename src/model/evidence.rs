//! What is the case, in figures, and as a sentence.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{BlockView, Category, Names, Segment};
use vramlab_allocator::units::{Address, Bytes};

/// What is the case, in figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Evidence {
    /// A request failed for good.
    OutOfMemory {
        /// Bytes asked for.
        requested: Bytes,
        /// What for; empty where that is not known.
        name: Arc<str>,
        /// The segment that the driver should have given.
        segment: Bytes,
        /// The most that might be reserved.
        limit: Option<Bytes>,
        /// What the driver had left.
        device_free: Bytes,
        /// Reserved then.
        reserved: Bytes,
        /// Allocated then.
        allocated: Bytes,
        /// Free then, but not for this request.
        free: Bytes,
    },
    /// Steps leave memory behind.
    Leak {
        /// Bytes that a step leaves.
        rise: Bytes,
        /// Steps that did.
        steps: u64,
        /// What keeps it, where that is known.
        cause: LeakCause,
        /// Bytes that these steps left in all, or that the lines hold by now.
        held: Bytes,
        /// Lines whose blocks stay, the most bytes a step first; empty until they are known.
        lines: Vec<KeptLine>,
    },
    /// Free bytes that nothing can give back.
    Stranded {
        /// How many.
        bytes: Bytes,
        /// Of so many reserved.
        reserved: Bytes,
        /// Segments that they are in.
        segments: usize,
        /// The largest piece.
        largest_hole: Bytes,
        /// What holds the segment of that piece.
        holder: Option<SegmentHolder>,
        /// When.
        when: FreeMemoryMoment,
    },
    /// What most of the peak of the last step was.
    Peak {
        /// The category.
        category: Category,
        /// Its bytes at the peak.
        bytes: Bytes,
        /// Allocated at the peak.
        peak: Bytes,
    },
    /// Parameters are sharded, and whole only while they are used.
    Gathered {
        /// Bytes of whole ones at the peak of the last step, beyond the shards.
        bytes: Bytes,
        /// Allocated at the peak.
        peak: Bytes,
        /// All-gathers of the step.
        gathers: u64,
    },
    /// DDP's buckets lie beside the gradients.
    Buckets {
        /// Their bytes.
        bytes: Bytes,
        /// Allocated at the peak of the last step.
        peak: Bytes,
    },
    /// DDP's buckets of the first step were still there when others had been made.
    LateBuckets {
        /// Their bytes.
        bytes: Bytes,
        /// The step that made the others.
        step: u64,
    },
    /// Ranks reserve more than others.
    Uneven {
        /// Those that reserve most: `rank 3`.
        most: String,
        /// How much.
        reserved: Bytes,
        /// Those that reserve least.
        least: String,
        /// How much.
        least_reserved: Bytes,
    },
    /// Processes of ranks have a CUDA context on the GPU of another rank.
    ForeignContext {
        /// They: `ranks 1–3`.
        ranks: String,
        /// How many they are.
        count: usize,
        /// Whose GPU: `rank 0`.
        of: String,
    },
    /// A rank takes longer than the others, which wait for it.
    Straggler {
        /// Who: `rank 3`.
        rank: String,
        /// What a step takes there without exchanges, in milliseconds.
        own: u64,
        /// What it takes the others.
        others: u64,
    },
    /// A stage of a pipeline has more to do than the others, which wait for it.
    UnbalancedStages {
        /// Who: `rank 3`.
        rank: String,
        /// What a step takes there without exchanges, in milliseconds.
        own: u64,
        /// What it takes the others, at most.
        others: u64,
        /// These are times of simulated cards.
        simulated: bool,
    },
    /// Cached segments that nothing holds.
    Releasable {
        /// How many bytes.
        bytes: Bytes,
        /// Of so many reserved.
        reserved: Bytes,
        /// When.
        when: FreeMemoryMoment,
    },
    /// The rests of blocks beyond what was asked for.
    Rounding {
        /// How many bytes.
        bytes: Bytes,
        /// Of so many allocated.
        allocated: Bytes,
    },
    /// The gradient scaler skips most steps.
    Overflow {
        /// Steps skipped …
        skipped: usize,
        /// … of so many.
        steps: usize,
    },
    /// The gradient scaler skipped steps, as it does at first.
    Skipped {
        /// Steps skipped.
        steps: u64,
    },
}

/// The moment that a finding about free memory is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FreeMemoryMoment {
    /// The moment that is looked at.
    Now,
    /// The end of the last step, or the whole of it.
    Step,
    /// The moment when most was reserved: of a run that has ended.
    Fullest,
}

/// A line whose blocks outlive their steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptLine {
    /// The line, or the name of the blocks.
    pub line: Arc<str>,
    /// Bytes that a step leaves.
    pub rise: Bytes,
}

/// What keeps memory of finished steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeakCause {
    /// Losses, with the graphs that made them.
    Graphs,
    /// Losses alone.
    Losses,
    /// Outputs of steps, in objects that refer to each other.
    Cycles,
    /// Tensors that autograd saved for backward: the graph of each step is kept by something.
    Saved,
    /// One tensor a step, of one line: a list or a cache grows.
    Growing,
    /// Not known.
    Unknown,
}

/// What keeps a segment from being given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentHolder {
    /// The segment.
    pub segment: Address,
    /// Free bytes of it.
    pub free: Bytes,
    /// What the largest block in it is called; its category where it has no name.
    pub name: Arc<str>,
    /// Its size.
    pub size: Bytes,
    /// Other blocks in the segment.
    pub others: usize,
    /// The other one, where there is just one: what it is called, and its size.
    #[serde(skip)]
    pub other: Option<(Arc<str>, Bytes)>,
}

impl SegmentHolder {
    /// What holds a segment: its largest block, and how many more. `None` if nothing does.
    pub(super) fn of(segment: &Segment<'_>, names: &Names) -> Option<Self> {
        let largest = segment.blocks().max_by_key(|block| (block.size, std::cmp::Reverse(block.offset)))?;
        let named = |block: &BlockView| -> Arc<str> {
            match names.get(block.name) {
                "" => block.category.label().into(),
                name => name.into(),
            }
        };
        let others = segment.held().saturating_sub(1);
        let mut beside = segment.blocks().filter(|block| block.offset != largest.offset);
        let other = beside.next().filter(|_| others == 1).map(|block| (named(&block), block.size));
        let (name, size) = (named(&largest), largest.size);
        Some(Self { segment: segment.address(), free: segment.free(), name, size, others, other })
    }
}

impl fmt::Display for SegmentHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.other, self.others) {
            (None, 0) => write!(f, "{} ({})", self.name, self.size),
            (None, 1) => write!(f, "{} ({}) and another block", self.name, self.size),
            (None, others) => write!(f, "{} ({}) and {others} more blocks", self.name, self.size),
            (Some((name, size)), _) if *size == self.size => write!(f, "{} and {name} ({size} each)", self.name),
            (Some((name, size)), _) => write!(f, "{} ({}) and {name} ({size})", self.name, self.size),
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { requested, name, segment, limit, device_free, reserved, allocated, free } => {
                // PyTorch's message has the segment.
                match segment > requested {
                    true => write!(f, "out of memory: {segment} asked (a segment for {requested})")?,
                    false => write!(f, "out of memory: {requested} asked")?,
                }
                if !name.is_empty() {
                    write!(f, " for {name}")?;
                }
                match limit {
                    Some(limit) => write!(f, "; of the {limit} allowed {reserved} are reserved")?,
                    None if device_free >= segment && *segment > Bytes::ZERO => write!(
                        f,
                        "; a limit of this process stopped it, not the device, which had {device_free} left: {reserved} were reserved"
                    )?,
                    None => write!(f, "; the device has {device_free} left, {reserved} are reserved")?,
                }
                write!(f, ", {allocated} of them allocated")?;
                if free >= requested {
                    write!(f, "; {free} are free, but in pieces that can't serve it")?;
                }
                Ok(())
            }
            Self::Leak { rise, steps, cause, held, lines } => {
                let kept = match cause {
                    LeakCause::Graphs => ": losses are kept with their graphs, which hold every saved tensor",
                    LeakCause::Losses => ": the loss tensor of every step is kept",
                    LeakCause::Cycles => {
                        ": the output of each step is held by objects that refer to each other, until Python's garbage collector runs"
                    }
                    LeakCause::Saved => {
                        ": something keeps the graph of each step, with what forward saved for backward"
                    }
                    LeakCause::Growing => ": something keeps a tensor of every step, such as a list or a cache",
                    LeakCause::Unknown => ": something keeps tensors of finished steps",
                };
                match lines.split_first() {
                    None => write!(f, "a leak: each of the last {steps} steps left {rise} behind{kept}"),
                    Some((first, more)) => {
                        write!(f, "a leak: each step leaves {rise} behind, {held} so far{kept}; most: {}", first.line)?;
                        match more.len() {
                            0 => Ok(()),
                            1 => f.write_str(" and another line"),
                            more => write!(f, " and {more} more lines"),
                        }
                    }
                }
            }
            Self::Stranded { bytes, reserved, segments, largest_hole, holder, when } => {
                write!(f, "{bytes} ({} of reserved) ", percent(*bytes, *reserved))?;
                f.write_str(match when {
                    FreeMemoryMoment::Now => "are stranded",
                    FreeMemoryMoment::Step => "are stranded when a step ends",
                    FreeMemoryMoment::Fullest => "were stranded when most was reserved",
                })?;
                if *segments > 0 {
                    let then = if *when == FreeMemoryMoment::Now { "" } else { " then" };
                    let word = if *segments == 1 { "segment" } else { "segments" };
                    write!(f, ", in {segments} {word}; the largest hole{then} is {largest_hole}")?;
                }
                if let Some(holder) = holder {
                    write!(f, ", held by {holder}")?;
                }
                Ok(())
            }
            Self::Peak { category, bytes, peak } => {
                let share = percent(*bytes, *peak);
                let blocks = match category {
                    Category::OptimizerState => "optimizer states",
                    Category::Other => "other blocks",
                    named => named.label(),
                };
                write!(f, "{blocks} are {share} of the step's peak ({bytes} of {peak})")
            }
            Self::Gathered { bytes, peak, gathers } => {
                if *bytes == Bytes::ZERO {
                    f.write_str("no gathered parameters are held at the step's peak")?;
                } else {
                    let share = percent(*bytes, *peak);
                    write!(
                        f,
                        "gathered parameters are {share} of the step's peak ({bytes} of {peak}, beyond this rank's shards)"
                    )?;
                }
                let word = if *gathers == 1 { "all-gather" } else { "all-gathers" };
                write!(f, "; {gathers} {word} a step")
            }
            Self::Buckets { bytes, peak } => {
                let share = percent(*bytes, *peak);
                write!(
                    f,
                    "DDP's buckets take {bytes} beside the gradients, also between steps ({share} of the step's peak)"
                )
            }
            Self::LateBuckets { bytes, step } => write!(
                f,
                "DDP's first buckets ({bytes}) were still held when step {step} had made others, by chance: NCCL's \
                 watchdog had not let go of them"
            ),
            Self::Uneven { most, reserved, least, least_reserved } => {
                write!(f, "ranks are uneven: {most} reserved {reserved}, {least} {least_reserved}")
            }
            Self::ForeignContext { ranks, count, of } => {
                let (have, context) = if *count == 1 { ("has", "a CUDA context") } else { ("have", "CUDA contexts") };
                write!(f, "{ranks} also {have} {context} on the GPU of {of}: memory there that no allocator counts")
            }
            Self::Straggler { rank, own, others } => {
                write!(
                    f,
                    "{rank} is a straggler: between exchanges a step takes it {own} ms, the others {others} ms, and they wait"
                )
            }
            Self::UnbalancedStages { rank, own, others, simulated } => {
                let simulated = if *simulated { " (simulated)" } else { "" };
                write!(
                    f,
                    "stages are unbalanced: {rank} works {own} ms a step, the others {others} ms at most, and wait for it{simulated}"
                )
            }
            Self::Releasable { bytes, reserved, when } => {
                write!(f, "{bytes} ({} of reserved) ", percent(*bytes, *reserved))?;
                f.write_str(match when {
                    FreeMemoryMoment::Now => "are cached in segments that nothing holds",
                    FreeMemoryMoment::Step => "are cached, and no moment of the step uses them",
                    FreeMemoryMoment::Fullest => "were cached and unused when most was reserved",
                })
            }
            Self::Rounding { bytes, allocated } => {
                let share = percent(*bytes, *allocated);
                write!(f, "rounding takes {bytes} ({share} of allocated): rests of up to 1 MiB stay with large blocks")
            }
            Self::Overflow { skipped, steps } => {
                write!(f, "the gradient scaler skipped {skipped} of the last {steps} steps: fp16 gradients overflow")
            }
            Self::Skipped { steps } => {
                let word = if *steps == 1 { "step" } else { "steps" };
                write!(f, "the gradient scaler skipped {steps} {word}: fp16 gradients overflowed, the scale was halved")
            }
        }
    }
}

pub(super) fn share(part: Bytes, whole: Bytes) -> f64 {
    if whole == Bytes::ZERO { 0.0 } else { part.get() as f64 / whole.get() as f64 }
}

pub(super) fn percent(part: Bytes, whole: Bytes) -> String {
    format!("{:.0} %", 100.0 * share(part, whole))
}

/// `22.84 → 15.30 GiB`; each with its unit where these differ.
pub(super) fn change(from: Bytes, to: Bytes) -> String {
    let (from, to) = (from.to_string(), to.to_string());
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((figure, unit)), Some((_, same))) if unit == same => format!("{figure} → {to}"),
        _ => format!("{from} → {to}"),
    }
}
