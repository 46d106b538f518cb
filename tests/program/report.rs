//! What `report` and `check` say about other people's files: out of memory, leaks, lines to paste, exit codes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use vramlab::allocator::PoolKind;
use vramlab::model::{Category, Event, EventKind, NameId};
use vramlab::recording::{FrameBuilder, Next, Reader, Writer};
use vramlab::units::{Address, Bytes, DeviceIndex, StreamId};

fn vramlab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(arguments)
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .env_remove("PYTORCH_ALLOC_CONF")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("CUDA_VISIBLE_DEVICES", "")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = vramlab(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(arguments)).unwrap()
}

fn code(arguments: &[&str]) -> (i32, String) {
    let output = vramlab(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// A file as its user has it: alone, without its statistics.
fn alone(folder: &TempDir, name: &str) -> String {
    let from = tests().join(format!("{name}.pickle.xz"));
    let to = folder.path().join(from.file_name().unwrap());
    std::fs::copy(from, &to).unwrap();
    to.to_str().unwrap().to_owned()
}

fn truth(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(tests().join(format!("{name}.stats.json"))).unwrap()).unwrap()
}

const STRANGERS: [&str; 7] = [
    "strangers/compiled-gpt",
    "strangers/cuda-graphs",
    "strangers/hf-trainer-llama",
    "strangers/leak-outputs",
    "strangers/lightning-resnet-expandable",
    "strangers/oom-observer",
    "strangers/timm-convnext-ring",
];

/// Files whose program ran out of memory.
const FAILED: [&str; 4] = ["strangers/oom-observer", "traces/oom-and-recover", "traces/churn-gc", "traces/torture.e"];

#[test]
fn a_report_on_a_strangers_file_says_what_matters_and_nothing_of_our_flags() {
    let folder = tempfile::tempdir().unwrap();
    for name in STRANGERS {
        let file = alone(&folder, name);
        let said = text(&["report", &file]);
        for (word, why) in [
            ("--batch", "a flag of ours"),
            ("--alloc-conf", "a flag of ours"),
            ("PYTORCH_ALLOC_CONF", "no PyTorch before 2.9 reads it"),
            ("large_segment_size_mb", "a PyTorch before 2.11 stops at it"),
            ("garbage_collection_threshold", "it does nothing without a limit"),
            ("would return them to the driver", "what is free at the end is no finding"),
        ] {
            assert!(!said.contains(word), "{name}: {word}: {why}\n{said}");
        }
        // At most one line to paste, and each remark once.
        assert!(said.matches("export PYTORCH").count() <= 1, "{name}: {said}");
        let late = said.matches("recording began late").count() + said.matches("was overwritten").count();
        assert!(late <= 1, "{name}: {said}");
        assert!(vramlab(&["report", &file, "--no-settings"]).stderr.is_empty(), "{name}: remarks stand in the text");
        let quick = text(&["report", &file, "--no-settings"]);
        assert!(!quick.contains("predicted:") && quick.contains("Who held the peak"), "{name}: {quick}");
        assert!(said.contains("at least") == (name == "strangers/timm-convnext-ring"), "{name}: {said}");
    }
}

#[test]
fn without_a_limit_nothing_is_called_tried_that_was_assumed_and_with_it_both_agree() {
    let folder = tempfile::tempdir().unwrap();
    for name in FAILED {
        let file = alone(&folder, name);
        let limit = truth(name)["limit_bytes"].as_u64().unwrap();
        let unknown = json(&["report", &file, "--format", "json"]);
        let known = json(&["report", &file, "--format", "json", "--limit", &limit.to_string()]);
        let (unknown, known) = (&unknown["devices"][0], &known["devices"][0]);
        let (least, below) = (&unknown["limit_unknown"]["least"], &unknown["limit_unknown"]["below"]);
        let (least, below) = (least.as_u64().unwrap(), below.as_u64().unwrap());
        assert!((least..below).contains(&limit), "{name}: {limit} from {least} to {below}");
        assert_eq!((&unknown["limit"], &known["limit"]), (&Value::Null, &limit.into()), "{name}");
        assert_eq!(known["limit_unknown"], Value::Null);
        // Statements about the whole range are true at the actual limit.
        let fits = |of: &Value, key: &str| of[key]["conf"].is_string();
        assert!(!fits(unknown, "recommended") || fits(known, "recommended"), "{name}: at the least, not at the limit");
        assert!(
            !fits(known, "recommended") || fits(unknown, "recommended_at_most"),
            "{name}: at the limit, not at the most"
        );
        let said = text(&["report", &file]);
        assert!(said.contains("The file does not say which limit"), "{name}: {said}");
        let said = text(&["report", &file, "--limit", &limit.to_string()]);
        assert!(said.contains("A limit of this process stopped it") && !said.contains("does not say which"), "{said}");
        // A limit under which the program could not have got so far is refused.
        assert_eq!(vramlab(&["report", &file, "--limit", "1MiB"]).status.code(), Some(1), "{name}");
    }
}

#[test]
fn pytorchs_message_says_the_limit_and_who_else_has_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = alone(&folder, "strangers/oom-observer");
    let truth = truth("strangers/oom-observer");
    let message = truth["message"].as_str().unwrap();
    let said = text(&["report", &file, "--error", message]);
    for words in [
        "A limit of this process stopped it: 6.00 GiB are allowed, and the card had 127.39 GiB free.",
        "Asked: 590.00 MiB",
        "Missing: 182.00 MiB.",
        "Live: 5.30 GiB of 5.60 GiB reserved.",
        "Would have fitted: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "5 % of the batch",
        "process 427 has 2.70 GiB",
    ] {
        assert!(said.contains(words), "{words}\n{said}");
    }
    // The setting that is said to fit does fit, according to another command.
    let told = json(&["whatif", &file, "--json", "--limit", "6GiB", "--alloc-conf", "expandable_segments:True"]);
    assert_eq!((&told["asked"][0]["num_ooms"], &told["asked"][0]["failed_requests_served"]), (&0.into(), &1.into()));
    // The message is in a file, on standard input from a shell, or broken into lines by a launcher.
    let log = folder.path().join("job.log");
    std::fs::write(
        &log,
        format!("[rank0]: Traceback\n[rank0]: torch.OutOfMemoryError: {}\n", message.replace(". ", ".\n[rank0]: ")),
    )
    .unwrap();
    let of_log = json(&["report", &file, "--error", log.to_str().unwrap(), "--format", "json", "--no-settings"]);
    let of_text = json(&["report", &file, "--error", message, "--format", "json", "--no-settings"]);
    assert_eq!(of_log, of_text);
    assert_eq!(
        (&of_text["error"]["stopped_by"], &of_text["error"]["allowed"]),
        (&"limit".into(), &(6_u64 << 30).into())
    );
    // The message alone is explained; other text is refused, with advice.
    let said = text(&["report", "--error", message]);
    assert!(said.contains("Missing: about 177") && said.contains("_record_memory_history"), "{said}");
    let refused = vramlab(&["report", &file, "--error", "CUDA error: device-side assert triggered"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(vramlab(&["report"]).status.code(), Some(2));
}

#[test]
fn steps_of_a_file_are_those_of_its_optimizer() {
    let folder = tempfile::tempdir().unwrap();
    for (name, steps) in [
        ("strangers/compiled-gpt", 6),
        ("strangers/cuda-graphs", 4),
        ("strangers/hf-trainer-llama", 8),
        ("strangers/leak-outputs", 10),
        ("strangers/lightning-resnet-expandable", 9),
        ("strangers/oom-observer", 3),
        ("traces/bert-varlen", 12),
        ("traces/resnet50-train-eval", 3),
        ("traces/churn-default", 0),
    ] {
        let file = alone(&folder, name);
        let told = json(&["whatif", &file, "--json", "--alloc-conf", ""]);
        assert_eq!(told["steps"], steps, "{name}");
        assert_eq!(told["exact"], true, "{name}: steps change no figure");
        // What a captured graph holds is given back by no call.
        if steps > 2 && name != "strangers/cuda-graphs" {
            text(&["summary", &file, "--at", "step:2"]);
            let emptied = json(&["whatif", &file, "--json", "--empty-cache-every", "1"]);
            let calls = |of: &Value| of["num_device_free"].as_u64().unwrap();
            assert!(calls(&emptied["asked"][0]) > calls(&told["recorded"]), "{name}: {emptied}");
        }
    }
    // They survive an export, and an export of that.
    let file = alone(&folder, "strangers/leak-outputs");
    let copy = folder.path().join("copy.pickle").to_str().unwrap().to_owned();
    text(&["export", &file, "--to", "pytorch", "--out", &copy]);
    assert_eq!(json(&["whatif", &copy, "--json", "--alloc-conf", ""])["steps"], 10);
    let leaks = json(&["report", &copy, "--format", "json", "--no-settings"]);
    assert_eq!(leaks["devices"][0]["leaks"].as_array().unwrap().len(), 1, "{leaks}");
    // What every step leaves behind is a finding, with its line.
    let findings = leaks["devices"][0]["findings"].as_array().unwrap();
    let line = leaks["devices"][0]["leaks"][0]["line"].as_str().unwrap();
    assert!(findings.iter().any(|finding| finding["sentence"].as_str().unwrap().contains(line)), "{findings:?}");
}

#[test]
fn a_leak_comes_first_with_its_sum_its_line_its_cause_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let said = text(&["report", &alone(&folder, "strangers/leak-outputs"), "--no-settings"]);
    let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("{words}\n{said}"));
    assert!(at("A leak: every step leaves 3.0") < at("layer_norm (main.py:96)"));
    assert!(at("Only layer_norm (main.py:96) grows") < at("Figures"));
    assert!(said.contains(".detach()"), "{said}");
}

