//! `vramlab replay`: checks our allocator against a PyTorch memory snapshot.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::WrapErr;

use super::Status;
use super::output::stdout;
use super::progress::ProgressLine;
use crate::allocator::{TorchVersion, TraceEvent};
use crate::snapshot::replay::{
    Conditions, DeviceReport, HistoryReport, Observer, Overrides, Report, SettledRetries, verify_observed,
};
use crate::snapshot::{Begins, Snapshot, SnapshotError, TraceEntry};
use crate::units::Bytes;

/// Arguments of `vramlab replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// A snapshot written by torch.cuda.memory._dump_snapshot(), plain or compressed with gzip, xz or zstd; `-` reads
    /// standard input.
    pub file: PathBuf,
    /// Compare segment events, block addresses, and the blocks and statistics at the end (the default).
    #[arg(long)]
    pub verify: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// The PyTorch version that was recorded, from 2.1 to 2.15 [default: as X.stats.json or the snapshot's keys say].
    #[arg(long, value_name = "VERSION")]
    pub torch: Option<TorchVersion>,
    /// Allocator settings of the recorded program, in PyTorch's syntax [default: as the snapshot says].
    #[arg(long, value_name = "CONF")]
    pub alloc_conf: Option<String>,
    /// Memory limit of the recorded program, such as 8GiB [default: as X.stats.json says].
    #[arg(long, value_name = "BYTES")]
    pub limit: Option<Bytes>,
    /// Memory of the recorded device [default: as X.stats.json says].
    #[arg(long, value_name = "BYTES")]
    pub device_bytes: Option<Bytes>,
    /// torch.cuda.memory_stats() at the end of the recording, in JSON [default: X.stats.json beside
    /// X.pickle].
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
}

/// Replays the snapshot and prints the result. Exit code 0 if everything matches, else 1.
///
/// # Errors
/// If the snapshot or its statistics can't be read.
pub fn run(args: ReplayArgs) -> color_eyre::Result<Status> {
    let snapshot = read(&args.file).wrap_err_with(|| format!("{} can't be read", args.file.display()))?;
    let overrides = Overrides {
        torch: args.torch,
        alloc_conf: args.alloc_conf,
        limit: args.limit,
        device_bytes: args.device_bytes,
        stats: args.stats,
    };
    let conditions = Conditions::find(&args.file, &snapshot, &overrides)?;
    let total = (0..snapshot.device_count()).map(|device| snapshot.device_trace(device).len() as u64).sum();
    let mut progress = ProgressLine::new("replaying", total);
    let mut report = verify_observed(&snapshot, &conditions, &mut progress);
    drop(progress);
    if let Some(given) = args.device_bytes {
        report.notes.extend(report.devices.iter().filter_map(|device| untested(device, given)));
    }
    let mut out = stdout();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        table(&mut out, &args.file, &report)?;
    }
    Ok(if report.is_match() { Status::DONE } else { Status::FAILED })
}

/// How little an agreeing replay proves about the device's memory, if that was given by hand.
fn untested(device: &DeviceReport, given: Bytes) -> Option<String> {
    if !device.expandable || device.first_mismatch.is_some() {
        return None;
    }
    let number = device.device;
    Some(match device.largest_device {
        Some(largest) => format!(
            "the history does not show whether device {number} has {given}: any device with at most {largest} would place its \
             expandable segments at the same addresses"
        ),
        None => format!("the history does not show whether device {number} has {given}: no address depends on it"),
    })
}

fn read(path: &Path) -> Result<Snapshot, SnapshotError> {
    if path == Path::new("-") {
        return Snapshot::read(BufReader::with_capacity(1 << 16, io::stdin()));
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    Snapshot::read(BufReader::with_capacity(
        1 << 16,
        ReadSoFar { file, progress: ProgressLine::new("reading", length) },
    ))
}

/// A file that reports how far it has been read.
struct ReadSoFar {
    file: File,
    progress: ProgressLine,
}

impl Read for ReadSoFar {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.progress.advance(read as u64);
        Ok(read)
    }
}

impl Observer for ProgressLine {
    fn event(&mut self, _: usize, _: &TraceEntry, _: &TraceEvent) {
        self.advance(1);
    }
}

/// Text from an unknown file, without sequences that would control the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// What agrees, if everything does.
fn verdict(report: &Report) -> String {
    let devices = || report.devices.iter().map(|device| &device.history);
    let whose = if devices().any(|history| history.private) { " of the default pools" } else { "" };
    let since = match report.history.begins {
        Begins::First => "",
        Begins::Late => " since recording began",
        Begins::Ring => " since the oldest entry that is left",
        Begins::Nowhere => " at the end",
    };
    format!("Every decision{whose}{since} is PyTorch's.")
}

