//! Findings: the model's conclusions, each with its evidence and its remedies.

use std::fmt;

use serde::Serialize;

use super::advice;
use super::evidence::{Evidence, FreeMemoryMoment, LeakCause, SegmentHolder, change, percent, share};
use super::growth::Growth;
use super::sharing::{LateBucket, RankHoldings};
use super::steps::Steps;
use super::{Autopsy, Category, FlipTrials, Ledger, Level, MemoryModel, Names, Remedy, RunSettings};
use vramlab_allocator::units::Bytes;

/// Smaller amounts are not mentioned.
const WORTH_SAYING: Bytes = Bytes::mib(1);

/// A conclusion, displayed as one sentence. Screens and commands word its remedies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How important it is.
    pub level: Level,
    /// The figures behind it.
    pub evidence: Evidence,
    /// Remedies, the most promising first; empty if nothing needs to be done.
    pub remedies: Vec<Remedy>,
    /// The position in the event stream that shows it best, if there is one.
    pub position: Option<u64>,
    /// The gain of the remedies, if they were tried.
    pub gain: Option<Gain>,
}

/// The measured effect of a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gain {
    /// The peak without the remedy.
    pub from: Bytes,
    /// The peak with the remedy.
    pub to: Bytes,
    /// How it was tried, and which peak the figures are.
    pub trial: Trial,
}

/// How a remedy was tried, and which peak its figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trial {
    /// The run's requests, replayed on another allocator from empty memory: the reserved peak.
    Replayed,
    /// The requests from the run's current state on, after releasing the cache: the reserved peak.
    Forked,
    /// Steps on a simulated device: the allocated peak of a step.
    Simulated,
}

impl Gain {
    /// The bytes that it saves.
    #[must_use]
    pub fn saves(&self) -> Bytes {
        self.from.saturating_sub(self.to)
    }

    /// True if it saves at least one per cent, which is worth mentioning.
    #[must_use]
    pub fn is_worth_it(&self) -> bool {
        self.saves() >= WORTH_SAYING && self.saves().get() * 100 >= self.from.get()
    }
}

impl FlipTrials {
    /// The flip among `remedies` that saves most, if that is worth mentioning.
    fn best_of(&self, remedies: &[Remedy]) -> Option<(Remedy, Gain)> {
        let tried = self.flips.iter().filter(|(remedy, _)| remedies.contains(remedy));
        let (remedy, peak) = tried.min_by_key(|(_, peak)| *peak)?;
        let gain = Gain { from: self.peak, to: *peak, trial: Trial::Simulated };
        gain.is_worth_it().then(|| (remedy.clone(), gain))
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, tried) = match self.trial {
            Trial::Replayed => ("in a fresh run, reserved", "replayed"),
            Trial::Forked => ("with the cache emptied first, reserved", "replayed"),
            Trial::Simulated => ("in a fresh run, peak", "simulated"),
        };
        let by = percent(self.saves(), self.from);
        write!(f, "{of} {} (−{by}), {tried}", change(self.from, self.to))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.evidence.fmt(f)
    }
}

/// The figures for findings about memory, taken at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Situation {
    ledger: Ledger,
    /// The number of segments with stranded bytes.
    stranding: usize,
    largest_hole: Bytes,
    /// What holds the segment of that hole.
    holder: Option<SegmentHolder>,
    /// Events before that moment.
    position: u64,
}

impl Situation {
    /// The accounts at that moment.
    pub(super) const fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// Events before that moment.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Examines every segment, and the blocks of those that may contain the largest hole.
    pub(super) fn of(memory: &MemoryModel, names: &Names) -> Self {
        let stranding = || {
            let held = |segment: &super::Segment<'_>| segment.held() > 0 && !segment.is_expandable();
            memory.segments().filter(held).filter(|segment| segment.free() > Bytes::ZERO)
        };
        let largest_hole = memory.largest_hole();
        let mut roomy = stranding().filter(|segment| segment.free() >= largest_hole);
        let holed =
            roomy.find(|segment| largest_hole > Bytes::ZERO && segment.holes().any(|hole| hole == largest_hole));
        Self {
            ledger: memory.ledger(),
            stranding: stranding().count(),
            largest_hole,
            position: memory.position(),
            holder: holed.and_then(|segment| SegmentHolder::of(&segment, names)),
        }
    }

    /// The situation at a moment of which only the accounts are known.
    const fn bare(ledger: Ledger, position: u64) -> Self {
        Self { ledger, stranding: 0, largest_hole: Bytes::ZERO, holder: None, position }
    }
}

