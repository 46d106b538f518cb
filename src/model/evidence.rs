//! Evidence: the figures of a finding, and their wording as a sentence.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{BlockView, Category, Names, Segment};
use vramlab_allocator::units::{Address, Bytes};

/// The figures of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Evidence {
    /// A request failed for good.
    OutOfMemory {
        /// Bytes asked for.
        requested: Bytes,
        /// The name of the requested block; empty if unknown.
        name: Arc<str>,
        /// The size of the segment that the driver should have given.
        segment: Bytes,
        /// The most that could be reserved.
        limit: Option<Bytes>,
        /// What the driver had left.
        device_free: Bytes,
        /// Reserved bytes at that time.
        reserved: Bytes,
        /// Allocated bytes at that time.
        allocated: Bytes,
        /// Free bytes at that time, which could not serve this request.
        free: Bytes,
    },
    /// Steps leave memory behind.
    Leak {
        /// Bytes that each step leaves behind.
        rise: Bytes,
        /// The number of steps that did so.
        steps: u64,
        /// What keeps the memory, if known.
        cause: LeakCause,
        /// Bytes that these steps left behind in total, or that the lines hold by now.
        held: Bytes,
        /// Lines whose blocks stay, the most bytes per step first; empty until they are known.
        lines: Vec<KeptLine>,
    },
    /// Free bytes that can't be released.
    Stranded {
        /// The number of bytes.
        bytes: Bytes,
        /// Reserved bytes.
        reserved: Bytes,
        /// The number of segments that contain them.
        segments: usize,
        /// The largest piece.
        largest_hole: Bytes,
        /// What holds that piece's segment.
        holder: Option<SegmentHolder>,
        /// The moment of the figures.
        when: FreeMemoryMoment,
    },
    /// The category with most bytes at the peak of the last step.
    Peak {
        /// The category.
        category: Category,
        /// Its bytes at the peak.
        bytes: Bytes,
        /// Allocated bytes at the peak.
        peak: Bytes,
    },
    /// Parameters are sharded, and complete only while they are used.
    Gathered {
        /// Bytes of complete parameters at the peak of the last step, beyond the shards.
        bytes: Bytes,
        /// Allocated bytes at the peak.
        peak: Bytes,
        /// All-gathers of the step.
        gathers: u64,
    },
    /// DDP's buckets take memory in addition to the gradients.
    Buckets {
        /// The buckets' bytes.
        bytes: Bytes,
        /// Allocated bytes at the peak of the last step.
        peak: Bytes,
    },
    /// DDP's buckets of the first step still existed after the new ones had been made.
    LateBuckets {
        /// The old buckets' bytes.
        bytes: Bytes,
        /// The step that made the new ones.
        step: u64,
    },
    /// Some ranks reserve more than others.
    Uneven {
        /// The ranks that reserve most: `rank 3`.
        most: String,
        /// Bytes that they reserve.
        reserved: Bytes,
        /// The ranks that reserve least.
        least: String,
        /// Bytes that they reserve.
        least_reserved: Bytes,
    },
    /// Processes of ranks have a CUDA context on the GPU of another rank.
    ForeignContext {
        /// These ranks: `ranks 1–3`.
        ranks: String,
        /// The number of these ranks.
        count: usize,
        /// The rank whose GPU it is: `rank 0`.
        of: String,
    },
    /// A rank takes longer than the others, which wait for it.
    Straggler {
        /// The slow rank: `rank 3`.
        rank: String,
        /// The time of its step without exchanges, in milliseconds.
        own: u64,
        /// The same time on the other ranks.
        others: u64,
    },
    /// A stage of a pipeline has more work than the others, which wait for it.
    UnbalancedStages {
        /// The stage's rank: `rank 3`.
        rank: String,
        /// The time of its step without exchanges, in milliseconds.
        own: u64,
        /// The longest such time on the other ranks.
        others: u64,
        /// True if the times are those of simulated cards.
        simulated: bool,
    },
    /// Cached segments that no block occupies.
    Releasable {
        /// How many bytes.
        bytes: Bytes,
        /// Reserved bytes.
        reserved: Bytes,
        /// The moment of the figures.
        when: FreeMemoryMoment,
    },
    /// The parts of blocks beyond the requested bytes.
    Rounding {
        /// How many bytes.
        bytes: Bytes,
        /// Allocated bytes.
        allocated: Bytes,
    },
    /// The gradient scaler skips most steps.
    Overflow {
        /// The number of steps skipped.
        skipped: usize,
        /// The number of steps that were looked at.
        steps: usize,
    },
    /// The gradient scaler skipped steps, as it usually does at first.
    Skipped {
        /// Steps skipped.
        steps: u64,
    },
}

/// The moment that a finding about free memory describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FreeMemoryMoment {
    /// The moment on screen.
    Now,
    /// The end of the last step, or all of the last step.
    Step,
    /// The moment when most was reserved, for a run that has ended.
    Fullest,
}

/// A source line whose blocks outlive their steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptLine {
    /// The source line, or the name of the blocks.
    pub line: Arc<str>,
    /// Bytes that each step leaves behind.
    pub rise: Bytes,
}

/// What keeps memory of finished steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeakCause {
    /// Losses, together with the graphs that computed them.
    Graphs,
    /// Losses alone.
    Losses,
    /// Outputs of steps, in objects that form reference cycles.
    Cycles,
    /// Tensors that autograd saved for backward: something keeps the graph of each step.
    Saved,
    /// One tensor per step, from one line: a list or a cache grows.
    Growing,
    /// Not known.
    Unknown,
}

/// What keeps a segment from being released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentHolder {
    /// The segment.
    pub segment: Address,
    /// Free bytes in the segment.
    pub free: Bytes,
    /// The name of its largest block, or that block's category if it has no name.
    pub name: Arc<str>,
    /// The size of that block.
    pub size: Bytes,
    /// Other blocks in the segment.
    pub others: usize,
    /// If there is exactly one other block, its name and size.
    #[serde(skip)]
    pub other: Option<(Arc<str>, Bytes)>,
}

impl SegmentHolder {
    /// The segment's largest block, and how many others there are; `None` if there are no blocks.
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
                // PyTorch's message names the segment's size.
                let (tensor, asked) = (requested.to_string(), segment.max(requested).to_string());
                write!(f, "out of memory: {asked} asked")?;
                if tensor != asked {
                    write!(f, " (a tensor of {tensor})")?;
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

/// `22.84 → 15.30 GiB`, or both with a unit if the units differ.
pub(super) fn change(from: Bytes, to: Bytes) -> String {
    let (from, to) = (from.to_string(), to.to_string());
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((figure, unit)), Some((_, same))) if unit == same => format!("{figure} → {to}"),
        _ => format!("{from} → {to}"),
    }
}