/// `_record_memory_history()` with its defaults records frames of C++ and of the interpreter beside Python's. The
/// program keeps 76.29 MiB of every step, under a limit of 1.18 GiB, and fails in its fourth step.
#[test]
fn a_leak_that_runs_out_of_memory_in_a_few_steps_is_said_before_what_only_puts_it_off() {
    let folder = tempfile::tempdir().unwrap();
    let copy = alone(&folder, "data/oom-leak");
    let said = text(&["report", &copy, "--limit", "1269713306"]);
    let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("{words}\n{said}"));
    assert!(said.contains("Asked: 16.00 MiB, for _multi_tensor_adam (train.py:18)"), "{said}");
    assert!(at("every step leaves 76.29 MiB behind, taken by keep (train.py:62)") < at("Would have fitted"), "{said}");
    assert!(at("Only keep (train.py:62) grows") < at("Figures"));
    assert!(!said.contains("smaller batch:"), "a smaller batch cures no leak: {said}");
    // Backward runs on a thread without Python frames: the node that ran is named.
    assert!(said.contains("AddmmBackward0") && said.contains("convert (train.py:7)"), "{said}");
    for machinery in ["unwind", ".c:", "CUDACachingAllocator", "Engine"] {
        assert!(!said.contains(machinery), "{machinery}: {said}");
    }
    let report = json(&["report", &copy, "--format", "json", "--no-settings"]);
    assert_eq!(report["devices"][0]["leaks"][0]["line"], "keep (train.py:62)");
    let (of, _) = code(&["check", &copy, "--max-leak", "50MiB/step"]);
    assert_eq!(of, 1);
}

