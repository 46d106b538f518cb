//! Claims, measured on a simulated H200: each gets its verdict, and PyTorch 2.11 measured the same on the card.

use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vramlab::device::sim::CardCatalog;
use vramlab::folklore::{Bench, BenchOutcome, Folklore, Judgement, USERS_FILE, Verdict};
use vramlab::session::DeviceChoice;
use vramlab::workload::Catalog;

use crate::patience::PATIENCE;

/// The verdict of every built-in claim on an H200.
const VERDICTS: [(&str, Verdict); 55] = [
    ("amp-memory", Verdict::Depends),
    ("amp-speed", Verdict::Depends),
    ("checkpointing", Verdict::Depends),
    ("accumulation", Verdict::False),
    ("empty-cache-reserved", Verdict::False),
    ("empty-cache-oom", Verdict::Depends),
    ("to-cuda-lazy", Verdict::False),
    ("randn-size", Verdict::False),
    ("adam-sgd", Verdict::Partly),
    ("pinned", Verdict::Partly),
    ("eval-memory", Verdict::False),
    ("delete-returns", Verdict::False),
    ("nvidia-smi", Verdict::False),
    ("caching-waste", Verdict::False),
    ("attention-softmax", Verdict::Depends),
    ("max-split", Verdict::False),
    ("expandable-segments", Verdict::Depends),
    ("resnet152-checkpointing", Verdict::Partly),
    ("power-of-two", Verdict::False),
    ("static-allocation", Verdict::Depends),
    ("kept-losses", Verdict::Depends),
    ("amp-weights", Verdict::False),
    ("free-lunch", Verdict::Partly),
    ("bert-amp", Verdict::Partly),
    ("tf32-vit", Verdict::Partly),
    ("resnet152-speed", Verdict::False),
    ("sgd-cosine", Verdict::Partly),
    ("forward-fits", Verdict::False),
    ("del-hidden", Verdict::Depends),
    ("no-grad-graph", Verdict::False),
    ("batch-norm-eval", Verdict::False),
    ("test-batches", Verdict::False),
    ("train-then-test", Verdict::False),
    ("gan-empty-cache", Verdict::False),
    ("two-models", Verdict::True),
    ("memory-fraction", Verdict::False),
    ("two-pools", Verdict::True),
    ("del-gc", Verdict::Partly),
    ("empty-cache-allocated", Verdict::False),
    ("lazy-start", Verdict::True),
    ("oom-retry", Verdict::Depends),
    ("reference-cycles", Verdict::False),
    ("saves-too-much", Verdict::Partly),
    ("optimizer-lazy", Verdict::False),
    ("autocast-region", Verdict::Partly),
    ("shared-parameters", Verdict::False),
    ("lora-tenth", Verdict::False),
    ("qlora-65b", Verdict::Depends),
    ("checkpoint-root", Verdict::False),
    ("ddp-splits", Verdict::False),
    ("ddp-linear", Verdict::False),
    ("fsdp-ten-times", Verdict::Depends),
    ("zero-1", Verdict::False),
    ("tensor-half", Verdict::False),
    ("pipeline-even", Verdict::False),
];

fn bench(card: &str) -> Bench {
    let card = CardCatalog::with_user_cards(None).card(card).unwrap();
    Bench { device: DeviceChoice::Sim(Box::new(card)), workloads: Catalog::with_user_workloads(None) }
}

fn built_in() -> Folklore {
    Folklore::with_user_claims(None, &Catalog::with_user_workloads(None)).unwrap()
}

/// Every built-in claim, measured once for all tests.
static MEASURED: LazyLock<Vec<(String, BenchOutcome)>> = LazyLock::new(|| {
    let (bench, folklore) = (bench("h200"), built_in());
    folklore.claims().iter().map(|claim| (claim.name.clone(), bench.measure(claim, |_| true))).collect()
});

fn judged(name: &str) -> &'static Judgement {
    match &MEASURED.iter().find(|(known, _)| known == name).unwrap().1 {
        BenchOutcome::Judged(judgement) => judgement,
        other => panic!("{name}: {other:?}"),
    }
}

fn figure(claim: &str, name: &str) -> f64 {
    judged(claim).figures.iter().find(|(known, _)| known == name).unwrap().1.value
}