/// The inputs of all findings.
pub(super) struct FindingInputs<'a> {
    pub situation: &'a Situation,
    /// The accounts when most was reserved, and the events before that moment. Only for a run that has ended.
    pub fullest: Option<(Ledger, u64)>,
    /// Cached bytes that the last step never used.
    pub spare: Bytes,
    pub oom: Option<&'a Autopsy>,
    pub peak_by_category: &'a [Bytes; 9],
    pub peak_position: Option<u64>,
    pub steps: &'a Steps,
    pub growth: Growth,
    pub settings: &'a RunSettings,
    /// What flips would do to the peak of a step.
    pub weighed: Option<&'a FlipTrials>,
    pub names: &'a Names,
    /// Memory that the last whole step held because ranks share their work.
    pub shared: Option<&'a RankHoldings>,
}

impl FindingInputs<'_> {
    /// All findings, the most important first.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let (mut cached, mut unused) = (self.releasable(), None);
        // If most of the reserved memory is unused, that comes before what the rest is used for.
        if matches!(&cached, Some(Finding { evidence: Evidence::Releasable { bytes, reserved, .. }, .. }) if share(*bytes, *reserved) > 0.5)
        {
            unused = cached.take();
        }
        let all = [
            self.out_of_memory(),
            self.leak(),
            self.overflowing(),
            self.stranded(),
            unused,
            self.peak(),
            self.shared(),
            self.late_buckets(),
            cached,
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
        if oom.remedied.is_empty() {
            // Until remedies have been tried, advise only what is certainly wrong.
            remedies = self.leak().map(|leak| leak.remedies).unwrap_or_default();
        }
        Some(Finding { level: Level::Danger, evidence, remedies, position: Some(oom.position), gain: None })
    }

    fn leak(&self) -> Option<Finding> {
        let (rise, steps) = self.growth.leak()?;
        let cause = if self.is("retain", "graph") {
            LeakCause::Graphs
        } else if self.is("retain", "cycles") {
            LeakCause::Cycles
        } else if self.is("retain", "losses") {
            LeakCause::Losses
        } else {
            LeakCause::Unknown
        };
        let evidence =
            Evidence::Leak { rise, steps: steps as u64, cause, held: self.growth.risen(), lines: Vec::new() };
        Some(Finding {
            level: Level::Warning,
            evidence,
            remedies: cures(cause, self.settings),
            position: None,
            gain: None,
        })
    }

    /// The situation that findings about free memory describe: the end of the last step, or the moment when most was
    /// reserved if the run has ended.
    fn moment(&self) -> (Situation, FreeMemoryMoment) {
        match self.fullest {
            Some((ledger, position)) if position != self.situation.position => {
                (Situation::bare(ledger, position), FreeMemoryMoment::Fullest)
            }
            _ if self.steps.finished() > 0 => (self.situation.clone(), FreeMemoryMoment::Step),
            _ => (self.situation.clone(), FreeMemoryMoment::Now),
        }
    }

    fn stranded(&self) -> Option<Finding> {
        let (Situation { ledger, stranding, largest_hole, holder, position }, when) = self.moment();
        if ledger.stranded < WORTH_SAYING || ledger.fragmentation() < 0.05 {
            return None;
        }
        let evidence = Evidence::Stranded {
            bytes: ledger.stranded,
            reserved: ledger.reserved(),
            segments: stranding,
            largest_hole,
            holder,
            when,
        };
        Some(Finding { level: Level::Warning, evidence, remedies: Vec::new(), position: Some(position), gain: None })
    }

    fn peak(&self) -> Option<Finding> {
        // The failure already reports what was live when memory ran out, and the last whole step had another peak.
        if self.oom.is_some() {
            return None;
        }
        let peak: Bytes = self.peak_by_category.iter().copied().sum();
        let (category, remedies) = self.remedies_for(self.peak_by_category)?;
        // Only flips that were tried are advised, and of these the one that saves most.
        let (remedies, gain) = match self.weighed.and_then(|weighed| weighed.best_of(&remedies)) {
            Some((remedy, gain)) => (vec![remedy], Some(gain)),
            None => (Vec::new(), None),
        };
        let bytes = self.peak_by_category[category as usize];
        if matches!(category, Category::Input | Category::Other | Category::Workspace) {
            return None;
        }
        if bytes < WORTH_SAYING || share(bytes, peak) < 0.4 {
            return None;
        }
        let evidence = Evidence::Peak { category, bytes, peak };
        Some(Finding { level: Level::Info, evidence, remedies, position: self.peak_position, gain })
    }

    /// Findings about memory that a rank holds because it shares its work.
    fn shared(&self) -> Option<Finding> {
        let RankHoldings { gathers, buckets, parameters, .. } = *self.shared?;
        let peak: Bytes = self.peak_by_category.iter().copied().sum();
        let gathered = self.peak_by_category[Category::Parameter as usize].saturating_sub(parameters);
        let evidence = if gathers > 0 && parameters.max(gathered) >= WORTH_SAYING {
            Evidence::Gathered { bytes: gathered, peak, gathers }
        } else if buckets >= WORTH_SAYING {
            Evidence::Buckets { bytes: buckets, peak }
        } else {
            return None;
        };
        Some(Finding { level: Level::Info, evidence, remedies: Vec::new(), position: self.peak_position, gain: None })
    }

    fn late_buckets(&self) -> Option<Finding> {
        let LateBucket { bytes, step } = self.shared?.late.filter(|late| late.bytes >= WORTH_SAYING)?;
        let evidence = Evidence::LateBuckets { bytes, step };
        Some(Finding { level: Level::Info, evidence, remedies: Vec::new(), position: None, gain: None })
    }

    fn releasable(&self) -> Option<Finding> {
        let (Situation { ledger, position, .. }, when) = self.moment();
        let bytes = if when == FreeMemoryMoment::Step { self.spare } else { ledger.releasable };
        if bytes < WORTH_SAYING || share(bytes, ledger.reserved()) < 0.1 {
            return None;
        }
        let evidence = Evidence::Releasable { bytes, reserved: ledger.reserved(), when };
        let remedies = if when == FreeMemoryMoment::Fullest { Vec::new() } else { vec![Remedy::EmptyCache] };
        Some(Finding { level: Level::Info, evidence, remedies, position: Some(position), gain: None })
    }

    fn rounding(&self) -> Option<Finding> {
        let (Situation { ledger, position, .. }, _) = self.moment();
        if ledger.rounding < WORTH_SAYING || share(ledger.rounding, ledger.allocated()) < 0.05 {
            return None;
        }
        let evidence = Evidence::Rounding { bytes: ledger.rounding, allocated: ledger.allocated() };
        Some(Finding { level: Level::Info, evidence, remedies: Vec::new(), position: Some(position), gain: None })
    }

    fn overflowing(&self) -> Option<Finding> {
        let (skipped, steps) = self.steps.recently_skipped();
        (steps >= 10 && skipped * 2 > steps).then(|| Finding {
            level: Level::Warning,
            evidence: Evidence::Overflow { skipped, steps },
            // The skipped steps may be from before the switch was set.
            remedies: if self.is("amp", "bf16") { Vec::new() } else { vec![Remedy::flip("amp", "bf16")] },
            position: None,
            gain: None,
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
            gain: None,
        })
    }

    /// True if the switch is known to have this value.
    fn is(&self, switch: &str, value: &str) -> bool {
        self.settings.get(switch).is_some_and(|setting| &*setting.value == value)
    }

    /// The category with most of these bytes, and the remedies that lower it.
    fn remedies_for(&self, by_category: &[Bytes; 9]) -> Option<(Category, Vec<Remedy>)> {
        let bytes = |category: &Category| by_category[*category as usize];
        let largest =
            Category::ALL.into_iter().rev().max_by_key(bytes).filter(|largest| bytes(largest) > Bytes::ZERO)?;
        Some((largest, advice::against(largest, self.settings)))
    }
}

/// The remedies for a leak: the switch that causes it, if there is one, then a change of the program.
pub(super) fn cures(cause: LeakCause, settings: &RunSettings) -> Vec<Remedy> {
    let releases = |measure: &&advice::Measure| measure.switch == "retain" && measure.helps(settings);
    let switch = advice::MEASURES.iter().find(releases).map(advice::Measure::remedy);
    let change = match cause {
        LeakCause::Graphs | LeakCause::Losses => Remedy::KeepNumbers,
        LeakCause::Cycles => Remedy::BreakCycles,
        LeakCause::Saved => Remedy::Detach,
        LeakCause::Growing | LeakCause::Unknown => Remedy::LetGo,
    };
    switch.into_iter().chain([change]).collect()
}

#[cfg(test)]
mod tests;
