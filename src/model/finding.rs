//! What the model concludes from its figures: each conclusion is a value with its evidence and what can be done.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::growth::Growth;
use super::steps::Steps;
use super::{Autopsy, BlockView, Category, Ledger, Level, MemoryModel, Names, Remedy, Settings};
use crate::units::{Address, Bytes};

/// Smaller amounts are not worth a sentence.
const WORTH_SAYING: Bytes = Bytes::mib(1);

/// A conclusion: displays as one sentence. Whoever shows it words the remedies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How loud.
    pub level: Level,
    /// What is the case.
    pub evidence: Evidence,
    /// What can be done about it, the most promising first; empty where nothing need be done.
    pub remedies: Vec<Remedy>,
    /// Where in the event stream it can be seen best, if at one place.
    pub position: Option<u64>,
}

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
        /// Bytes that the last step left.
        rise: Bytes,
        /// Steps in a row that did.
        steps: usize,
        /// What keeps it, where that is known.
        cause: LeakCause,
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
        /// The block that alone holds back most.
        holder: Option<Holder>,
        /// As the last step left them; else at the moment that is looked at.
        after_step: bool,
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
    /// Cached segments that nothing holds.
    Releasable {
        /// How many bytes.
        bytes: Bytes,
        /// Of so many reserved.
        reserved: Bytes,
        /// As the last step left them; else at the moment that is looked at.
        after_step: bool,
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

/// What keeps memory of finished steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeakCause {
    /// Losses, with the graphs that made them.
    Graphs,
    /// Losses alone.
    Losses,
    /// Not known.
    Unknown,
}

/// A block that keeps a segment from being given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The segment.
    pub segment: Address,
    /// Free bytes of it.
    pub free: Bytes,
    /// What the block is called; its category where it has no name.
    pub name: Arc<str>,
    /// Its size.
    pub size: Bytes,
}

impl Holder {
    pub(super) fn new(segment: Address, free: Bytes, block: &BlockView, names: &Names) -> Self {
        let name = match names.get(block.name) {
            "" => block.category.label(),
            name => name,
        };
        Self { segment, free, name: name.into(), size: block.size }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { requested, name, segment, limit, device_free, reserved, allocated, free } => {
                write!(f, "out of memory: {requested} asked")?;
                if !name.is_empty() {
                    write!(f, " for {name}")?;
                }
                match limit {
                    Some(limit) => write!(f, "; of the {limit} allowed {reserved} are reserved")?,
                    None => write!(f, "; the device has {device_free} left, {reserved} are reserved")?,
                }
                write!(f, ", {allocated} of them allocated")?;
                if segment > requested {
                    write!(f, "; the driver would have to give a segment of {segment}")?;
                }
                if free >= requested {
                    write!(f, "; {free} are free, but in pieces that can't serve it")?;
                }
                Ok(())
            }
            Self::Leak { rise, steps, cause } => {
                let kept = match cause {
                    LeakCause::Graphs => "losses are kept with their graphs, which hold every saved tensor",
                    LeakCause::Losses => "the loss tensor of every step is kept",
                    LeakCause::Unknown => "something keeps tensors of finished steps",
                };
                write!(f, "a leak: the last {steps} steps left memory behind, {rise} the last one: {kept}")
            }
            Self::Stranded { bytes, reserved, segments, largest_hole, holder, after_step } => {
                write!(f, "{bytes} ({} of reserved) are stranded", percent(*bytes, *reserved))?;
                if *after_step {
                    f.write_str(" when a step ends")?;
                }
                if *segments > 0 {
                    let word = if *segments == 1 { "segment" } else { "segments" };
                    write!(f, ", in {segments} {word}; the largest hole is {largest_hole}")?;
                }
                if let Some(Holder { segment, free, name, size }) = holder {
                    write!(f, "; {free} of segment {segment} are held back by one block of {name} ({size})")?;
                }
                Ok(())
            }
            Self::Peak { category, bytes, peak } => {
                let (label, share) = (category.label(), percent(*bytes, *peak));
                write!(f, "{label} are {share} of the step's peak ({bytes} of {peak})")
            }
            Self::Releasable { bytes, reserved, after_step } => {
                write!(f, "{bytes} ({} of reserved) are unused", percent(*bytes, *reserved))?;
                f.write_str(match after_step {
                    true => " when a step ends: empty_cache would return them, and the next step take them again",
                    false => ": empty_cache would return them to the driver",
                })
            }
            Self::Rounding { bytes, allocated } => {
                let share = percent(*bytes, *allocated);
                write!(f, "rounding loses {bytes} ({share} of allocated): rests of up to 1 MiB stay with large blocks")
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

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.evidence.fmt(f)
    }
}

/// The figures that findings about memory come from, taken at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Situation {
    ledger: Ledger,
    /// Segments that strand bytes.
    stranding: usize,
    largest_hole: Bytes,
    /// The block that alone strands most of a segment, and more than its own size.
    holder: Option<Holder>,
    /// Events before that moment.
    position: u64,
}

