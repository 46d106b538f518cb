//! `vramlab compare`: compares the configurations of recordings, PyTorch snapshots and outputs of `vramlab run --json`
//! side by side.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use serde_json::{Map, Value, json};

use super::Status;
use super::output::{stdout, warn};
use crate::model::{Configuration, Figure};
use crate::session::Switch;
use crate::source;
use crate::tui;

/// Arguments of `vramlab compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Recordings, PyTorch memory snapshots, and files with the output of `vramlab run --json`. The first configuration is the
    /// baseline.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
}

/// A metric of the comparison: heading, key, whether less is better, and how it is shown.
struct ConfigurationMetric {
    head: &'static str,
    key: &'static str,
    less_is_good: Option<bool>,
    show: fn(&Figure) -> String,
}

/// All metrics: peaks in bytes, times in microseconds.
const METRICS: [ConfigurationMetric; 6] = [
    ConfigurationMetric {
        head: "peak allocated",
        key: "peak_allocated",
        less_is_good: Some(true),
        show: |of| of.bytes().to_string(),
    },
    ConfigurationMetric {
        head: "peak reserved",
        key: "peak_reserved",
        less_is_good: Some(true),
        show: |of| of.bytes().to_string(),
    },
    ConfigurationMetric {
        head: "stranded",
        key: "stranded",
        less_is_good: Some(true),
        show: |of| of.bytes().to_string(),
    },
    ConfigurationMetric { head: "step, ms", key: "step_us", less_is_good: Some(true), show: milliseconds },
    ConfigurationMetric {
        head: "per second",
        key: "throughput",
        less_is_good: Some(false),
        show: |of| format!("{:.0}", of.median),
    },
    ConfigurationMetric { head: "loss", key: "loss", less_is_good: None, show: |of| format!("{:.4}", of.median) },
];

/// The text for a figure that a file does not have.
fn unknown() -> String {
    "–".to_owned()
}

fn milliseconds(of: &Figure) -> String {
    let (median, spread) = (of.median / 1e3, of.spread() / 1e3);
    if spread >= 0.005 { format!("{median:.2} ±{spread:.2}") } else { format!("{median:.2}") }
}

/// One configuration of one file.
struct ConfigurationRow {
    file: String,
    /// Values of the switches, by the switches' words.
    settings: BTreeMap<String, String>,
    /// Completed steps, if the file records any.
    steps: Option<u64>,
    out_of_memory: bool,
    /// The figures, in the order of [`METRICS`].
    figures: [Option<Figure>; METRICS.len()],
}

/// Reads all files and prints the table.
pub(super) fn run(args: &CompareArgs) -> Result<Status> {
    let mut rows = Vec::new();
    for file in &args.files {
        rows.extend(read(file).wrap_err_with(|| format!("{} can't be compared", file.display()))?);
    }
    if args.json {
        writeln!(stdout(), "{}", array(&rows))?;
    } else {
        table(&mut stdout(), &rows).wrap_err("the table can't be written")?;
    }
    Ok(Status::DONE)
}

/// Reads the configurations of a file.
fn read(path: &Path) -> Result<Vec<ConfigurationRow>> {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let compared = source::compared(path, |_, _| {})?;
    if let Some(remark) = compared.remark {
        warn(format_args!("{}: {remark}", path.display()));
    }
    Ok(compared.configurations.iter().map(|of| ConfigurationRow::of_configuration(&name, of)).collect())
}

impl ConfigurationRow {
    fn of_configuration(file: &str, of: &Configuration) -> Self {
        let setting = |setting: &crate::model::Setting| (setting.switch.to_string(), setting.value.to_string());
        let measured = of.measured.as_ref().map(|(_, measured)| measured);
        Self {
            file: file.to_owned(),
            settings: of.settings.0.iter().map(setting).collect(),
            steps: Some(of.steps).filter(|_| !of.knows_no_steps()),
            out_of_memory: of.out_of_memory,
            figures: [
                measured.map(|of| of.peak_allocated),
                measured.map(|of| of.peak_reserved),
                measured.and_then(|of| of.stranded),
                measured.and_then(|of| of.step),
                measured.map(|of| of.throughput).filter(|of| of.median > 0.0),
                measured.and_then(|of| of.loss),
            ],
        }
    }

    /// How this configuration differs from the first, in the switches that both record.
    fn name(&self, first: &Self) -> String {
        let differs =
            |(word, value): &(&String, &String)| first.settings.get(*word).is_some_and(|before| before != *value);
        let label = |(word, value): (&String, &String)| {
            let label = Switch::named(word).map_or(word.as_str(), |switch| switch.label());
            format!("{label} {value}")
        };
        let words: Vec<String> = self.settings.iter().filter(differs).map(label).collect();
        words.join(", ")
    }
}

