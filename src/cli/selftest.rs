//! `vramlab doctor --selftest`: checks that a device computes the same as the processor.

use std::io::{IsTerminal, Write};

use color_eyre::eyre::Result;
use serde_json::json;

use super::output::stdout;
use super::{Status, Usage, spec};
use crate::device::selftest::{self, Extent, Options, Outcome, Report, Row};
use crate::device::{Device, DeviceInfo};
use crate::session::DeviceChoice;

/// Failures reported for each row.
const TOLD: usize = 4;
/// Notes of the device that are printed.
const NOTES: usize = 30;

/// Tests the device called `name`: the kernels whose names begin with an element of `only`, or all. Prints a table, or JSON.
pub(super) fn run(name: &str, only: &[String], json: bool) -> Result<Status> {
    let mut device = open(name)?;
    let options = Options { extent: Extent::Full, only: only.to_vec() };
    let mut progress = CaseProgress::new();
    let started = std::time::Instant::now();
    let report = selftest::run(device.as_mut(), &options, &mut |case| progress.tell(case));
    progress.clear();
    let (report, seconds) = (report?, started.elapsed().as_secs_f64());
    let mut out = stdout();
    if json {
        let value = json!({
            "device": device.info().id,
            "name": device.info().name,
            "passed": report.passed(),
            "seconds": seconds,
            "lost": report.lost,
            "rows": report.rows,
            "notes": device.notes(),
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
    } else {
        table(&mut out, &report)?;
        failures(&mut out, &report)?;
        notes(&mut out, &device.notes())?;
        writeln!(out, "{}", sentence(&report, device.info(), seconds))?;
    }
    Ok(if report.passed() { Status::DONE } else { Status::FAILED })
}

/// Opens the device called `name`.
fn open(name: &str) -> Result<Box<dyn Device>> {
    let choice = spec::device(name)?;
    if matches!(choice, DeviceChoice::Sim(_)) {
        return Err(Usage(format!("{name} computes nothing that could be tested; write --device cpu or cuda")).into());
    }
    Ok(choice.open()?.0)
}

fn table(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    let width = |header: &str, text: fn(&Row) -> &str| {
        report.rows.iter().map(|row| text(row).chars().count()).chain([header.len()]).max().unwrap_or(0)
    };
    let (kernel, dtype) = (width("kernel", |row| &row.kernel), width("dtype", |row| &row.dtype));
    writeln!(
        out,
        "{:kernel$}  {:dtype$}  {:>5}  {:>11}  {:>9}",
        "kernel", "dtype", "cases", "worst error", "tolerance"
    )?;
    let mut last = "";
    for row in &report.rows {
        let name = if row.kernel == last { "" } else { &row.kernel };
        last = &row.kernel;
        let (error, tolerance) = match (row.worst_error, row.tolerance) {
            (None, _) => ("–".to_owned(), "–".to_owned()),
            (Some(_), _) if row.cases == 0 => ("–".to_owned(), "–".to_owned()),
            (Some(error), 0.0) => (format!("{error:.0}"), "exact".to_owned()),
            (Some(error), tolerance) => (format!("{error:.1e}"), format!("{tolerance:.1e}")),
        };
        let (dtype_name, word) = (&row.dtype, row.outcome.word());
        writeln!(out, "{name:kernel$}  {dtype_name:dtype$}  {:>5}  {error:>11}  {tolerance:>9}  {word}", row.cases)?;
    }
    writeln!(out)
}

fn failures(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    for row in report.rows.iter().filter(|row| row.outcome == Outcome::Failed) {
        writeln!(out, "{} {}: {} wrong", row.kernel, row.dtype, row.failures.len())?;
        for failure in row.failures.iter().take(TOLD) {
            writeln!(out, "  {}: {}", failure.shape, failure.sentence)?;
        }
        if let Some(more) = row.failures.len().checked_sub(TOLD).filter(|&more| more > 0) {
            writeln!(out, "  and {more} more, see --json")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Prints which work was left to slower kernels.
fn notes(out: &mut impl Write, notes: &[String]) -> std::io::Result<()> {
    for note in notes.iter().take(NOTES) {
        writeln!(out, "{note}.")?;
    }
    if let Some(more) = notes.len().checked_sub(NOTES).filter(|&more| more > 0) {
        writeln!(out, "And {more} more, see --json.")?;
    }
    if notes.is_empty() { Ok(()) } else { writeln!(out) }
}

fn sentence(report: &Report, info: &DeviceInfo, seconds: f64) -> String {
    let device = format!("{} ({})", info.id, info.name);
    let cases = report.cases();
    if let Some(lost) = &report.lost {
        return format!("{device} was lost after {cases} cases: {lost}. Nothing after it was tested.");
    }
    let wrong: usize = report.rows.iter().map(|row| row.failures.len()).sum();
    if wrong > 0 {
        return format!("{device} is wrong in {wrong} places of {cases} cases: don't trust what it computes.");
    }
    format!("{device} computes what the processor computes in f64: {cases} cases in {seconds:.0} s.")
}

/// A line on the terminal that shows the current case.
pub(super) struct CaseProgress {
    shown: bool,
    told: std::time::Instant,
}

impl CaseProgress {
    pub(super) fn new() -> Self {
        Self { shown: std::io::stderr().is_terminal(), told: std::time::Instant::now() }
    }

    pub(super) fn tell(&mut self, case: &str) {
        const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
        if self.shown && self.told.elapsed() > PAUSE {
            self.told = std::time::Instant::now();
            let line: String = case.chars().take(78).collect();
            self.write(&format!("\r\x1b[K{line}"));
        }
    }

    pub(super) fn clear(&self) {
        if self.shown {
            self.write("\r\x1b[K");
        }
    }

    /// A failure to write is ignored: the terminal may be gone.
    fn write(&self, text: &str) {
        let mut stderr = std::io::stderr();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}
