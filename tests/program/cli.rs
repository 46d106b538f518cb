//! The binary's output and exit codes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, Mode, mkfifoat};

fn vramlab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(arguments)
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .env_remove("PYTORCH_ALLOC_CONF")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        // The output is the same on every machine: without `--device` the processor trains.
        .env("CUDA_VISIBLE_DEVICES", "")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn refused(arguments: &[&str], code: i32, words: &str) {
    let output = vramlab(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(words), "{arguments:?} says: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?} prints: {}", String::from_utf8_lossy(&output.stdout));
    assert!(!error.contains("panicked"), "{error}");
}

#[test]
fn a_gpu_that_is_not_there_is_told_with_exit_code_1() {
    refused(&["run", "mlp-mini", "--device", "cuda:4000000000"], 1, "cuda:4000000000 can't be trained on");
}

#[test]
fn recordings_and_printed_runs_are_compared_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (plain, amp, ckpt, none) = (path("plain.vram"), path("amp.vram"), path("ckpt.json"), path("none.json"));
    let run = ["run", "mlp-mini", "--device", "sim:h200", "--steps", "6"];
    vramlab(&[&run[..], &["--record", &plain]].concat());
    vramlab(&[&run[..], &["--amp", "bf16", "--record", &amp]].concat());
    fs::write(&ckpt, vramlab(&[&run[..], &["--ckpt", "--json"]].concat()).stdout).unwrap();
    let output = vramlab(&["compare", "--json", &plain, &amp, &ckpt]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = (0..3).map(|row| rows[row]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["", "AMP bf16", "checkpoint on"]);
    assert!(rows.as_array().unwrap().iter().all(|row| row["peak_allocated"]["median"].as_f64().unwrap() > 0.0));
    let table = String::from_utf8(vramlab(&["compare", &plain, &amp]).stdout).unwrap();
    assert!(table.contains("amp.vram") && table.contains("AMP bf16") && table.contains('*'), "{table}");
    // A figure that a snapshot can't have is marked, and nothing is best or worse by it.
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let compared = |snapshot: &str| -> (String, serde_json::Value) {
        let table = String::from_utf8(vramlab(&["compare", snapshot, &plain]).stdout).unwrap();
        let line = table.lines().find(|line| line.contains(".pickle.xz")).unwrap().to_owned();
        (line, serde_json::from_slice(&vramlab(&["compare", "--json", snapshot, &plain]).stdout).unwrap())
    };
    // A snapshot with scopes has times of steps; it does not say what a step works on.
    let (line, rows) = compared(&format!("{traces}/strangers/cuda-graphs.pickle.xz"));
    assert!(line.matches('–').count() == 1, "throughput: {line}");
    assert_eq!((&rows[0]["steps"], &rows[1]["steps"]), (&serde_json::json!(4), &serde_json::json!(6)));
    assert!(rows[0]["step_us"]["median"].as_f64().unwrap() > 0.0 && rows[1]["changes"]["step_us"].is_string());
    let (line, rows) = compared(&format!("{traces}/traces/two-streams.pickle.xz"));
    assert!(line.matches('–').count() == 3, "steps, step time, throughput: {line}");
    assert_eq!(
        (&rows[0]["steps"], &rows[0]["step_us"], &rows[1]["steps"]),
        (&serde_json::Value::Null, &serde_json::Value::Null, &serde_json::json!(6))
    );
    assert!(rows[1]["changes"].get("step_us").is_none());
    assert!(rows[1]["changes"]["peak_reserved"].is_string());
    fs::write(&none, "{}").unwrap();
    refused(&["compare", &none], 1, "none.json can't be compared");
    refused(&["compare"], 2, "FILE");
}