impl Situation {
    /// Where every reserved byte stood then.
    pub(super) const fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// Looks at every segment, not at every block.
    pub(super) fn of(memory: &MemoryModel, names: &Names) -> Self {
        let stranding = || {
            let held = |segment: &super::Segment<'_>| segment.held() > 0 && !segment.is_expandable();
            memory.segments().filter(held).filter(|segment| segment.free() > Bytes::ZERO)
        };
        let lone = stranding().filter(|segment| segment.held() == 1).max_by_key(|segment| segment.free());
        Self {
            ledger: memory.ledger(),
            stranding: stranding().count(),
            largest_hole: memory.largest_hole(),
            position: memory.position(),
            holder: lone.and_then(|segment| {
                let block = segment.blocks().next().filter(|block| segment.free() > block.size)?;
                Some(Holder::new(segment.address(), segment.free(), &block, names))
            }),
        }
    }
}

/// Everything that findings are about.
pub(super) struct Known<'a> {
    pub situation: &'a Situation,
    pub oom: Option<&'a Autopsy>,
    pub peak_by_category: &'a [Bytes; 8],
    pub peak_position: Option<u64>,
    pub steps: &'a Steps,
    pub growth: Growth,
    pub settings: &'a Settings,
    pub names: &'a Names,
}

impl Known<'_> {
    /// All findings, most important first.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let all = [
            self.out_of_memory(),
            self.leak(),
            self.overflowing(),
            self.stranded(),
            self.peak(),
            self.releasable(),
            self.rounding(),
            self.skipped(),
        ];
        let mut findings: Vec<Finding> = all.into_iter().flatten().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        findings
    }

    fn out_of_memory(&self) -> Option<Finding> {
        let oom = self.oom?;
        let evidence = Evidence::OutOfMemory {
            requested: oom.request.requested,
            name: self.names.get(oom.request.name).into(),
            segment: oom.request.segment,
            limit: oom.limit,
            device_free: oom.request.device_free,
            reserved: oom.ledger.reserved(),
            allocated: oom.ledger.allocated(),
            free: oom.ledger.free(),
        };
        let tried = oom.remedied.iter().filter(|tried| tried.fits).map(|tried| tried.remedy.clone());
        let mut remedies: Vec<Remedy> = tried.collect();
        if remedies.is_empty() && oom.remedied.is_empty() {
            // Nobody has tried anything yet: what the composition suggests.
            if self.leak().is_some() {
                remedies.push(Remedy::flip("retain", "off"));
            } else if oom.ledger.free() >= oom.request.requested && !self.is("alloc-conf", "expandable_segments:True") {
                remedies.push(Remedy::EXPANDABLE);
            } else {
                remedies = self.remedies_for(&oom.by_category).map(|(_, remedies)| remedies).unwrap_or_default();
            }
        }
        Some(Finding { level: Level::Danger, evidence, remedies, position: Some(oom.position) })
    }

    fn leak(&self) -> Option<Finding> {
        let (rise, steps) = self.growth.leak()?;
        let cause = if self.is("retain", "graph") {
            LeakCause::Graphs
        } else if self.is("retain", "losses") {
            LeakCause::Losses
        } else {
            LeakCause::Unknown
        };
        let mut remedies = vec![Remedy::KeepNumbers];
        if cause != LeakCause::Unknown {
            remedies.insert(0, Remedy::flip("retain", "off"));
        }
        let evidence = Evidence::Leak { rise, steps, cause };
        Some(Finding { level: Level::Warning, evidence, remedies, position: None })
    }

    fn stranded(&self) -> Option<Finding> {
        let Situation { ledger, stranding, largest_hole, holder, position } = self.situation;
        if ledger.stranded < WORTH_SAYING || ledger.fragmentation() < 0.05 {
            return None;
        }
        let evidence = Evidence::Stranded {
            bytes: ledger.stranded,
            reserved: ledger.reserved(),
            segments: *stranding,
            largest_hole: *largest_hole,
            holder: holder.clone(),
            after_step: self.steps.finished() > 0,
        };
        let remedies = self.unless_expandable();
        Some(Finding { level: Level::Warning, evidence, remedies, position: Some(*position) })
    }

    fn peak(&self) -> Option<Finding> {
        let peak: Bytes = self.peak_by_category.iter().copied().sum();
        let (category, remedies) = self.remedies_for(self.peak_by_category)?;
        let bytes = self.peak_by_category[category as usize];
        if matches!(category, Category::Input | Category::Other | Category::Workspace) {
            return None;
        }
        if bytes < WORTH_SAYING || share(bytes, peak) < 0.4 {
            return None;
        }
        let evidence = Evidence::Peak { category, bytes, peak };
        Some(Finding { level: Level::Info, evidence, remedies, position: self.peak_position })
    }

    fn releasable(&self) -> Option<Finding> {
        let ledger = self.situation.ledger;
        if ledger.releasable < WORTH_SAYING || share(ledger.releasable, ledger.reserved()) < 0.1 {
            return None;
        }
        let evidence = Evidence::Releasable {
            bytes: ledger.releasable,
            reserved: ledger.reserved(),
            after_step: self.steps.finished() > 0,
        };
        let position = Some(self.situation.position);
        Some(Finding { level: Level::Info, evidence, remedies: vec![Remedy::EmptyCache], position })
    }

    fn rounding(&self) -> Option<Finding> {
        let ledger = self.situation.ledger;
        if ledger.rounding < WORTH_SAYING || share(ledger.rounding, ledger.allocated()) < 0.05 {
            return None;
        }
        let evidence = Evidence::Rounding { bytes: ledger.rounding, allocated: ledger.allocated() };
        let position = Some(self.situation.position);
        Some(Finding { level: Level::Info, evidence, remedies: self.unless_expandable(), position })
    }

    fn overflowing(&self) -> Option<Finding> {
        let (skipped, steps) = self.steps.recently_skipped();
        (steps >= 10 && skipped * 2 > steps).then(|| Finding {
            level: Level::Warning,
            evidence: Evidence::Overflow { skipped, steps },
            remedies: vec![Remedy::flip("amp", "bf16")],
            position: None,
        })
    }

    fn skipped(&self) -> Option<Finding> {
        let (recently, _) = self.steps.recently_skipped();
        let steps = self.steps.skipped();
        (recently > 0 && self.overflowing().is_none()).then(|| Finding {
            level: Level::Info,
            evidence: Evidence::Skipped { steps },
            remedies: Vec::new(),
            position: None,
        })
    }

    /// Whether a switch is known to stand so.
    fn is(&self, switch: &str, value: &str) -> bool {
        self.settings.get(switch).is_some_and(|setting| &*setting.value == value)
    }

    fn unless_expandable(&self) -> Vec<Remedy> {
        if self.is("alloc-conf", "expandable_segments:True") { Vec::new() } else { vec![Remedy::EXPANDABLE] }
    }

    /// What most of some bytes are for, and what makes that less: only what is not in force and would change something.
    fn remedies_for(&self, by_category: &[Bytes; 8]) -> Option<(Category, Vec<Remedy>)> {
        let bytes = |category: &Category| by_category[*category as usize];
        let largest =
            Category::ALL.into_iter().rev().max_by_key(bytes).filter(|largest| bytes(largest) > Bytes::ZERO)?;
        let offered = |switch: &str, value: &str| {
            let setting = self.settings.get(switch);
            setting.is_some_and(|setting| setting.idle.is_none() && &*setting.value != value)
        };
        let off = |switch: &str| self.is(switch, "off") || self.is(switch, "1");
        let mut remedies = Vec::new();
        let mut offer = |switch: &'static str, value: &'static str, only_if_off: bool| {
            if offered(switch, value) && (!only_if_off || off(switch)) {
                remedies.push(Remedy::flip(switch, value));
            }
        };
        match largest {
            Category::Activation => {
                offer("ckpt", "on", true);
                offer("accum", "2", true);
                offer("amp", "bf16", true);
            }
            Category::Temporary => {
                offer("accum", "2", true);
                offer("amp", "bf16", true);
            }
            Category::OptimizerState => {
                offer("opt", "sgd", false);
                offer("offload", "optimizer", true);
            }
            Category::Gradient => offer("zero-grad", "set_to_none", false),
            _ => {}
        }
        if remedies.is_empty() {
            remedies = vec![Remedy::SmallerBatch { batch: 0 }, Remedy::HigherLimit];
        }
        Some((largest, remedies))
    }
}

fn share(part: Bytes, whole: Bytes) -> f64 {
    if whole == Bytes::ZERO { 0.0 } else { part.get() as f64 / whole.get() as f64 }
}

fn percent(part: Bytes, whole: Bytes) -> String {
    format!("{:.0} %", 100.0 * share(part, whole))
}

#[cfg(test)]
mod tests;
