//! The commands about a recorded run: whatif, tune, diff, report, check.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

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

fn trace(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.pickle.xz"));
    path.to_str().unwrap().to_owned()
}

fn text(arguments: &[&str]) -> String {
    let output = vramlab(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(arguments)).unwrap()
}

/// Records a run on the simulated card.
fn record(path: &str, more: &[&str]) {
    let run = ["run", "gpt-mini", "--device", "sim:h200", "--steps", "8", "--record", path];
    assert!(vramlab(&[&run[..], more].concat()).status.success());
}

/// A figure of `torch.cuda.memory_stats()` at the end of a trace.
fn stat(name: &str, key: &str) -> u64 {
    let path = trace(name).replace(".pickle.xz", ".stats.json");
    let stats: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    stats["stats"][key].as_u64().unwrap()
}

/// Figures that are predicted and recorded, by the keys of PyTorch's statistics.
const KEYS: [(&str, &str); 6] = [
    ("peak_reserved", "reserved_bytes.all.peak"),
    ("reserved", "reserved_bytes.all.current"),
    ("peak_allocated", "allocated_bytes.all.peak"),
    ("num_device_alloc", "num_device_alloc"),
    ("num_alloc_retries", "num_alloc_retries"),
    ("num_ooms", "num_ooms"),
];

