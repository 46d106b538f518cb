//! Our requests against PyTorch's: every allocation and every free of recorded runs, from the first parameter on.
//!
//! `tests/data/requests/*.txt.xz` have the requests of PyTorch 2.11 to its allocator on an H200 in three steps.
//! `a SIZE [LINE]` is a request, with the Python line that made it if that differs from the previous one. `f N` is the
//! free of request number N. Frees between two requests are compared as a set: their order can't change what the
//! allocator does next, and PyTorch's own order sometimes comes from a hash table of pointers.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::rc::Rc;

use serde_json::Value;
use vramlab::allocator::{CachingAllocator, Settings, SimulatedDriver};
use vramlab::device::DType;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::sim::{CardCatalog, SimDevice};
use vramlab::model::{Category, Event, EventKind};
use vramlab::train::{Config, Context, Libraries, LoopStyle, Memory, Shape, Workload};
use vramlab::units::{Bytes, StreamId};
use vramlab::workload::{Inference, InferencePlan};

/// A request, and what was freed between the previous request and this one.
#[derive(Debug)]
pub struct Request {
    freed: BTreeSet<usize>,
    size: u64,
    by: String,
}

pub fn recorded(name: &str) -> Vec<Request> {
    recorded_in(&format!("{}/tests/data/requests", env!("CARGO_MANIFEST_DIR")), name)
}

fn recorded_in(folder: &str, name: &str) -> Vec<Request> {
    let text = unpacked(&format!("{folder}/{name}.txt.xz"));
    let mut requests = Vec::new();
    let (mut freed, mut by) = (BTreeSet::new(), String::new());
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        match (words.next().unwrap(), words.next().unwrap().parse::<u64>().unwrap()) {
            ("a", size) => {
                if let Some(line) = words.next() {
                    by = line.into();
                }
                requests.push(Request { freed: std::mem::take(&mut freed), size, by: by.clone() });
            }
            (_, index) => {
                freed.insert(index as usize);
            }
        }
    }
    requests
}

/// The text of an xz file with one block, as the recordings are.
///
/// Such a file names a dictionary of 8 MiB, which its reader clears for each of a thousand files: this took half of the
/// time of the comparison. None of the files is longer than this dictionary.
fn unpacked(path: &str) -> String {
    const DICTIONARY: u32 = 1 << 20;
    // The file's header is followed by the block's header, which begins with its length: the number of words, less one.
    const HEADER: usize = 12;
    let packed = std::fs::read(path).unwrap();
    let block = HEADER + 4 * (usize::from(packed[HEADER]) + 1);
    let mut text = String::new();
    lzma_rust2::Lzma2Reader::new(&packed[block..], DICTIONARY, None).read_to_string(&mut text).unwrap();
    text
}

pub fn made(events: &[Event]) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    let (mut live, mut names, mut freed, mut ops) = (HashMap::new(), HashMap::new(), BTreeSet::new(), Vec::new());
    for event in events {
        match &event.kind {
            EventKind::Define { id, text } => {
                names.insert(*id, text.clone());
            }
            EventKind::OpBegin { name } => ops.push(*name),
            EventKind::OpEnd => {
                ops.pop();
            }
            EventKind::Alloc { address, requested, name, .. } => {
                live.insert(*address, requests.len());
                let op = ops.last().map_or("-", |op| &names[op]);
                let by = format!("{op}: {}", names[name]);
                requests.push(Request { freed: std::mem::take(&mut freed), size: requested.get(), by });
            }
            EventKind::FreeRequested { address } => {
                freed.insert(live.remove(address).unwrap());
            }
            _ => {}
        }
    }
    requests
}

impl Request {
    /// Requested bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }
}

/// Removes the free of a request. Returns the index of the request before which it came, if it had one.
pub fn without_free(requests: &mut [Request], number: usize) -> Option<usize> {
    requests.iter_mut().position(|request| request.freed.remove(&number))
}

/// The first of our requests for a block with this name.
pub fn first_called(requests: &[Request], name: &str) -> Option<usize> {
    requests.iter().position(|request| request.by.ends_with(name))
}

