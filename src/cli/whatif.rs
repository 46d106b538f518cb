//! `vramlab whatif`: what a run would have taken under other allocator settings.

use std::io::{self, Write};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use color_eyre::eyre::{Report, Result};
use rayon::prelude::*;
use serde_json::{Map, Value, json};

use super::columns::{Cell, Column, Paper, Table, Tone};
use super::output::{stdout, warn};
use super::percent::{change, changed, share};
use super::subject::SubjectArgs;
use super::{Status, Usage};
use crate::model::Begins;
use crate::units::Bytes;
use crate::whatif::{Conditions, ConditionsError, Figures, RecordedRun, StartState};

/// Arguments of `vramlab whatif`.
#[derive(Debug, Args)]
pub(super) struct WhatifArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Allocator settings to try, in PyTorch's syntax, such as expandable_segments:True; may be repeated [default:
    /// expandable_segments:True; with --limit or --empty-cache-every, the run's own].
    #[arg(long, value_name = "CONF")]
    alloc_conf: Vec<String>,
    /// The most that may be reserved, such as 8GiB [default: as in the run].
    #[arg(long, value_name = "BYTES")]
    limit: Option<Bytes>,
    /// Call empty_cache() after every N steps.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    empty_cache_every: Option<u64>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Figures of one row.
struct WhatIfRow {
    conditions: Conditions,
    figures: Figures,
    /// Bytes stranded at the peak of reserved memory.
    stranded: Bytes,
}

/// Replays the run and prints the predicted figures. Exit code 0 with any figures.
pub(super) fn run(args: &WhatifArgs) -> Result<Status> {
    let (run, _) = args.subject.one()?;
    if args.empty_cache_every.is_some() && run.facts.steps == 0 {
        warn("no step ends in it, so that --empty-cache-every changes nothing");
    }
    let rows: Result<Vec<WhatIfRow>> = args.asked(&run)?.into_par_iter().map(|of| Ok(row(&run, of))).collect();
    let rows = rows?;
    let again = row(&run, run.facts.conditions.clone());
    if args.json {
        writeln!(stdout(), "{}", object(&run, &again, &rows))?;
    } else {
        table(&args.subject.name(), &run, &again, &rows)?;
    }
    Ok(Status::DONE)
}

impl WhatifArgs {
    /// All requested settings.
    fn asked(&self, run: &RecordedRun) -> Result<Vec<Conditions>> {
        let mut confs = self.alloc_conf.clone();
        if confs.is_empty() {
            let bounds = self.limit.is_some() || self.empty_cache_every.is_some();
            confs.push(if bounds {
                run.facts.conditions.text().to_owned()
            } else {
                "expandable_segments:True".to_owned()
            });
        }
        let conditions = |conf: &String| {
            let mut conditions = run.under(conf).map_err(|error| refused(conf, &error))?;
            conditions.limit = self.limit.or(conditions.limit);
            conditions.empty_cache_every = self.empty_cache_every.or(conditions.empty_cache_every);
            Ok(conditions)
        };
        confs.iter().map(conditions).collect()
    }
}

fn refused(conf: &str, error: &ConditionsError) -> Report {
    let more = match error {
        ConditionsError::UnknownDevice => " (or --device-bytes)",
        _ => "",
    };
    Usage(format!("--alloc-conf \"{conf}\": {error}{more}")).into()
}

fn row(run: &RecordedRun, conditions: Conditions) -> WhatIfRow {
    let figures = run.program.replay(&conditions).figures;
    WhatIfRow { stranded: run.program.stranded_at_peak(&conditions), figures, conditions }
}

/// The figures under the keys of the JSON contract.
fn figures(figures: &Figures, stranded: Bytes) -> Map<String, Value> {
    let value = json!({
        "peak_reserved": figures.peak_reserved,
        "reserved": figures.reserved,
        "peak_allocated": figures.peak_allocated,
        "allocated": figures.allocated,
        "stranded_at_peak": stranded,
        "num_device_alloc": figures.segments_allocated,
        "num_device_free": figures.segments_freed,
        "num_alloc_retries": figures.retries,
        "num_ooms": figures.ooms,
    });
    value.as_object().cloned().unwrap_or_default()
}

fn predicted(run: &RecordedRun, row: &WhatIfRow) -> Value {
    let starting = run.program.starting(&row.conditions);
    let mut object = figures(&row.figures, row.stranded);
    object.insert("conf".into(), json!(row.conditions.text()));
    object.insert("limit".into(), json!(row.conditions.limit));
    object.insert("empty_cache_every".into(), json!(row.conditions.empty_cache_every));
    object.insert("start".into(), json!(starting));
    object.insert("failed_requests_served".into(), json!(row.figures.served));
    object.insert("predicted".into(), json!(true));
    Value::Object(object)
}

fn object(run: &RecordedRun, again: &WhatIfRow, rows: &[WhatIfRow]) -> Value {
    let mut recorded = figures(&run.facts.figures, run.facts.stranded_at_peak);
    recorded.insert("conf".into(), json!(run.facts.conditions.text()));
    recorded.insert("limit".into(), json!(run.facts.conditions.limit));
    json!({
        "units": { "sizes": "bytes" },
        "device": run.facts.device,
        "steps": run.facts.steps,
        "remarks": run.facts.remarks,
        "history": { "begins": run.facts.begins.unwrap_or_default() },
        "exact": run.is_exact(&again.figures),
        "recorded": recorded,
        "replayed": predicted(run, again),
        "asked": rows.iter().map(|row| predicted(run, row)).collect::<Vec<_>>(),
    })
}

