use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::{Action, Begins, StackId, TextId, TraceEntry};
use vramlab_allocator::PoolId;
use vramlab_allocator::units::Micros;
use vramlab_allocator::units::{Address, Bytes, StreamId};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces").join(format!("{name}.pickle.xz"))
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

#[test]
fn a_history_without_its_beginning_is_replayed_from_what_was_there() {
    let (mut snapshot, conditions) = load("two-streams");
    // As a ring buffer leaves it: the oldest entries are overwritten.
    for lost in [1, 2, 300, 301, 302, 303, 1000] {
        snapshot.device_traces[0].start = lost;
        let report = verify(&snapshot, &conditions);
        assert_eq!(report.first_mismatch, None, "{lost}");
        assert!(report.is_match());
        assert_ne!(report.history.begins, Begins::First);
        assert_eq!(report.history.exact_from, Some(0));
        // Totals since the first allocation are not compared; values at the end are.
        assert!(report.stats.total > 20 && report.stats.total < 122, "{:?}", report.stats);
    }
}

#[test]
fn segments_that_nothing_explains_are_reported_at_the_end() {
    let (mut snapshot, conditions) = load("two-streams");
    let mut older = snapshot.segments[0].clone();
    older.address = Address(0x1000_0000);
    older.blocks.clear();
    snapshot.segments.push(older);
    let report = verify(&snapshot, &conditions);
    // If it had been there, PyTorch would have used it: the history explains this by itself.
    assert_eq!((report.segments.is_complete(), report.placements.is_complete()), (true, true));
    let mismatch = report.first_mismatch.unwrap();
    assert_eq!(mismatch.entry, snapshot.entries.len());
    assert!(mismatch.found.contains("0x10000000"), "{mismatch:?}");
}

#[test]
fn a_changed_block_or_statistic_is_reported_at_the_end() {
    let (mut snapshot, mut conditions) = load("two-streams");
    let statistics = conditions.statistics.as_mut().unwrap();
    *statistics.0.get_mut("active.all.freed").unwrap() += 1;
    let report = verify(&snapshot, &conditions);
    assert_eq!(
        (report.stats.matched + 2, report.stats.total),
        (122, 122),
        "the changed one, and what follows from all"
    );
    assert_eq!(report.first_mismatch.unwrap().entry, snapshot.entries.len());

    let (_, conditions) = load("two-streams");
    let stale = snapshot.segments.iter_mut().flat_map(|segment| &mut segment.blocks).last().unwrap();
    stale.requested = Some(Bytes(1));
    let report = verify(&snapshot, &conditions);
    assert_eq!(report.blocks.matched + 1, report.blocks.total);
    assert!(report.first_mismatch.unwrap().found.contains(", 1 asked"));
}

#[test]
fn without_statistics_there_are_none_to_match() {
    let (snapshot, mut conditions) = load("two-streams");
    conditions.statistics = None;
    let report = verify(&snapshot, &conditions);
    assert_eq!(report.stats, Tally { matched: 0, total: 0 });
    assert!(report.is_match());
}

#[test]
fn wrong_settings_are_noticed() {
    let (snapshot, mut conditions) = load("two-streams");
    conditions.settings = vramlab_allocator::Settings::parse("expandable_segments:True").unwrap();
    assert_eq!(verify(&snapshot, &conditions).first_mismatch.unwrap().entry, 0);
}

#[test]
fn a_report_has_the_promised_keys() {
    let (snapshot, conditions) = load("two-streams");
    let json = serde_json::to_value(verify(&snapshot, &conditions)).unwrap();
    assert_eq!(json["events"], 1812);
    for key in ["segments", "placements", "stats", "blocks"] {
        assert!(json[key]["total"].as_u64() > Some(0), "{key}");
        assert_eq!(json[key]["matched"], json[key]["total"], "{key}");
    }
    assert!(json["first_mismatch"].is_null());
    assert_eq!(json["pending"], 10);
}