/// The statistics of an H200's allocator after these requests, all on one stream: the peaks of allocated and of
/// reserved. Before request number `begun`, after its frees, the cache is emptied and the peaks are reset.
pub fn peaks(requests: &[Request], begun: usize) -> [i64; 2] {
    let driver = SimulatedDriver::new(Bytes::gib(140), Bytes::ZERO);
    let mut allocator = CachingAllocator::new(driver, Settings::default(), ());
    let mut blocks = Vec::new();
    for (number, Request { freed, size, .. }) in requests.iter().enumerate() {
        for &freed in freed {
            allocator.free(blocks[freed]).unwrap();
        }
        if number == begun {
            allocator.empty_cache();
            allocator.reset_peak_statistics();
        }
        blocks.push(allocator.malloc(Bytes(*size), StreamId::DEFAULT).unwrap().address);
    }
    let statistics = allocator.statistics();
    [statistics.allocated_bytes.all.peak, statistics.reserved_bytes.all.peak]
}

/// Number of requests before the first step.
pub fn before_the_first_step(events: &[Event]) -> usize {
    let begun = events.iter().take_while(|event| !matches!(event.kind, EventKind::StepBegin { .. }));
    begun.filter(|event| matches!(event.kind, EventKind::Alloc { .. })).count()
}

/// The first difference, as text.
pub fn difference(ours: &[Request], theirs: &[Request]) -> Option<String> {
    for (i, (our, their)) in ours.iter().zip(theirs).enumerate() {
        let who = |set: &BTreeSet<usize>, other: &BTreeSet<usize>, all: &[Request]| {
            set.difference(other).map(|&n| format!("#{n} {} B ({})", all[n].size, all[n].by)).collect::<Vec<_>>()
        };
        if our.freed != their.freed {
            return Some(format!(
                "before request {i} ({} B, ours: {}, PyTorch: {}), only we freed {:?}, only PyTorch freed {:?}",
                their.size,
                our.by,
                their.by,
                who(&our.freed, &their.freed, ours),
                who(&their.freed, &our.freed, theirs),
            ));
        }
        if our.size != their.size {
            return Some(format!(
                "request {i}: ours {} B ({}), PyTorch's {} B ({})",
                our.size, our.by, their.size, their.by
            ));
        }
    }
    (ours.len() != theirs.len()).then(|| format!("ours has {} requests, PyTorch's {}", ours.len(), theirs.len()))
}

/// A recorded program: the model, the switches, and the number of steps.
pub type Program = (Box<dyn Workload>, Config, u64);

/// The requests of a program on this card, and the allocator's statistics at the end: allocated, its peak, the peak of
/// reserved.
fn run((workload, config, steps): Program, device: SimDevice, libraries: Libraries) -> (Vec<Request>, [i64; 3]) {
    let (mut trainer, events) = crate::training::on(Box::new(device), workload, config, libraries, LoopStyle::Logging);
    for _ in 0..steps {
        trainer.step().unwrap();
    }
    let statistics = trainer.statistics();
    let (allocated, reserved) = (statistics.allocated_bytes.all, statistics.reserved_bytes.all);
    let made = made(&events.borrow());
    (made, [allocated.current, allocated.peak, reserved.peak])
}