#[test]
fn every_claim_runs_on_a_simulated_h200_and_comes_to_its_verdict() {
    let names: Vec<&str> = MEASURED.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, VERDICTS.map(|(name, _)| name));
    for (name, verdict) in VERDICTS {
        let judgement = judged(name);
        assert_eq!(judgement.verdict, verdict, "{name}: {}", judgement.measured);
        assert!(!judgement.figures.is_empty() && !judgement.measured.is_empty(), "{name}");
        for text in [&judgement.reason, &judgement.holds, &judgement.fails] {
            assert!(text.len() > 20 && !text.contains(['{', '}', '$']), "{name}: {text}");
        }
    }
}

/// PyTorch's row of a workload under a variant.
fn row(workload: &str, variant: &str) -> Value {
    let rows = include_str!("../data/pytorch-full-rows.jsonl").lines().map(|line| serde_json::from_str(line).unwrap());
    rows.into_iter().find(|row: &Value| row["workload"] == workload && row["variant"] == variant).unwrap()
}

fn case(name: &str) -> Value {
    let rows = include_str!("../data/pytorch-more-rows.jsonl").lines().map(|line| serde_json::from_str(line).unwrap());
    rows.into_iter().find(|row: &Value| row["case"] == name).unwrap()
}

fn facts() -> Value {
    serde_json::from_str(include_str!("../data/pytorch-folklore.json")).unwrap()
}

fn of(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"))
}

fn peak(workload: &str, variant: &str) -> f64 {
    of(&row(workload, variant), "peak_allocated")
}

/// The same quotient of the same whole bytes: only the rounding of a float is allowed.
#[track_caller]
fn same(claim: &str, name: &str, theirs: f64) {
    let ours = figure(claim, name);
    assert!((ours - theirs).abs() < 1e-9, "{claim}: {name} is {ours}, PyTorch's {theirs}");
}

/// For convolution nets, whose bytes are near but not equal, and for times: equal within this share.
#[track_caller]
fn near(claim: &str, name: &str, theirs: f64, tolerance: f64) {
    let ours = figure(claim, name);
    assert!((ours - theirs).abs() <= tolerance, "{claim}: {name} is {ours}, PyTorch's {theirs}");
}

#[test]
fn peaks_of_transformers_and_mlps_are_pytorchs_to_the_byte() {
    for (name, workload) in [("gpt2", "gpt2"), ("mlp", "mlp")] {
        same("amp-memory", name, 1.0 - peak(workload, "amp16") / peak(workload, "base"));
    }
    for (name, workload) in [("gpt2", "gpt2"), ("bert", "bert-large"), ("vit", "vit-b16"), ("mlp", "mlp")] {
        same("checkpointing", name, 1.0 - peak(workload, "ckpt") / peak(workload, "base"));
    }
    for (name, workload) in [("gpt2_all", "gpt2"), ("bert_all", "bert-large")] {
        same("checkpoint-root", name, 1.0 - peak(workload, "ckpt") / peak(workload, "base"));
    }
    for (name, workload) in [("gpt2", "gpt2"), ("bert", "bert-large"), ("mlp", "mlp")] {
        same("accumulation", name, peak(workload, "base") / peak(workload, "accum4"));
    }
    for (name, workload, variant) in
        [("bert", "bert-large", "base"), ("bert_amp", "bert-large", "amp16"), ("gpt2", "gpt2", "base")]
    {
        let row = row(workload, variant);
        same("caching-waste", name, 1.0 - of(&row, "peak_allocated") / of(&row, "peak_reserved"));
    }
    let (math, fused) = (case("gpt2 bf16 attention math"), case("gpt2 bf16 attention flash"));
    // These were recorded with another loop, whose batches are placed differently.
    let kept = of(&math, "peak_allocated") / of(&fused, "peak_allocated") - 1.0;
    near("attention-softmax", "rows_1024", kept, 1e-3);
}