/// A retry whose synchronisation completes the very block that would have served the request. A call of `empty_cache()`
/// leaves the same entries.
fn retry_after_a_late_completion(retries: i64, synchronisations: i64) -> Report {
    const SIZE: u64 = 20 << 20;
    let (first, second, third) = (0x1000_0000, 0x2000_0000, 0x3000_0000);
    let entries: Vec<TraceEntry> = [
        (Action::SegmentAlloc, first),
        (Action::Alloc, first),
        (Action::SegmentAlloc, second),
        (Action::Alloc, second),
        (Action::FreeRequested, second),
        (Action::FreeCompleted, second),
        (Action::SegmentFree, second),
        (Action::SegmentAlloc, third),
        (Action::Alloc, third),
    ]
    .into_iter()
    .map(|(action, address)| TraceEntry {
        action,
        address: Address(address),
        size: Bytes(SIZE),
        stream: StreamId::DEFAULT,
        time: Micros::default(),
        stack: StackId::default(),
        metadata: TextId::default(),
        pool: None,
    })
    .collect();
    let whole = 0..entries.len();
    let mut snapshot = Snapshot { entries, device_traces: vec![whole], ..Snapshot::default() };
    let statistics = [("num_alloc_retries", retries), ("num_sync_all_streams", synchronisations)];
    let statistics = Statistics(statistics.map(|(key, value)| (key.to_owned(), value)).into());
    let conditions = Conditions { limit: Some(Bytes(2 * SIZE)), statistics: Some(statistics), ..Conditions::default() };
    // Not the final blocks are tested, but those that the replay arrives at.
    snapshot.segments = Vec::new();
    verify(&snapshot, &conditions)
}

#[test]
fn a_retry_that_looks_like_a_call_is_settled_by_the_statistics() {
    for retries in [0, 1] {
        let report = retry_after_a_late_completion(retries, 1);
        assert_eq!((report.segments.matched, report.placements.matched), (4, 3));
        assert_eq!(report.stats, Tally { matched: 2, total: 2 }, "{retries} retries");
        let settled = report.devices[0].ambiguous_retries;
        assert_eq!((settled.spots, settled.read_as_retries), (1, retries.unsigned_abs()));
    }
    for (retries, synchronisations) in [(2, 1), (-1, 1), (1, 0)] {
        assert!(retry_after_a_late_completion(retries, synchronisations).stats.matched < 2);
    }
}

/// A history from its first entry on, without its final blocks, and PyTorch's counts of retries and synchronisations.
fn short(entries: &[(Action, u64, u64)], conf: &str, limit: Option<u64>, counted: Option<[i64; 2]>) -> Report {
    let pool = |address: u64| if address >= PRIVATE { PoolId(0, 7) } else { PoolId::DEFAULT };
    let entry = |&(action, address, size): &(Action, u64, u64)| TraceEntry {
        action,
        address: Address(address),
        size: Bytes(size),
        stream: StreamId::DEFAULT,
        time: Micros::default(),
        stack: StackId::default(),
        metadata: TextId::default(),
        pool: Some(pool(address)),
    };
    let entries: Vec<TraceEntry> = entries.iter().map(entry).collect();
    let whole = 0..entries.len();
    let snapshot = Snapshot { entries, device_traces: vec![whole], ..Snapshot::default() };
    let settings = vramlab_allocator::Settings::parse(conf).unwrap();
    let named =
        |counted: [i64; 2]| ["num_alloc_retries", "num_sync_all_streams"].map(str::to_owned).into_iter().zip(counted);
    let statistics = counted.map(|counted| Statistics(named(counted).collect()));
    let conditions = Conditions { settings, limit: limit.map(Bytes), statistics, ..Conditions::default() };
    verify(&snapshot, &conditions)
}

/// Addresses from here on belong to a private pool.
const PRIVATE: u64 = 0x2000_0000_0000;
const MIB: u64 = 1 << 20;
use Action::{Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree};