/// Where a history starts if it lacks the first allocation, and what is unknown because of that.
fn history(out: &mut impl Write, device: &DeviceReport, several: bool) -> io::Result<()> {
    let which = if several { format!("Device {}: ", device.device) } else { String::new() };
    let HistoryReport { begins, exact_from, missing, private } = &device.history;
    if *begins == Begins::First && !private {
        return Ok(());
    }
    match (device.first_mismatch.is_some(), exact_from) {
        (true, Some(from)) => writeln!(out, "{which}From entry {from} on it agrees to the end.")?,
        (true, None) => writeln!(out, "{which}It does not agree to the end from any later entry tried.")?,
        (false, _) => {}
    }
    if !missing.is_empty() {
        writeln!(out, "{which}The file can't tell {}.", missing.join(", nor "))?;
    }
    Ok(())
}

fn table(out: &mut impl Write, file: &Path, report: &Report) -> io::Result<()> {
    let or_none = |bytes: Option<Bytes>, none: &str| bytes.map_or_else(|| none.to_owned(), |bytes| bytes.to_string());
    writeln!(out, "{}: {} trace entries", plain(&file.display().to_string()), report.events)?;
    let settings = if report.settings.is_empty() { "defaults" } else { &plain(&report.settings) };
    writeln!(out, "  allocator PyTorch {}", report.torch)?;
    writeln!(out, "  settings  {settings}")?;
    writeln!(out, "  limit     {}", or_none(report.limit, "none"))?;
    writeln!(out, "  device    {}", or_none(report.device, "unknown"))?;
    writeln!(out)?;
    writeln!(out, "{:<18}{:>12}{:>12}", "", "matched", "of")?;
    for (name, tally) in [
        ("segment events", report.segments),
        ("block addresses", report.placements),
        ("final blocks", report.blocks),
        ("statistics", report.stats),
    ] {
        let mark = if tally.is_complete() { "" } else { "  <-" };
        writeln!(out, "{name:<18}{:>12}{:>12}{mark}", tally.matched, tally.total)?;
    }
    writeln!(out)?;
    match &report.first_mismatch {
        None if report.is_match() => writeln!(out, "{}", verdict(report))?,
        None => {}
        Some(mismatch) => {
            writeln!(
                out,
                "First mismatch, at entry {} of device {}: the allocator has \"{}\", the recording \"{}\".",
                mismatch.entry, mismatch.device, mismatch.expected, mismatch.found
            )?;
            if let Some(explanation) = &mismatch.explanation {
                writeln!(out, "Probably {explanation}.")?;
            }
        }
    }
    for device in &report.devices {
        history(out, device, report.devices.len() > 1)?;
        for (key, ours, recorded) in device.differing_stats.iter().skip(1) {
            writeln!(out, "Device {}: {key} is {ours}, recorded {recorded}.", device.device)?;
        }
        let SettledRetries { spots, read_as_retries } = device.ambiguous_retries;
        if spots > 0 {
            writeln!(
                out,
                "Note: releases with two explanations, a request's retry or an empty_cache() just before it: {spots}, of which \
                 {read_as_retries} count as retries{}.",
                if device.stats.total > 0 && device.stats.is_complete() { ", as the statistics show" } else { "" }
            )?;
        }
        if let Some(entry) = device.peak_reset {
            writeln!(
                out,
                "Note: the recorded peaks are those after a torch.cuda.reset_peak_memory_stats(), which leaves no entry; \
                 it was called before entry {entry}."
            )?;
        }
    }
    if report.silent_empty_cache > 0 {
        let (calls, they) = match report.silent_empty_cache {
            1 => ("1 empty_cache() call".to_owned(), "it"),
            calls => (format!("{calls} empty_cache() calls"), "they"),
        };
        writeln!(out, "Note: {calls} left no entry, as {they} had nothing to return; the statistics show how many.")?;
    }
    if report.pending > 0 {
        let blocks =
            if report.pending == 1 { "1 block was".to_owned() } else { format!("{} blocks were", report.pending) };
        writeln!(out, "Note: {blocks} still waiting for other streams at the end.")?;
    }
    for note in &report.notes {
        writeln!(out, "Note: {note}.")?;
    }
    Ok(())
}
