//! Two ranks on the stand-in GPU, compared with what the same programs requested on two H200s.
//!
//! `VRAMLAB_UPDATE=1 VRAMLAB_TEST_PYTHON=… cargo test --test program measured::ranks -- --ignored` runs all of them,
//! which takes half an hour, and writes the guide's table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{PAGE, lines};
use crate::made;
use crate::pytorch::python;

const COMMAND: &str = "VRAMLAB_UPDATE=1 cargo test --test program measured::ranks -- --ignored writes it";
/// Peaks that differ by more than this share of a per cent are different.
const CLOSE: f64 = 0.01;
/// The keys that distinguish programs. The number of steps changes no peak.
const PROGRAM: [&str; 5] = ["mode", "workload", "amp", "accum", "batch"];

/// A peak of a rank, there and here.
struct Peak {
    theirs: i64,
    ours: i64,
    /// The peaks of all ranks of the same program on an H200.
    ranks: Vec<i64>,
}

impl Peak {
    fn is_close(&self, theirs: i64) -> bool {
        percent(self.ours, theirs).abs() <= CLOSE * 100.0
    }

    /// Whether this rank had this peak, or another rank of the same program: which one has it is chance on a card, too.
    fn is_met(&self) -> bool {
        self.is_close(self.theirs) || self.ranks.iter().any(|theirs| self.is_close(*theirs))
    }

    /// How far it is off, and whether another rank had it.
    fn said(&self) -> String {
        if self.ours == self.theirs {
            return "=".to_owned();
        }
        let said = format!("{:+.3} %", percent(self.ours, self.theirs));
        let other = self.ranks.iter().find(|theirs| !self.is_close(self.theirs) && self.is_close(**theirs));
        match other {
            Some(theirs) if *theirs == self.ours => format!("{said}, another rank's"),
            Some(theirs) => format!("{said}, another rank's {:+.3} %", percent(self.ours, *theirs)),
            None => said,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
fn percent(ours: i64, theirs: i64) -> f64 {
    (ours as f64 / theirs as f64 - 1.0) * 100.0
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
fn gib(bytes: i64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// A rank of a program: its name, its number, its peaks of allocated and reserved, and how many more requests it made
/// here.
struct Row {
    name: String,
    rank: i64,
    peaks: [Peak; 2],
    requests: i64,
}

fn key(row: &Value) -> String {
    PROGRAM.map(|word| row[word].to_string()).join(" ")
}

fn name(row: &Value) -> String {
    let words = [&row["workload"], &row["mode"], &row["amp"]].map(|word| word.as_str().unwrap_or("fp32").to_owned());
    let accum = row["accum"].as_i64().filter(|accum| *accum > 1).map(|accum| format!(" accum {accum}"));
    format!("{}{} steps {}", words.join(" "), accum.unwrap_or_default(), row["steps"])
}

/// The figures of a program's ranks here.
fn run(python: &str, row: &Value) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/measured/ranks.py");
    let given: serde_json::Map<String, Value> =
        PROGRAM.iter().chain(&["steps"]).map(|word| ((*word).to_owned(), row[*word].clone())).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["watch", "--device", "sim:h200x2", "--record", "run.vram", "--", python])
        .args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"])
        .arg(program)
        .args([json!(given).to_string(), home.path().to_string_lossy().into_owned()])
        .current_dir(home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OMP_NUM_THREADS", "1")
        .output()
        .unwrap();
    let read = |rank: usize| {
        let text = std::fs::read_to_string(home.path().join(format!("rank{rank}.json")));
        text.unwrap_or_else(|_| panic!("{}: {}", name(row), String::from_utf8_lossy(&output.stderr)))
    };
    (0..2).map(|rank| serde_json::from_str(&read(rank)).unwrap()).collect()
}

fn compared(python: &str) -> Vec<Row> {
    let rows: Vec<Value> = lines(include_str!("../../data/pytorch-ranks-rows.jsonl")).collect();
    // Three of the programs, eight times more on two H200s.
    let again: Vec<Value> = lines(include_str!("../../data/pytorch-ranks-again.jsonl")).collect();
    let mut ran: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut compared = Vec::new();
    for row in &rows {
        let ours = ran.entry(format!("{} {}", key(row), row["steps"])).or_insert_with(|| run(python, row));
        let rank = row["rank"].as_i64().unwrap();
        let ours = &ours[usize::try_from(rank).unwrap()];
        let figure = |row: &Value, word: &str| row[word].as_i64().unwrap();
        let peaks = ["peak_allocated", "peak_reserved"].map(|word| Peak {
            theirs: figure(row, word),
            ours: figure(ours, word),
            ranks: rows
                .iter()
                .chain(&again)
                .filter(|other| key(other) == key(row))
                .map(|other| figure(other, word))
                .collect(),
        });
        let requests = figure(ours, "allocations") - figure(row, "allocations");
        let row = Row { name: name(row), rank, peaks, requests };
        println!("{} {}: {:?} {requests:+}", row.name, rank, row.peaks.each_ref().map(Peak::said));
        compared.push(row);
    }
    compared
}

fn page(rows: &[Row]) -> String {
    let mut text =
        "| program | rank | peak allocated, GiB | here | peak reserved, GiB | here |\n|---|--:|--:|--:|--:|--:|\n"
            .to_owned();
    for Row { name, rank, peaks: [allocated, reserved], .. } in rows {
        let _ = writeln!(
            text,
            "| {name} | {rank} | {:.3} | {} | {:.3} | {} |",
            gib(allocated.theirs),
            allocated.said(),
            gib(reserved.theirs),
            reserved.said()
        );
    }
    let of_itself = rows.iter().filter(|row| row.peaks.iter().all(|peak| peak.is_close(peak.theirs))).count();
    let met = rows.iter().filter(|row| row.peaks.iter().all(Peak::is_met)).count();
    let _ = writeln!(
        text,
        "\nOf {} ranks both peaks are within 1 % of those that the same rank had in {of_itself}, and of those that a rank of the same program had in {met}.",
        rows.len()
    );
    text
}

#[test]
#[ignore = "27 programs on two ranks take half an hour, and need PyTorch"]
fn two_ranks_ask_for_what_they_asked_of_two_h200s() {
    let Some(python) = python() else { return };
    let rows = compared(&python);
    let page = page(&rows);
    println!("{page}");
    let off = |row: &&Row| row.requests != 0 || !row.peaks.iter().all(Peak::is_met);
    let wrong: Vec<String> = rows.iter().filter(off).map(|row| format!("{} {}", row.name, row.rank)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    made::assert_part(PAGE, "ranks beside two H200s", &page, COMMAND);
}
