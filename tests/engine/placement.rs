//! Compares the simulated driver's addresses with those of recorded programs that only allocate and free.

use std::path::Path;

use vramlab::allocator::Placement;
use vramlab::snapshot::{Action, Snapshot};
use vramlab::units::{Address, MIB};

const TOP: u64 = 1 << 46;

/// Places the recorded segments with `placement`; every address must be the recorded one, up to a common offset.
fn places_all(name: &str, mut placement: Placement) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.pickle.xz"));
    let snapshot = Snapshot::open(path).unwrap();
    let mut first: Option<(Address, u64)> = None;
    let mut placed = 0;
    for entry in snapshot.device_trace(0) {
        match entry.action {
            Action::SegmentAlloc => {
                let ours = placement.place(entry.size.0).unwrap();
                let &mut (recorded, simulated) = first.get_or_insert((entry.address, ours));
                assert_eq!(
                    ours.wrapping_sub(simulated),
                    entry.address.0.wrapping_sub(recorded.0),
                    "segment {placed} of {name}, {} bytes",
                    entry.size.0
                );
                placed += 1;
            }
            Action::SegmentFree => {
                let (recorded, simulated) = first.unwrap();
                placement.release(entry.address.0.wrapping_sub(recorded.0).wrapping_add(simulated), entry.size.0);
            }
            _ => {}
        }
    }
    assert!(placed > 20, "{name}: only {placed} segments");
}

/// Programs on one stream: the holes are those of a bare context.
#[test]
fn every_segment_lies_where_the_h200_put_it() {
    for name in ["churn-default", "churn-gc", "churn-split-roundup", "torture.a", "torture.b", "torture.e"] {
        let mut placement = Placement::new(0..TOP);
        placement.occupy_context();
        places_all(name, placement);
    }
}

/// Programs with side streams, which take memory of their own: the context is one region, and its lower 6 MiB are in
/// use.
#[test]
fn with_side_streams_only_the_context_differs() {
    for name in ["two-streams", "torture.f", "torture.h"] {
        let mut placement = Placement::new(0..TOP);
        placement.place(6 * MIB).unwrap();
        places_all(name, placement);
    }
}
