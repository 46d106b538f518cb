use std::path::{Path, PathBuf};

use super::*;
use crate::units::Bytes;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.pickle.xz"))
}

fn load(name: &str) -> (Snapshot, Conditions) {
    let path = path(name);
    let snapshot = Snapshot::open(&path).unwrap();
    let conditions = Conditions::find(&path, &snapshot, &Overrides::default()).unwrap();
    (snapshot, conditions)
}

/// Changes one entry, and returns what the replay reports.
fn reported(
    snapshot: &mut Snapshot,
    conditions: &Conditions,
    at: usize,
    change: impl Fn(&mut TraceEntry),
) -> Option<Mismatch> {
    let entry = snapshot.entries[at];
    change(&mut snapshot.entries[at]);
    let report = verify(snapshot, conditions);
    snapshot.entries[at] = entry;
    assert!(!report.is_match(), "entry {at} was changed, and nobody noticed");
    report.first_mismatch
}

#[test]
fn a_changed_entry_is_reported_where_it_stands() {
    let (mut snapshot, conditions) = load("two-streams");
    let mut wrong = Vec::new();
    for at in (0..snapshot.entries.len()).step_by(5) {
        let entry = snapshot.entries[at];
        let address = |entry: &mut TraceEntry| entry.address = entry.address.offset(Bytes(512));
        let size = |entry: &mut TraceEntry| entry.size += Bytes(1);
        for (what, mismatch) in [
            ("address", reported(&mut snapshot, &conditions, at, address)),
            ("size", reported(&mut snapshot, &conditions, at, size)),
        ] {
            if mismatch.as_ref().map(|mismatch| mismatch.entry) != Some(at) {
                wrong.push(format!("{what} of {at} {entry:?}: {mismatch:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} {wrong:#?}", wrong.len());
}