/// Checks every recorded row of an H200: requests one by one from the first parameter on, and the allocator's
/// statistics at the end.
pub fn rows_are_made(rows: &str, program: impl Fn(&str) -> Program) {
    let mut differences = Vec::new();
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let name = row["name"].as_str().unwrap();
        let (made, ours) = run(program(name), SimDevice::h200().unwrap(), Libraries::HOPPER);
        let theirs = ["allocated", "peak", "reserved"].map(|key| row[key].as_i64().unwrap());
        if let Some(difference) = difference(&made, &recorded(name)) {
            differences.push(format!("{name}: {difference}"));
        } else if ours != theirs {
            differences.push(format!("{name}: allocated, peak and reserved are {ours:?} for {theirs:?}"));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

/// Checks the requests of recorded programs one by one, on a card that uses flash attention instead of cuDNN's.
pub fn requests_are_made_on_ada(names: &[&str], program: impl Fn(&str) -> Program) {
    let libraries = Libraries { compute_capability: 89, multiprocessors: 128, workspaces: true };
    for name in names {
        let card = CardCatalog::with_user_cards(None).card("rtx-4090").unwrap();
        let (made, _) = run(program(name), SimDevice::new(card), libraries);
        assert_eq!(difference(&made, &recorded(&format!("ada.{name}"))), None, "{name}");
    }
}

fn check(workload: &str, variants: &[&str]) {
    let mut failures = Vec::new();
    for variant in variants {
        let (model, mut batch) = crate::training::workload(workload);
        if workload == "gpt-odd" && *variant == "all" {
            batch = 8;
        }
        if workload == "gpt-wide" && *variant == "all" {
            batch = 68;
        }
        let (mut trainer, events) =
            crate::training::trainer(model, crate::training::variant(variant, batch), Libraries::HOPPER);
        for _ in 0..3 {
            trainer.step().unwrap();
        }
        let ours = made(&events.borrow());
        if let Some(difference) = difference(&ours, &recorded(&format!("{workload}.{variant}"))) {
            failures.push(format!("{workload} {variant}: {difference}"));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// The first difference of a run on the simulated H200. `more.WORKLOAD.VARIANT` and `loop.WORKLOAD.VARIANT` are
/// recordings of four steps of the shortest loop; the others are three steps of the loop that can accumulate.
fn simulated_difference(folder: &str, name: &str) -> Option<String> {
    if let Some(plain) = name.strip_prefix("more.").or_else(|| name.strip_prefix("loop.")) {
        return plain_difference(folder, name, plain);
    }
    let (workload, variant) = name.split_once('.').unwrap();
    let (variant, batch) = variant.split_once(".batch").unwrap_or((variant, ""));
    let (model, usual) = crate::training::workload(workload);
    let batch = batch.parse().unwrap_or(usual);
    let (mut trainer, events) = crate::training::simulated(model, crate::training::variant(variant, batch));
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    let ours = made(&events.borrow());
    difference(&ours, &recorded_in(folder, name)).map(|difference| format!("{name}: {difference}"))
}

/// The first difference of one forward pass.
fn inference_difference(folder: &str, name: &str, (workload, plan): (&str, InferencePlan)) -> Option<String> {
    let (model, batch) = crate::training::workload(workload);
    let config = crate::training::untold(Config::new(batch));
    let (mut trainer, events) = crate::training::simulated_plain(Box::new(Inference::new(model, plan)), config);
    trainer.step().unwrap();
    let ours = made(&events.borrow());
    difference(&ours, &recorded_in(folder, name)).map(|difference| format!("{name}: {difference}"))
}

fn plain_difference(folder: &str, name: &str, plain: &str) -> Option<String> {
    if let Some(inference) = crate::training::inference_recording(plain) {
        return inference_difference(folder, name, inference);
    }
    let (plain, steps) = crate::training::plain_recording(plain);
    let (workload, variant) = plain.split_once('.').unwrap();
    let (variant, batch) = variant.split_once(".batch").unwrap_or((variant, ""));
    let (model, usual) = crate::training::workload(workload);
    let config = crate::training::untold(crate::training::variant(variant, batch.parse().unwrap_or(usual)));
    let (mut trainer, events) = crate::training::simulated_plain(model, config);
    for _ in 0..steps {
        trainer.step().unwrap();
    }
    let ours = made(&events.borrow());
    difference(&ours, &recorded_in(folder, name)).map(|difference| format!("{name}: {difference}"))
}

/// Aligns recordings from outside the repository: `VRAMLAB_ALIGN="FOLDER NAME NAME …" cargo test --test engine
/// alignment -- --ignored --nocapture recordings_elsewhere`.
#[test]
#[ignore = "needs VRAMLAB_ALIGN"]
fn recordings_elsewhere() {
    let wanted = std::env::var("VRAMLAB_ALIGN").unwrap();
    let mut words = wanted.split_whitespace();
    let folder = words.next().unwrap();
    let failures: Vec<String> = words.filter_map(|name| simulated_difference(folder, name)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

const ALL: [&str; 10] =
    ["base", "amp16", "bf16", "ckpt", "accum4", "all", "sgd", "bf16ckpt", "accum2bf16", "ckptaccum2"];

#[test]
fn mlp_mini_asks_as_pytorch_does() {
    check("mlp-mini", &ALL);
}

#[test]
fn gpt_mini_asks_as_pytorch_does() {
    check("gpt-mini", &ALL);
}

/// Segments are run again with graphs of their own. The first segment of the mlp gets data, which needs no gradient, so
/// it does not run again.
#[test]
fn reentrant_checkpoints_ask_as_pytorch_does() {
    check("mlp-mini", &["ckptreentrant", "bf16ckptreentrant"]);
    check("gpt-mini", &["ckptreentrant", "bf16ckptreentrant"]);
}

/// The model's output is dropped before backward.
#[test]
fn loops_that_keep_the_loss_alone_ask_as_pytorch_does() {
    check("mlp-mini", &["bare"]);
    check("gpt-mini", &["bare", "bf16ckptaccum2bare"]);
    simulated("bert-mini", &["bare"]);
    simulated("vit-mini", &["bf16bare"]);
}

#[test]
fn the_shortest_loop_asks_as_pytorch_does() {
    let folder = format!("{}/tests/data/requests", env!("CARGO_MANIFEST_DIR"));
    let names = [
        "loop.gpt-mini.adam",
        "loop.gpt-mini.sgd0",
        "loop.gpt-mini.zeroed",
        "loop.gpt-mini.adamwd",
        "loop.gpt-mini.fused",
        "loop.gpt-mini.fusedadam",
        "loop.gpt-mini.loop",
        "loop.gpt-mini.sgdloop",
        "loop.gpt-mini.sgdwd",
        "loop.gpt-mini.sgdfused",
        "loop.gpt-mini.save_on_cpu",
        "loop.gpt-mini.save_on_cpu_pinned",
        "loop.bert-mini.save_on_cpu_pinned",
        "loop.gpt-mini.pageable",
        "loop.bert-mini.fused",
        "loop.bert-mini.save_on_cpu",
        "loop.vit-mini.pinned",
        "loop.vit-mini.save_on_cpu",
        "loop.vit-mini.sgdwd",
        "loop.resnet-mini.save_on_cpu",
        "loop.resnet-mini.save_on_cpu_pinned",
        "loop.resnet-mini.pageable",
        "loop.resnet-mini.zeroed",
        "loop.resnet-mini.adam",
        "loop.resnet-mini.loop",
    ];
    let failures: Vec<String> = names.iter().filter_map(|name| simulated_difference(&folder, name)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_attention_kernel_asks_as_pytorch_does() {
    let folder = format!("{}/tests/data/requests", env!("CARGO_MANIFEST_DIR"));
    let kernels = ["math", "math32", "flash", "efficient"];
    let names = ["gpt-mini", "bert-mini", "vit-mini"];
    let names = names.iter().flat_map(|name| kernels.map(|kernel| format!("loop.{name}.{kernel}")));
    let failures: Vec<String> =
        names.collect::<Vec<_>>().iter().filter_map(|name| simulated_difference(&folder, name)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Checks runs on the simulated H200, where a whole step takes no time.
fn simulated(workload: &str, variants: &[&str]) {
    let folder = format!("{}/tests/data/requests", env!("CARGO_MANIFEST_DIR"));
    let names = variants.iter().map(|variant| format!("{workload}.{variant}"));
    let failures: Vec<String> = names.filter_map(|name| simulated_difference(&folder, &name)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn vit_asks_as_pytorch_does() {
    simulated("vit-mini", &ALL);
    simulated("vit-odd", &["base", "bf16", "ckpt"]);
    simulated("vit-med", &["base", "bf16", "ckpt"]);
}

#[test]
fn bert_large_asks_as_pytorch_does() {
    simulated("bert-large", &["base"]);
    simulated("bert-s128", &["bf16"]);
    simulated("bert-s200", &["base"]);
}

#[test]
fn bert_mini_asks_as_pytorch_does() {
    check("bert-mini", &ALL);
}

#[test]
fn other_berts_ask_as_pytorch_does() {
    check("bert-odd", &["base", "bf16", "ckpt"]);
    check("bert-wide", &["base", "bf16"]);
    check("bert-hd10", &["base", "bf16", "amp16"]);
    check_simulated("bert-med", &["base", "bf16", "ckpt"]);
}

#[test]
fn inference_asks_as_pytorch_does() {
    let folder = format!("{}/tests/data/requests", env!("CARGO_MANIFEST_DIR"));
    let names = ["gpt-mini", "bert-mini", "vit-mini", "resnet-mini"].into_iter();
    let modes = ["no_grad", "half", "eval"];
    let all = names.flat_map(|name| modes.map(|mode| format!("loop.{name}.inf_{mode}")));
    let failures: Vec<String> = all.filter_map(|name| simulated_difference(&folder, &name)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn other_gpts_ask_as_pytorch_does() {
    check("gpt-odd", &["base", "bf16", "all"]);
    check("gpt-wide", &["base", "bf16", "all"]);
}

#[test]
fn rows_that_need_scratch_ask_as_pytorch_does() {
    check_simulated("mlp-rows", &["base", "bf16", "all"]);
    check_simulated("gpt-med", &["base", "bf16", "all"]);
}

#[test]
fn head_sizes_that_need_padding_ask_as_pytorch_does() {
    check("gpt-hd4", &["base", "bf16", "all"]);
    check("gpt-hd10", &["base", "bf16", "all"]);
}

/// Compares recordings of the repository with runs on the simulated H200, which takes no time at full size.
fn check_simulated(workload: &str, variants: &[&str]) {
    let folder = format!("{}/tests/data/requests", env!("CARGO_MANIFEST_DIR"));
    let names = variants.iter().map(|variant| format!("{workload}.{variant}"));
    let failures: Vec<String> = names.filter_map(|name| simulated_difference(&folder, &name)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn resnets_ask_as_pytorch_does() {
    let variants =
        ["base", "bf16", "ckpt", "accum4", "sgd", "tf32", "accum2bf16", "bf16ckpt", "tf32ckpt", "ckptaccum2"];
    check_simulated("resnet-mini", &variants);
    check_simulated("resnet-odd", &["base", "bf16"]);
    check_simulated("resnet-med", &["base"]);
    check_simulated("resnet50", &["base", "bf16", "tf32", "ckpt"]);
}

/// Recorded on the stand-in GPU: `checkpoint()` around blocks 0, 2, 4 and so on.
#[test]
fn every_second_block_checkpointed_asks_as_pytorch_does() {
    for workload in ["gpt-mini", "bert-mini", "vit-mini", "mlp-mini", "resnet-mini"] {
        check_simulated(workload, &["every2"]);
    }
    for workload in ["gpt-mini", "mlp-mini"] {
        check_simulated(workload, &["bf16every2"]);
    }
}

#[test]
fn adversaries_ask_as_pytorch_does() {
    check_simulated("dcgan-mini", &["base", "bf16", "sgd", "tf32"]);
    check_simulated("dcgan", &["base", "bf16"]);
}

/// `x + mlp(norm(x))` of a Llama with 64 channels and 128 within the MLP, forward and backward, once cuBLAS has its
/// workspace. PyTorch's requests are those of the modules of transformers 5.17, recorded without a GPU.
#[test]
fn a_root_mean_square_norm_and_a_gated_mlp_ask_for_what_pytorch_asks_for() {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::mib(256)), threads: Some(1) }).unwrap();
    let events: Rc<RefCell<Vec<Event>>> = Rc::default();
    let memory = Memory::new(Box::new(device), Settings::default(), Box::new(Rc::clone(&events)));
    let mut cx = Context::new(memory, Libraries::HOPPER);
    let shapes: [&[usize]; 5] = [&[4, 32, 64], &[64], &[128, 64], &[128, 64], &[64, 128]];
    let tensors = shapes.map(|dims| {
        let shape = dims.iter().fold(Shape::new(&[]), |shape, dim| shape.with_appended(*dim).unwrap());
        let data = cx.memory().tensor(shape, DType::F32, Category::Parameter, "test").unwrap();
        let bytes: Vec<u8> = (0..shape.numel()).flat_map(|i| (0.01 * (i % 7) as f32).to_le_bytes()).collect();
        cx.memory().write(&data, &bytes).unwrap();
        data
    });
    let [x, weight, gate, up, down] = tensors.map(|data| cx.parameter(data, "p"));
    let gradient = x.detach();
    let mut run = || {
        let output = {
            let y = {
                let normalised = cx.rms_norm(&x, &weight, 1e-6).unwrap();
                let hidden = {
                    let activated = {
                        let gated = cx.linear(&normalised, &gate, None).unwrap();
                        cx.silu(&gated).unwrap()
                    };
                    let raised = cx.linear(&normalised, &up, None).unwrap();
                    cx.mul(&activated, &raised).unwrap()
                };
                cx.linear(&hidden, &down, None).unwrap()
            };
            cx.add(&x, &y).unwrap()
        };
        cx.backward(&output, &gradient).unwrap();
        cx.drop_graph();
    };
    run();
    let before = events.borrow().len();
    run();
    let events = events.borrow();
    let names = events[..before].iter().filter(|event| matches!(event.kind, EventKind::Define { .. }));
    let ours: Vec<Event> = names.chain(&events[before..]).cloned().collect();
    let ours = made(&ours);
    assert_eq!(difference(&ours, &recorded("rms-norm-gated-mlp")), None);
}
