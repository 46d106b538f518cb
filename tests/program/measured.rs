//! Programs of PyTorch and transformers on the stand-in GPU, compared with what the same programs requested on an H200.
//!
//! `VRAMLAB_UPDATE=1 VRAMLAB_TEST_PYTHON=… cargo test --test program measured::all -- --ignored` runs all of them,
//! which takes a quarter of an hour, and writes the guide's table. Without `--ignored` one program of each small model
//! is run.

mod ranks;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::made;
use crate::pytorch::python;

const PAGE: &str = "lab/guide/stand-in.md";
const COMMAND: &str = "VRAMLAB_UPDATE=1 cargo test --test program measured::all -- --ignored writes it";

/// Steps that PyTorch's gradient scaler skipped on the H200: nothing overflows here, so the programs are told.
const SKIPPED: &[(&str, &str)] = &[
    ("resnet50 fp16", "2"),
    ("resnet50 fp16 ckpt accum4", "1"),
    ("resnet-mini fp16", "2"),
    ("resnet-mini fp16 ckpt accum4", "2"),
    ("mlp fp16", "1..4"),
    ("dcgan fp16", "1..3,0"),
];

/// A program, and its figures on an H200.
struct Row {
    name: String,
    program: &'static str,
    /// The program's arguments, and the figures.
    row: Value,
}

impl Row {
    fn model(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }
}

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// The words of a row in which it differs from most rows.
fn name(row: &Value, model: &str, plain: &[(&str, Value)]) -> String {
    let mut name = row[model].as_str().unwrap().to_owned();
    for (key, usual) in plain {
        let Some(value) = row.get(*key).filter(|value| *value != usual && !value.is_null()) else { continue };
        let _ = match value {
            Value::Bool(_) => write!(name, " {key}"),
            Value::String(text) => write!(name, " {text}"),
            value => write!(name, " {key}{value}"),
        };
    }
    name
}

/// Models of `models.py`, then those of transformers.
fn trained() -> Vec<Row> {
    let texts = [include_str!("../data/pytorch-mini-rows.jsonl"), include_str!("../data/pytorch-full-rows.jsonl")];
    let plain = [
        ("amp", Value::Null),
        ("ckpt", false.into()),
        ("accum", 1.into()),
        ("opt", "adamw".into()),
        ("tf32", false.into()),
    ];
    let row = |row| Row { name: name(&row, "workload", &plain), program: "train.py", row };
    texts.into_iter().flat_map(lines).map(row).collect()
}

fn fine_tuned() -> Vec<Row> {
    let plain = [
        ("dtype", Value::from("bf16")),
        ("method", "full".into()),
        ("r", Value::Null),
        ("ckpt", false.into()),
        ("attn", "sdpa".into()),
        ("loss", "own".into()),
        ("optimizer", "adamw".into()),
        ("clip", Value::Null),
        ("cache", false.into()),
        ("batch", Value::Null),
        ("seq", Value::Null),
    ];
    let row = |row| Row { name: name(&row, "model", &plain), program: "fine_tune.py", row };
    lines(include_str!("../data/pytorch-llm-rows.jsonl")).map(row).collect()
}

/// The figures of a row by name.
fn figures(row: &Value) -> Vec<(&'static str, i64)> {
    let after = &row["allocated_after"];
    let whole = |key: &'static str| (key, &row[key]);
    let at = |key: &'static str| (key, &after[key]);
    let rows = [
        whole("allocated_before_step"),
        at("forward"),
        at("backward"),
        at("optimizer"),
        at("zero_grad"),
        whole("peak_allocated"),
        whole("peak_reserved"),
        whole("reserved"),
        whole("segments"),
        whole("inactive_split"),
        whole("allocations"),
    ];
    rows.map(|(name, value)| (name, value.as_i64().unwrap())).to_vec()
}

