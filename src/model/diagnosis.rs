//! Findings from reading a run again: lines that leak, and remedies that were tried on the run's requests.

use std::sync::Arc;

use super::evidence::{Evidence, FreeMemoryMoment, KeptLine, LeakCause};
use super::finding::{Finding, Gain, cures};
use super::{Category, Leak, Level, Remedy, RemedyTrial, RunSettings};
use vramlab_allocator::units::Bytes;

/// The findings of a thread that reads the whole run again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// Lines that hold more memory at every repetition, the most bytes first.
    pub leaks: Vec<Leak>,
    /// The number of events before the moment when leaks were last looked at.
    pub looked: Option<u64>,
    /// Allocator settings that would have led to a lower reserved peak, and the gain.
    pub tried: Option<(Remedy, Gain)>,
    /// Remedies for failed requests, if nothing else tried any.
    pub remedied: Option<Arc<[RemedyTrial]>>,
}

/// The most lines in a finding.
const LINES: usize = 8;

impl Diagnosis {
    /// The model's findings, amended by the diagnosis: leaks with their lines, remedies with their gain.
    #[must_use]
    pub fn amended(&self, findings: &[Finding], settings: &RunSettings) -> Vec<Finding> {
        let mut all = findings.to_vec();
        if let Some(leak) = self.leak(&all, settings) {
            all.retain(|finding| !matches!(finding.evidence, Evidence::Leak { .. }));
            let behind_failures = all.iter().take_while(|finding| finding.level == Level::Danger).count();
            all.insert(behind_failures, leak);
        }
        for finding in &mut all {
            match (&finding.evidence, &self.tried, &self.remedied) {
                (Evidence::Stranded { .. } | Evidence::Rounding { .. }, Some((remedy, gain)), _)
                | (Evidence::Releasable { when: FreeMemoryMoment::Fullest, .. }, Some((remedy, gain)), _)
                    if gain.is_worth_it() =>
                {
                    finding.remedies = vec![remedy.clone()];
                    finding.gain = Some(*gain);
                }
                (Evidence::OutOfMemory { .. }, _, Some(remedied)) if finding.remedies.is_empty() => {
                    let fit = remedied.iter().filter(|tried| tried.fits);
                    finding.remedies = fit.map(|tried| tried.remedy.clone()).collect();
                }
                _ => {}
            }
        }
        all
    }

    fn leak(&self, findings: &[Finding], settings: &RunSettings) -> Option<Finding> {
        let steps = self.leaks.iter().map(|leak| leak.steps).max()?;
        let known = findings.iter().find_map(|finding| match finding.evidence {
            Evidence::Leak { cause, held, .. } => Some((cause, held)),
            _ => None,
        });
        let cause = known.map(|(cause, _)| cause).filter(|cause| *cause != LeakCause::Unknown);
        let cause = cause.unwrap_or_else(|| self.cause());
        // Steps have gone on since the lines were looked at.
        let held: Bytes = self.leaks.iter().map(|leak| leak.bytes).sum();
        let line = |leak: &Leak| KeptLine { line: leak.line.as_str().into(), rise: leak.bytes_per_step };
        let evidence = Evidence::Leak {
            rise: self.leaks.iter().map(|leak| leak.bytes_per_step).sum(),
            steps,
            cause,
            held: held.max(known.map_or(Bytes::ZERO, |(_, held)| held)),
            lines: self.leaks.iter().take(LINES).map(line).collect(),
        };
        let remedies = cures(cause, settings);
        Some(Finding { level: Level::Warning, evidence, remedies, position: self.looked, gain: None })
    }