/// Checks that all decisions agree; final blocks are not part of this history.
fn explained(report: &Report) -> (u64, u64) {
    assert!(report.segments.is_complete() && report.placements.is_complete(), "{report:?}");
    assert!(report.stats.is_complete(), "{report:?}");
    let SettledRetries { spots, read_as_retries } = report.devices[0].ambiguous_retries;
    (spots, read_as_retries)
}

// The histories below were recorded from PyTorch 2.13, running programs that do just this.

#[test]
fn a_retry_waits_for_a_block_that_would_have_served_the_request() {
    let (large, small, new) = (0x1000_0000_0000, 0x1000_0140_0000, 0x1000_0160_0000);
    let waited = small + 600_064;
    let served = [
        (SegmentAlloc, large, 20 * MIB),
        (Alloc, large, 20 * MIB),
        (SegmentAlloc, small, 2 * MIB),
        (Alloc, small, 600_000),
        (Alloc, waited, 1_000_000),
        (FreeRequested, waited, 1_000_000),
        (FreeRequested, large, 20 * MIB),
        (FreeCompleted, large, 20 * MIB),
        (FreeCompleted, waited, 1_000_000),
        (SegmentFree, large, 20 * MIB),
        (SegmentAlloc, new, 2 * MIB),
        (Alloc, new, 1_000_000),
    ];
    // If it had been free before, the request would not have needed the new segment: no call explains that.
    assert_eq!(explained(&short(&served, "", Some(22 * MIB), Some([1, 1]))), (0, 0));
    let failed = [
        (SegmentAlloc, small, 2 * MIB),
        (Alloc, small, 600_000),
        (Alloc, waited, 1_000_000),
        (FreeRequested, waited, 1_000_000),
        (FreeCompleted, waited, 1_000_000),
        (Oom, 150 << 30, 1_000_448),
    ];
    assert_eq!(explained(&short(&failed, "", Some(2 * MIB), Some([1, 1]))), (0, 0));
}

#[test]
fn a_call_before_a_request_that_would_have_released_otherwise_is_no_retry() {
    let (oversize, large, small, new) = (0x1000_0000_0000, 0x1000_01e0_0000, 0x1000_0320_0000, 0x1000_0340_0000);
    let entries = [
        (SegmentAlloc, oversize, 30 * MIB),
        (Alloc, oversize, 30 * MIB),
        (SegmentAlloc, large, 20 * MIB),
        (Alloc, large, 4 * MIB),
        (SegmentAlloc, small, 2 * MIB),
        (Alloc, small, 500),
        (FreeRequested, oversize, 30 * MIB),
        (FreeCompleted, oversize, 30 * MIB),
        (FreeRequested, large, 4 * MIB),
        (FreeCompleted, large, 4 * MIB),
        (SegmentFree, large, 20 * MIB),
        (SegmentFree, oversize, 30 * MIB),
        (SegmentAlloc, new, 40 * MIB),
        (Alloc, new, 40 * MIB),
    ];
    // The request itself first gives oversize blocks back.
    assert_eq!(explained(&short(&entries, "max_split_size_mb:24", Some(60 * MIB), Some([0, 1]))), (0, 0));
}

#[test]
fn a_block_that_goes_back_at_once_may_have_been_waited_for() {
    let (oversize, new) = (0x1000_0000_0000, 0x1000_03c0_0000);
    let entries = [
        (SegmentAlloc, oversize, 60 * MIB),
        (Alloc, oversize, 60 * MIB),
        (FreeRequested, oversize, 60 * MIB),
        (FreeCompleted, oversize, 60 * MIB),
        (SegmentFree, oversize, 60 * MIB),
        (SegmentAlloc, new, 32 * MIB),
        (Alloc, new, 32 * MIB),
    ];
    let told = |counted| explained(&short(&entries, "max_split_size_mb:20", Some(70 * MIB), counted));
    // Both were recorded from two programs: the entries are the same, but the counts differ.
    assert_eq!(told(Some([0, 0])), (1, 0));
    assert_eq!(told(Some([1, 1])), (1, 1));
    assert_eq!(told(None), (1, 0));
}

