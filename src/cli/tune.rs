//! `vramlab tune`: allocator settings under which a run would take less memory.

use std::io::{self, Write};
use std::sync::Mutex;

use clap::Args;
use color_eyre::eyre::Result;
use rayon::prelude::*;
use serde_json::json;

use super::Status;
use super::columns::{Cell, Column, Paper, Table, Tone};
use super::output::stdout;
use super::paste::paste;
use super::percent::{change, changed};
use super::progress::ProgressLine;
use super::serving::{LimitEnds, in_range};
use super::subject::SubjectArgs;
use super::whatif::{reproduced, started};
use crate::allocator::TorchVersion;
use crate::units::Bytes;
use crate::whatif::{Effort, RecordedRun, Tuning, TuningTrial, smallest_limit};

/// Rows of the table.
const ROWS: usize = 10;

/// Arguments of `vramlab tune`.
#[derive(Debug, Args)]
pub(super) struct TuneArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// The most that may be reserved, such as 24GiB. Settings under which the run does not fit are left out, and
    /// garbage collection is tried, too [default: as in the run].
    #[arg(long, value_name = "BYTES")]
    limit: Option<Bytes>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Settings, and the smallest limit that is enough for them.
struct TuneRow<'a> {
    tried: &'a TuningTrial,
    smallest: Option<Bytes>,
}

/// Tries settings and prints the best. Exit code 0 with any result.
pub(super) fn run(args: &TuneArgs) -> Result<Status> {
    let (run, oldest) = args.subject.one()?;
    let tuning = tune(&run, args.limit, Effort::Full, oldest)?;
    // A limit that the user gives is not unknown.
    let range = run.facts.unknown_limit.filter(|_| args.limit.is_none());
    let fits = tuning.tried.iter().any(TuningTrial::fits);
    let most = range.filter(|_| !fits).map(|range| tune(&run, Some(range.most()), Effort::Full, oldest)).transpose()?;
    let unknown = range.zip(most.as_ref()).map(|(range, most)| LimitEnds { range, least: &tuning, most });
    let shown = tuning.worth_telling(&run).into_iter().chain(tuning.defaults());
    let mut rows: Vec<&TuningTrial> = Vec::new();
    for tried in shown {
        if !rows.iter().any(|row| row.conditions == tried.conditions) {
            rows.push(tried);
        }
    }
    let beyond = rows.len().saturating_sub(ROWS);
    // The table keeps the default settings.
    if beyond > 0 {
        rows.drain(ROWS - 1..rows.len() - 1);
    }
    // The recommended settings are the simplest of those that are about equally good, so others may be slightly better.
    let best = tuning.recommended(&run);
    rows.extend(best.filter(|best| !rows.iter().any(|row| row.conditions == best.conditions)));
    let rows: Vec<TuneRow<'_>> = rows
        .into_par_iter()
        .map(|tried| TuneRow { tried, smallest: smallest_limit(&run.program, &tried.conditions) })
        .collect();
    let again = run.again().figures;
    if args.json {
        let row = |row: &TuneRow<'_>| {
            json!({
                "conf": row.tried.conditions.text(),
                "limit": row.tried.conditions.limit,
                "peak_reserved": row.tried.figures.peak_reserved,
                "peak_allocated": row.tried.figures.peak_allocated,
                "num_device_alloc": row.tried.figures.segments_allocated,
                "num_device_free": row.tried.figures.segments_freed,
                "num_alloc_retries": row.tried.figures.retries,
                "num_ooms": row.tried.figures.ooms,
                "smallest_limit": row.smallest,
                "start": run.program.starting(&row.tried.conditions),
                "predicted": true,
            })
        };
        let object = json!({
            "units": { "sizes": "bytes" },
            "device": run.facts.device,
            "history": { "begins": run.facts.begins.unwrap_or_default() },
            "exact": run.is_exact(&again),
            "recorded": { "conf": run.facts.conditions.text(), "peak_reserved": run.facts.figures.peak_reserved },
            "tried": tuning.tried.len(),
            "best": rows.iter().map(row).collect::<Vec<_>>(),
        });
        writeln!(stdout(), "{object}")?;
    } else {
        let paper = Paper::terminal();
        let mut out = paper.out();
        let (name, tried) = (args.subject.name(), tuning.tried.len());
        let title = format!("{name}: {tried} settings tried on device {}", run.facts.device.0);
        paper.paragraph(&mut out, &title, 0, Tone::Strong)?;
        paper.paragraph(&mut out, &reproduced(&run, &again), 0, Tone::Plain)?;
        if let Some(started) = started(&run, rows.iter().map(|row| &row.tried.conditions)) {
            paper.paragraph(&mut out, &started, 0, Tone::Plain)?;
        }
        writeln!(out)?;
        table(&mut out, paper, &run, &rows)?;
        advise(&mut out, paper, &run, &tuning, unknown, oldest)?;
    }
    Ok(Status::DONE)
}

