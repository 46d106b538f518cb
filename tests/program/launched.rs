//! Ranks that are processes, started as torchrun, mpirun and SLURM start them.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::patience;

/// The silence after which a lost rank is reported. A killed rank is reported earlier.
pub const SILENCE: Duration = Duration::from_secs(60);

/// A free port, whose successors, which rank 0 tries if it is taken, are free too: no other test of this program gets
/// them, and the system gives none of them to a client.
pub fn port() -> String {
    const FIRST: u16 = 20_000;
    const RUNS: u16 = 350;
    const EACH: u16 = 32;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other programs of these tests, which may run at the same time, begin elsewhere.
    let begin = u16::try_from(std::process::id() % u32::from(RUNS)).unwrap();
    let ports = (0..RUNS).map(|_| FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % RUNS * EACH);
    let is_free = |port: &u16| (*port..*port + EACH).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    { ports }.find(is_free).expect("free ports").to_string()
}

/// Starts rank `rank` of `ranks` with the variables of torchrun.
fn rank(rank: usize, ranks: usize, port: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(["run", "gpt-mini", "--device", "cpu"]).args(arguments);
    command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port);
    command.env("XDG_CONFIG_HOME", "/nowhere").env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn launched(ranks: usize, arguments: &[&str]) -> Vec<Output> {
    let port = port();
    let children: Vec<Child> = (0..ranks).map(|of| rank(of, ranks, &port, arguments)).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

/// The losses of every rank; empty for a stage that has none.
fn losses(stdout: &[u8]) -> Vec<Vec<f64>> {
    let object: Value = serde_json::from_slice(stdout).unwrap();
    let losses = |rank: &Value| rank["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
    object["ranks"].as_array().unwrap().iter().map(losses).collect()
}

fn on_threads(ranks: usize, arguments: &[&str]) -> Vec<Vec<f64>> {
    let device = format!("cpux{ranks}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    let output = command.args(["run", "gpt-mini", "--device", &device]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    losses(&output.stdout)
}

fn learn_as_threads_do(ranks: usize, way: &str, batch: &str) {
    let arguments = ["--parallel", way, "--batch", batch, "--steps", "6", "--json"];
    let outputs = launched(ranks, &arguments);
    for (rank, output) in outputs.iter().enumerate() {
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{way}, rank {rank}: {told}");
        assert!(rank == 0 || output.stdout.is_empty(), "only rank 0 prints");
    }
    let (ours, theirs) = (losses(&outputs[0].stdout), on_threads(ranks, &arguments));
    assert_eq!(ours.len(), ranks);
    for (rank, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours.len(), theirs.len(), "{way}, rank {rank}");
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!((ours - theirs).abs() <= 1e-4 * theirs.abs(), "{way}, rank {rank}: {ours} beside {theirs}");
        }
    }
    assert!(ours.iter().any(|losses| losses.len() == 6));
}

#[test]
fn two_processes_learn_what_two_threads_do() {
    for way in ["ddp", "zero1", "fsdp", "tp", "pp-1f1b", "ps"] {
        learn_as_threads_do(2, way, "8");
    }
}

/// If rank 0 has no terminal, the lab is a table.
#[test]
fn without_a_terminal_the_lab_is_a_table_of_all_ranks() {
    let port = port();
    let of = |rank: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(["gpt-mini", "--device", "cpu", "--parallel", "ddp", "--steps", "3"]);
        command.env("RANK", rank).env("LOCAL_RANK", rank).env("WORLD_SIZE", "2");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port).env("XDG_CONFIG_HOME", "/nowhere");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let [first, second] = ["0", "1"].map(of).map(|child| child.wait_with_output().unwrap());
    assert!(first.status.success() && second.status.success());
    let table = String::from_utf8(first.stdout).unwrap();
    assert!(table.contains("gpt-mini on 2 × cpu, ddp, 3 steps"), "{table}");
    assert!(second.stdout.is_empty(), "only rank 0 prints");
}

#[test]
fn three_processes_learn_what_three_threads_do() {
    for way in ["ddp", "fsdp"] {
        learn_as_threads_do(3, way, "6");
    }
}

/// Every other rank reports who is gone, and ends.
#[test]
fn a_rank_that_is_killed_ends_the_others() {
    let port = port();
    let endless = ["--parallel", "ddp", "--batch", "6", "--steps", "1000000"];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram");
    let path = path.to_str().unwrap();
    let recording = [&endless[..], &["--record", path]].concat();
    let mut children: Vec<Child> = (0..3).map(|of| rank(of, 3, &port, &recording)).collect();
    let trains = |of: usize| {
        let path = folder.path().join(format!("run.rank{of}.vram"));
        path.metadata().is_ok_and(|data| data.len() > 10_000)
    };
    patience::wait(|| (0..3).all(trains), || "the ranks to train".to_owned());
    children[1].kill().unwrap();
    let killed = Instant::now();
    for (of, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        if of != 1 {
            assert!(told.contains("rank 1 has ended, and this one can't go on without it"), "rank {of}: {told}");
        }
    }
    assert!(killed.elapsed() < SILENCE, "took {:?}", killed.elapsed());
}

#[test]
fn ranks_record_to_files_that_open_and_report_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.vram").to_str().unwrap().to_owned();
    let outputs = launched(2, &["--parallel", "pp-gpipe", "--batch", "8", "--steps", "3", "--record", &path]);
    assert!(outputs.iter().all(|output| output.status.success()));
    let table = String::from_utf8(outputs[0].stdout.clone()).unwrap();
    assert!(table.contains("gpt-mini on 2 × cpu, pp-gpipe, 3 steps"), "{table}");
    let of = |rank: usize| folder.path().join(format!("run.rank{rank}.vram")).to_str().unwrap().to_owned();
    assert!(!Path::new(&path).exists());
    let report = Command::new(env!("CARGO_BIN_EXE_vramlab")).args(["report", &of(0), &of(1)]).output().unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    assert!(report.contains("Ranks") && report.contains("run.rank1.vram"), "{report}");
}

#[test]
fn what_a_launcher_can_not_start_is_a_sentence() {
    let refused = |arguments: &[&str], words: &str| {
        for output in launched(2, arguments) {
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(2) && told.contains(words), "{told}");
        }
    };
    refused(&["--parallel", "ddp", "--batch", "3"], "3 samples can't be split over 2 ranks");
    refused(&["--parallel", "ps", "--amp", "fp16"], "ps has them on rank 0 alone");
    refused(&["--parallel", "ddp", "--record", "-"], "each rank records to a file of its own");
    let port = port();
    let apart = [rank(0, 2, &port, &["--parallel", "ddp"]), rank(1, 2, &port, &["--parallel", "ddp", "--seed", "7"])];
    for child in apart {
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains("ranks 0 and 1 were given different arguments"), "{told}");
    }
}