#[test]
fn a_driver_that_refuses_shows_where_a_request_failed_or_nowhere() {
    let (first, held, new) = (0x1000_0000_0000, 0x1000_0140_0000, 0x1000_01e0_0000);
    let mut entries = vec![
        (SegmentAlloc, first, 20 * MIB),
        (Alloc, first, 20 * MIB),
        (SegmentAlloc, held, 10 * MIB),
        (Alloc, held, 10 * MIB),
        (FreeRequested, first, 20 * MIB),
        (FreeCompleted, first, 20 * MIB),
        (SegmentFree, first, 20 * MIB),
        (SegmentAlloc, new, 22 * MIB),
        (Alloc, new, 22 * MIB),
    ];
    // Nothing shows what the driver had. It can be a call or a retry, and the file does not decide.
    assert_eq!(explained(&short(&entries, "", None, None)), (1, 0));
    assert_eq!(explained(&short(&entries, "", None, Some([1, 1]))), (1, 1));
    assert_eq!(explained(&short(&entries, "", None, Some([0, 1]))), (1, 0));
    // It had 8 MiB left when a request failed, so 40 in all: 30 and 22 were too much.
    entries.push((Oom, 8 * MIB, 30 * MIB));
    assert_eq!(explained(&short(&entries, "", None, None)), (1, 1));
    assert_eq!(explained(&short(&entries, "", None, Some([2, 2]))), (1, 1));
}

#[test]
fn what_a_private_pool_finds_completed_is_no_call() {
    let (large, small) = (0x1000_0000_0000, 0x1000_0140_0000);
    let entries = [
        (SegmentAlloc, large, 20 * MIB),
        (Alloc, large, 20 * MIB),
        (SegmentAlloc, small, 2 * MIB),
        (Alloc, small, 1000),
        (Alloc, small + 1024, 1000),
        (FreeRequested, small, 1000),
        (FreeRequested, large, 20 * MIB),
        (FreeCompleted, large, 20 * MIB),
        (FreeCompleted, small, 1000),
        (SegmentAlloc, PRIVATE, 2 * MIB),
        (Alloc, PRIVATE, 1000),
        (FreeRequested, small + 1024, 1000),
        (FreeCompleted, small + 1024, 1000),
        (Alloc, small, 2000),
    ];
    let report = short(&entries, "", None, None);
    assert!(report.history.private && report.placements.matched == 4 && report.segments.matched == 2, "{report:?}");
    assert_eq!(report.segments.total, 2, "{report:?}");
    let mismatch = report.first_mismatch;
    assert_eq!(mismatch.map(|mismatch| mismatch.entry), Some(entries.len()), "only the end, which is not told here");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_histories_never_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..5u8), 1..6),
        confs in prop::sample::select(vec!["", "expandable_segments:True", "max_split_size_mb:20"]),
    ) {
        thread_local! {
            static LOADED: (Snapshot, Conditions) = load("two-streams");
        }
        LOADED.with(|(original, conditions)| {
            let mut entries = original.device_trace(0)[..600].to_vec();
            for (at, other, how) in damage {
                let (at, other) = (at.index(entries.len()), other.index(entries.len()));
                match how {
                    0 => entries[at].action = entries[other].action,
                    1 => entries[at].address = entries[other].address,
                    2 => entries[at].size = Bytes(entries[other].size.0 << (other % 40)),
                    3 => entries.swap(at, other),
                    _ => { entries.remove(at); }
                }
            }
            let whole = 0..entries.len();
            let snapshot = Snapshot { entries, device_traces: vec![whole], ..Snapshot::default() };
            let settings = vramlab_allocator::Settings::parse(confs).unwrap();
            let report = verify(&snapshot, &Conditions { settings, ..conditions.clone() });
            prop_assert!(report.segments.matched <= report.segments.total);
            prop_assert!(report.placements.matched <= report.placements.total);
            Ok(())
        })?;
    }
}