#[test]
fn check_says_what_is_broken_what_cannot_be_told_and_what_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let ring = alone(&folder, "strangers/timm-convnext-ring");
    let failed = alone(&folder, "strangers/oom-observer");
    let plain = alone(&folder, "strangers/leak-outputs");
    let few = alone(&folder, "traces/two-streams");
    for (arguments, expected) in [
        (vec![&*plain, "--max-peak", "2GiB", "--no-oom"], 0),
        (vec![&*plain, "--max-peak", "1GiB"], 1),
        (vec![&*plain, "--max-leak", "1MiB/step"], 1),
        (vec![&*plain, "--max-leak", "4MiB/step", "--limit", "1.5GiB"], 0),
        (vec![&*plain, "--limit", "1GiB"], 1),
        (vec![&*failed, "--max-peak", "20GiB"], 0),
        (vec![&*failed, "--max-peak", "20GiB", "--no-oom"], 1),
        (vec![&*failed, "--limit", "6GiB"], 1),
        // What was overwritten may have been more.
        (vec![&*ring, "--max-peak", "30GiB"], 3),
        (vec![&*ring, "--max-peak", "1GiB"], 1),
        (vec![&*few, "--max-leak", "1MiB/step"], 3),
        (vec!["/nonexistent", "--max-peak", "1GiB"], 2),
        (vec![&*plain], 2),
        // Of several ranks, one is enough to fail.
        (vec![&*plain, &*failed, "--no-oom"], 1),
        (vec![&*plain, &*ring, "--max-peak", "30GiB"], 3),
    ] {
        let arguments = [&["check"][..], &arguments].concat();
        let (was, said) = code(&arguments);
        assert_eq!(was, expected, "{arguments:?}: {said}");
        let (json_code, object) = code(&[&arguments[..], &["--json"]].concat());
        assert_eq!(json_code, expected);
        if expected != 2 {
            let object: Value = serde_json::from_str(&object).unwrap();
            assert_eq!(object["passed"], expected == 0, "{object}");
            assert!(object["runs"][0]["peak_allocated"].as_u64().unwrap() > 0, "{object}");
            let (_, annotations) = code(&[&arguments[..], &["--format", "github"]].concat());
            let level = ["::notice ", "::error ", "", "::warning "][usize::try_from(expected).unwrap()];
            assert!(annotations.lines().any(|line| line.starts_with(level)), "{annotations}");
            assert!(annotations.lines().all(|line| line.starts_with("::")), "{annotations}");
        }
    }
}

