//! The allocator of PyTorch 2.11 to 2.15, compared with what the released `libc10_cuda.so` of each did on a driver that
//! hands out addresses and no memory: every event, placement, final block and statistic.
//!
//! The recordings are a few of the tens of thousands of random programs that were judged; `examples/judge` judges more.

use std::io::Read;
use std::path::{Path, PathBuf};

use vramlab::allocator::TorchVersion;
use vramlab::snapshot::Snapshot;
use vramlab::snapshot::replay::{Conditions, Overrides, Report, verify};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/versions")
}

fn programs() -> Vec<(String, String)> {
    let mut programs: Vec<(String, String)> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".judged.xz"))
        .map(|path| {
            let mut text = String::new();
            let file = std::fs::File::open(&path).unwrap();
            lzma_rust2::XzReader::new(file, false).read_to_string(&mut text).unwrap();
            (path.file_name().unwrap().to_string_lossy().into_owned(), text)
        })
        .collect();
    programs.sort();
    programs
}

#[test]
fn every_judged_program_is_as_pytorch_ran_it() {
    let programs = programs();
    assert_eq!(programs.len(), 26, "six of each of four versions, and two that empty pools still in use");
    for (name, program) in programs {
        match crate::judge::judge(&program) {
            Ok(agreed) => assert!(agreed > 300, "{name}: {agreed} facts"),
            Err(difference) => panic!("{name}: {difference}"),
        }
    }
}

#[test]
fn under_another_versions_rules_they_differ() {
    // In these, equal sizes are frequent, and segments are placed at random.
    for (name, program) in programs().iter().filter(|(name, _)| name.contains("-default")) {
        let (own, others) = match &name[..4] {
            "2.11" => ("2.11.0", ["2.12", "2.13"]),
            "2.12" => ("2.12.0", ["2.11", "2.13"]),
            "2.13" => ("2.13.0", ["2.11", "2.12"]),
            _ => ("2.15.0", ["2.11", "2.12"]),
        };
        let differs = others.iter().any(|other| {
            crate::judge::judge(&program.replacen(&format!("torch {own}"), &format!("torch {other}"), 1)).is_err()
        });
        assert!(differs, "{name} is the same in all versions: it tells nothing");
    }
}

fn replay(name: &str, torch: Option<TorchVersion>) -> (TorchVersion, Report) {
    let path = folder().join(format!("{name}.pickle.xz"));
    let snapshot = Snapshot::open(&path).unwrap();
    let conditions = Conditions::find(&path, &snapshot, &Overrides { torch, ..Overrides::default() }).unwrap();
    (snapshot.torch, verify(&snapshot, &conditions))
}

#[test]
fn a_snapshot_is_replayed_as_the_version_that_wrote_it() {
    // 2.15 has the keys of 2.14; its statistics file says which it was.
    for (name, keys, torch) in [
        ("2.12", TorchVersion::V2_12, TorchVersion::V2_12),
        ("2.13", TorchVersion::V2_13, TorchVersion::V2_13),
        ("2.15", TorchVersion::V2_14, TorchVersion::V2_15),
    ] {
        let (told, report) = replay(name, None);
        assert_eq!((told, report.torch), (keys, torch));
        assert!(report.is_match(), "{name}: {:?}", report.first_mismatch);
        assert_eq!(report.stats.total, 123);
        let (_, other) = replay(name, Some(TorchVersion::V2_11));
        assert_eq!(other.torch, TorchVersion::V2_11);
        assert!(other.first_mismatch.is_some(), "{name} as 2.11 leaves the recording");
    }
}