#[test]
fn where_the_limit_is_not_recorded_tune_says_what_fits_at_both_ends_as_report_does() {
    // Without the statistics beside it, which contain the limit.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("oom-observer.pickle.xz");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers/oom-observer.pickle.xz"), &path).unwrap();
    let path = path.to_str().unwrap();
    let (tuned, reported) = (text(&["tune", path]), text(&["report", path]));
    for sentence in [
        "With the least that the limit can be, 5.73 GiB, no settings that were tried would have served it.",
        "Where the limit is 5.92 GiB or more, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True fits (replayed).",
    ] {
        assert!(tuned.contains(sentence) && reported.contains(sentence), "{sentence}\n{tuned}\n{reported}");
    }
    assert!(!tuned.contains("Nothing fits"), "{tuned}");
    // It ran under 6 GiB.
    assert!(
        text(&["tune", path, "--limit", "6GiB"]).contains("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    );
}

#[test]
fn whatif_has_the_figures_of_the_run_and_those_of_runs_of_the_same_program_under_other_settings() {
    let (expandable, split) = ("expandable_segments:True", "max_split_size_mb:64");
    let asked = ["--alloc-conf", expandable, "--alloc-conf", split, "--alloc-conf", ""];
    let told = json(&[&["whatif", &trace("bert-varlen"), "--json"][..], &asked[..]].concat());
    assert_eq!(told["exact"], true);
    assert_eq!(told["recorded"]["stranded_at_peak"], told["replayed"]["stranded_at_peak"]);
    assert_eq!((&told["asked"][0]["conf"], &told["asked"][0]["predicted"]), (&expandable.into(), &true.into()));
    for (key, stat_key) in KEYS {
        for (figures, run) in [
            (&told["recorded"], "bert-varlen"),
            (&told["replayed"], "bert-varlen"),
            (&told["asked"][0], "bert-varlen-expandable"),
            (&told["asked"][2], "bert-varlen"),
        ] {
            assert_eq!(figures[key], stat(run, stat_key), "{key} of {run}");
        }
    }
    // Nobody knows where the driver would place other segments, and so which of two blocks of one size is used.
    let run = "bert-varlen-max-split";
    assert_eq!(told["asked"][1]["peak_reserved"], stat(run, "reserved_bytes.all.peak"));
    let (allocated, real) =
        (told["asked"][1]["peak_allocated"].as_f64().unwrap(), stat(run, "allocated_bytes.all.peak") as f64);
    assert!((allocated / real - 1.0).abs() < 1e-3, "{allocated} {real}");
}

#[test]
fn whatif_bounds_memory_and_empties_the_cache() {
    let file = trace("churn-default");
    let told = json(&["whatif", &file, "--json", "--limit", "11GiB"]);
    assert!(told["asked"][0]["num_ooms"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(told["asked"][0]["limit"], 11_u64 << 30);
    assert_eq!(told["recorded"]["num_ooms"], 0);
    let table = text(&["whatif", &file, "--limit", "11GiB"]);
    assert!(table.contains("to the byte: 15911092224 bytes") && table.contains("limit 11.00 GiB"), "{table}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.vram").to_str().unwrap().to_owned();
    record(&path, &[]);
    let told = json(&["whatif", &path, "--json", "--empty-cache-every", "1"]);
    assert_eq!(told["exact"], true);
    assert!(told["asked"][0]["num_device_free"].as_u64() > told["recorded"]["num_device_free"].as_u64(), "{told}");
    let refused = vramlab(&["whatif", &path, "--alloc-conf", "expandable:True"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("expandable_segments"));
    assert_eq!(vramlab(&["whatif", "/nonexistent"]).status.code(), Some(1));
}

#[test]
fn what_tune_finds_is_what_whatif_says_of_it_and_the_smallest_limit_is_one() {
    let file = trace("dcgan-roundup");
    let told = json(&["tune", &file, "--json"]);
    assert_eq!(told["exact"], true);
    let best = told["best"].as_array().unwrap();
    let peaks: Vec<u64> = best.iter().map(|row| row["peak_reserved"].as_u64().unwrap()).collect();
    assert!(peaks.len() > 1 && peaks[0] < told["recorded"]["peak_reserved"].as_u64().unwrap(), "{told}");
    let calls = |row: &Value| row["num_device_alloc"].as_u64().unwrap() + row["num_device_free"].as_u64().unwrap();
    // Except for the defaults, which come last, a higher peak is only listed if it has fewer calls.
    let front = &best[..best.len() - 1];
    for pair in front.windows(2) {
        assert!(pair[0]["peak_reserved"].as_u64() < pair[1]["peak_reserved"].as_u64(), "{told}");
        assert!(calls(&pair[0]) > calls(&pair[1]), "{told}");
    }
    let conf = best[0]["conf"].as_str().unwrap();
    let again = json(&["whatif", &file, "--json", "--alloc-conf", conf]);
    assert_eq!(again["asked"][0]["peak_reserved"], best[0]["peak_reserved"]);
    let smallest = best[0]["smallest_limit"].as_u64().unwrap();
    for (limit, fails) in [(smallest, false), (smallest - (2 << 20), true)] {
        let limit = limit.to_string();
        let told = json(&["whatif", &file, "--json", "--alloc-conf", conf, "--limit", &limit]);
        assert_eq!(told["asked"][0]["num_ooms"].as_u64().unwrap() > 0, fails, "{limit}");
    }
    let table = text(&["tune", &file]);
    assert!(table.contains("export PYTORCH_ALLOC_CONF=expandable_segments:True"), "{table}");
}

#[test]
fn a_leak_is_reported_by_its_line_compared_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (plain, leak) = (path("plain.vram"), path("leak.vram"));
    record(&plain, &[]);
    record(&leak, &["--retain", "losses"]);
    let told = json(&["report", &leak, "--format", "json"]);
    let leaks = told["devices"][0]["leaks"].as_array().unwrap();
    assert_eq!(leaks.len(), 1, "{leaks:?}");
    assert_eq!((&leaks[0]["line"], &leaks[0]["bytes_per_step"]), (&Value::from("mean loss"), &Value::from(512)));
    assert_eq!(json(&["report", &plain, "--format", "json"])["devices"][0]["leaks"], Value::Array(Vec::new()));
    let grew = json(&["diff", &plain, &leak, "--json"]);
    let line = &grew["end"]["lines"][0];
    assert_eq!(
        (&line["line"], &line["grew"], &line["after"]["blocks"]),
        (&"mean loss".into(), &4096.into(), &8.into())
    );
    assert!(text(&["diff", &plain, &leak]).contains("+4.00 KiB"));
    let same = text(&["diff", &plain, &plain]);
    assert!(same.contains("Every name holds the same at the end."), "{same}");

    let broken = vramlab(&["check", &leak, "--max-leak", "0", "--max-peak", "10MiB"]);
    assert_eq!(broken.status.code(), Some(1));
    let said = String::from_utf8(broken.stdout).unwrap();
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("mean loss") && said.contains("above --max-peak 10.00 MiB"), "{said}");
    let kept = ["--max-leak", "512/step", "--max-peak", "1GiB", "--max-reserved", "1GiB", "--max-stranded", "90%"];
    assert!(text(&[&["check", &leak][..], &kept[..]].concat()).contains("within all limits"));
    let stranded = vramlab(&["check", &leak, "--max-stranded", "0%"]);
    assert_eq!(stranded.status.code(), Some(1));
    assert_eq!(vramlab(&["check", &leak]).status.code(), Some(2));
}

#[test]
fn a_report_tells_who_held_the_peak_and_what_was_tried_for_a_request_that_failed() {
    let told = json(&["report", &trace("oom-and-recover"), "--format", "json"]);
    let device = &told["devices"][0];
    assert_eq!(device["peak_reserved"], stat("oom-and-recover", "reserved_bytes.all.peak"));
    assert_eq!(device["peak_allocated"], stat("oom-and-recover", "allocated_bytes.all.peak"));
    assert_eq!(device["num_ooms"], stat("oom-and-recover", "num_ooms"));
    let holders = device["peak"]["holders"].as_array().unwrap();
    let held: u64 = holders.iter().map(|holder| holder["bytes"].as_u64().unwrap()).sum();
    assert_eq!(device["peak_allocated"], held);
    let failure = &device["ooms"][0];
    assert_eq!(failure["tried"], true);
    // No settings serve a request that is larger than the memory left beside live blocks.
    assert!(failure["remedied"].as_array().unwrap().iter().all(|tried| tried["fits"] == false), "{failure}");
    let smallest = device["smallest_limit"].as_u64().unwrap();
    let file = trace("oom-and-recover");
    let under = |limit: u64| {
        let told = json(&["whatif", &file, "--json", "--alloc-conf", "", "--limit", &limit.to_string()]);
        told["asked"][0]["num_ooms"].as_u64().unwrap()
    };
    assert_eq!(under(smallest), 0);
    assert!(under(smallest - (2 << 20)) > 0);
    let markdown = text(&["report", &trace("gpt-frames"), "--format", "markdown"]);
    assert!(
        markdown.starts_with("## Device memory of") && markdown.contains("| cross\\_entropy (traces.py:41) |"),
        "{markdown}"
    );
    assert!(text(&["report", &trace("gpt-frames")]).contains("Who held the peak of 978.39 MiB"));
}

#[test]
fn a_leak_of_a_strangers_history_is_found_by_its_line_step_by_step() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers/leak-outputs.pickle.xz");
    let told = json(&["report", path.to_str().unwrap(), "--format", "json"]);
    let device = &told["devices"][0];
    // The scopes of its optimizer mark the steps.
    assert_eq!((&device["repetitions"]["told"], &device["steps"]), (&true.into(), &10.into()));
    assert!(
        device["history"]["begins"].is_string() && device["history"]["missing"].is_array(),
        "{}",
        device["history"]
    );
    // A list keeps a hidden state of every step: 3 MiB in one block, from which a remainder is not always split off.
    let leaks = device["leaks"].as_array().unwrap();
    assert_eq!(leaks.len(), 1, "{leaks:?}");
    assert!(leaks[0]["line"].as_str().unwrap().starts_with("layer_norm (main.py:"), "{leaks:?}");
    assert_eq!(leaks[0]["blocks_per_step"], 1.0);
    let kept = leaks[0]["bytes_per_step"].as_u64().unwrap();
    assert!((3 << 20..(3 << 20) + (1 << 18)).contains(&kept), "{kept}");
}