#[test]
fn fragmentation_under_settings_is_pytorchs_to_the_byte() {
    let peaks = |text: &str| {
        let recorded: Value = serde_json::from_str(text).unwrap();
        let stats = &recorded["stats"];
        (of(stats, "reserved_bytes.all.peak"), of(stats, "allocated_bytes.all.peak"))
    };
    let (reserved, allocated) = peaks(include_str!("../traces/bert-varlen.stats.json"));
    let (split, _) = peaks(include_str!("../traces/bert-varlen-max-split.stats.json"));
    let (expandable, _) = peaks(include_str!("../traces/bert-varlen-expandable.stats.json"));
    same("caching-waste", "changing_lengths", 1.0 - allocated / reserved);
    same("max-split", "varlen", split / reserved - 1.0);
    same("max-split", "expandable", expandable / reserved - 1.0);
    same("expandable-segments", "varlen", expandable / reserved - 1.0);
}

#[test]
fn what_pytorch_said_of_small_programs_is_what_they_come_to() {
    let facts = facts();
    same("to-cuda-lazy", "allocated", of(&facts, "to_cuda_allocates_at_once"));
    same("randn-size", "allocated", of(&facts, "to_cuda_allocates_at_once"));
    let kept = facts["leak_kept_loss_after_backward"].as_array().unwrap();
    same("kept-losses", "after_backward", kept[1].as_f64().unwrap() - kept[0].as_f64().unwrap());
    let adam = &facts["optimizer_adam"];
    near("adam-sgd", "state", of(adam, "state") / of(&facts, "params_bert_bytes"), 2e-3);
    let mebibytes = of(&facts, "smi_after_context_and_2MiB_MiB");
    same("nvidia-smi", "used_at_start", mebibytes * 1_048_576.0);
    let peak = |mode: &str| of(&case(&format!("bert-large inference {mode}")), "peak_allocated");
    same("eval-memory", "eval", 1.0 - peak("eval") / peak("train"));
    near("eval-memory", "no_grad", 1.0 - peak("no_grad") / peak("train"), 1e-3);
}

/// PyTorch's own program: a small tensor exists before, and is dropped when the next one has been made. The expected
/// figures are those of PyTorch 2.11's allocator, from programs that do the same.
#[test]
fn claims_about_programs_come_to_pytorchs_bytes() {
    for (claim, name, bytes) in [
        ("saves-too-much", "forward", 3_455_808_512.0 - 2_517_464_064.0),
        ("saves-too-much", "peak", 3_707_864_064.0 - 2_840_839_680.0),
        ("saves-too-much", "left", 1_511_223_808.0 - 1_512_403_456.0),
        ("autocast-region", "forward", 4_775_781_376.0 / 4_845_947_904.0),
        ("autocast-region", "peak", 6_424_142_848.0 / 5_670_129_664.0),
        ("reference-cycles", "each", 411_705_856.0),
        ("optimizer-lazy", "made", 0.0),
        ("shared-parameters", "shared", 1.0),
        ("oom-retry", "behind", 3.0),
        ("oom-retry", "inside", 0.0),
    ] {
        assert_eq!(figure(claim, name), bytes, "{claim}: {name}");
    }
}

#[test]
fn a_users_program_comes_to_what_pytorch_measured() {
    let folder = tempfile::tempdir().unwrap();
    let claim = "[[claim]]\nname = 'mine'\nclaim = 'a tensor of 4 MB'\nsaid_by = 'me'\notherwise = 'false'\nmeasured = ''\n\
                 reason = ''\nholds = ''\nfails = ''\n\
                 side = [{ name = 'emptied', program = ['alloc first 512', 'mark before', 'alloc x 4000000', 'free first', \
                 'mark made', 'free x', 'mark deleted', 'empty_cache'] }]\n\
                 figures = [{ name = 'grown', is = 'made.allocated - before.allocated' }, { name = 'made', is = 'made.reserved' }, \
                 { name = 'left', is = 'deleted.allocated' }, { name = 'deleted', is = 'deleted.reserved' }, \
                 { name = 'emptied', is = 'emptied.reserved' }]\n";
    std::fs::write(folder.path().join(USERS_FILE), claim).unwrap();
    let bench = bench("h200");
    let folklore = Folklore::with_user_claims(Some(folder.path()), &bench.workloads).unwrap();
    assert!(folklore.warnings().is_empty(), "{:?}", folklore.warnings());
    let BenchOutcome::Judged(judged) = bench.measure(folklore.named("mine").unwrap(), |_| true) else {
        panic!("it runs everywhere")
    };
    let ours: Vec<f64> = judged.figures.iter().map(|(_, amount)| amount.value).collect();
    let facts = facts();
    let [made, deleted, emptied] = ["randn_1000x1000", "after_del", "after_empty_cache"].map(|key| &facts[key]);
    let theirs = [
        of(made, "allocated"),
        of(made, "reserved"),
        of(deleted, "allocated"),
        of(deleted, "reserved"),
        of(emptied, "reserved"),
    ];
    assert_eq!(ours, theirs);
}