/// A figure that differs from the H200's: its name, its value here, its value there.
type Difference = (&'static str, i64, i64);

/// The figures of a program that differ from the H200's.
fn differences(python: &str, row: &Row) -> Vec<Difference> {
    let home = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/measured").join(row.program);
    let skipped = SKIPPED.iter().find(|(name, _)| *name == row.name);
    let output = Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["watch", "--device", "sim:h200", "--record", "run.vram"])
        .args(skipped.iter().flat_map(|(_, steps)| ["--skip-steps", steps]))
        .args(["--", python])
        .arg(program)
        .arg(row.row.to_string())
        .current_dir(home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed = said.lines().rfind(|line| line.starts_with('{'));
    let Some(printed) = printed else { panic!("{}: {said}{}", row.name, String::from_utf8_lossy(&output.stderr)) };
    let ours = figures(&serde_json::from_str(printed).unwrap());
    let both = ours.into_iter().zip(figures(&row.row));
    both.filter(|(ours, theirs)| ours != theirs).map(|((name, ours), (_, theirs))| (name, ours, theirs)).collect()
}

/// A program with differences, as the guide describes it.
fn sentence(name: &str, differences: &[Difference]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (figure, ours, theirs) in differences {
        #[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
        let percent = (*ours as f64 / *theirs as f64 - 1.0) * 100.0;
        parts.push(format!("{} {percent:+.2} %", figure.replace('_', " ")));
    }
    format!("* **{name}**: {}\n", parts.join(", "))
}

/// A table of models, and a sentence for each program with differences.
fn page(compared: &[(Row, Vec<Difference>)]) -> String {
    let mut text = "| programs | run | equal | peak allocated | peak reserved |\n|---|--:|--:|--:|--:|\n".to_owned();
    let mut models: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut order = Vec::new();
    for (row, wrong) in compared {
        if !models.contains_key(row.model()) {
            order.push(row.model());
        }
        let equal = |figure| usize::from(wrong.iter().all(|(name, ..)| *name != figure));
        let counts = models.entry(row.model()).or_default();
        let more = [1, usize::from(wrong.is_empty()), equal("peak_allocated"), equal("peak_reserved")];
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    }
    let mut line = |name: &str, [run, equal, allocated, reserved]: [usize; 4]| {
        let _ = writeln!(text, "| {name} | {run} | {equal} | {allocated} | {reserved} |");
    };
    for model in order {
        line(model, models[model]);
    }
    line("all", models.values().fold([0; 4], |sum, counts| std::array::from_fn(|index| sum[index] + counts[index])));
    text.push('\n');
    for (row, wrong) in compared.iter().filter(|(_, wrong)| !wrong.is_empty()) {
        text.push_str(&sentence(&row.name, wrong));
    }
    text
}

fn has_transformers(python: &str) -> bool {
    let asked = Command::new(python).args(["-c", "import transformers, peft"]).output();
    let has = asked.is_ok_and(|asked| asked.status.success());
    if !has {
        eprintln!("SKIPPED: {python} has no transformers or no peft");
    }
    has
}

#[test]
fn one_program_of_each_small_model_asks_for_what_it_asked_of_an_h200() {
    let Some(python) = python() else { return };
    let guide = std::fs::read_to_string(made::file(PAGE)).unwrap();
    let mut rows: Vec<Row> = trained().into_iter().filter(|row| row.model().ends_with("-mini")).collect();
    // Another variant of each.
    let mut seen = BTreeMap::new();
    rows.retain(|row| {
        let first = seen.len() % 2;
        let count = seen.entry(row.model().to_owned()).or_insert(first);
        *count += 1;
        *count == 2
    });
    if has_transformers(&python) {
        rows.extend(fine_tuned().into_iter().filter(|row| row.model() == "llama-mini"));
    }
    assert!(rows.len() >= 5);
    for row in rows {
        let wrong = differences(&python, &row);
        let told = sentence(&row.name, &wrong);
        let is_told = guide.contains(&told) || (wrong.is_empty() && !guide.contains(&format!("* **{}**:", row.name)));
        assert!(is_told, "{PAGE} says otherwise: {told}");
    }
}

#[test]
#[ignore = "a hundred programs take a quarter of an hour, and need PyTorch and transformers"]
fn all_programs_ask_for_what_they_asked_of_an_h200() {
    let Some(python) = python() else { return };
    if !has_transformers(&python) {
        return;
    }
    let rows = trained().into_iter().chain(fine_tuned());
    let compared: Vec<_> = rows
        .map(|row| {
            let wrong = differences(&python, &row);
            println!("{}: {wrong:?}", row.name);
            (row, wrong)
        })
        .collect();
    made::assert_part(PAGE, "programs beside an H200", &page(&compared), COMMAND);
}
