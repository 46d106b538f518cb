//! Long snapshots with deep stacks: they are read as they were written, in memory that grows with their entries and not
//! with their frames.
//!
//! The memory for one of them is measured in a process of its own. The last test is for work on the speed of reading:
//!
//!     cargo test --release --test files large_file -- --ignored --nocapture
//!
//! It writes 750 MB to the temporary folder (or, for good, to the path in `VRAMLAB_BIG`), reads them, and prints the time
//! and memory that this took.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, pipe};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::big::Big;
use vramlab::snapshot::Snapshot;
use vramlab::snapshot::replay::{Conditions, Overrides, verify};

/// The most memory that this process has used so far, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Writes a snapshot to one end of a pipe and reads it at the other.
fn through_a_pipe(big: Big) -> (Snapshot, u64, u64) {
    let (reader, writer) = pipe().unwrap();
    let written = thread::spawn(move || big.write(BufWriter::with_capacity(1 << 20, writer)).unwrap());
    let snapshot = Snapshot::read(BufReader::new(reader)).unwrap();
    let (entries, bytes) = written.join().unwrap();
    (snapshot, entries, bytes)
}

/// If it is set, a process runs only one test, so that no other test's memory is counted.
const ALONE: &str = "VRAMLAB_TEST_ALONE";

#[test]
fn a_long_snapshot_is_read_as_it_was_written() {
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "large_file::a_long_snapshot_is_read_as_it_was_written", "--nocapture"]);
        let output = alone.env(ALONE, "").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (snapshot, entries, _) = through_a_pipe(Big { entries: 20_000, depth: 9, places: 500 });
    let trace = snapshot.device_trace(0);
    assert_eq!((trace.len() as u64, snapshot.device_count()), (entries, 1));
    assert!(trace.iter().all(|entry| snapshot.stacks.depth(entry.stack) == 9));
    // Two stacks for each place, where it allocates and where it frees; and the empty one, of blocks at the end.
    assert_eq!(snapshot.stacks.len(), 1001);
    let conditions = Conditions::find("none".as_ref(), &snapshot, &Overrides::default()).unwrap();
    let report = verify(&snapshot, &conditions);
    assert_eq!(report.first_mismatch, None);
    assert!(report.is_match() && report.blocks.total > 0, "{report:?}");

    let before = peak();
    let (snapshot, entries, bytes) = through_a_pipe(Big::of(30_000));
    let held = (peak() - before) * 1024;
    assert!(snapshot.device_trace(0).iter().all(|entry| snapshot.stacks.depth(entry.stack) == 70));
    assert_eq!(snapshot.device_trace(0).len() as u64, entries);
    assert!(bytes > 300 * entries, "{bytes} bytes");
    // Stacks that were stored once for each entry would take as much again: 4 MiB, more than what buffers and the pages of
    // other threads differ by from run to run.
    assert!(held < (7 << 20) + 120 * entries, "{held} bytes for {entries} entries");
}

#[test]
#[ignore = "it writes 750 MB"]
fn the_longest_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("VRAMLAB_BIG").map(PathBuf::from);
    let path = kept.clone().unwrap_or_else(|| folder.path().join("big.pickle"));
    if !path.exists() {
        let (entries, bytes) = Big::FULL.write(BufWriter::new(File::create(&path).unwrap())).unwrap();
        println!("{entries} entries in {} MB", bytes / 1_000_000);
    }
    for _ in 0..3 {
        let start = Instant::now();
        let snapshot = Snapshot::open(&path).unwrap();
        println!("read in {:.3} s", start.elapsed().as_secs_f64());
        assert!(snapshot.device_trace(0).len() as u64 >= Big::FULL.entries);
    }
    println!("at most {} MiB", peak() >> 10);
    assert!(peak() >> 10 < 400);
}
