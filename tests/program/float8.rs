//! FP8 on the command line: its cost, and where it is refused.

use std::process::{Command, Output};

use serde_json::Value;

use crate::made;

fn vramlab(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(arguments.split(' ')).env_remove("PYTORCH_CUDA_ALLOC_CONF").env_remove("PYTORCH_ALLOC_CONF");
    command.output().unwrap()
}

/// Programs, and whether FP8 keeps more after forward (1), less (-1) or the same.
const PROGRAMS: [(&str, i64); 5] = [
    ("llama-3.2-1b", 0),
    ("llama-3.2-1b --ckpt", 0),
    ("llama-3.2-1b --batch 16 --ckpt --loss fused", 0),
    ("llama-3.2-1b --weights fp32 --amp bf16", -1),
    ("llama-3.1-8b --ckpt", 0),
];

#[test]
fn what_fp8_costs_stands_in_the_guide() {
    let mut table = String::from(
        "`vramlab run … --device sim:h200 --data reference --steps 3 --json`, as it is and with `--fp8`: GiB, on a **simulated** H200.\n\n\
         | program | after forward | with FP8 | peak allocated | with FP8 |\n|---|--:|--:|--:|--:|\n",
    );
    #[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
    let gib = |value: &Value| format!("{:.2}", value.as_u64().unwrap() as f64 / f64::from(1 << 30));
    for (program, order) in PROGRAMS {
        let run = |fp8: &str| -> [Value; 2] {
            let output = vramlab(&format!("run {program} --device sim:h200 --data reference --steps 3 --json{fp8}"));
            let told: Value = serde_json::from_slice(&output.stdout).unwrap();
            [told["allocated_after"]["forward"].clone(), told["peak_allocated"].clone()]
        };
        let (plain, with) = (run(""), run(" --fp8"));
        // Both workspaces of cuBLASLt and a few single numbers make no relevant difference.
        let more = with[0].as_i64().unwrap() - plain[0].as_i64().unwrap();
        assert_eq!(if more.abs() < 4 << 20 { 0 } else { more.signum() }, order, "{program}: {more} bytes");
        let cells = [&plain[0], &with[0], &plain[1], &with[1]].map(gib);
        table.push_str(&format!("| `{program}` | {} |\n", cells.join(" | ")));
    }
    let command = "VRAMLAB_UPDATE=1 cargo test --test program fp8 writes it";
    made::assert_part("lab/guide/switches/fp8.md", "costs", &table, command);
}

#[test]
fn where_there_is_no_fp8_a_sentence_says_so() {
    let run = "run llama-mini --steps 1 --device";
    for (arguments, code, words) in [
        (format!("{run} sim:t4 --fp8"), 1, "needs compute capability 8.9, this card has 7.5"),
        (format!("{run} sim:h200 --fp8 --seq 17 --batch 3"), 1, "multiples of 16, and a batch has 51 tokens"),
        (
            format!("{run} sim:h200x2 --fp8 --parallel tp"),
            2,
            "layers in 8 bits are not recorded with tp; leave --fp8 out",
        ),
        (format!("{run} sim:h200 --fp8 --lora 8"), 2, "of Llama-like models, without adapters; leave it out"),
        ("run gpt2 --steps 1 --device sim:h200 --fp8".to_owned(), 2, "of Llama-like models, without adapters"),
    ] {
        let output = vramlab(&arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {told}");
        assert!(told.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{arguments}: {told}");
    }
}