#[test]
fn several_files_are_one_report_on_the_worst_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        alone(&folder, "traces/gpt-mini.base"),
        alone(&folder, "traces/gpt-mini.all"),
        alone(&folder, "traces/gpt2-amp"),
    ];
    let [a, b, c] = files.each_ref().map(String::as_str);
    let said = text(&["report", a, b, c, "--no-settings"]);
    assert!(said.contains("Device memory of 3 runs") && said.contains("above the mean"), "{said}");
    assert!(said.contains(&format!("The worst: {c}, device 0.")) && said.contains("device 0: the worst"), "{said}");
    assert_eq!(said.matches("Who held the peak").count(), 1, "{said}");
    let told = json(&["report", a, b, "--format", "json", "--no-settings"]);
    assert_eq!(told["files"].as_array().unwrap().len(), 2);
}

/// A recording of two ranks, and another one in which the first also takes 2 MiB of a third GPU.
fn ranks_and_a_guest(folder: &TempDir) -> [String; 2] {
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (two, three) = (path("two.vram"), path("three.vram"));
    text(&["run", "gpt-mini", "--device", "sim:h200x2", "--parallel", "pp-1f1b", "--steps", "2", "--record", &two]);
    let mut reader = Reader::new(File::open(&two).unwrap());
    let mut events = Vec::new();
    while let Next::Frame(frame) = reader.next().unwrap() {
        events.extend(frame.unpack().unwrap().events().map(Result::unwrap));
    }
    let (time, at) = (events.last().unwrap().time, (Address(1 << 40), Bytes::mib(2)));
    let (pool, stream) = (PoolKind::Small, StreamId::DEFAULT);
    let segment = EventKind::SegmentAlloc { address: at.0, size: at.1, stream, pool };
    let block = EventKind::Alloc {
        address: at.0,
        size: at.1,
        requested: at.1,
        stream,
        category: Category::Other,
        name: NameId::NONE,
    };
    events.extend([segment, block].map(|kind| Event { device: DeviceIndex(2), ..Event::new(time, kind) }));
    let mut frame = FrameBuilder::new(0);
    events.iter().for_each(|event| frame.push(event));
    let mut writer = Writer::new(File::create(&three).unwrap()).unwrap();
    writer.write(&frame.finish().unwrap()).unwrap();
    [two, three]
}

#[test]
fn a_gpu_that_a_rank_uses_beside_its_own_is_no_rank() {
    let folder = tempfile::tempdir().unwrap();
    let [two, three] = ranks_and_a_guest(&folder);
    let sentence = |file: &str| {
        let said = text(&["report", file, "--no-settings"]);
        assert!(said.contains("0 (rank 0)") && said.contains("1 (rank 1)"), "{said}");
        let line = said.lines().find(|line| line.contains("Peaks are within"));
        line.unwrap_or_else(|| panic!("{said}")).replace(file, "FILE")
    };
    assert_eq!(sentence(&two), sentence(&three));
    let told = json(&["report", &three, "--format", "json", "--no-settings"]);
    let ranks = told["devices"].as_array().unwrap().iter().map(|device| device["ranks"].clone());
    let [none, one]: [Value; 2] = [Value::Null, serde_json::json!([1])];
    assert_eq!(ranks.collect::<Vec<_>>(), [serde_json::json!([0]), one, none]);
}

