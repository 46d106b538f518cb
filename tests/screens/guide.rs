//! The guide: its pages are complete, its links lead somewhere, and everything in it that a program can print was
//! printed by a program.
//!
//! `VRAMLAB_UPDATE=1 cargo test --test screens guide` writes the tables of switches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use vramlab::guide;
use vramlab::session::{Reach, Switch};

const WRITES: &str = "VRAMLAB_UPDATE=1 cargo test --test screens guide writes it";

fn vramlab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    for name in ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"] {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").args(arguments).output().unwrap()
}

/// All Markdown files below a folder.
fn markdown(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(markdown(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_file_of_the_guide_is_a_page_and_stands_in_its_contents() {
    let folder = crate::made::file("lab/guide");
    let name = |path: &PathBuf| path.strip_prefix(&folder).unwrap().with_extension("").to_str().unwrap().to_owned();
    let files: BTreeSet<String> = markdown(&folder).iter().map(name).collect();
    let pages: BTreeSet<String> = guide::pages().iter().map(|page| page.name.to_owned()).collect();
    assert_eq!(files, pages, "lab/guide and src/guide/pages.rs name the same pages");
    let contents = guide::page(guide::CONTENTS).unwrap().text;
    for page in guide::pages().iter().filter(|page| page.name != guide::CONTENTS) {
        assert!(contents.contains(&format!("({}.md)", page.name)), "{} is not in the contents", page.name);
    }
}

/// Four columns make an example; at the margin a page's line runs into the next ones.
#[test]
fn commands_stand_as_examples() {
    for page in guide::pages() {
        let bare = page.text.lines().find(|line| line.starts_with("$ "));
        assert_eq!(bare, None, "{}", page.name);
    }
}

/// The targets of a text's links, without those to other sites.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://"))
}

#[test]
fn links_lead_somewhere() {
    let mut pages = markdown(&crate::made::file("lab/guide"));
    pages.extend(
        ["README.md", "ARCHITECTURE.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md"].map(crate::made::file),
    );
    let mut broken = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let file = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            if !file.exists() {
                broken.push(format!("{}: {link}", page.display()));
            } else if let Some(anchor) = anchor {
                let heading = |line: &str| line.starts_with('#') && slug(line.trim_start_matches('#').trim()) == anchor;
                if !std::fs::read_to_string(&file).unwrap().lines().any(heading) {
                    broken.push(format!("{}: {link} (no such heading)", page.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|symbol| symbol.is_alphanumeric() || " -_".contains(*symbol));
    kept.map(|symbol| if symbol == ' ' { '-' } else { symbol }).collect()
}

#[test]
fn the_readme_is_short_and_every_command_it_shows_is_one() {
    let readme = std::fs::read_to_string(crate::made::file("README.md")).unwrap();
    assert!(readme.lines().count() <= 150, "{} lines", readme.lines().count());
    let contents = guide::page(guide::CONTENTS).unwrap().text;
    let mut seen = 0;
    for line in readme.lines().chain(contents.lines()) {
        let Some(command) = line.trim().strip_prefix("$ vramlab ").or_else(|| line.trim().strip_prefix("vramlab "))
        else {
            continue;
        };
        seen += 1;
        let word = command.split_whitespace().next().unwrap();
        let flags = command.split('#').next().unwrap().split(" -- ").next().unwrap();
        let workload = vramlab::workload::Catalog::with_user_workloads(None).entry(word).is_ok();
        let help =
            if workload || word.starts_with(['-', '#']) { vramlab(&["--help"]) } else { vramlab(&[word, "--help"]) };
        assert!(help.status.success(), "{line}");
        let help = String::from_utf8(help.stdout).unwrap();
        for flag in flags.split_whitespace().filter(|part| part.starts_with("--")) {
            assert!(help.contains(flag), "{line}: no {flag}");
        }
    }
    assert!(seen >= 8, "{seen} commands");
}

#[test]
fn pages_are_read_in_the_terminal() {
    let text = |arguments: &[&str]| {
        let output = vramlab(arguments);
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let list = text(&["guide", "--list"]);
    assert_eq!(list.lines().count(), guide::pages().len());
    assert!(list.lines().any(|line| line.starts_with("switches/amp")));
    let page = text(&["guide", "amp"]);
    assert!(
        page.starts_with("AMP\n") && !page.contains("<!--") && !page.contains("**") && !page.contains('\x1b'),
        "{page}"
    );
    assert!(text(&["guide"]).contains("vramlab guide PAGE"));
    let wrong = vramlab(&["guide", "swiches"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("did you mean \"switches\"?"));
}

/// The run that shows a switch: its word, the workload with its flags, and values that its list does not have.
struct Example {
    switch: &'static str,
    run: &'static str,
    values: &'static [&'static str],
}

/// The run for most switches.
const GPT2: &str = "gpt2 --device sim:h200 --data reference --steps 3 --json";

/// The example of a switch.
fn example(switch: Switch) -> Example {
    let (run, values): (&str, &[&str]) = match switch.word() {
        "pin" => ("vit-b16 --device sim:h200 --data host --steps 3 --json", &[]),
        "tf32" => ("resnet50 --device sim:h200 --data reference --steps 3 --json", &[]),
        // Only models of transformers compute attention op by op.
        "attention" => (
            "gpt2 --device sim:h200 --data reference --amp bf16 --steps 3 --json",
            &["math", "efficient", "flash", "cudnn"],
        ),
        "loss" => ("llama-3.2-1b --device sim:h200 --data reference --steps 3 --json", &[]),
        "attention-mask" => ("llama-3.2-1b --device sim:h200 --data reference --steps 3 --json", &[]),
        "drop-output" => ("llama-3.2-1b --device sim:h200 --data reference --steps 3 --json", &[]),
        "fp8" => ("llama-3.2-1b --device sim:h200 --data reference --steps 3 --json", &[]),
        "ckpt" => (GPT2, &["on", "every:2", "every:3", "every:4", "every:6", "reentrant"]),
        "batch" => (GPT2, &["8", "32"]),
        "limit" => (GPT2, &["50%", "24GiB"]),
        "on-oom" => ("gpt2 --device sim:h200 --data reference --limit 16GiB --steps 3 --json", &[]),
        "alloc-conf" => (
            "varlen --device sim:h200 --steps 20 --json",
            &["expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:8"],
        ),
        _ => (GPT2, &[]),
    };
    Example { switch: switch.word(), run, values }
}

/// The result of a run with a flag, or without one.
struct Row {
    flag: String,
    printed: Value,
}

impl Row {
    fn new(run: &str, flag: String) -> Self {
        let arguments: Vec<&str> = ["run"].into_iter().chain(run.split(' ')).chain(flag.split_whitespace()).collect();
        let output = vramlab(&arguments);
        let printed = serde_json::from_slice(&output.stdout);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { printed: printed.unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{told}")), flag }
    }

    fn gib(&self, figure: &Value) -> String {
        #[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
        let gib = figure.as_u64().unwrap() as f64 / f64::from(1 << 30);
        format!("{gib:.2}")
    }

    /// After forward, between steps, peak allocated, peak reserved, milliseconds of a step.
    fn cells(&self) -> [String; 5] {
        let printed = &self.printed;
        let failed = !printed["oom"].is_null();
        let after = &printed["allocated_after"];
        let floor = if failed { "–".to_owned() } else { self.gib(&after["zero_grad"]) };
        let time =
            if failed { "out of memory".to_owned() } else { format!("{:.1}", printed["step_ms"].as_f64().unwrap()) };
        let forward = if failed { "–".to_owned() } else { self.gib(&after["forward"]) };
        [forward, floor, self.gib(&printed["peak_allocated"]), self.gib(&printed["peak_reserved"]), time]
    }
}

impl Example {
    /// The flags of every value except the usual one.
    fn flags(&self) -> Vec<String> {
        let switch = Switch::named(self.switch).unwrap();
        let listed = if self.values.is_empty() { switch.values() } else { self.values };
        let usual = switch.usual();
        let others = listed.iter().filter(|value| Some(**value) != usual.as_deref());
        let flag = |value: &&str| match switch.alone() {
            Some(alone) if alone == *value => format!("--{}", self.switch),
            _ => format!("--{} {value}", self.switch),
        };
        others.map(flag).collect()
    }

    /// The run without a flag, and with every flag.
    fn rows(&self) -> Vec<Row> {
        std::iter::once(String::new()).chain(self.flags()).map(|flag| Row::new(self.run, flag)).collect()
    }
}

/// The rows of every switch, run once for all tests.
fn measured() -> &'static [(Example, Vec<Row>)] {
    static ROWS: OnceLock<Vec<(Example, Vec<Row>)>> = OnceLock::new();
    ROWS.get_or_init(|| {
        std::thread::scope(|scope| {
            let run = |switch| {
                scope.spawn(move || {
                    let example = example(switch);
                    let rows = example.rows();
                    (example, rows)
                })
            };
            let mut done = Vec::new();
            let switches: Vec<Switch> = Switch::all().collect();
            for few in switches.chunks(4) {
                let running: Vec<_> = few.iter().map(|switch| run(*switch)).collect();
                done.extend(running.into_iter().map(|thread| thread.join().unwrap()));
            }
            done
        })
    })
}

/// The part of a switch's page that describes it.
fn facts(switch: Switch) -> String {
    let back = switch.key_back().map_or_else(String::new, |key| format!(", back with `{key}`"));
    let reach = match switch.reach() {
        Reach::Round => "cycles through its values",
        Reach::Steps => "goes to the next power of two",
        Reach::Written => "opens a line to write it",
    };
    let values: Vec<String> = switch.values().iter().map(|value| format!("`{value}`")).collect();
    let values = match (values.is_empty(), switch.is_closed()) {
        (true, _) => switch.hint().to_owned(),
        (false, true) => values.join(", "),
        (false, false) => format!("{}; {}", values.join(", "), switch.hint()),
    };
    let alone = switch.alone().map_or_else(String::new, |value| format!("; alone it means `{value}`"));
    format!(
        "| | |\n|---|---|\n| key | `{}`, {reach}{back} |\n| flag | `--{}`{alone} |\n| values | {values} |\n| default | {} |\n\n{}\n",
        switch.key(),
        switch.word(),
        switch.usual().map_or_else(|| "what the workload says".to_owned(), |value| format!("`{value}`")),
        switch.teaches(),
    )
}

#[test]
fn every_switch_has_a_page_with_its_facts() {
    for switch in Switch::all() {
        crate::made::assert_part(&format!("lab/guide/switches/{}.md", switch.word()), "switch", &facts(switch), WRITES);
    }
}

#[test]
fn every_switch_has_a_page_with_figures() {
    for (example, rows) in measured() {
        let mut table = format!(
            "`vramlab run {}` with the flag of the row, on a **simulated** H200: GiB, and simulated milliseconds of a step.\n\n\
             | | after forward | between steps | peak allocated | peak reserved | ms a step |\n|---|--:|--:|--:|--:|--:|\n",
            example.run
        );
        for row in rows {
            let flag = if row.flag.is_empty() { "as it is".to_owned() } else { format!("`{}`", row.flag) };
            table.push_str(&format!("| {flag} | {} |\n", row.cells().join(" | ")));
        }
        crate::made::assert_part(&format!("lab/guide/switches/{}.md", example.switch), "figures", &table, WRITES);
    }
}

#[test]
fn the_page_of_switches_has_all_of_them() {
    let mut table = String::from(
        "| key | flag | after forward | between steps | peak allocated | peak reserved |\n|---|---|--:|--:|--:|--:|\n",
    );
    let line = |key: &str, flag: &str, row: &Row| {
        let [forward, floor, allocated, reserved, _] = row.cells();
        format!("| {key} | {flag} | {forward} | {floor} | {allocated} | {reserved} |\n")
    };
    let base = measured().iter().find(|(example, _)| example.run == GPT2).unwrap();
    table.push_str(&line("", "as it is", &base.1[0]));
    let mut elsewhere = Vec::new();
    for (switch, (example, rows)) in Switch::all().zip(measured()) {
        let link = format!("[{0}](switches/{0}.md)", example.switch);
        if example.run != GPT2 {
            elsewhere.push(format!("{link} (`{}`)", switch.key()));
            continue;
        }
        for (index, row) in rows[1..].iter().enumerate() {
            let key = if index == 0 { format!("`{}`", switch.key()) } else { String::new() };
            let page = if index == 0 { format!(" {link}") } else { String::new() };
            table.push_str(&line(&key, &format!("`{}`{page}", row.flag), row));
        }
    }
    table.push_str(&format!("\nIn GiB. Figures of other workloads are on the pages of {}.\n", elsewhere.join(", ")));
    crate::made::assert_part("lab/guide/switches.md", "switches", &table, WRITES);
}
