//! Samples of several lengths on the command line: the figures of an epoch, in words and in JSON, and what fits.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::made;

/// A file of 300 lengths: short ones, of which every tenth is longer than the previous tenth, so that it fits no
/// segment, and one of `longest`.
struct File(PathBuf);

impl File {
    fn new(name: &str, longest: u32) -> Self {
        let path = std::env::temp_dir().join(format!("vramlab-{}-{name}.txt", std::process::id()));
        let length = |n: u32| match n {
            287 => longest,
            n if n % 10 == 0 => longest / 4 + n * longest / 500,
            n => 57 + n * 7919 % 200,
        };
        let lines: Vec<String> = (0..300).map(|n| length(n).to_string()).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        Self(path)
    }

    fn vramlab(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(arguments.split(' ')).arg("--lengths").arg(&self.0);
        command.env_remove("PYTORCH_CUDA_ALLOC_CONF").env_remove("PYTORCH_ALLOC_CONF").output().unwrap()
    }

    #[track_caller]
    fn text(&self, arguments: &str, code: i32) -> String {
        let output = self.vramlab(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &str, code: i32) -> Value {
        serde_json::from_str(&self.text(&format!("{arguments} --json"), code)).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Labels of the rows below a head, in their order.
fn labels<'a>(text: &'a str, head: &str) -> Vec<&'a str> {
    let rows = text.lines().skip_while(|line| !line.trim_start().starts_with(head)).skip(1);
    rows.take_while(|line| !line.is_empty()).filter_map(|line| line.split("  ").find(|cell| !cell.is_empty())).collect()
}

#[test]
fn an_epoch_is_told_on_80_columns_the_worst_first() {
    let file = File::new("told", 3796);
    let text = file.text("run llama-mini --device sim:t4 --batch 4 --attention-mask=off", 0);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for told in [
        "llama-mini on sim:t4 · Tesla T4: 75 steps of an epoch of samples",
        "  samples               300, 58 to 3796 tokens each",
        "  every step fits\n  step 71 takes most: 4 × 3796 tokens, sample 288 of the file\n",
        "garbage_collection_threshold:0.8 is with set_per_process_memory_fraction\n  of 0.95: ",
    ] {
        assert!(text.contains(told), "{told}\n{text}");
    }
    let settings = labels(&text, "the same batches under");
    assert_eq!((settings[0], settings.len()), ("PyTorch's defaults", 5), "{text}");
    let batches = labels(&text, "other batches");
    assert_eq!((batches[0], *batches.last().unwrap()), ("shuffle", "pack, rows of 64"), "{text}");
    // PyTorch collects garbage only under a limit; with one, nothing else is needed.
    let limited = file.text("run llama-mini --device sim:t4 --batch 4 --attention-mask=off --limit 4GiB", 1);
    assert!(!limited.contains("set_per_process_memory_fraction") && limited.contains("  step 71 is out of memory: "));
    let twice = file.text("run llama-mini --device sim:h200 --batch 4 --steps 100", 0);
    assert!(twice.contains(": 100 steps, 75 of them an epoch of samples\n"), "{twice}");
    assert!(limited.lines().all(|line| line.chars().count() <= 80), "{limited}");
}

#[test]
fn an_epoch_in_json_has_every_step_and_every_alternative() {
    let file = File::new("json", 3796);
    let told = file.json("run llama-mini --device sim:t4 --batch 4 --attention-mask=off", 0);
    assert_eq!(
        (told["steps"].as_u64(), told["samples"].as_u64(), told["batch"].as_u64()),
        (Some(75), Some(300), Some(4))
    );
    let (run, peaks) = (&told["run"], &told["step_peaks"]["allocated"]);
    let peaks: Vec<u64> = peaks.as_array().unwrap().iter().map(bytes).collect();
    assert_eq!((peaks.len(), peaks.iter().max()), (75, Some(&bytes(&run["allocated"]["max"]))));
    let largest = &run["largest"];
    assert_eq!(
        serde_json::json!([71, 4, 3796, 288]),
        serde_json::json!([largest["step"], largest["samples"], largest["length"], largest["sample"]])
    );
    assert_eq!(
        (peaks[71], &run["fits"], &run["failed"]),
        (bytes(&run["allocated"]["max"]), &true.into(), &Value::Null)
    );
    let others = told["alternatives"].as_array().unwrap();
    assert_eq!(others.len(), 8);
    let of = |conf: &str| others.iter().find(|one| one["alloc_conf"] == conf).unwrap();
    // More than 76 % of the card are reserved, so there is garbage to collect.
    let collecting = of("garbage_collection_threshold:0.8");
    assert!(bytes(&collecting["reserved"]["max"]) < bytes(&run["reserved"]["max"]), "{collecting}");
    assert!(run["limit"].is_null() && of("expandable_segments:True")["limit"].is_null());
    assert!(bytes(&collecting["limit"]) > 14 << 30);
    let limited = file.json("run llama-mini --device sim:t4 --batch 4 --attention-mask=off --limit 4GiB", 1);
    assert_eq!((&limited["run"]["failed"]["step"], &limited["run"]["failed"]["sample"]), (&71.into(), &288.into()));
    assert_eq!(limited["alternatives"][1]["limit"], 4_u64 << 30);
}

#[test]
fn what_fits_is_decided_by_the_longest_samples() {
    let file = File::new("fit", 1500);
    let fit = file.json("fit llama-mini --device sim:h200 --limit 1GiB --steps 3 --batch-only --batch 4", 0);
    let batch = bytes(&fit["largest_batch"]);
    let run = |batch: u64, code| {
        let run =
            format!("run llama-mini --device sim:h200 --limit 1GiB --length-policy longest-first --batch {batch}");
        file.json(&format!("{run} --steps 3"), code)
    };
    assert_eq!(run(batch, 0)["run"]["fits"], true);
    let larger = run(batch + 1, 1);
    assert_eq!(larger["run"]["fits"], false, "{larger}");
    let told = file.text("fit llama-mini --device sim:h200 --limit 1GiB --steps 3 --batch 4", 0);
    let row = told.lines().find(|line| line.starts_with("largest batch: ")).unwrap();
    assert!(row.starts_with(&format!("largest batch: {batch}")), "{row}");
    assert!(told.contains("--lengths"), "the command has the file\n{told}");
}

/// Programs for which the guide gives the memory with and without a mask of padding.
const MASKED: [&str; 7] = [
    "llama-3.2-1b --device sim:h200",
    "llama-3.2-1b --device sim:h200 --ckpt",
    "llama-3.2-1b --device sim:h200 --weights fp32 --amp bf16",
    "llama-3.2-1b --device sim:h200 --attention eager",
    "llama-3.2-1b --device sim:h200 --weights fp32",
    "llama-3.2-1b --device sim:rtx-4090 --ckpt --lora 16 --lora-targets all-linear",
    "gemma-2-2b --device sim:h200 --ckpt",
];

/// 64, 96, 128 and so on to 2,048.
#[test]
fn what_a_mask_of_padding_costs_stands_in_the_guide() {
    let file = File(std::env::temp_dir().join(format!("vramlab-{}-mask.txt", std::process::id())));
    let lines: Vec<String> = (64..=2048).step_by(32).map(|length| length.to_string()).collect();
    std::fs::write(&file.0, lines.join("\n")).unwrap();
    let mut table = String::from(
        "`vramlab run … --lengths lens.txt --length-policy shuffle --batch 4` with the samples of `seq 64 32 2048 > lens.txt`, without \
         a mask and with one: GiB at the peak of the epoch, on **simulated** cards.\n\n\
         | program | allocated | with a mask | reserved | with a mask |\n|---|--:|--:|--:|--:|\n",
    );
    #[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
    let gib = |value: &Value| format!("{:.2}", bytes(value) as f64 / f64::from(1 << 30));
    for program in MASKED {
        let epoch = |mask: &str| {
            let told = file.json(&format!("run {program} --length-policy shuffle --batch 4{mask}"), 0);
            ["allocated", "reserved"].map(|figure| told["run"][figure]["max"].clone())
        };
        let ([allocated, reserved], with) = (epoch(" --attention-mask=off"), epoch(""));
        // Heads that share keys leave only matrix products in f32, unless a mask makes them repeated.
        let grows = !program.ends_with("--weights fp32");
        assert_eq!(bytes(&with[0]) > bytes(&allocated), grows, "{program}");
        let cells = [&allocated, &with[0], &reserved, &with[1]].map(gib);
        table.push_str(&format!("| `{program}` | {} |\n", cells.join(" | ")));
    }
    let command = "VRAMLAB_UPDATE=1 cargo test --test program mask_of_padding writes it";
    made::assert_part("lab/guide/switches/attention-mask.md", "costs", &table, command);
}
