//! What the model concludes from its figures, worded once for every screen.

use super::growth::Growth;
use super::steps::Steps;
use super::{BlockView, Category, Finding, Ledger, Level, MemoryModel, Names};
use crate::units::{Address, Bytes};

/// Smaller amounts are not worth a sentence.
const WORTH_SAYING: Bytes = Bytes::mib(1);

/// The figures that findings about memory come from, taken at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Situation {
    ledger: Ledger,
    /// Segments that strand bytes.
    stranding: usize,
    largest_hole: Bytes,
    /// The segment that strands most because of one block.
    lone: Option<Lone>,
}

/// A segment that one block keeps from being released.
#[derive(Clone, Copy, Debug)]
struct Lone {
    segment: Address,
    free: Bytes,
    block: BlockView,
}

impl Situation {
    /// Looks at every segment, not at every block.
    pub(super) fn of(memory: &MemoryModel) -> Self {
        let stranding = || {
            let held = |segment: &super::Segment<'_>| segment.held() > 0 && !segment.is_expandable();
            memory.segments().filter(held).filter(|segment| segment.free() > Bytes::ZERO)
        };
        let lone = stranding().filter(|segment| segment.held() == 1).max_by_key(|segment| segment.free());
        Self {
            ledger: memory.ledger(),
            stranding: stranding().count(),
            largest_hole: memory.largest_hole(),
            lone: lone.and_then(|segment| {
                let block = segment.blocks().next()?;
                Some(Lone { segment: segment.address(), free: segment.free(), block })
            }),
        }
    }
}

/// A request that failed, and how memory stood then.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOfMemory {
    pub requested: Bytes,
    pub device_free: Bytes,
    pub name: super::NameId,
    pub limit: Option<Bytes>,
    pub ledger: Ledger,
    pub by_category: [Bytes; 8],
}

/// The values in force of the switches that were flipped, by key.
pub(super) type Switches = std::collections::BTreeMap<char, super::NameId>;

/// Everything that findings are about.
pub(super) struct Evidence<'a> {
    pub situation: Situation,
    pub oom: Option<&'a OutOfMemory>,
    pub peak_by_category: &'a [Bytes; 8],
    pub steps: &'a Steps,
    pub growth: Growth,
    pub switches: &'a Switches,
    pub names: &'a Names,
}

