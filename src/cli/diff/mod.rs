//! `vramlab diff`: what grew from one run to another.

mod followed;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::{Value, json};

use crate::cli::columns::{Cell, Column, Paper, Table, Tone};
use crate::cli::export::read;
use crate::cli::output::stdout;
use crate::cli::percent::changed;
use crate::cli::subject::examine;
use crate::cli::{Status, Usage};
use crate::model::{Category, Difference, differences};
use crate::source::{DeviceExamination, MomentHoldings};
use crate::units::{Bytes, DeviceIndex};

/// Arguments of `vramlab diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The earlier run: a recording or a PyTorch memory snapshot.
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The later run.
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Number of the device [default: the first one with allocations].
    #[arg(long, value_name = "N")]
    rank: Option<u16>,
    /// Number of rows in each table.
    #[arg(long, value_name = "N", default_value_t = 20)]
    lines: usize,
    /// Print one JSON object instead of tables, with all names.
    #[arg(long)]
    json: bool,
}

/// Compares the two runs and prints the differences. The exit code is 0 whatever they are.
pub(super) fn run(args: &DiffArgs) -> Result<Status> {
    let (before, after) = (examined(&args.before, args.rank)?, examined(&args.after, args.rank)?);
    if args.json {
        let object = json!({
            "units": { "sizes": "bytes" },
            "before": total(&before),
            "after": total(&after),
            "peak": moment(&before.peak, &after.peak),
            "end": moment(&before.end, &after.end),
        });
        writeln!(stdout(), "{object}")?;
        return Ok(Status::DONE);
    }
    let paper = Paper::terminal();
    let mut out = paper.out();
    totals(&mut out, paper, args, &before, &after)?;
    for (when, a, b) in [("at the peak", &before.peak, &after.peak), ("at the end", &before.end, &after.end)] {
        let heading = |by: &str| paper.toned(&format!("Held {when}, by {by}:"), Tone::Strong);
        writeln!(out, "\n{}", heading("category"))?;
        categories(&mut out, paper, a, b)?;
        let all = differ(a, b);
        if all.is_empty() {
            writeln!(out, "\nEvery name holds the same {when}.")?;
            continue;
        }
        writeln!(out, "\n{}", heading("name, where it differs"))?;
        names(&mut out, paper, &all, args.lines)?;
    }
    Ok(Status::DONE)
}

/// The names whose holdings differ, with both values; lines are followed if an edit moved them.
fn differ(before: &MomentHoldings, after: &MomentHoldings) -> Vec<Difference> {
    let (before, after) = followed::followed(&before.holders, &after.holders);
    differences(&before, &after)
}

/// The requested device of a file.
fn examined(path: &Path, rank: Option<u16>) -> Result<DeviceExamination> {
    let mut all = examine(&read(path, None)?)?;
    let wanted = match rank {
        None => (!all.is_empty()).then_some(0),
        Some(rank) => all.iter().position(|of| of.device == DeviceIndex(rank)),
    };
    let Some(index) = wanted else {
        return Err(Usage(format!("{}: no allocations there; give another --rank or file", path.display())).into());
    };
    Ok(all.swap_remove(index))
}

fn total(of: &DeviceExamination) -> Value {
    json!({
        "device": of.device,
        "peak_allocated": of.view.peak_allocated,
        "peak_reserved": of.view.peak_reserved,
        "allocated": of.end.ledger.allocated(),
        "reserved": of.end.ledger.reserved(),
    })
}

fn moment(before: &MomentHoldings, after: &MomentHoldings) -> Value {
    let by_category = Category::ALL.into_iter().map(|category| {
        let (a, b) = (before.by_category[category as usize], after.by_category[category as usize]);
        (category.label().to_owned(), json!({ "before": a, "after": b, "grew": b.get() as i128 - a.get() as i128 }))
    });
    let name = |difference: &Difference| {
        json!({
            "line": difference.name,
            "category": difference.category,
            "before": difference.before,
            "after": difference.after,
            "grew": difference.growth(),
        })
    };
    let lines: Vec<Value> = differ(before, after).iter().map(name).collect();
    json!({
        "position": { "before": before.position, "after": after.position },
        "by_category": Value::Object(by_category.collect()),
        "lines": lines,
    })
}

