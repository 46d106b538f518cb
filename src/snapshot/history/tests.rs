use std::path::Path;

use super::*;
use crate::Begins;
use crate::{Action, Snapshot, StackId, TextId, TraceEntry};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{Settings, TraceEvent};

fn load(name: &str) -> (Snapshot, Settings) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces").join(format!("{name}.pickle.xz"));
    let snapshot = Snapshot::open(path).unwrap();
    let settings = Settings::parse(snapshot.allocator_settings.conf.as_deref().unwrap_or_default()).unwrap();
    (snapshot, settings)
}

/// Segments and mapped runs with their ends, and held blocks with their end, requested bytes, and whether they wait.
type State = (Vec<(Address, Address)>, Vec<(Address, Address, Bytes, bool)>);

fn state(space: &Space) -> State {
    let homes = space.homes().map(|(address, home)| (address, home.end)).collect();
    let blocks = space.blocks().map(|(address, held)| (address, held.end, held.requested, held.pending)).collect();
    (homes, blocks)
}

/// Drops the oldest entries, and compares what the rest implies about that moment with the state that the whole history
/// led to.
fn cut(name: &str, cuts: usize) {
    let (mut snapshot, settings) = load(name);
    let whole = snapshot.device_trace(0).to_vec();
    let first = Beginning::of(&snapshot, 0, &settings);
    assert_eq!(first.begins, Begins::First, "{name}");
    let range = snapshot.device_traces[0].clone();
    let mut story = Story::new(&whole, &settings, &first);
    for at in 0..cuts {
        // At any place, also in the middle of a request.
        let lost = whole.len() * at / cuts + at % 3;
        while story.position() < lost && story.advance(&mut |_: &TraceEvent| {}) {}
        snapshot.device_traces[0] = range.start + lost..range.end;
        let beginning = Beginning::of(&snapshot, 0, &settings);
        assert_eq!(beginning.contradictions, 0, "{name} without {lost}");
        let (found, was) = (state(&beginning.space), state(story.space()));
        assert_eq!(found.0, was.0, "{name} without {lost}: segments");
        assert_eq!(found.1.len(), was.1.len(), "{name} without {lost}: blocks");
        for (found, was) in found.1.iter().zip(&was.1).filter(|(found, was)| found != was) {
            // One end can't be known: that of a block that is freed before anything is allocated after it.
            assert_eq!((found.0, found.2, found.3), (was.0, was.2, was.3), "{name} without {lost}");
            let ends = |entry: &&TraceEntry| entry.action == Action::FreeRequested && entry.address == was.0;
            let told = |entry: &TraceEntry| entry.action == Action::Alloc && entry.address == was.1;
            assert!(!whole[lost..].iter().take_while(|entry| !ends(entry)).any(told), "{name} without {lost}: {was:?}");
        }
    }
}

macro_rules! cut_anywhere {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                cut($name, 23);
            }
        )*
    };
}

cut_anywhere! {
    two_streams_cut_anywhere: "two-streams";
    expandable_segments_cut_anywhere: "torture.c";
    oversize_blocks_cut_anywhere: "torture.b";
    out_of_memory_cut_anywhere: "oom-and-recover";
    rounded_sizes_cut_anywhere: "dcgan-roundup";
}

fn entry(action: Action, address: u64, size: u64) -> TraceEntry {
    TraceEntry {
        action,
        address: Address(address),
        size: Bytes(size),
        stream: StreamId::DEFAULT,
        time: vramlab_allocator::units::Micros(1),
        stack: StackId::EMPTY,
        metadata: TextId::default(),
        pool: None,
    }
}

fn snapshot_of(entries: &[TraceEntry]) -> Snapshot {
    let whole = 0..entries.len();
    let device_traces = vec![whole];
    Snapshot { entries: entries.to_vec(), device_traces, ..Snapshot::default() }
}

#[test]
fn a_block_that_nothing_holds_gets_a_segment_of_its_own() {
    let base = 1 << 30;
    let snapshot = snapshot_of(&[entry(Action::FreeRequested, base, 1000), entry(Action::FreeCompleted, base, 1000)]);
    let beginning = Beginning::of(&snapshot, 0, &Settings::default());
    assert_eq!((beginning.begins, beginning.guessed_segments), (Begins::Late, 1));
    assert_eq!(state(&beginning.space).1, [(Address(base), Address(base + 1024), Bytes(1000), false)]);
}