#[test]
fn times_and_convolution_nets_are_near_pytorchs() {
    let time = |workload: &str, variant: &str| of(&row(workload, variant), "step_ms");
    for (name, slow) in [("over_fp32", "base"), ("over_tf32", "tf32")] {
        let theirs = time("gpt2", slow) / time("gpt2", "amp16");
        near("amp-speed", name, theirs, 0.15 * theirs);
    }
    for (name, workload) in
        [("gpt2_time", "gpt2"), ("bert_time", "bert-large"), ("vit_time", "vit-b16"), ("mlp_time", "mlp")]
    {
        near("checkpointing", name, time(workload, "ckpt") / time(workload, "base") - 1.0, 0.05);
    }
    near("amp-memory", "resnet50", 1.0 - peak("resnet50", "amp16") / peak("resnet50", "base"), 0.02);
    let (pageable, pinned) = (case("vit-b16 bf16 loader pageable"), case("vit-b16 bf16 loader pinned"));
    let copy = of(&pageable, "copy_ms") / of(&pinned, "copy_ms");
    near("pinned", "copy", copy, 0.15 * copy);
    near("pinned", "step", of(&pageable, "step_ms") / of(&pinned, "step_ms"), 0.03);
    let facts = facts();
    let (base, ckpt) = (&facts["resnet152_base"], &facts["resnet152_ckpt"]);
    let claim = "resnet152-checkpointing";
    near(claim, "saved_64", 1.0 - of(ckpt, "peak_allocated") / of(base, "peak_allocated"), 0.02);
    near(claim, "time", of(ckpt, "step_ms") / of(base, "step_ms") - 1.0, 0.05);
}

#[test]
fn what_does_not_fit_is_told_in_place_of_a_verdict() {
    let folklore = built_in();
    let measure = |bench: &Bench, name: &str| bench.measure(folklore.named(name).unwrap(), |_| true);
    // The claim is about its batches, so they are not divided.
    let BenchOutcome::Unfit { side, why } = measure(&bench("t4"), "power-of-two") else {
        panic!("22 GiB fit in no T4")
    };
    assert_eq!(side.as_deref(), Some("b31"));
    assert!(why.0.contains("does not fit"), "{why}");
    // Running out of memory is an answer to this claim, but not in its first step.
    let BenchOutcome::Unfit { side: None, why } = measure(&bench("rtx-3060-12g"), "empty-cache-oom") else {
        panic!("no step")
    };
    assert!(why.0.contains("not even the first step"), "{why}");
    let processor = Bench { device: DeviceChoice::Cpu, workloads: Catalog::with_user_workloads(None) };
    let BenchOutcome::Unfit { why, .. } = measure(&processor, "power-of-two") else { panic!("too large") };
    assert!(why.0.contains("too large for the processor"), "{why}");
    let BenchOutcome::Unfit { side: None, .. } = ({
        let claim = folklore.named("nvidia-smi").unwrap();
        let mut first = claim.clone();
        first.sides.truncate(1);
        processor.measure(&first, |_| true)
    }) else {
        panic!("no driver counts the processor's memory")
    };
    // Programs without training give the same result on every device, because the allocator is the same.
    let BenchOutcome::Judged(judged) = measure(&processor, "delete-returns") else { panic!("1 GiB is there") };
    assert_eq!(judged.verdict, Verdict::False);
}

