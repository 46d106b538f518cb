//! `vramlab report`: everything there is to say of a run's memory, for people, programs and issue trackers.

mod document;
mod json;
mod words;

use std::io::Write;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use color_eyre::eyre::Result;

use super::Status;
use super::output::stdout;
use super::subject::{SubjectArgs, examine};
use super::tune::tune;
use crate::model::Evidence;
use crate::source::{Examined, Whole};
use crate::units::Bytes;
use crate::whatif::{Effort, Figures, Recorded, Tuning, smallest_limit};

/// Arguments of `vramlab report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// How it is written: text for a terminal, json for programs, markdown for an issue tracker.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal.
    Text,
    /// For programs.
    Json,
    /// For an issue tracker.
    Markdown,
}

/// All that is known of one device.
struct Subject {
    examined: Examined,
    run: Recorded,
    /// The run replayed under its own conditions.
    again: Figures,
    tuning: Tuning,
    /// The smallest limit that does under the run's own settings; looked for where a request failed.
    smallest: Option<Bytes>,
}

/// Reads the file, tries settings on it and prints the report.
pub(super) fn run(args: &ReportArgs) -> Result<Status> {
    let (whole, runs) = args.subject.all()?;
    let mut examined = examine(&whole)?;
    let mut subjects = Vec::new();
    for run in runs {
        let Some(index) = examined.iter().position(|examined| examined.device == run.device) else { continue };
        subjects.push(Subject::of(examined.swap_remove(index), run)?);
    }
    print(args, &whole, &subjects)?;
    Ok(Status::DONE)
}

impl Subject {
    fn of(examined: Examined, run: Recorded) -> Result<Self> {
        let again = run.again().figures;
        let tuning = tune(&run, None, Effort::Short)?;
        let failed = run.figures.ooms > 0;
        let smallest = failed.then(|| smallest_limit(&run.program, &run.conditions)).flatten();
        let mut subject = Self { examined, run, again, tuning, smallest };
        subject.verify();
        Ok(subject)
    }
}

impl Subject {
    /// Where nobody tried what would have helped a request that failed, what a replay says of it is told.
    fn verify(&mut self) {
        let remedied: Arc<[_]> = self.tuning.remedied().into();
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

fn print(args: &ReportArgs, whole: &Whole, subjects: &[Subject]) -> Result<()> {
    let mut out = stdout();
    let name = args.subject.name();
    match args.format {
        Format::Json => writeln!(out, "{}", json::object(&name, whole, subjects))?,
        Format::Text => document::text(&mut out, &words::parts(&name, whole, subjects))?,
        Format::Markdown => document::markdown(&mut out, &words::parts(&name, whole, subjects))?,
    }
    Ok(())
}