/// Sentences on where predictions under these conditions start; `None` if they start at the first allocation.
pub(super) fn started<'a>(run: &RecordedRun, under: impl IntoIterator<Item = &'a Conditions>) -> Option<String> {
    if run.program.starting(&run.facts.conditions) == StartState::Empty {
        return None;
    }
    let begins = match run.facts.begins {
        Some(Begins::Ring) => "The oldest entries of the history were overwritten",
        _ => "The history begins late",
    };
    let (blocks, bytes) = run.program.held_at_start();
    let held = match blocks {
        0 => "no block was held then, and what was cached was reconstructed".to_owned(),
        1 => format!("1 block ({bytes} asked for) was held then, and was reconstructed"),
        _ => format!("{blocks} blocks ({bytes} asked for) were held then, and were reconstructed"),
    };
    let anew = under.into_iter().any(|conditions| run.program.starting(conditions) == StartState::Anew);
    let how = if anew {
        " Under settings that place blocks elsewhere they are taken anew first, and what was cached then is an estimate: such a \
         prediction is less certain than one from the first allocation on."
    } else {
        " Predictions start from them where they lay."
    };
    Some(format!("{begins}: {held}.{how}"))
}

/// A sentence on how well a replay under the run's own settings matches what was recorded.
pub(super) fn reproduced(run: &RecordedRun, again: &Figures) -> String {
    let (recorded, replayed) = (run.facts.figures.peak_reserved.get(), again.peak_reserved.get());
    if run.is_exact(again) {
        return format!(
            "Replayed under its own settings the run has the peak that was recorded, to the byte: {recorded} bytes."
        );
    }
    if recorded == replayed {
        return format!(
            "Replayed under its own settings the run has the peak that was recorded ({recorded} bytes), but not all of its other \
             figures."
        );
    }
    format!(
        "Replayed under its own settings the run has a peak of {replayed} bytes, where {recorded} were recorded ({}): trust the \
         predictions no further.",
        change(recorded, replayed)
    )
}

fn table(name: &str, run: &RecordedRun, again: &WhatIfRow, rows: &[WhatIfRow]) -> io::Result<()> {
    let paper = Paper::terminal();
    let out = &mut paper.out();
    let title = format!("{name}: device {}, {}", run.facts.device.0, run.facts.conditions);
    paper.paragraph(out, &title, 0, Tone::Strong)?;
    paper.paragraph(out, &reproduced(run, &again.figures), 0, Tone::Plain)?;
    if let Some(started) = started(run, rows.iter().map(|row| &row.conditions)) {
        paper.paragraph(out, &started, 0, Tone::Plain)?;
    }
    writeln!(out)?;
    let mut table = Table::new([
        Column::wraps(""),
        Column::right("peak\nreserved"),
        Column::right(""),
        Column::right("at the end\nreserved").spare(2),
        Column::right("peak\nallocated").spare(1),
        Column::right("stranded\nat the peak"),
        Column::right("driver calls\ntook / gave").spare(3),
        Column::right("\nretries"),
        Column::right("out of\nmemory"),
    ]);
    table.row(cells("recorded".to_owned(), &run.facts.figures, run.facts.stranded_at_peak, None));
    let before = run.facts.figures.peak_reserved;
    if !run.is_exact(&again.figures) {
        table.row(cells("replayed".to_owned(), &again.figures, again.stranded, Some(before)));
    }
    for row in rows {
        let mut label = format!("predicted: {}", row.conditions);
        if let Some(limit) = row.conditions.limit {
            label += &format!(", limit {limit}");
        }
        if let Some(every) = row.conditions.empty_cache_every {
            label += &format!(", empty_cache every {every}");
        }
        table.row(cells(label, &row.figures, row.stranded, Some(before)));
    }
    table.print(out, paper)?;
    for row in rows.iter().filter(|row| row.figures.served > 0) {
        let served = format!(
            "Of the requests that failed in the run ({}), {} would be served under {}.",
            run.facts.figures.ooms, row.figures.served, row.conditions
        );
        writeln!(out)?;
        paper.paragraph(out, &served, 0, Tone::Good)?;
    }
    Ok(())
}

fn cells(label: String, figures: &Figures, stranded: Bytes, before: Option<Bytes>) -> Vec<Cell> {
    let times = |n: u64| match n {
        0 => Cell::from("no"),
        1 => Cell::toned("once", Tone::Bad),
        n => Cell::toned(format!("{n} times"), Tone::Bad),
    };
    vec![
        label.into(),
        figures.peak_reserved.to_string().into(),
        before.map_or_else(Cell::default, |before| changed(before.get(), figures.peak_reserved.get())),
        figures.reserved.to_string().into(),
        figures.peak_allocated.to_string().into(),
        share(stranded.get(), figures.peak_reserved.get()).into(),
        format!("{} / {}", figures.segments_allocated, figures.segments_freed).into(),
        figures.retries.to_string().into(),
        times(figures.ooms),
    ]
}