/// Which rows are best by each metric.
fn best(rows: &[ConfigurationRow]) -> Vec<Vec<usize>> {
    let of = |(place, metric): (usize, &ConfigurationMetric)| {
        let figures: Vec<Option<Figure>> = rows.iter().map(|row| row.figures[place]).collect();
        metric.less_is_good.map_or_else(Vec::new, |less| Figure::best_of(&figures, less))
    };
    METRICS.iter().enumerate().map(of).collect()
}

/// The change from the first row in words: per cent, `same` or `noise`.
fn changed(rows: &[ConfigurationRow], row: usize, metric: usize) -> Option<String> {
    METRICS[metric].less_is_good?;
    let (before, after) = (rows.first()?.figures[metric]?, rows[row].figures[metric]?);
    (row > 0).then(|| tui::change(&before, &after))
}

fn array(rows: &[ConfigurationRow]) -> Value {
    let best = best(rows);
    let object = |(place, row): (usize, &ConfigurationRow)| {
        let mut object = Map::new();
        object.insert("file".into(), json!(row.file));
        object.insert("name".into(), json!(row.name(&rows[0])));
        object.insert("settings".into(), json!(row.settings));
        object.insert("steps".into(), json!(row.steps));
        object.insert("out_of_memory".into(), json!(row.out_of_memory));
        let mut changes = Map::new();
        let mut is_best = Vec::new();
        for (index, metric) in METRICS.iter().enumerate() {
            object.insert(metric.key.into(), json!(row.figures[index]));
            if let Some(change) = changed(rows, place, index) {
                changes.insert(metric.key.into(), json!(change));
            }
            if best[index].contains(&place) {
                is_best.push(metric.key);
            }
        }
        object.insert("changes".into(), Value::Object(changes));
        object.insert("best".into(), json!(is_best));
        Value::Object(object)
    };
    Value::Array(rows.iter().enumerate().map(object).collect())
}

fn table(out: &mut dyn Write, rows: &[ConfigurationRow]) -> io::Result<()> {
    let best = best(rows);
    // Columns without any known figure are left out.
    let shown: Vec<usize> =
        (0..METRICS.len()).filter(|metric| rows.iter().any(|row| row.figures[*metric].is_some())).collect();
    let mut lines: Vec<Vec<String>> = vec![["", "file", "", "steps"].map(str::to_owned).to_vec()];
    lines[0].extend(shown.iter().map(|metric| METRICS[*metric].head.to_owned()));
    for (place, row) in rows.iter().enumerate() {
        let mut name = row.name(&rows[0]);
        if row.out_of_memory {
            name = [name.as_str(), "(out of memory)"].join(" ").trim().to_owned();
        }
        let mut line = vec![
            (place + 1).to_string(),
            row.file.clone(),
            name,
            row.steps.map_or_else(unknown, |steps| steps.to_string()),
        ];
        for metric in &shown {
            let figure = row.figures[*metric].as_ref().map_or_else(unknown, METRICS[*metric].show);
            let mark = if best[*metric].contains(&place) { "*" } else { "" };
            let change = changed(rows, place, *metric).unwrap_or_default();
            line.push(format!("{figure}{mark} {change}").trim().to_owned());
        }
        lines.push(line);
    }
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    if rows.len() > 1 {
        writeln!(out)?;
        writeln!(
            out,
            "* is the best of its column, or as good: a change no larger than the spread among steps is noise."
        )?;
        writeln!(
            out,
            "Changes are against 1. Files with steps: medians of the last ones; snapshots without steps and what run --json printed: \
             peaks of the whole file."
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(amp: Value, peak: u64, step: f64) -> Value {
        json!({
            "workload": "gpt-mini", "amp": amp, "ckpt": false, "steps": 8, "losses": [3.5, 2.5], "oom": null,
            "peak_allocated": peak, "peak_reserved": 4 << 20, "step_ms": step, "alloc_conf": "",
        })
    }

    #[test]
    fn what_run_printed_is_compared_with_the_first_of_it() {
        let rows: Vec<ConfigurationRow> = [(json!(null), 3 << 20, 2.0), (json!("bf16"), 2 << 20, 4.0)]
            .map(|(amp, peak, step)| {
                ConfigurationRow::of_configuration("a.json", &source::of_printed(&printed(amp, peak, step)).unwrap())
            })
            .into();
        assert_eq!((rows[0].name(&rows[0]), rows[1].name(&rows[0])), (String::new(), "AMP bf16".to_owned()));
        let all = array(&rows);
        assert_eq!(all[1]["changes"], json!({"peak_allocated": "−33 %", "peak_reserved": "same", "step_us": "+100 %"}));
        assert_eq!((&all[0]["best"], &all[1]["best"]), (&json!(["step_us"]), &json!(["peak_allocated"])));
        assert_eq!(all[1]["loss"]["median"], json!(2.5));
        let mut text = Vec::new();
        table(&mut text, &rows).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("2.00 MiB* −33 %") && text.contains("AMP bf16"), "{text}");
        assert!(!text.contains("per second"), "nobody knows of it:\n{text}");
    }
}