#[test]
fn names_at_the_peak_are_summed_by_line_module_and_category() {
    let folder = tempfile::tempdir().unwrap();
    let file = alone(&folder, "strangers/hf-trainer-llama");
    let by = |by: &str| text(&["report", &file, "--no-settings", "--by", by]);
    assert!(by("line").contains("modeling_llama.py:"), "{}", by("line"));
    assert!(by("module").contains("transformers.models.llama.modeling_llama"), "{}", by("module"));
    assert!(by("category").contains("optimizer"), "{}", by("category"));
    let told = json(&["report", &file, "--format", "json", "--no-settings"]);
    let peak = &told["devices"][0];
    for list in ["holders", "modules"] {
        let held = peak["peak"][list].as_array().unwrap();
        let sum: u64 = held.iter().map(|held| held["bytes"].as_u64().unwrap()).sum();
        assert_eq!(peak["peak_allocated"], sum, "{list}");
    }
}

#[test]
fn a_page_is_one_file_and_folded_stacks_are_all_that_is_live() {
    let folder = tempfile::tempdir().unwrap();
    let file = alone(&folder, "strangers/leak-outputs");
    let page = text(&["report", &file, "--format", "html"]);
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && page.contains("layer_norm (main.py:96)"));
    for foreign in ["<script", "http://", "https://", "src=", "@import"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    for moment in ["now", "peak"] {
        let folded = text(&["export", &file, "--to", "folded", "--at", moment]);
        let bytes = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        let sum: u64 = folded.lines().map(bytes).sum();
        let told = json(&["report", &file, "--format", "json", "--no-settings"]);
        let key = if moment == "now" { "allocated" } else { "peak_allocated" };
        assert_eq!(told["devices"][0][key], sum, "{moment}");
        assert!(folded.lines().any(|line| line.contains(';') && line.contains("(main.py:96)")), "{folded}");
    }
}

#[test]
fn lines_to_paste_hold_for_the_files_pytorch() {
    let folder = tempfile::tempdir().unwrap();
    // With its statistics beside it, a file is known to be from 2.11.
    let known = tests().join("traces/churn-default.pickle.xz").to_str().unwrap().to_owned();
    let unknown = alone(&folder, "traces/churn-default");
    let confs = |file: &str, more: &[&str]| -> Vec<String> {
        let told = json(&[&["tune", file, "--json"][..], more].concat());
        let best = told["best"].as_array().unwrap();
        best.iter().map(|row| row["conf"].as_str().unwrap().to_owned()).collect()
    };
    let large = |confs: &[String]| confs.iter().any(|conf| conf.contains("large_segment_size_mb"));
    assert!(!large(&confs(&unknown, &[])) && !large(&confs(&unknown, &["--torch", "2.6"])));
    assert_eq!(large(&confs(&known, &[])), large(&confs(&unknown, &["--torch", "2.11"])));
    assert!(text(&["tune", &unknown]).contains("--torch 2.11 tries it"));
    let newer = text(&["tune", &unknown, "--torch", "2.13"]);
    assert!(newer.contains("export PYTORCH_ALLOC_CONF=") && !newer.contains("PYTORCH_CUDA"), "{newer}");
    assert!(text(&["tune", &unknown]).contains("export PYTORCH_CUDA_ALLOC_CONF="));
    // Garbage is collected only under a limit, which the program sets.
    let bounded = text(&["tune", &unknown, "--limit", "12GiB"]);
    assert_eq!(
        bounded.contains("export PYTORCH_CUDA_ALLOC_CONF=garbage_collection"),
        bounded.contains("torch.cuda.set_per_process_memory_fraction(12884901888"),
        "{bounded}"
    );
    assert!(!bounded.contains("save 0 B"), "{bounded}");
}

#[test]
fn a_file_that_is_cut_off_is_reported_as_far_as_it_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let whole = alone(&folder, "strangers/leak-outputs");
    let plain = folder.path().join("plain.pickle").to_str().unwrap().to_owned();
    text(&["export", &whole, "--to", "pytorch", "--out", &plain]);
    let bytes = std::fs::read(&plain).unwrap();
    for share in [6, 9] {
        let cut = folder.path().join(format!("cut{share}.pickle"));
        std::fs::write(&cut, &bytes[..bytes.len() * share / 10]).unwrap();
        let said = text(&["report", cut.to_str().unwrap()]);
        assert!(said.contains("damaged or cut off") && said.contains("Who holds the 295.16 MiB at the end"), "{said}");
        assert!(!said.contains("peak"), "no peak is known: {said}");
    }
    let nothing = folder.path().join("nothing.pickle");
    std::fs::write(&nothing, &bytes[..100]).unwrap();
    assert_eq!(vramlab(&["report", nothing.to_str().unwrap()]).status.code(), Some(1));
}