/// Tries settings on a run, and shows progress.
pub(super) fn tune(run: &RecordedRun, limit: Option<Bytes>, effort: Effort, oldest: TorchVersion) -> Result<Tuning> {
    let progress = Mutex::new(ProgressLine::new("trying settings", 100));
    let tuning = Tuning::of(run, limit, effort, oldest, &|done, total| {
        if let Ok(mut progress) = progress.lock() {
            progress.of_few(done, total);
        }
    })?;
    Ok(tuning)
}

fn table(out: &mut impl Write, paper: Paper, run: &RecordedRun, rows: &[TuneRow<'_>]) -> io::Result<()> {
    let mut table = Table::new([
        Column::wraps(""),
        Column::right("peak\nreserved"),
        Column::right(""),
        Column::right("driver\ncalls").spare(1),
        Column::right("\nretries"),
        Column::right("out of\nmemory"),
        Column::right("smallest limit\nthat fits"),
    ]);
    let of = &run.facts.figures;
    let calls = of.segments_allocated + of.segments_freed;
    let told = |n: u64| if n == 0 { Cell::from("no") } else { Cell::toned(n.to_string(), Tone::Bad) };
    table.row(vec![
        format!("recorded: {}", run.facts.conditions).into(),
        of.peak_reserved.to_string().into(),
        Cell::default(),
        calls.to_string().into(),
        of.retries.to_string().into(),
        told(of.ooms),
    ]);
    for TuneRow { tried, smallest } in rows {
        let figures = &tried.figures;
        table.row(vec![
            format!("predicted: {}", tried.conditions).into(),
            figures.peak_reserved.to_string().into(),
            changed(of.peak_reserved.get(), figures.peak_reserved.get()),
            tried.calls().to_string().into(),
            figures.retries.to_string().into(),
            told(figures.ooms),
            smallest.map_or_else(|| "none".to_owned(), |limit| limit.to_string()).into(),
        ]);
    }
    table.print(out, paper)
}

/// Prints what to do.
fn advise(
    out: &mut impl Write,
    paper: Paper,
    run: &RecordedRun,
    tuning: &Tuning,
    unknown: Option<LimitEnds<'_>>,
    oldest: TorchVersion,
) -> io::Result<()> {
    writeln!(out)?;
    let Some(best) = tuning.recommended(run) else {
        let (text, tone) = match tuning.tried.iter().any(TuningTrial::fits) {
            true => ("No settings lower the peak by 1 % or more: leave them as they are.", Tone::Plain),
            false => match unknown {
                Some(ends) => {
                    for text in in_range(run, oldest, ends) {
                        paper.paragraph(out, &text, 0, Tone::Plain)?;
                    }
                    ("Give the limit with --limit for one answer.", Tone::Plain)
                }
                None => {
                    ("Nothing fits: take a smaller batch, or something else that lowers peak allocated.", Tone::Bad)
                }
            },
        };
        return paper.paragraph(out, text, 0, tone);
    };
    let (before, after) = (run.facts.figures.peak_reserved, best.figures.peak_reserved);
    let predicted = match run.facts.figures.ooms {
        0 => {
            let saved = before.saturating_sub(after);
            format!("Predicted to save {saved} ({}):", change(before.get(), after.get()))
        }
        _ => format!("Predicted to serve every request, and to reserve {after}:"),
    };
    paper.paragraph(out, &predicted, 0, Tone::Good)?;
    let paste = paste(&best.conditions, run, oldest);
    writeln!(out, "\n  {}", paste.shell)?;
    if let Some(line) = &paste.program {
        let text = "and in the program, before it takes memory (without a limit PyTorch collects no garbage, and the gain is gone):";
        writeln!(out)?;
        paper.paragraph(out, text, 0, Tone::Plain)?;
        writeln!(out, "\n  {line}")?;
    }
    if oldest < run.facts.conditions.settings.torch() {
        let text = "The file may be of a PyTorch before 2.11, which stops at keys that it does not know: large_segment_size_mb was not \
                    tried. --torch 2.11 tries it.";
        writeln!(out)?;
        paper.paragraph(out, text, 0, Tone::Plain)?;
    }
    Ok(())
}