#[test]
fn a_run_prints_what_hooks_on_all_modules_of_the_reference_would() {
    // The modules of the reference's GPT, as `register_forward_hook` on each of `named_modules()` sees them return.
    let (batch, rows, width, vocab) = (4, 32, 32, 257);
    let mut expected = vec![("wte".to_owned(), vec![batch, rows, width]), ("wpe".to_owned(), vec![rows, width])];
    for block in ["blocks.0", "blocks.1"] {
        let inner = [("ln1", 1), ("qkv", 3), ("proj", 1), ("ln2", 1), ("fc", 4), ("out", 1)];
        expected.extend(inner.map(|(name, times)| (format!("{block}.{name}"), vec![batch, rows, times * width])));
        expected.push((block.to_owned(), vec![batch, rows, width]));
    }
    expected.push(("ln_f".to_owned(), vec![batch, rows, width]));
    expected.extend(["head", ""].map(|name| (name.to_owned(), vec![batch, rows, vocab])));
    let run = |more: &[&str]| -> serde_json::Value {
        let all = [&["run", "gpt-mini", "--device", "sim:h200", "--steps", "2", "--modules", "--json"], more].concat();
        serde_json::from_slice::<serde_json::Value>(&vramlab(&all).stdout).unwrap()["modules"].take()
    };
    let told = |modules: &serde_json::Value| -> Vec<(String, Vec<u64>)> {
        let rows = modules.as_array().unwrap().iter();
        let shape = |row: &serde_json::Value| {
            row["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect()
        };
        rows.map(|row| (row["module"].as_str().unwrap().to_owned(), shape(row))).collect()
    };
    let of = |modules: &serde_json::Value, name: &str, key: &str| {
        let row = modules.as_array().unwrap().iter().find(|row| row["module"] == name).unwrap();
        row[key].clone()
    };
    let plain = run(&[]);
    assert_eq!(told(&plain), expected);
    assert_eq!(of(&plain, "blocks.0.fc", "bytes"), 4 * 32 * 128 * 4);
    assert_eq!(of(&plain, "blocks.0.fc", "kept"), 4 * 32 * 128 * 4, "gelu's argument");
    assert_eq!(of(&plain, "blocks.0.out", "kept"), 0, "nobody needs the summand of a sum");
    // Autocast: products in 16 bits, norms and the residual stream in 32.
    let amp = run(&["--amp", "bf16"]);
    let dtypes = ["blocks.0.qkv", "blocks.0.ln1", "blocks.0"].map(|name| of(&amp, name, "dtype"));
    assert_eq!(dtypes, ["bfloat16", "float32", "float32"]);
    // With checkpointing, a block keeps only its result; and every micro-batch calls all blocks.
    let ckpt = run(&["--ckpt", "--accum", "2"]);
    assert_eq!((of(&ckpt, "blocks.0", "kept"), of(&ckpt, "blocks.0", "calls")), ((2 * 32 * 32 * 4).into(), 2.into()));
}

#[test]
fn mistakes_are_told_with_exit_code_2() {
    refused(&["run", "gpt-5"], 2, "there is no workload 'gpt-5'");
    refused(&["gpt-5"], 2, "there is no workload 'gpt-5'");
    refused(&["run", "Cargo.toml"], 2, "Cargo.toml is a file, not a workload; vramlab open Cargo.toml shows it");
    refused(&["run", "gpt-mini", "--amp", "fp8"], 2, "fp8");
    refused(&["run", "gpt-mini", "--opt", "lion"], 2, "lion");
    refused(&["--theme", "neon"], 2, "neon");
    refused(&["run", "gpt-mini", "--heads", "5"], 2, "has 5 heads, which do not divide a width of 32");
    refused(&["run", "gpt-mini", "--accum", "5"], 2, "can't be cut into 5 micro-batches");
    refused(&["run", "gpt-mini", "--batch", "0"], 2, "from 1 to 4194304");
    refused(&["run", "gpt-mini", "--layers", "18446744073709551615"], 2, "from 1 to 10000");
    refused(&["run", "gpt-mini", "--vocab", "4294967296"], 2, "from 1 to 16777216");
    refused(&["run", "gpt-mini", "--batch", "9223372036854775807", "--device", "cpu"], 2, "from 1 to 4194304");
    refused(&["run", "gpt-mini", "--limit", "8 apples"], 2, "no unit of memory");
    refused(&["run", "gpt-mini", "--device", "abacus"], 2, "there is no device 'abacus'");
    refused(&["run", "gpt-mini", "--device", "cuda:first"], 2, "there is no device 'cuda:first'");
    refused(&["run", "gpt-mini", "--device", "sim:h300"], 2, "there are sim:a100-40g, sim:a100-80g, sim:a10g");
    refused(&["run", "gpt-mini", "--device", "sim:h200", "--speed", "0"], 2, "max or a number");
    refused(&["run", "mlp-mini", "--data", "text"], 2, "can't read text");
    refused(&["run", "mlp-mini", "--heads", "2"], 2, "mlp-mini has no size 'heads'");
    refused(&["run", "vit-mini", "--patch", "5"], 2, "choose a side that divides 32");
    refused(&["run", "varlen-mini", "--data", "reference"], 2, "use --data fresh");
    refused(&["teach"], 2, "there is no workload 'teach'");
}

/// Each way that a small model supports, on as few of the cards as hold the batch, and on all of them.
#[test]
fn ways_to_share_the_work_are_compared_by_what_fits() {
    let fit = ["fit", "gpt-mini", "--parallel", "all", "--device", "sim:h200x4", "--limit", "80MiB", "--steps", "2"];
    let output = vramlab(&[&fit[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["one_card"]["fits"], true);
    let ways = object["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 9);
    let fsdp = ways.iter().find(|way| way["parallel"] == "fsdp").unwrap();
    assert_eq!(fsdp["fewest_cards"]["best"]["cards"], 2);
    let (best, beyond) = (&fsdp["largest_batch"]["best"], &fsdp["largest_batch"]["beyond"]);
    assert_eq!(best["batch"].as_u64().unwrap() + 4, beyond["batch"].as_u64().unwrap());
    assert!(beyond["why"].as_str().unwrap().contains("limit of 80.0 MiB"), "{beyond}");
    // The printed command does what it promises.
    let command = best["command"].as_str().unwrap();
    assert!(command.contains("--device sim:h200x4 --parallel fsdp"), "{command}");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    assert!(vramlab(&[&words[..], &["--steps", "2"]].concat()).status.success(), "{command}");
    let pipeline = ways.iter().find(|way| way["parallel"] == "pp-gpipe").unwrap();
    assert!(
        pipeline["largest_batch"]["beyond"]["why"].as_str().unwrap().contains("2 blocks can't be split over 4 ranks")
    );
    let table = String::from_utf8(vramlab(&fit).stdout).unwrap();
    for words in ["One card holds batch 4", "batch 4 of all ranks: the fewest cards", "4 cards: the largest batch"] {
        assert!(table.contains(words), "{table}");
    }
    let none = vramlab(&["fit", "gpt-mini", "--parallel", "ddp", "--device", "sim:h200", "--limit", "40MiB"]);
    assert_eq!(none.status.code(), Some(1), "{}", String::from_utf8_lossy(&none.stdout));
}

/// The figures are those of `ranks-2xh200` for the same program.
#[test]
fn ranks_are_rows_of_one_object_and_lines_of_a_table() {
    let run = ["run", "gpt-mini", "--steps", "6", "--device", "sim:h200x2", "--parallel"];
    let output = vramlab(&[&run[..], &["fsdp", "--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["mode"], &object["world"], &object["batch"]), (&"fsdp".into(), &2.into(), &4.into()));
    let figures = |rank: usize| {
        let row = &object["ranks"][rank];
        let keys =
            ["rank", "per_rank_batch", "allocated_before_step", "peak_allocated", "peak_reserved", "allocations"];
        keys.map(|key| row[key].as_u64().unwrap())
    };
    assert_eq!(figures(0), [0, 2, 81_920, 69_037_056, 73_400_320, 1667]);
    assert_eq!(figures(1), [1, 2, 81_920, 69_036_032, 73_400_320, 1667]);
    let table = String::from_utf8(vramlab(&[&run[..], &["fsdp"]].concat()).stdout).unwrap();
    assert!(
        table.contains("All ranks reserve 70.00 MiB; the highest peak of allocated memory is 65.84 MiB, of rank 0."),
        "{table}"
    );
    let stages = vramlab(&[&run[..], &["pp-gpipe"]].concat());
    let table = String::from_utf8(stages.stdout).unwrap();
    assert!(
        table.contains("All ranks reserve 66.00 MiB; the highest peak of allocated memory is 65.88 MiB, of rank 1."),
        "{table}"
    );
    let alike = ["--parallel", "ddp", "--device", "sim:h200x64", "--batch", "128"];
    let table =
        String::from_utf8(vramlab(&[&["run", "gpt-mini", "--steps", "2"], &alike[..]].concat()).stdout).unwrap();
    assert!(table.contains("0–63") && table.contains("All ranks do the same; rank 0 was computed."), "{table}");
}

#[test]
fn ranks_on_the_processor_have_losses() {
    let run = ["run", "gpt-mini", "--steps", "6", "--device", "cpux2", "--parallel", "tp", "--json"];
    let output = vramlab(&run);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let losses = |rank: usize| object["ranks"][rank]["losses"].as_array().unwrap().clone();
    assert_eq!(losses(0).len(), 6);
    assert_eq!(losses(0), losses(1));
}

#[test]
fn a_recording_of_ranks_has_a_device_for_each() {
    for device in ["sim:h200x2", "cpux2"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ranks.vram").to_str().unwrap().to_owned();
        let run = ["run", "gpt-mini", "--steps", "3", "--parallel", "pp-1f1b", "--record", &path, "--device", device];
        let output = vramlab(&run);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = vramlab(&["report", &path]);
        assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
        let report = String::from_utf8(report.stdout).unwrap();
        assert!(report.contains("Devices"), "{report}");
    }
}

/// `run` reports the same about ranks as the lab's screen Why.
#[test]
fn findings_of_ranks_are_in_the_table_and_in_its_json() {
    let run = |arguments: &[&str]| {
        let output = vramlab(&[&["run", "gpt2", "--steps", "2", "--amp", "bf16"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let kinds = |findings: &serde_json::Value| -> Vec<String> {
        let kind = |finding: &serde_json::Value| finding["evidence"]["kind"].as_str().unwrap().to_owned();
        findings.as_array().unwrap().iter().map(kind).collect()
    };
    for (way, kind, words) in
        [("ddp", "buckets", "Of rank 0: DDP's buckets"), ("fsdp", "gathered", "26 all-gathers a step.")]
    {
        let arguments = ["--parallel", way, "--device", "sim:h200x2", "--batch", "8"];
        let table = run(&arguments);
        assert!(table.contains(words), "{table}");
        let object: serde_json::Value = serde_json::from_str(&run(&[&arguments[..], &["--json"]].concat())).unwrap();
        for rank in object["ranks"].as_array().unwrap() {
            assert!(kinds(&rank["findings"]).contains(&kind.to_owned()), "{way}: {}", rank["findings"]);
        }
        assert!(kinds(&object["findings"]).is_empty(), "ranks are even: {}", object["findings"]);
    }
    let stages = ["--parallel", "pp-1f1b", "--device", "sim:h200x2", "--batch", "8"];
    let object: serde_json::Value = serde_json::from_str(&run(&[&stages[..], &["--json"]].concat())).unwrap();
    assert_eq!((kinds(&object["findings"]), &object["worst"]), (vec!["uneven".to_owned()], &1.into()));
    let table = run(&stages);
    assert!(table.contains("The worst is rank 1: ") && table.contains(" more than rank 0."), "{table}");
}

/// Samples of several lengths: an epoch has as many steps as each rank has batches, and ranks have batches of their
/// own.
#[test]
fn ranks_take_turns_with_the_batches_of_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lengths.txt");
    std::fs::write(&file, "17\n33\n64\n20\n48\n31\n50\n64\n12\n40\n25\n60\n").unwrap();
    let file = file.to_str().unwrap();
    let arguments = ["--lengths", file, "--batch", "4", "--attention-mask=off", "--device", "sim:h200x2", "--json"];
    let of_ranks = |way: &str| -> serde_json::Value {
        let output = vramlab(&[&["run", "llama-mini", "--seq", "64", "--parallel", way], &arguments[..]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let ddp = of_ranks("ddp");
    let ranks = ddp["ranks"].as_array().unwrap();
    assert!(ranks.iter().all(|rank| rank["steps"] == 3), "{ddp}");
    assert_ne!(ranks[0]["peak_allocated"], ranks[1]["peak_allocated"]);
    let tp = of_ranks("tp");
    assert!(tp["ranks"].as_array().unwrap().iter().all(|rank| rank["steps"] == 3), "{tp}");
}

#[test]
fn what_ranks_can_not_share_is_told_with_exit_code_2() {
    let run = |arguments: &[&str], words: &str| refused(&[&["run", "gpt-mini"], arguments].concat(), 2, words);
    run(&["--device", "sim:h200x2"], "2 ranks need a way to share the work; give --parallel ddp, ddp-view, zero1");
    run(&["--parallel", "ddp", "--device", "sim:h200"], "give --device sim:h200x2 or more, cuda:0,1 or cpux2");
    run(&["--parallel", "ddp", "--device", "cpu"], "give --device sim:h200x2 or more, cuda:0,1 or cpux2");
    run(&["--parallel", "ps", "--device", "cpux2", "--amp", "fp16"], "ps has them on rank 0 alone");
    run(&["--parallel", "dp", "--device", "sim:h200x2"], "there is no way of parallelism 'dp'");
    run(&["--parallel", "ddp", "--device", "sim:h200x3"], "4 samples can't be split over 3 ranks; give --batch 6");
    run(&["--parallel", "tp", "--device", "sim:h200x3"], "4 attention heads can't be split over 3 ranks");
    run(&["--parallel", "pp-gpipe", "--device", "sim:h200x3"], "2 blocks can't be split over 3 ranks; give --layers 3");
    run(&["--parallel", "fsdp", "--device", "sim:h200x2", "--on-oom", "halve"], "no `except` of theirs is reached");
    run(&["--parallel", "ddp", "--device", "sim:h200x2000", "--batch", "2000"], "give from 2 to 1024");
    refused(&["run", "resnet-mini", "--parallel", "fsdp", "--device", "sim:h200x2"], 2, "shares transformer blocks");
    refused(
        &["fit", "gpt-mini", "--device", "sim:h200x2"],
        2,
        "2 ranks need a way to share the work; give --parallel ddp",
    );
    refused(&["fit", "gpt-mini", "--parallel", "all", "--device", "cpux2"], 2, "ranks are tried on simulated cards");
    refused(&["fit", "gpt-mini", "--parallel", "fsdp", "--device", "sim:h200x1"], 2, "1 cards share nothing; give two");
    refused(&["estimate", "--device", "sim:h200x2"], 2, "2 ranks train together with `vramlab run --parallel`");
}

#[test]
fn a_simulated_run_has_no_losses_and_a_users_card_is_found() {
    let output = vramlab(&["run", "gpt-mini", "--device", "sim:t4", "--steps", "2", "--json"]);
    let row: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&row["simulated"], &row["losses"]), (&true.into(), &serde_json::json!([])));
    let table = vramlab(&["run", "gpt-mini", "--device", "sim:h200", "--steps", "2"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains(" ms, simulated"));

    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("vramlab/devices")).unwrap();
    let card = include_str!("../../lab/devices/t4.toml").replace("Tesla T4", "a card of my own");
    std::fs::write(folder.path().join("vramlab/devices/mine.toml"), card).unwrap();
    let list = Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["run", "mlp-mini", "--device", "sim:mine", "--steps", "1"])
        .env("XDG_CONFIG_HOME", folder.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&list.stdout).contains("on sim:mine (a card of my own)"));
}

#[test]
fn malformed_allocator_settings_are_told_with_exit_code_2() {
    for settings in ["max_split_size_mb:3", "garbage_collection_threshold:2", "expandable_segments:yes", "colour:blue"]
    {
        refused(&["run", "gpt-mini", "--alloc-conf", settings], 2, settings.split(':').next().unwrap());
    }
}

#[test]
fn what_can_not_be_read_or_does_not_fit_is_told_with_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.pickle");
    std::fs::write(&file, [0x80, 4, 0x95, 1, 2]).unwrap();
    refused(&["replay", file.to_str().unwrap(), "--verify"], 1, "broken.pickle");
    refused(&["replay", "/nonexistent.pickle"], 1, "/nonexistent.pickle");
    refused(&["run", "gpt-char", "--data", "/nonexistent.txt"], 1, "/nonexistent.txt");
    refused(&["run", "gpt-mini", "--limit", "1MiB", "--json"], 1, "does not fit in 1.00 MiB");
}

#[test]
fn a_request_that_fails_is_dissected_in_words_and_in_json() {
    let arguments = ["run", "gpt-char", "--limit", "24MiB", "--steps", "2", "--data", "reference"];
    let words = vramlab(&arguments);
    assert_eq!(words.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&words.stderr).contains("out of memory"));
    let told = String::from_utf8(words.stdout).unwrap();
    for word in ["asked for", "tried: ", "live: ", "fits: with --", "(tried, simulated)"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let json = vramlab(&[&arguments[..], &["--json"]].concat());
    assert_eq!(json.status.code(), Some(1));
    let row: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let oom = &row["oom"];
    assert!(oom["short"].as_u64().unwrap() > 0 && oom["request"]["attempts"].as_array().unwrap().len() >= 3, "{oom}");
    assert!(row["findings"][0]["sentence"].as_str().unwrap().starts_with("out of memory"), "{}", row["findings"]);
    // What is said to fit does fit.
    let fits = oom["remedied"].as_array().unwrap().iter().any(|tried| tried["fits"] == true);
    let flag = row["findings"][0]["flags"][0].as_str().unwrap().to_owned();
    assert!(fits && flag.starts_with("--"), "{flag}");
    let taken: Vec<&str> = flag.split(' ').collect();
    let after = vramlab(&[&arguments[..], &taken].concat());
    assert!(after.status.success(), "{flag}: {}", String::from_utf8_lossy(&after.stderr));
}

#[test]
fn a_recording_is_written_to_a_pipe_and_the_table_stays_out_of_it() {
    let output = vramlab(&["run", "mlp-mini", "--steps", "3", "--record", "-"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("loss, first"));
    let mut reader = vramlab::recording::Reader::new(&*output.stdout);
    let mut steps = 0;
    while let vramlab::recording::Next::Frame(frame) = reader.next().unwrap() {
        let unpacked = frame.unpack().unwrap();
        let ends = |event: &vramlab::model::Event| matches!(event.kind, vramlab::model::EventKind::StepEnd(_));
        steps += unpacked.events().filter(|event| ends(event.as_ref().unwrap())).count();
    }
    assert_eq!(steps, 3);
    let both = vramlab(&["run", "mlp-mini", "--record", "-", "--json"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn checkpoints_of_some_blocks_are_asked_for_and_told() {
    let told = |flags: &[&str]| -> serde_json::Value {
        let run = ["run", "gpt-mini", "--device", "sim:h200", "--steps", "2", "--json"];
        let output = vramlab(&[&run[..], flags].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let rows = [&["--ckpt", "every:2"][..], &["--ckpt=every:2"], &["--ckpt"], &["--ckpt", "every:1"], &[]].map(told);
    let ckpt = rows.each_ref().map(|row| row["ckpt"].clone());
    assert_eq!(serde_json::json!(ckpt), serde_json::json!(["every:2", "every:2", true, true, false]));
    let forward = rows.each_ref().map(|row| row["allocated_after"]["forward"].as_u64().unwrap());
    assert!(forward[0] == forward[1] && forward[1] > forward[2] && forward[2] == forward[3], "{forward:?}");
    let refused = |arguments: &[&str], words: &str| {
        let output = vramlab(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(words), "{told}");
    };
    refused(&["run", "gpt-mini", "--ckpt", "every:0"], "such as every:2 for every second block");
    refused(&["run", "--ckpt", "gpt-mimi"], "a workload goes before --ckpt");
}

#[test]
fn a_workload_may_follow_a_bare_switch() {
    let told = |arguments: &[&str]| -> serde_json::Value {
        let output = vramlab(&[arguments, &["--device", "sim:h200", "--steps", "2", "--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for flag in ["--ckpt", "--fuse", "--tf32"] {
        let [behind, before] = [["run", flag, "gpt-mini"], ["run", "gpt-mini", flag]].map(|line| told(&line));
        assert_eq!(behind["workload"], "gpt-mini");
        assert_eq!(behind["peak_allocated"], before["peak_allocated"], "{flag}");
    }
}

#[test]
fn run_prints_one_object_with_the_keys_of_the_reference() {
    let output =
        vramlab(&["run", "mlp-mini", "--steps", "3", "--data", "reference", "--amp", "bf16", "--ckpt", "--json"]);
    assert!(output.status.success());
    let row: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in [
        "workload",
        "amp",
        "ckpt",
        "accum",
        "opt",
        "tf32",
        "batch",
        "steps",
        "step_ms",
        "losses",
        "allocated_before_step",
        "allocated_after",
        "peak_allocated",
        "peak_reserved",
        "reserved",
        "inactive_split",
        "segments",
        "allocations",
        "device",
        "simulated",
        "stats",
    ] {
        assert!(row.get(key).is_some_and(|value| !value.is_null()), "{key} is missing");
    }
    assert_eq!(row["stats"].as_object().unwrap().len(), 122);
    assert_eq!(row["losses"].as_array().unwrap().len(), 3);
    assert_eq!(row["amp"], "bf16");
    assert_eq!(row["simulated"], false);
    assert_eq!(row["peak_allocated"], row["stats"]["allocated_bytes.all.peak"]);
}

#[test]
fn peaks_that_are_reset_stand_beside_those_of_the_run() {
    let run = ["run", "mlp-mini", "--steps", "6", "--data", "reference", "--device", "sim:h200"];
    let json = |more: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&vramlab(&[&run[..], more, &["--json"]].concat()).stdout).unwrap()
    };
    let (whole, reset) = (json(&[]), json(&["--reset-peaks-after", "3"]));
    for (of_run, since, stat) in [
        ("peak_allocated", "max_memory_allocated", "allocated_bytes.all.peak"),
        ("peak_reserved", "max_memory_reserved", "reserved_bytes.all.peak"),
    ] {
        assert_eq!(reset[of_run], whole[of_run], "a reset changes nothing of the run");
        assert_eq!(whole[since], whole[of_run]);
        assert_eq!(reset[since], reset["stats"][stat]);
    }
    let last = json(&["--reset-peaks-after", "6"]);
    assert_eq!(last["max_memory_allocated"], last["stats"]["allocated_bytes.all.current"], "no step came after it");
    assert!(last["max_memory_allocated"].as_u64() < last["peak_allocated"].as_u64());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.vram");
    let recorded = vramlab(&[&run[..], &["--reset-peaks-after", "3", "--record", file.to_str().unwrap()]].concat());
    assert!(String::from_utf8(recorded.stdout).unwrap().contains("peak since the reset"));
    let csv = vramlab(&["export", file.to_str().unwrap(), "--to", "csv"]);
    assert_eq!(String::from_utf8(csv.stdout).unwrap().matches("reset_peak_memory_stats").count(), 1);
}

#[test]
fn a_run_without_json_prints_a_table() {
    let output = vramlab(&["run", "mlp-mini", "--steps", "2", "--accum", "2", "--pin"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in ["mlp-mini on cpu", "loss, first → last", "after zero_grad", "peak"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn without_a_terminal_the_lab_prints_tables() {
    let output = vramlab(&["mlp-mini", "--steps", "2"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("mlp-mini on cpu"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no terminal"));
    assert!(!output.stdout.contains(&0x1b), "escape sequences without a terminal");
}

#[test]
fn the_json_of_a_run_names_how_the_model_was_called() {
    let run = ["run", "llama-mini", "--device", "sim:h200", "--steps", "1", "--json"];
    let row = |more: &[&str]| -> serde_json::Value {
        let output = vramlab(&[&run[..], more].concat());
        let row: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        [&row["loss_head"], &row["use_cache"], &row["clip"]].into_iter().cloned().collect()
    };
    assert_eq!(row(&[]), serde_json::json!(["labels", false, null]));
    assert_eq!(row(&["--loss", "chunked", "--use-cache", "--clip", "0.5"]), serde_json::json!(["chunked", true, 0.5]));
}

#[test]
fn the_environment_gives_allocator_settings() {
    let output = Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["run", "mlp-mini", "--device", "cpu", "--steps", "1", "--json"])
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .env("PYTORCH_ALLOC_CONF", "expandable_segments:True")
        .output()
        .unwrap();
    let row: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(row["segments"], 0, "expandable segments are not counted");
    assert!(row["reserved"].as_u64().unwrap() > 0);
}

#[test]
fn list_and_doctor_speak_json() {
    let list: serde_json::Value = serde_json::from_slice(&vramlab(&["list", "--json"]).stdout).unwrap();
    let workloads = list["workloads"].as_array().unwrap();
    for name in ["gpt2", "bert-large", "vit-b16", "resnet50", "dcgan", "mlp", "varlen", "churn"] {
        assert!(workloads.iter().any(|workload| workload["name"] == name), "{name} is not listed");
    }
    assert_eq!(list["switches"].as_array().unwrap().len(), 21);
    let doctor: serde_json::Value = serde_json::from_slice(&vramlab(&["doctor", "--json"]).stdout).unwrap();
    assert!(doctor.as_array().unwrap().iter().any(|line| line["subject"] == "processor" && line["found"] == true));
    assert!(vramlab(&["list"]).status.success());
    assert!(vramlab(&["doctor"]).status.success());
    assert!(vramlab(&["--help"]).status.success());
    assert!(vramlab(&["--version"]).status.success());
}

#[test]
fn the_selftest_tells_rows_and_refuses_what_it_cannot_test() {
    let args = ["doctor", "--selftest", "--device", "cpu", "--only", "update_scale", "--only", "reciprocal"];
    let table = vramlab(&args);
    assert!(table.status.success());
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(text.contains("worst error") && text.contains("computes what the processor computes"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&vramlab(&[&args[..], &["--json"]].concat()).stdout).unwrap();
    assert_eq!(json["passed"], true);
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows.iter().all(|row| row["outcome"] == "ok" && row["cases"].as_u64().unwrap() > 0), "{rows:?}");
    for device in ["sim:h200", "gpu", "cuda:x"] {
        assert_eq!(vramlab(&["doctor", "--selftest", "--device", device]).status.code(), Some(2), "{device}");
    }
}

/// The output of the binary with at most this much address space and with the files of `config`.
fn within(mib: u32, config: &Path, arguments: &[&str]) -> Output {
    let limited = format!("ulimit -v {}; exec \"$0\" \"$@\"", mib * 1024);
    let mut command = Command::new("sh");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_vramlab")]).args(arguments);
    command.env("XDG_CONFIG_HOME", config).env("CUDA_VISIBLE_DEVICES", "").stdin(Stdio::null());
    command.output().unwrap()
}

#[test]
fn sizes_at_their_bounds_take_no_host_memory_before_they_are_refused() {
    let card = ["--device", "sim:h200", "--steps", "1"];
    for arguments in [
        vec!["run", "gpt2", "--layers", "10000", "--limit", "1GiB"],
        vec!["run", "gpt2", "--vocab", "16777216", "--width", "16777212"],
        vec!["run", "gpt2", "--batch", "4194304"],
        vec!["run", "gpt2", "--batch", "4194304", "--data", "synthetic", "--pin"],
        vec!["run", "gpt2", "--batch", "4194304", "--inference", "generate"],
        vec!["run", "mlp", "--layers", "10000"],
        vec!["run", "vit-b16", "--image", "65536"],
    ] {
        let output = within(1500, Path::new("/nonexistent"), &[&arguments[..], &card].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("does not fit") || error.contains("out of memory"), "{arguments:?}: {error}");
    }
    for arguments in
        [["gpt2", "--layers", "1000000"], ["mlp", "--layers", "4294967296"], ["gpt2", "--batch", "8388608"]]
    {
        let output = within(1500, Path::new("/nonexistent"), &[&["run"], &arguments[..], &card].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What is put into a folder; a user who may read everything finds nothing unreadable.
fn hostile() -> impl Iterator<Item = &'static str> {
    let forbidden = (!rustix::process::geteuid().is_root()).then_some("unreadable");
    ["pipe", "zeros", "folder", "dangling", "circle", "large", "latin", "wrong"].into_iter().chain(forbidden)
}

/// Fills the folder of one kind of files with everything that is no regular file.
fn fill_with_what_is_no_file(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let at = |name: &str| folder.join(name).with_extension("toml");
    mkfifoat(CWD, at("pipe"), Mode::RUSR).unwrap();
    symlink("/dev/zero", at("zeros")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    symlink("/nonexistent/file", at("dangling")).unwrap();
    symlink(at("circle"), at("circle")).unwrap();
    File::create(at("large")).unwrap().set_len(100 << 20).unwrap();
    fs::write(at("latin"), b"title = 'caf\xe9'").unwrap();
    fs::write(at("wrong"), "title = 'a'\nstyles = = 3").unwrap();
    if hostile().any(|name| name == "unreadable") {
        fs::write(at("unreadable"), "title = 'a'").unwrap();
        fs::set_permissions(at("unreadable"), fs::Permissions::from_mode(0o000)).unwrap();
    }
    fs::write(folder.join("escape\x1b]0;owned\x07.toml"), "title = '").unwrap();
    fs::write(folder.join(OsStr::from_bytes(b"bytes\xff.toml")), "").unwrap();
}

fn configured(config: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = within(1000, config, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn settings_are_documented_and_written_once() {
    let config = tempfile::tempdir().unwrap();
    let file = config.path().join("vramlab/config.toml");
    let (code, printed, _) = configured(config.path(), &["config"]);
    assert_eq!(code, Some(0));
    let (place, documented) = printed.split_once('\n').unwrap();
    assert!(place.contains(file.to_str().unwrap()) && place.contains("not there yet"), "{place}");
    assert!(documented.contains("# theme = \"auto\"") && documented.contains("# pause = [\"space\"]"), "{documented}");
    assert_eq!(configured(config.path(), &["config", "--init"]).0, Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), documented);
    let (code, _, error) = configured(config.path(), &["config", "--init"]);
    assert!(code == Some(1) && error.contains("is there already"), "{error}");
    assert!(configured(config.path(), &["config"]).1.contains("is read"));
}

#[test]
fn settings_that_can_not_be_read_are_told_and_the_defaults_used() {
    let config = tempfile::tempdir().unwrap();
    let file = config.path().join("vramlab/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "mouse = true\nglyph = 'ascii'\n").unwrap();
    let run = ["run", "mlp-mini", "--data", "reference", "--steps", "1"];
    let (code, _, error) = configured(config.path(), &run);
    let told = format!("warning: {}, line 2, column 1: ", file.display());
    assert!(code == Some(0) && error.contains(&told) && error.contains("did you mean \"glyphs\"?"), "{error}");
    let (_, doctor, _) = configured(config.path(), &["doctor"]);
    assert!(doctor.contains("line 2, column 1"), "{doctor}");
    // The file says where to train, and the command line overrides it.
    fs::write(&file, "device = 'sim:t4'\n").unwrap();
    let (code, table, error) = configured(config.path(), &run);
    assert!(code == Some(0) && table.contains("sim:t4"), "{table}{error}");
    let (_, table, _) = configured(config.path(), &[&run[..], &["--device", "cpu"]].concat());
    assert!(!table.contains("sim:t4"), "{table}");
    fs::write(&file, "device = 'abacus'\n[keys]\namp = 'y'\npaus = 'x'\n").unwrap();
    let (code, _, error) = configured(config.path(), &run);
    assert!(code == Some(0) && error.contains("there is no device 'abacus'"), "{error}");
    assert!(error.contains("there is no command \"paus\" (did you mean \"pause\"?)"), "{error}");
    assert!(configured(config.path(), &["list"]).1.contains("\ny    AMP "), "keys are those in force");
}

#[test]
fn shells_and_man_learn_the_command_line() {
    for (shell, says) in
        [("bash", "complete -F _vramlab"), ("zsh", "#compdef vramlab"), ("fish", "complete -c vramlab")]
    {
        let output = vramlab(&["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && script.contains(says) && script.contains("selftest"), "{shell}: {script}");
    }
    refused(&["completions", "csh"], 2, "csh");
    let page = String::from_utf8(vramlab(&["man"]).stdout).unwrap();
    assert!(page.starts_with(".ie") || page.contains(".TH vramlab"), "{page}");
    assert!(page.contains("vramlab\\-run") && page.contains("checkpointing"), "subcommands are in it");
}

#[test]
fn whatever_lies_in_the_users_folders_is_named_and_the_rest_goes_on() {
    let config = tempfile::tempdir().unwrap();
    for kind in ["workloads", "devices", "themes"] {
        fill_with_what_is_no_file(&config.path().join("vramlab").join(kind));
    }
    let listed = within(1000, config.path(), &["list", "--json"]);
    let error = String::from_utf8_lossy(&listed.stderr);
    assert_eq!(listed.status.code(), Some(0), "{error}");
    let value: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let built_in = vramlab::workload::Catalog::with_user_workloads(None).names().count();
    assert_eq!(value["workloads"].as_array().unwrap().len(), built_in);
    assert_eq!(
        value["themes"],
        serde_json::json!(vramlab::drawing::theme::ThemeCatalog::default().names().collect::<Vec<_>>())
    );
    let plain = within(1000, config.path(), &["list"]);
    let (text, error) = (String::from_utf8_lossy(&plain.stdout), String::from_utf8_lossy(&plain.stderr));
    assert!(text.contains("gpt2 ") && text.contains("sim:h200 "), "{text}");
    assert!(!error.contains('\x1b') && error.contains(r"escape\u001b]0;owned\u0007"), "{error}");
    for name in hostile() {
        let told = error.lines().filter(|line| line.starts_with("warning: ") && line.contains(name)).count();
        assert_eq!(told, 3, "{name}: {error}");
        let device = format!("sim:{name}");
        let asked: [&[&str]; 3] = [&["run", name], &["run", "mlp-mini", "--device", &device], &["--theme", name]];
        for arguments in asked {
            let output = within(1000, config.path(), arguments);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {error}");
            assert!(error.starts_with("error: ") && error.contains(name), "{arguments:?}: {error}");
        }
    }
    assert_eq!(error.lines().filter(|line| line.contains("is no UTF-8 text; rename it")).count(), 3, "{error}");
    let unknown = within(1000, config.path(), &["run", "byte"]);
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert!(error.contains("rename it") && error.contains("there is no workload 'byte'"), "{error}");
}

#[test]
fn no_escape_sequence_of_a_file_or_an_argument_reaches_the_terminal() {
    let config = tempfile::tempdir().unwrap();
    let folder = config.path().join("vramlab/workloads");
    fs::create_dir_all(&folder).unwrap();
    let head = r#"
        title = "\u001b]0;owned\u0007"
        about = "\u009b2J\u202e"
        model = "mlp"
        batch = 4
        data = "synthetic"
        [sizes]
        layers = 2
        width = 8
        seq = 8
        classes = 4
    "#;
    fs::write(folder.join("\x1b[31mred.toml"), head).unwrap();
    let run: &[&str] = &["run", "\x1b[31mred", "--device", "sim:t4", "--steps", "1"];
    let refused: [&[&str]; 5] = [
        &["run", "\x1b[2Jno"],
        &["run", "mlp-mini", "--device", "\x1b[2Jno"],
        &["run", "mlp-mini", "--layers", "\x1b[2Jno"],
        &["run", "mlp-mini", "--data", "/\x1b[2Jno"],
        &["--theme", "\x1b[2Jno"],
    ];
    let listed = within(1000, config.path(), &["list", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let own = value["workloads"].as_array().unwrap().iter().find(|one| one["name"] == "\x1b[31mred").unwrap();
    assert_eq!(own["about"], "\u{9b}2J\u{202e}", "what is shown as its escape means the same in JSON");
    for arguments in [&["list"][..], run].into_iter().chain(refused) {
        let output = within(1000, config.path(), arguments);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!text.contains(|c: char| c.is_control() && c != '\n') && !text.contains('\u{202e}'), "{text:?}");
        // clap's messages contain none of them.
        assert!(text.contains(r"\u001b") || text.contains("invalid value 'no'"), "{text:?}");
    }
}

#[test]
fn allocator_settings_that_are_no_text_are_refused() {
    for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(["run", "mlp-mini", "--steps", "1"]).env(name, OsStr::from_bytes(b"expandable\xff"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("{name} is no UTF-8 text")), "{error}");
    }
}

/// Output is not broken by a terminal's width: columns wrap by themselves, a figure keeps its unit, a flag its value,
/// and a command that is copied from several lines runs.
#[test]
fn tables_wrap_by_column_at_every_width() {
    let commands: [&[&str]; 5] = [
        &["list"],
        &["fit", "gpt-mini", "--device", "sim:h200", "--limit", "80MiB", "--steps", "2"],
        &["fit", "gpt-mini", "--device", "sim:h200", "--limit", "1MiB", "--steps", "2"],
        &["folklore", "randn-size", "to-cuda-lazy", "amp-memory", "--device", "sim:h200"],
        &["folklore", "randn-size", "--device", "sim:h200"],
    ];
    for arguments in commands {
        for columns in [60, 80, 100, 120] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
            command.args(arguments).env("COLUMNS", columns.to_string()).env("XDG_CONFIG_HOME", "/nonexistent");
            let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
            assert!(!output.is_empty() && !output.contains('\x1b'), "no terminal, no colours: {arguments:?}");
            for line in output.lines() {
                let cells = line.chars().count();
                // A word that is wider than the terminal can't be avoided.
                let is_word = line.split_whitespace().any(|word| word.chars().count() + 12 > columns);
                assert!(cells <= columns || is_word, "{arguments:?} at {columns}:\n{line}");
                let starts = line.trim_start();
                assert!(!starts.starts_with('%') && !starts.starts_with("GiB"), "a unit alone: {output}");
            }
        }
    }
}
