//! `vramlab diff`: what grew from one run to another.

mod followed;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::{Value, json};

use crate::cli::export::read;
use crate::cli::output::stdout;
use crate::cli::subject::examine;
use crate::cli::table::{change, line, print};
use crate::cli::{Status, Usage};
use crate::model::{Category, Difference, differences};
use crate::source::{Examined, Standing};
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
    /// Device number [default: the first with allocations].
    #[arg(long, value_name = "N")]
    rank: Option<u16>,
    /// Rows in each table.
    #[arg(long, value_name = "N", default_value_t = 20)]
    lines: usize,
    /// Print one JSON object instead of tables, with all names.
    #[arg(long)]
    json: bool,
}

/// Compares the two and prints what differs. Exit code 0 with any difference.
pub(super) fn run(args: &DiffArgs) -> Result<Status> {
    let (before, after) = (examined(&args.before, args.rank)?, examined(&args.after, args.rank)?);
    let mut out = stdout();
    if args.json {
        let object = json!({
            "units": { "sizes": "bytes" },
            "before": total(&before),
            "after": total(&after),
            "peak": moment(&before.peak, &after.peak),
            "end": moment(&before.end, &after.end),
        });
        writeln!(out, "{object}")?;
        return Ok(Status::DONE);
    }
    totals(&mut out, args, &before, &after)?;
    for (when, a, b) in [("at the peak", &before.peak, &after.peak), ("at the end", &before.end, &after.end)] {
        writeln!(out, "\nHeld {when}, by category:")?;
        categories(&mut out, a, b)?;
        let all = differ(a, b);
        if all.is_empty() {
            writeln!(out, "\nEvery name holds the same {when}.")?;
            continue;
        }
        writeln!(out, "\nHeld {when}, by name, where it differs:")?;
        names(&mut out, &all, args.lines)?;
    }
    Ok(Status::DONE)
}

/// What each name holds in both, where it differs; lines are followed where an edit moved them.
fn differ(before: &Standing, after: &Standing) -> Vec<Difference> {
    let (before, after) = followed::followed(&before.holders, &after.holders);
    differences(&before, &after)
}

/// The device of a file that is asked for.
fn examined(path: &Path, rank: Option<u16>) -> Result<Examined> {
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

fn total(of: &Examined) -> Value {
    json!({
        "device": of.device,
        "peak_allocated": of.view.peak_allocated,
        "peak_reserved": of.view.peak_reserved,
        "allocated": of.end.ledger.allocated(),
        "reserved": of.end.ledger.reserved(),
    })
}

fn moment(before: &Standing, after: &Standing) -> Value {
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

fn totals(out: &mut impl Write, args: &DiffArgs, before: &Examined, after: &Examined) -> io::Result<()> {
    writeln!(out, "A: {}, device {}", args.before.display(), before.device.0)?;
    writeln!(out, "B: {}, device {}\n", args.after.display(), after.device.0)?;
    let mut lines = vec![line(["", "A", "B", "grew by", ""])];
    for (what, a, b) in [
        ("peak allocated", before.view.peak_allocated, after.view.peak_allocated),
        ("peak reserved", before.view.peak_reserved, after.view.peak_reserved),
        ("allocated at the end", before.end.ledger.allocated(), after.end.ledger.allocated()),
        ("reserved at the end", before.end.ledger.reserved(), after.end.ledger.reserved()),
    ] {
        lines.push(vec![what.to_owned(), a.to_string(), b.to_string(), grew(a, b), change(a.get(), b.get())]);
    }
    print(out, &lines)
}

fn categories(out: &mut impl Write, before: &Standing, after: &Standing) -> io::Result<()> {
    let mut lines = vec![line(["", "A", "B", "grew by"])];
    for category in Category::ALL {
        let (a, b) = (before.by_category[category as usize], after.by_category[category as usize]);
        if a.max(b) > Bytes::ZERO {
            lines.push(vec![category.label().to_owned(), a.to_string(), b.to_string(), grew(a, b)]);
        }
    }
    print(out, &lines)
}

/// Those that changed most, whichever way.
fn names(out: &mut impl Write, all: &[Difference], most: usize) -> io::Result<()> {
    let mut largest: Vec<&Difference> = all.iter().collect();
    largest.sort_by_key(|difference| std::cmp::Reverse(difference.growth().unsigned_abs()));
    let left_out = largest.split_off(most.min(largest.len()));
    largest.sort_by_key(|difference| std::cmp::Reverse(difference.growth()));
    let mut lines = vec![line(["", "A", "blocks", "B", "blocks", "grew by"])];
    for difference in largest {
        let (a, b) = (difference.before, difference.after);
        lines.push(vec![
            difference.name.clone(),
            a.bytes.to_string(),
            a.blocks.to_string(),
            b.bytes.to_string(),
            b.blocks.to_string(),
            grew(a.bytes, b.bytes),
        ]);
    }
    print(out, &lines)?;
    if !left_out.is_empty() {
        let sum: i128 = left_out.iter().map(|difference| difference.growth()).sum();
        let size = Bytes(u64::try_from(sum.unsigned_abs()).unwrap_or(u64::MAX));
        let sum = if sum < 0 { grew(size, Bytes::ZERO) } else { grew(Bytes::ZERO, size) };
        writeln!(out, "and {} more that change less ({sum} together); --lines shows them", left_out.len())?;
    }
    Ok(())
}

/// The difference, with its sign.
fn grew(before: Bytes, after: Bytes) -> String {
    match before.cmp(&after) {
        std::cmp::Ordering::Less => format!("+{}", after - before),
        std::cmp::Ordering::Equal => "same".to_owned(),
        std::cmp::Ordering::Greater => format!("−{}", before - after),
    }
}
