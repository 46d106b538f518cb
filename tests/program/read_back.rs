//! What a program reads back from the stand-in GPU. What can be computed is right, each rule is as the guide describes
//! it, and reads of values that were not computed are counted with their lines. Tests that need PyTorch for CUDA are
//! skipped without it, and say so.

use std::path::Path;
use std::process::{Command, Output};

use crate::pytorch::python;
use vramlab::model::EventKind;
use vramlab::recording::{Next, Reader};

/// Runs `vramlab watch` with a program on the stand-in GPU, in a folder of its own.
fn watched(home: &Path, python: &str, program: &str, more: &[&str]) -> Output {
    started(home, &[python], program, more)
}

/// The same, with everything that comes before the program's name.
fn started(home: &Path, python: &[&str], program: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["watch", "--device", "sim:h200", "--record", "run.vram"])
        .args(more)
        .arg("--")
        .args(python)
        .arg(crate::made::file("tests/read_back").join(program))
        .current_dir(home)
        .env("XDG_RUNTIME_DIR", home)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("VRAMLAB_WATCH", "debug")
        .output()
        .unwrap()
}

fn told(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The requests of `as_it_was.py` to the allocator: their number, their bytes, the peak.
fn asked(output: &Output) -> String {
    let said = told(output);
    assert!(output.status.success(), "{said}");
    said.lines().find(|line| line.starts_with("asked: ")).unwrap_or_else(|| panic!("no figures: {said}")).to_owned()
}

/// The rules: name, subject, the value that is used, and what that means for memory.
fn rules() -> Vec<[String; 4]> {
    let text = std::fs::read_to_string(crate::made::file("lab/python/vramlab_watch/_rules.py")).unwrap();
    let (_, rest) = text.split_once("RULES = {").unwrap();
    let (table, _) = rest.split_once("\n}").unwrap();
    let texts: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
    let rules: Vec<_> = texts.chunks_exact(4).map(|rule| [0, 1, 2, 3].map(|at| rule[at].to_owned())).collect();
    assert_eq!(rules.len() * 4, texts.len());
    rules
}

#[test]
fn the_guide_lists_every_rule() {
    let page = std::fs::read_to_string(crate::made::file("lab/guide/read-back.md")).unwrap();
    for [name, about, taken, memory] in rules() {
        let row = format!("| `{name}` | {about} | {taken} | {memory} |");
        assert!(page.contains(&row), "lab/guide/read-back.md lacks\n{row}");
    }
}

#[test]
fn what_can_be_computed_is_right_and_each_rule_stands_for_the_rest() {
    let Some(python) = python() else { return };
    let home = tempfile::tempdir().unwrap();
    let output = watched(home.path(), &python, "rules.py", &["--skip-steps", "2"]);
    let said = told(&output);
    assert!(output.status.success(), "{said}");
    for [name, ..] in rules() {
        let skipped = name == "nms" && said.contains("SKIPPED: nms");
        assert!(said.contains(&format!("rule {name}\n")) || skipped, "{name} has no check: {said}");
    }
    assert!(!said.contains("vramlab_watch: "), "nothing failed on the way: {said}");
}

#[test]
fn what_a_program_asks_of_memory_is_as_it_was() {
    let Some(python) = python() else { return };
    let (followed, alone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let followed = watched(followed.path(), &python, "as_it_was.py", &[]);
    // Without the package, nothing in Python sees its tensors.
    let alone = started(
        alone.path(),
        &["env", "-u", "PYTHONPATH", "-u", "VRAMLAB_WATCH_PACKAGE", &python],
        "as_it_was.py",
        &[],
    );
    assert_eq!(asked(&followed), asked(&alone));
}

#[test]
fn reads_are_told_with_their_lines_at_the_end_and_in_the_recording() {
    let Some(python) = python() else { return };
    let home = tempfile::tempdir().unwrap();
    let output = watched(home.path(), &python, "waits.py", &[]);
    let said = told(&output);
    // A loop that waits for something that will never come ends with a message.
    assert!(!output.status.success(), "{said}");
    let line = "waits.py:5 has read a value that was not computed 10,000 times without a step in between";
    assert!(said.contains(line) && said.contains("the loop waits for ever"), "{said}");
    assert!(said.contains("10000 reads of values that were not computed."), "{said}");
    assert!(said.contains("waits.py:5  10000 × item (float32): zero, or false"), "{said}");
    let mut reader = Reader::new(std::fs::File::open(home.path().join("run.vram")).unwrap());
    let mut notices = Vec::new();
    while let Next::Frame(frame) = reader.next().unwrap() {
        for event in frame.unpack().unwrap().events() {
            if let EventKind::Notice { text } = event.unwrap().kind {
                notices.push(text.to_string());
            }
        }
    }
    assert!(
        notices.iter().any(|notice| notice.contains("10000 reads of values that were not computed")),
        "{notices:?}"
    );
}