fn totals(
    out: &mut impl Write,
    paper: Paper,
    args: &DiffArgs,
    before: &DeviceExamination,
    after: &DeviceExamination,
) -> io::Result<()> {
    for (side, path, of) in [("A", &args.before, before), ("B", &args.after, after)] {
        paper.paragraph(out, &format!("{side}: {}, device {}", path.display(), of.device.0), 0, Tone::Strong)?;
    }
    writeln!(out)?;
    let mut table = Table::new([
        Column::wraps(""),
        Column::right("A"),
        Column::right("B"),
        Column::right("grew by"),
        Column::right(""),
    ]);
    for (what, a, b) in [
        ("peak allocated", before.view.peak_allocated, after.view.peak_allocated),
        ("peak reserved", before.view.peak_reserved, after.view.peak_reserved),
        ("allocated at the end", before.end.ledger.allocated(), after.end.ledger.allocated()),
        ("reserved at the end", before.end.ledger.reserved(), after.end.ledger.reserved()),
    ] {
        let [a_text, b_text] = [a, b].map(|bytes| Cell::from(bytes.to_string()));
        table.row(vec![what.into(), a_text, b_text, growth(a, b), changed(a.get(), b.get())]);
    }
    table.print(out, paper)
}

fn categories(out: &mut impl Write, paper: Paper, before: &MomentHoldings, after: &MomentHoldings) -> io::Result<()> {
    let mut table = Table::new([Column::left(""), Column::right("A"), Column::right("B"), Column::right("grew by")]);
    for category in Category::ALL {
        let (a, b) = (before.by_category[category as usize], after.by_category[category as usize]);
        if a.max(b) > Bytes::ZERO {
            table.row(vec![category.label().into(), a.to_string().into(), b.to_string().into(), growth(a, b)]);
        }
    }
    table.print(out, paper)
}

/// Prints the names that changed most, in either direction.
fn names(out: &mut impl Write, paper: Paper, all: &[Difference], most: usize) -> io::Result<()> {
    let mut largest: Vec<&Difference> = all.iter().collect();
    largest.sort_by_key(|difference| std::cmp::Reverse(difference.growth().unsigned_abs()));
    let left_out = largest.split_off(most.min(largest.len()));
    largest.sort_by_key(|difference| std::cmp::Reverse(difference.growth()));
    let mut table = Table::new([
        Column::wraps(""),
        Column::right("A"),
        Column::right("blocks").spare(1),
        Column::right("B"),
        Column::right("blocks").spare(1),
        Column::right("grew by"),
    ]);
    for difference in largest {
        let (a, b) = (difference.before, difference.after);
        table.row(vec![
            difference.name.as_str().into(),
            a.bytes.to_string().into(),
            a.blocks.to_string().into(),
            b.bytes.to_string().into(),
            b.blocks.to_string().into(),
            growth(a.bytes, b.bytes),
        ]);
    }
    table.print(out, paper)?;
    if !left_out.is_empty() {
        let sum: i128 = left_out.iter().map(|difference| difference.growth()).sum();
        let size = Bytes(u64::try_from(sum.unsigned_abs()).unwrap_or(u64::MAX));
        let sum = if sum < 0 { grew(size, Bytes::ZERO) } else { grew(Bytes::ZERO, size) };
        let more = format!("and {} more that change less ({sum} together); --lines shows them", left_out.len());
        paper.paragraph(out, &more, 0, Tone::Plain)?;
    }
    Ok(())
}

/// The difference, coloured: less is better.
fn growth(before: Bytes, after: Bytes) -> Cell {
    let tone = match before.cmp(&after) {
        std::cmp::Ordering::Less => Tone::Bad,
        std::cmp::Ordering::Equal => Tone::Dim,
        std::cmp::Ordering::Greater => Tone::Good,
    };
    Cell::toned(grew(before, after), tone)
}

/// The difference, with its sign.
fn grew(before: Bytes, after: Bytes) -> String {
    match before.cmp(&after) {
        std::cmp::Ordering::Less => format!("+{}", after - before),
        std::cmp::Ordering::Equal => "same".to_owned(),
        std::cmp::Ordering::Greater => format!("−{}", before - after),
    }
}