impl Evidence<'_> {
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
        let held = oom.ledger.reserved();
        let free = oom.ledger.free();
        let bound = match oom.limit {
            Some(limit) => format!("of the {limit} allowed"),
            None => format!("{} are left on the device,", oom.device_free),
        };
        let wanted = match self.names.get(oom.name) {
            "" => String::new(),
            name => format!(" for {name}"),
        };
        let mut what = format!("out of memory: {} asked{wanted}; {bound} {held} are reserved", oom.requested);
        what += &format!(", {} of them allocated", oom.ledger.allocated());
        if oom.ledger.pending > Bytes::ZERO {
            what += &format!(" and {} waiting for another stream", oom.ledger.pending);
        }
        let fragmented = free >= oom.requested;
        let remedy = if fragmented {
            what += &format!("; {free} are free in pieces of at most {}", oom.ledger.largest_free);
            "PYTORCH_ALLOC_CONF=expandable_segments:True lets pieces grow together".to_owned()
        } else {
            self.remedy_for(&oom.by_category).map_or_else(String::new, |(_, remedy)| remedy)
        };
        Some(Finding { level: Level::Danger, what, remedy })
    }

    fn leak(&self) -> Option<Finding> {
        let (rise, steps) = self.growth.leak()?;
        let (kept, remedy) = if self.is('r', "graph") {
            ("losses are kept with their graphs, which hold every saved tensor", "r lets go; keep loss.item() instead")
        } else if self.is('r', "losses") {
            ("the loss tensor of every step is kept", "r lets go; keep loss.item() instead")
        } else {
            ("something keeps tensors of finished steps", "keep numbers (loss.item()), not tensors")
        };
        let what = format!("a leak: the last {steps} steps left memory behind, {rise} the last one: {kept}");
        Some(Finding { level: Level::Warning, what, remedy: remedy.to_owned() })
    }

    fn stranded(&self) -> Option<Finding> {
        let Situation { ledger, stranding, largest_hole, lone } = self.situation;
        if ledger.stranded < WORTH_SAYING || ledger.fragmentation() < 0.05 {
            return None;
        }
        let mut what =
            format!("{} ({} of reserved) are stranded", ledger.stranded, percent(ledger.stranded, ledger.reserved()));
        if stranding > 0 {
            let segments = if stranding == 1 { "segment" } else { "segments" };
            what += &format!(" in {stranding} {segments}; the largest hole is {largest_hole}");
        }
        if let Some(Lone { segment, free, block }) = lone.filter(|lone| lone.free > lone.block.size) {
            let name = match self.names.get(block.name) {
                "" => block.category.label(),
                name => name,
            };
            what += &format!("; {free} of segment {segment} are held back by one block of {name} ({})", block.size);
        }
        let remedy = "empty_cache can't return them; PYTORCH_ALLOC_CONF=expandable_segments:True leaves fewer holes";
        Some(Finding { level: Level::Warning, what, remedy: remedy.to_owned() })
    }

    fn peak(&self) -> Option<Finding> {
        let peak: Bytes = self.peak_by_category.iter().copied().sum();
        let (category, remedy) = self.remedy_for(self.peak_by_category)?;
        let bytes = self.peak_by_category[category as usize];
        if matches!(category, Category::Input | Category::Other | Category::Workspace) {
            return None;
        }
        if bytes < WORTH_SAYING || share(bytes, peak) < 0.4 {
            return None;
        }
        let (label, share) = (category.label(), percent(bytes, peak));
        let what = format!("{label} are {share} of the step's peak ({bytes} of {peak})");
        Some(Finding { level: Level::Info, what, remedy })
    }

    fn releasable(&self) -> Option<Finding> {
        let ledger = self.situation.ledger;
        if ledger.releasable < WORTH_SAYING || share(ledger.releasable, ledger.reserved()) < 0.1 {
            return None;
        }
        let what = format!(
            "{} ({} of reserved) are cached and unused",
            ledger.releasable,
            percent(ledger.releasable, ledger.reserved())
        );
        let remedy = "e (empty_cache) would return them; the next step would take them again".to_owned();
        Some(Finding { level: Level::Info, what, remedy })
    }

    fn rounding(&self) -> Option<Finding> {
        let ledger = self.situation.ledger;
        if ledger.rounding < WORTH_SAYING || share(ledger.rounding, ledger.allocated()) < 0.05 {
            return None;
        }
        let share = percent(ledger.rounding, ledger.allocated());
        let what = format!(
            "rounding loses {} ({share} of allocated): rests of up to 1 MiB stay with large blocks",
            ledger.rounding
        );
        let remedy = "PYTORCH_ALLOC_CONF=expandable_segments:True splits them off".to_owned();
        Some(Finding { level: Level::Info, what, remedy })
    }

    fn overflowing(&self) -> Option<Finding> {
        let (skipped, of) = self.steps.recently_skipped();
        (of >= 10 && skipped * 2 > of).then(|| Finding {
            level: Level::Warning,
            what: format!("the gradient scaler skipped {skipped} of the last {of} steps: fp16 gradients overflow"),
            remedy: "try m (bf16 has the range of fp32)".to_owned(),
        })
    }

    fn skipped(&self) -> Option<Finding> {
        let (skipped, of) = self.steps.recently_skipped();
        (skipped > 0 && !(of >= 10 && skipped * 2 > of)).then(|| {
            let steps = if skipped == 1 { "step" } else { "steps" };
            Finding {
                level: Level::Info,
                what: format!("the gradient scaler skipped {skipped} {steps}: normal while it looks for its scale"),
                remedy: String::new(),
            }
        })
    }

    /// True where the switch was set to `value`.
    fn is(&self, key: char, value: &str) -> bool {
        self.switches.get(&key).is_some_and(|name| self.names.get(*name) == value)
    }

    /// The category that takes most, and the switches that make it smaller and are not in force.
    fn remedy_for(&self, by_category: &[Bytes; 8]) -> Option<(Category, String)> {
        let bytes = |category: &Category| by_category[*category as usize];
        let largest =
            Category::ALL.into_iter().rev().max_by_key(bytes).filter(|largest| bytes(largest) > Bytes::ZERO)?;
        let off = |key: char| !self.switches.contains_key(&key) || self.is(key, "off") || self.is(key, "1");
        let remedies: &[(char, &str)] = match largest {
            Category::Activation => &[('c', "c (checkpointing)"), ('a', "a (accumulation)"), ('m', "m (AMP)")],
            Category::Temporary => &[('a', "a (accumulation)"), ('m', "m (AMP)")],
            _ => &[],
        };
        let tries: Vec<&str> = remedies.iter().filter(|(key, _)| off(*key)).map(|(_, remedy)| *remedy).collect();
        let remedy = match largest {
            Category::OptimizerState => "try o (sgd keeps no state, momentum half of adam's)".to_owned(),
            Category::Gradient if self.is('z', "zeroed") => "try z (set_to_none frees them between steps)".to_owned(),
            _ if tries.is_empty() => "try b (a smaller batch), a smaller model or a higher limit".to_owned(),
            _ => format!("try {}", tries.join(" or ")),
        };
        Some((largest, remedy))
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