    /// What keeps the blocks alive: many lines of one step are its graph, one line is a list.
    fn cause(&self) -> LeakCause {
        let is_loss = |leak: &Leak| leak.line.to_lowercase().contains("loss");
        let saved = |leak: &Leak| matches!(leak.category, Category::Activation | Category::Temporary | Category::Other);
        let blocks: f64 = self.leaks.iter().map(|leak| leak.blocks_per_step).sum();
        match self.leaks.as_slice() {
            [only] if is_loss(only) && only.bytes_per_step <= Bytes::kib(4) => LeakCause::Losses,
            leaks if leaks.len() >= 3 && leaks.iter().filter(|leak| saved(leak)).count() * 2 > leaks.len() => {
                LeakCause::Saved
            }
            _ if blocks <= 2.0 => LeakCause::Growing,
            _ => LeakCause::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trial;

    fn leak(line: &str, category: Category, bytes: u64, blocks: f64) -> Leak {
        Leak {
            line: line.to_owned(),
            category,
            bytes_per_step: Bytes(bytes),
            blocks_per_step: blocks,
            bytes: Bytes(bytes * 20),
            steps: 20,
        }
    }

    fn finding(evidence: Evidence, level: Level) -> Finding {
        Finding { level, evidence, remedies: Vec::new(), position: None, gain: None }
    }

    fn stranded() -> Finding {
        let evidence = Evidence::Stranded {
            bytes: Bytes::gib(1),
            reserved: Bytes::gib(10),
            segments: 3,
            largest_hole: Bytes::mib(300),
            holder: None,
            when: FreeMemoryMoment::Step,
        };
        finding(evidence, Level::Warning)
    }

    #[test]
    fn a_leak_stands_first_with_its_sum_its_lines_and_its_cure() {
        let lines = [
            leak("layer_norm (main.py:30)", Category::Activation, 3 << 20, 2.0),
            leak("linear (main.py:31)", Category::Activation, 2 << 20, 1.0),
            leak("gelu (main.py:32)", Category::Activation, 1 << 20, 1.0),
        ];
        let diagnosis = Diagnosis { leaks: lines.to_vec(), looked: Some(77), ..Diagnosis::default() };
        let found = diagnosis.amended(&[stranded()], &RunSettings::default());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].position, found[0].remedies.as_slice()), (Some(77), &[Remedy::Detach][..]));
        insta::assert_snapshot!(found[0], @"a leak: each step leaves 6.00 MiB behind, 120.00 MiB so far: something keeps the graph of each step, with what forward saved for backward; most: layer_norm (main.py:30) and 2 more lines");
    }

    #[test]
    fn what_keeps_blocks_is_told_by_what_they_are() {
        let cause = |leaks: &[Leak]| Diagnosis { leaks: leaks.to_vec(), ..Diagnosis::default() }.cause();
        assert_eq!(cause(&[leak("mean loss", Category::Other, 512, 1.0)]), LeakCause::Losses);
        assert_eq!(cause(&[leak("hidden (rnn.py:3)", Category::Other, 1 << 20, 1.0)]), LeakCause::Growing);
        assert_eq!(cause(&vec![leak("x", Category::Activation, 1 << 20, 1.0); 5]), LeakCause::Saved);
        assert_eq!(cause(&vec![leak("p", Category::Parameter, 1 << 20, 3.0); 2]), LeakCause::Unknown);
    }

    #[test]
    fn only_what_gains_is_advised() {
        let gain = |to| Gain { from: Bytes::gib(10), to, trial: Trial::Replayed };
        let advice = |to| {
            let diagnosis = Diagnosis { tried: Some((Remedy::EXPANDABLE, gain(to))), ..Diagnosis::default() };
            diagnosis.amended(&[stranded()], &RunSettings::default()).remove(0)
        };
        let told = advice(Bytes::gib(9));
        assert_eq!((told.remedies.len(), told.gain), (1, Some(gain(Bytes::gib(9)))));
        for harmless in [Bytes::mib(10_200), Bytes::gib(10), Bytes::gib(11)] {
            assert_eq!((advice(harmless).remedies.len(), advice(harmless).gain), (0, None), "{harmless}");
        }
    }
}