/// Sides become smaller with the card, all in the same way: nearly every claim has a verdict everywhere, and says what
/// ran.
#[test]
fn small_cards_have_verdicts_too() {
    for (card, without) in [
        ("t4", &["empty-cache-oom", "attention-softmax", "power-of-two", "qlora-65b"][..]),
        // All weights of 1.2 billion in AdamW: more than 12 GiB with one sequence.
        ("rtx-3060-12g", &["empty-cache-oom", "attention-softmax", "power-of-two", "lora-tenth", "qlora-65b"]),
        ("rtx-4090", &["power-of-two", "qlora-65b"]),
    ] {
        let (bench, folklore) = (bench(card), built_in());
        let mut unfit = Vec::new();
        for claim in folklore.claims() {
            match bench.measure(claim, |_| true) {
                BenchOutcome::Judged(judged) => {
                    let reduced = judged.reduced.as_ref().map(ToString::to_string);
                    assert!(reduced.is_none_or(|words| judged.measured.ends_with(&words)), "{}", claim.name);
                }
                _ => unfit.push(claim.name.as_str()),
            }
        }
        assert!(unfit.iter().all(|name| without.contains(name)), "{card}: {unfit:?}");
    }
}

/// The processor runs small models instead of large ones, and its texts name those.
#[test]
fn the_processor_gives_verdicts_by_small_models() {
    let processor = Bench { device: DeviceChoice::Cpu, workloads: Catalog::with_user_workloads(None) };
    let folklore = built_in();
    for name in ["accumulation", "kept-losses", "no-grad-graph", "train-then-test"] {
        let outcome = processor.measure(folklore.named(name).unwrap(), |_| true);
        let BenchOutcome::Judged(judged) = outcome else { panic!("{name}: {outcome:?}") };
        assert!(judged.measured.contains("-mini") && judged.measured.contains("stands for"), "{}", judged.measured);
    }
}

#[test]
fn what_pytorch_measured_of_the_further_claims() {
    same("sgd-cosine", "sgd", 1.0 - peak("gpt2", "sgd") / peak("gpt2", "base"));
    same("bert-amp", "saved", 1.0 - peak("bert-large", "amp16") / peak("bert-large", "base"));
    let time = |workload: &str, variant: &str| of(&row(workload, variant), "step_ms");
    let faster = time("bert-large", "base") / time("bert-large", "amp16");
    near("bert-amp", "faster", faster, 0.1 * faster);
    let faster = time("vit-b16", "base") / time("vit-b16", "tf32");
    near("tf32-vit", "faster", faster, 0.1 * faster);
    let facts = facts();
    let [base, ckpt] = ["resnet152_base", "resnet152_ckpt"].map(|row| of(&facts[row], "step_ms"));
    near("resnet152-speed", "kept", base / ckpt, 0.05);
    // 5,656,514,048 and 5,656,730,112 bytes on the card: there, too, eval() takes less.
    let [train, eval] =
        ["train", "eval"].map(|mode| of(&case(&format!("resnet50 inference {mode}")), "peak_allocated"));
    same("batch-norm-eval", "extra", eval - train);
    let mebibytes = of(&facts, "smi_after_context_and_2MiB_MiB");
    same("lazy-start", "after", mebibytes * 1_048_576.0);
}

/// The recorded ranks in which NCCL's watchdog kept no bucket. With ZeRO-1 this was rank 1, whose share of the state is
/// a little smaller than that of rank 0, which runs here. With FSDP, blocks differ by where the driver placed segments.
#[test]
fn claims_about_ranks_come_to_what_pytorch_measured() {
    let text = std::fs::read_to_string("tests/data/pytorch-elsewhere.jsonl").unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let least = |mode: &str, workload: &str, key: &str| {
        let rows = rows.iter().filter(|row| row["mode"] == mode && row["workload"] == workload);
        rows.map(|row| row[key].as_f64().unwrap()).fold(f64::MAX, f64::min)
    };
    let peak = |mode: &str, workload: &str| least(mode, workload, "peak_allocated");
    let before = |mode: &str| least(mode, "gpt2", "allocated_before_step");
    near("ddp-splits", "before", before("ddp") / before("eager"), 1e-6);
    near("ddp-linear", "two", peak("ddp", "gpt2") / peak("eager", "gpt2"), 1e-4);
    near("zero-1", "peak", peak("zero1", "gpt2") / peak("ddp", "gpt2"), 1e-3);
    near("fsdp-ten-times", "gpt2", peak("fsdp", "gpt2") / peak("ddp", "gpt2"), 1e-3);
    let text = std::fs::read_to_string("tests/data/pytorch-ranks-rows.jsonl").unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (figure, mode) in [("alternate", "pp-1f1b"), ("gpipe", "pp-gpipe")] {
        let stage = |rank: u64| {
            let is_it = |row: &&Value| row["mode"] == mode && row["workload"] == "gpt2" && row["rank"] == rank;
            rows.iter().find(is_it).unwrap()["peak_allocated"].as_f64().unwrap()
        };
        near("pipeline-even", figure, stage(1) / stage(0), 5e-3);
    }
    near("tensor-half", "peak", peak("tp", "gpt2") / peak("eager", "gpt2"), 1e-3);
}

