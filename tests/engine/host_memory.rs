//! The real program takes no more of the machine's memory than its limit and a stated margin, and no more than there
//! is. A request beyond that is refused with a sentence.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::{Device, HostAccount};
use vramlab::model::{EventKind, RunState};
use vramlab::session::{Command as LabCommand, FlipDirection, LabSpec, MemoryLimit, Switch};
use vramlab::source::{self, Picture, Request};
use vramlab::train::{Config, DataPath, Libraries, LoopStyle, MemoryKind, TrainError};
use vramlab::units::Bytes;
use vramlab::workload::Catalog;

const MIB: u64 = 1 << 20;

/// The margin that the guide promises: what the process takes in addition to its limit.
fn margin() -> u64 {
    (256 + 4 * std::thread::available_parallelism().map_or(1, usize::from) as u64) * MIB
}

/// The program, with at most this many KiB of address space.
fn program(arguments: &[&str], address_space: Option<u64>) -> Command {
    let limit = address_space.map_or_else(|| "unlimited".to_owned(), |bytes| (bytes / 1024).to_string());
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -v {limit}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_vramlab")])
        .args(arguments)
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .env_remove("PYTORCH_ALLOC_CONF")
        // A backtrace reads the program's debug information, which takes memory.
        .env_remove("RUST_BACKTRACE")
        .env_remove("RUST_LIB_BACKTRACE")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A figure of the kernel about the program, in bytes; `None` before it has begun. A child that is about to begin still
/// shows the memory of its parent, these tests.
fn told(child: &Child, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    status.lines().next().filter(|name| name.ends_with("vramlab"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Runs the program to its end. Returns its output and its largest resident size: the kernel keeps the maximum, so
/// nothing between two looks is missed.
fn run(arguments: &[&str], address_space: Option<u64>) -> (Output, u64) {
    watch(arguments, address_space, "VmHWM:")
}

/// Runs the program to its end. Returns its output and the largest value of a figure.
fn watch(arguments: &[&str], address_space: Option<u64>, field: &str) -> (Output, u64) {
    let mut child = program(arguments, address_space).spawn().unwrap();
    let mut most = told(&child, field).unwrap_or(0);
    while child.try_wait().unwrap().is_none() {
        sleep(Duration::from_millis(1));
        most = told(&child, field).unwrap_or(0).max(most);
    }
    (child.wait_with_output().unwrap(), most)
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const TRAINS: &str = "";
const HOST: &str = "out of host memory: ";
const DEVICE: &str = "out of memory: ";

/// The program fails with these words, or trains if there are none. In both cases it takes no more than the limit and
/// the margin.
fn stays_within(limit_mib: u64, arguments: &[&str], says: &str) {
    let limit = format!("{limit_mib}MiB");
    let arguments = [&["run"], arguments, &["--device", "cpu", "--limit", &limit]].concat();
    let (output, most) = run(&arguments, None);
    let error = words(&output);
    assert_eq!(output.status.code(), Some(i32::from(says != TRAINS)), "{arguments:?}: {error}");
    assert!(error.contains(says), "{arguments:?}: {error}");
    let bound = limit_mib * MIB + margin();
    assert!(most <= bound, "{arguments:?}: {} MiB of {}", most / MIB, bound / MIB);
    assert!(most > 0);
}

#[test]
fn batches_far_beyond_the_limit_are_refused_before_they_are_made() {
    stays_within(64, &["resnet-mini", "--batch", "250000", "--steps", "1"], HOST);
    stays_within(64, &["resnet-mini", "--batch", "250000", "--steps", "1", "--pin"], HOST);
    stays_within(64, &["mlp-mini", "--batch", "4000000", "--steps", "1", "--data", "reference"], DEVICE);
    stays_within(64, &["gpt-mini", "--batch", "1000000", "--steps", "1", "--data", "host"], DEVICE);
    stays_within(64, &["gpt-char", "--batch", "1000000", "--steps", "1"], HOST);
}

#[test]
fn what_waits_in_host_memory_counts_too() {
    stays_within(160, &["gpt-mini", "--batch", "512", "--steps", "2", "--offload", "activations"], TRAINS);
    stays_within(160, &["gpt-mini", "--batch", "1024", "--steps", "2", "--offload", "overlapped"], HOST);
}

#[test]
fn kernels_keep_little_beside_their_operands() {
    stays_within(300, &["gpt-mini", "--batch", "512", "--steps", "1", "--amp", "bf16"], TRAINS);
    stays_within(300, &["resnet-mini", "--batch", "128", "--steps", "1", "--fuse", "--amp", "bf16"], TRAINS);
    stays_within(300, &["mlp-mini", "--batch", "16384", "--steps", "1", "--amp", "fp16"], TRAINS);
}

#[test]
fn a_process_with_a_small_address_space_is_refused_what_it_has_not() {
    for arguments in [
        ["run", "resnet-mini", "--device", "cpu", "--batch", "250000", "--steps", "1"],
        ["run", "mlp-mini", "--device", "cpu", "--batch", "4000000", "--steps", "1"],
    ] {
        let (output, most) = run(&arguments, Some(1024 * MIB));
        let error = words(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("memory: "), "{arguments:?}: {error}");
        assert!(most < 1024 * MIB);
    }
}

#[test]
fn a_simulated_card_takes_no_memory_whatever_the_batch() {
    for data in ["reference", "synthetic", "host", "fresh"] {
        for pin in [[].as_slice(), &["--pin"]] {
            let arguments =
                ["run", "mlp-mini", "--device", "sim:h200", "--batch", "4194304", "--steps", "2"].as_slice();
            let (output, most) = run(&[arguments, &["--data", data], pin].concat(), None);
            assert!(output.status.success(), "{data}: {}", words(&output));
            assert!(most < 64 * MIB, "{data}: {} MiB", most / MIB);
        }
    }
}

#[test]
fn a_run_keeps_nothing_of_its_steps() {
    let held = |steps| {
        let arguments = ["run", "mlp-mini", "--device", "sim:h200", "--speed", "max", "--steps", steps];
        let (output, held) = watch(&arguments, None, "RssAnon:");
        assert!(output.status.success(), "{}", words(&output));
        held
    };
    // The history keeps some two thousand columns for every power of two of steps. 70,000 steps add three of those,
    // which is far less than ten bytes a step.
    let (short, long) = (held("10000"), held("80000"));
    assert!(long <= short + 70_000 * 10, "{short} bytes after 10000 steps, {long} after 80000");
}

#[test]
fn a_small_stack_is_enough() {
    let arguments = ["-c", "ulimit -s 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_vramlab"), "run", "mlp-mini"];
    let output = Command::new("sh").args(arguments).args(["--device", "cpu", "--steps", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
}

/// A device, and the account of the host memory that it takes.
fn device() -> (Box<dyn Device>, HostAccount) {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(2)), threads: Some(2) }).unwrap();
    let account = device.pinned_memory().account().clone();
    (Box::new(device), account)
}

#[test]
fn host_memory_that_runs_out_is_survived_wherever_it_strikes() {
    for (variant, data, pinned) in [
        ("bf16", DataPath::Resident, false),
        ("base", DataPath::Streamed, false),
        ("base", DataPath::Streamed, true),
        ("base", DataPath::Host, true),
        ("save_on_cpu", DataPath::Resident, false),
        ("save_on_cpu_pinned", DataPath::Resident, true),
    ] {
        let what = format!("{variant} {data:?} pinned {pinned}");
        let (model, batch) = crate::training::workload("gpt-wide");
        let config = Config { data, pinned, ..crate::training::variant(variant, batch) };
        let (device, account) = device();
        let (mut trainer, events) =
            crate::training::on(device, model, config, Libraries::PROCESSOR, LoopStyle::Accumulating);
        let mut struck = [0; 2];
        // With every bound the step gets a little further.
        for extra in (0..16).map(|n| Bytes::mib(2 * n)).chain([Bytes::gib(1)]) {
            trainer.empty_cache();
            account.set_limit(Some(account.taken() + extra));
            match trainer.step() {
                Err(TrainError::OutOfMemory { kind, .. }) => struck[usize::from(kind == MemoryKind::Host)] += 1,
                Err(other) => panic!("{what}: {other}"),
                Ok(report) => assert!(report.loss.is_some_and(f32::is_finite), "{what}"),
            }
            assert!(account.taken() <= account.total(), "{what}");
        }
        assert!(struck[0] > 0, "{what}: {struck:?}");
        let told = events.borrow().iter().filter(|event| matches!(&event.kind, EventKind::Note { .. })).count();
        assert_eq!(told, struck[1], "{what}: a note for each time that the host's memory ran out");
        account.set_limit(None);
        assert!(trainer.step().is_ok(), "{what}");
        drop((trainer, events));
        let kept = account.taken();
        assert!(kept < Bytes::mib(64), "{what}: {kept} of scratch is kept, and nothing else");
    }
}

#[test]
fn a_batch_that_does_not_fit_the_host_goes_back_and_the_lab_goes_on() {
    let workload = Catalog::with_user_workloads(None).entry("resnet-mini").unwrap();
    let spec = LabSpec { limit: Some(MemoryLimit::Bytes(Bytes::mib(64))), ..LabSpec::new(workload) };
    let batch = spec.config.batch;
    let mut lab = source::live(spec).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        lab.pictures.wait_for(|lab| lab.view.steps.finished >= 2).await.unwrap();
        lab.request(Request::Lab(LabCommand::Pause));
        lab.pictures.wait_for(|lab| lab.run == RunState::Paused).await.unwrap();
        // Far more than any machine has.
        let switch = Switch::named("batch").unwrap();
        for _ in 0..40 {
            lab.request(Request::Lab(LabCommand::Flip(switch, FlipDirection::Next)));
        }
        lab.request(Request::Lab(LabCommand::Resume));
        let refused = |lab: &Picture| lab.view.log.iter().any(|line| line.text.contains("do not fit"));
        let refused = lab.pictures.wait_for(|lab| refused(lab)).await.unwrap().view.steps.finished;
        let goes_on = lab.pictures.wait_for(|lab| lab.view.steps.finished >= refused + 2).await.unwrap();
        let detail = &goes_on.view.about.detail;
        assert!(detail.contains(&format!("B{batch}")), "{detail}");
    });
}
