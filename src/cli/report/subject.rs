//! Everything known about one device of a file.

use std::sync::Arc;

use color_eyre::eyre::Result;

use super::part::DocumentPart;
use crate::allocator::TorchVersion;
use crate::cli::subjects::Subject as File;
use crate::cli::tune::tune;
use crate::model::{Autopsy, Begins, Evidence, View};
use crate::snapshot::{PrintedSize, Refusal};
use crate::source::{DeviceExamination, Whole};
use crate::units::Bytes;
use crate::whatif::{Effort, Figures, RecordedRun, Tuning, smallest_limit};

/// What the report is to contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportRequest<'a> {
    /// Whether settings are tried.
    pub settings: bool,
    /// PyTorch's message.
    pub refusal: Option<&'a Refusal>,
    /// The limit of the process, if it is given.
    pub told: Option<PrintedSize>,
}

/// Everything known about one device.
pub(super) struct ReportSubject<'a> {
    pub file: &'a str,
    pub whole: &'a Whole,
    pub examined: DeviceExamination,
    pub run: &'a RecordedRun,
    /// The oldest PyTorch that may have made the run.
    pub oldest: TorchVersion,
    pub asked: ReportRequest<'a>,
    /// The results of replays; `None` before they are done, or if none are wanted.
    pub tried: Option<TriedOut>,
}

/// The figures of replays.
pub(super) struct TriedOut {
    /// The run under its own conditions.
    pub again: Figures,
    /// Under the run's limit, or the lowest that it can have been.
    pub tuning: Tuning,
    /// Under the highest possible limit, if none is recorded.
    pub loose: Option<Tuning>,
    /// The smallest limit that is enough under the run's own settings; searched if a request failed.
    pub smallest: Option<Bytes>,
}

impl<'a> ReportSubject<'a> {
    /// The examined devices of a file.
    pub fn all(file: &'a File, mut examined: Vec<DeviceExamination>, asked: ReportRequest<'a>) -> Vec<Self> {
        let mut subjects = Vec::new();
        for run in &file.runs {
            let Some(index) = examined.iter().position(|examined| examined.device == run.facts.device) else {
                continue;
            };
            let mut subject = Self {
                file: &file.name,
                whole: &file.whole,
                examined: examined.swap_remove(index),
                run,
                oldest: file.oldest,
                asked,
                tried: None,
            };
            subject.set_limit();
            subjects.push(subject);
        }
        subjects
    }

    /// Whether the run is of a PyTorch program, which does not have our flags.
    pub const fn is_pytorchs(&self) -> bool {
        self.run.facts.begins.is_some()
    }

    /// Whether there is a history: without one, only the end is known.
    pub fn has_history(&self) -> bool {
        self.run.facts.begins != Some(Begins::Nowhere)
    }

    /// Whether events were overwritten, so that peaks are lower bounds.
    pub fn overwritten(&self) -> bool {
        self.run.facts.begins == Some(Begins::Ring)
    }

    /// The device's name among others.
    pub fn called(&self, files: bool) -> String {
        let device = self.run.facts.device.0;
        if files { format!("{}, device {device}: the worst", self.file) } else { format!("Device {device}") }
    }

    /// Assumptions that had to be made.
    pub fn remarks(&self) -> Vec<DocumentPart> {
        // The section on the failure says which limit was assumed.
        let told = |remark: &&String| self.run.facts.unknown_limit.is_none() || !remark.contains("--limit");
        let remarks: Vec<String> = self.run.facts.remarks.iter().filter(told).cloned().collect();
        if remarks.is_empty() { Vec::new() } else { vec![DocumentPart::Items(remarks)] }
    }

    /// The failure that the report is about: the one in the message, else the first.
    pub fn failure(&self) -> Option<&Arc<Autopsy>> {
        let failures = &self.examined.failures;
        let named = |autopsy: &&Arc<Autopsy>| {
            let asked = self.asked.refusal.map(|refusal| refusal.asked);
            asked.is_some_and(|asked| asked.size.get().abs_diff(autopsy.request.segment.get()) <= asked.slack.get())
        };
        failures.iter().find(named).or(failures.first())
    }

    /// The view at the end, with `failure` as the last failed request.
    pub fn view_at(&self, failure: &Arc<Autopsy>) -> View {
        let mut view = self.examined.view.clone();
        view.autopsy = Some(Arc::clone(failure));
        view
    }

    /// Sets a limit that the stream does not contain, for its failures too.
    fn set_limit(&mut self) {
        let Some(limit) = self.run.facts.conditions.limit.filter(|_| self.run.facts.unknown_limit.is_none()) else {
            return;
        };
        for failure in self.examined.failures.iter_mut().filter(|failure| failure.limit.is_none()) {
            *failure = Arc::new(Autopsy::clone(failure).under(limit));
        }
        for finding in &mut self.examined.view.findings {
            if let Evidence::OutOfMemory { limit: of @ None, .. } = &mut finding.evidence {
                *of = Some(limit);
            }
        }
    }

    /// Tries settings, unless that is done or not wanted.
    pub fn try_settings(&mut self) -> Result<()> {
        if self.tried.is_some() || !self.asked.settings || !self.has_history() {
            return Ok(());
        }
        let run = self.run;
        let tuning = tune(run, None, Effort::Short, self.oldest)?;
        let most = run.facts.unknown_limit.map(|range| range.most());
        let loose = most.map(|most| tune(run, Some(most), Effort::Short, self.oldest)).transpose()?;
        let failed = run.facts.figures.ooms > 0;
        let smallest = failed.then(|| smallest_limit(&run.program, &run.facts.conditions)).flatten();
        self.tried = Some(TriedOut { again: run.again().figures, tuning, loose, smallest });
        if run.facts.unknown_limit.is_none() {
            self.verify();
        }
        Ok(())
    }

    /// Adds what replays found for a failed request, if remedies were not tried in the run.
    fn verify(&mut self) {
        let Some(tried) = &self.tried else { return };
        let remedied: Arc<[_]> = tried.tuning.remedied().into();
        let mut verified = false;
        for failure in self.examined.failures.iter_mut().filter(|failure| !failure.tried) {
            let failure = Arc::make_mut(failure);
            (failure.remedied, failure.tried) = (Arc::clone(&remedied), true);
            verified = true;
        }
        if verified {
            let findings = self.examined.view.findings.iter_mut();
            for finding in findings.filter(|finding| matches!(finding.evidence, Evidence::OutOfMemory { .. })) {
                finding.remedies =
                    remedied.iter().filter(|tried| tried.fits).map(|tried| tried.remedy.clone()).collect();
            }
        }
    }
}