#[test]
fn what_is_said_of_claims_that_cant_be_run_here_is_what_pytorch_measured() {
    let text = std::fs::read_to_string("tests/data/pytorch-elsewhere.jsonl").unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_mode = |mode: &str, workload: &str, key: &str| -> Vec<f64> {
        let rows = rows.iter().filter(|row| row["mode"] == mode && row["workload"] == workload);
        rows.map(|row| row[key].as_f64().unwrap()).collect()
    };
    let gib = |mode: &str, workload: &str| {
        let peaks = of_mode(mode, workload, "peak_allocated");
        peaks.into_iter().map(|peak| format!("{:.2}", peak / 2f64.powi(30))).collect::<Vec<_>>()
    };
    let ms = |mode: &str, workload: &str, key: &str, decimals: usize| {
        of_mode(mode, workload, key).into_iter().map(|ms| format!("{ms:.decimals$}")).collect::<Vec<_>>()
    };
    let models = ["gpt2", "bert-large", "vit-b16", "resnet50"];
    let compiled = models.into_iter().flat_map(|model| [gib("eager", model), gib("compile", model)]);
    let figures: [(&str, Vec<String>); 3] = [
        ("tensor-parallel", gib("tp", "gpt2")),
        ("compile-temporaries", compiled.chain([ms("compile", "gpt2", "step_ms", 1)]).flatten().collect()),
        (
            "non-blocking",
            ["pageable", "pinned"]
                .into_iter()
                .flat_map(|mode| [ms(mode, "resnet50", "copy_ms", 2), ms(mode, "resnet50", "step_ms", 1)])
                .flatten()
                .collect(),
        ),
    ];
    let folklore = built_in();
    for (name, figures) in figures {
        let claim = folklore.not_here().iter().find(|claim| claim.name == name).unwrap();
        assert!(!figures.is_empty(), "{name}");
        for figure in figures {
            assert!(claim.found.contains(&figure), "{name}: {figure}: {}", claim.found);
        }
    }
    // A claim that is asked for by name is shown without a run.
    let told = String::from_utf8(vramlab(&["folklore", "compile-temporaries"]).stdout).unwrap();
    assert!(told.starts_with("Not measured here") && told.contains("compile-temporaries  depends  "), "{told}");
    let json: Value =
        serde_json::from_slice(&vramlab(&["folklore", "compile-temporaries", "randn-size", "--json"]).stdout).unwrap();
    assert_eq!((&json["not_here"][0]["verdict"], &json["rows"][0]["name"]), (&"depends".into(), &"randn-size".into()));
}

#[test]
fn measuring_ends_when_somebody_wants_no_more() {
    let (bench, folklore) = (bench("h200"), built_in());
    let mut asked = 0;
    let outcome = bench.measure(folklore.named("kept-losses").unwrap(), |_| {
        asked += 1;
        asked < 4
    });
    assert_eq!((outcome, asked), (BenchOutcome::Cancelled, 4));
}

fn vramlab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(arguments)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("CUDA_VISIBLE_DEVICES", "")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn the_command_prints_a_table_json_and_a_page_and_refuses_what_is_no_claim() {
    let printed = |arguments: &[&str]| {
        let output = vramlab(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // Without a GPU, claims about GPUs are measured on a simulated one.
    let table = printed(&["folklore", "randn-size", "to-cuda-lazy"]);
    assert!(table.starts_with("Folklore, measured on sim:h200, simulated\n"), "{table}");
    assert!(table.contains("2 claims: 2 false."), "{table}");
    let page = printed(&["folklore", "randn-size", "--device", "cpu", "--format", "markdown"]);
    assert!(page.contains("| torch.randn(1000, 1000) takes 8 MB. | false | "), "{page}");
    let full = printed(&["folklore", "kept-losses"]);
    assert!(
        full.contains("vramlab run gpt2 --device sim:h200 --data reference --batch 1 --retain losses --steps 6"),
        "{full}"
    );
    let object: Value = serde_json::from_str(&printed(&["folklore", "randn-size", "--json"])).unwrap();
    let row = &object["rows"][0];
    assert_eq!((&row["verdict"], &row["simulated"]), (&"false".into(), &true.into()));
    assert_eq!((&row["figures"]["allocated"], &row["units"]["allocated"]), (&4_000_256.0.into(), &"bytes".into()));
    let unknown = vramlab(&["folklore", "rand-size"]);
    let error = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(error.contains("did you mean \"randn-size\""), "{error}");
}

/// The guide's example of a user's own claim is valid, and gets its verdict.
#[test]
fn the_guides_example_is_a_claim() {
    let guide = include_str!("../../lab/guide/folklore.md");
    let (_, rest) = guide.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(USERS_FILE), example).unwrap();
    let bench = bench("h200");
    let folklore = Folklore::with_user_claims(Some(folder.path()), &bench.workloads).unwrap();
    assert!(folklore.warnings().is_empty(), "{:?}", folklore.warnings());
    let outcome = bench.measure(folklore.named("bf16-memory").unwrap(), |_| true);
    let BenchOutcome::Judged(judged) = outcome else { panic!("{outcome:?}") };
    assert_eq!(judged.verdict, Verdict::False, "{}", judged.measured);
}

/// The output of `folklore` if it is interrupted this long `after` it has begun to listen.
fn interrupted(after: Duration) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["folklore", "--device", "sim:h200"])
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let tasks = format!("/proc/{}/task", child.id());
    let listens = || {
        let mut names = std::fs::read_dir(&tasks).unwrap().flatten().map(|task| task.path().join("comm"));
        names.any(|name| std::fs::read_to_string(name).is_ok_and(|name| name.trim() == "interrupts"))
    };
    while child.try_wait().unwrap().is_none() && !listens() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(after);
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    child.wait_with_output().unwrap()
}

/// Ctrl-C ends the measurement, and the results so far are printed.
#[test]
fn an_interrupt_leaves_what_was_done() {
    // The thread exists a moment before the signal is directed to it. On a busy machine nothing may be measured by
    // then, so there is no table.
    let mut after = Duration::from_millis(300);
    let (output, told, error) = loop {
        let output = interrupted(after);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if !error.contains(": 0 of ") || after > PATIENCE / 3 {
            break (output, told, error);
        }
        after *= 3;
    };
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(told.starts_with("Folklore, measured on sim:h200, simulated\n"), "{told}");
    assert!(error.contains(&format!("of {} claims were measured", VERDICTS.len())), "{error}");
}

/// The commands that a row shows train what its sides trained.
#[test]
fn the_commands_of_a_side_are_understood() {
    for claim in built_in().claims() {
        for line in claim.sides.iter().flat_map(|side| side.commands("sim:h200")) {
            let Some(words) = line.strip_prefix("vramlab ") else { continue };
            assert!(!words.contains('\''), "quoted words would be read here as they stand: {words}");
        }
    }
    let claim = built_in().named("max-split").unwrap().clone();
    let line = claim.sides[1].commands("sim:h200").remove(0);
    let words: Vec<&str> = line.split(' ').skip(1).chain(["--json"]).collect();
    let row: Value = serde_json::from_slice(&vramlab(&words).stdout).unwrap();
    let plain = claim.sides[0].commands("sim:h200").remove(0);
    let words: Vec<&str> = plain.split(' ').skip(1).chain(["--json"]).collect();
    let before: Value = serde_json::from_slice(&vramlab(&words).stdout).unwrap();
    same("max-split", "varlen", of(&row, "peak_reserved") / of(&before, "peak_reserved") - 1.0);
}
