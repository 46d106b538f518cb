//! A recording that begins late begins with the state at that time.

use std::sync::Arc;

use vramlab::allocator::PoolKind;
use vramlab::model::{BlockView, Category, Event, EventKind, Micros, NameId, Ranks, RunState, SegmentView, View};
use vramlab::recording::prelude;
use vramlab::units::{Address, Bytes, DeviceIndex, MIB, StreamId};

use super::{every_kind, two_ranks};
use crate::synthetic;

fn after(events: &[Event]) -> Ranks {
    let mut ranks = Ranks::default();
    events.iter().for_each(|event| ranks.apply(event));
    ranks
}

/// The segments, without when and by which op their blocks were taken: that was before the recording and is not in it.
fn undated(view: &View) -> Vec<(SegmentView, Vec<BlockView>)> {
    let undated = |block: &BlockView| BlockView { op: NameId::NONE, born: 0, ..*block };
    let bare = |segment: &SegmentView| SegmentView { blocks: Arc::default(), ..segment.clone() };
    view.segments.iter().map(|segment| (bare(segment), segment.blocks.iter().map(undated).collect())).collect()
}

fn assert_recreated(events: &[Event]) {
    let mut ranks = after(events);
    let mut again = after(&prelude(&mut ranks));
    assert_eq!(again.len(), ranks.len());
    for index in 0..ranks.len() {
        let device = DeviceIndex(u16::try_from(index).unwrap());
        let ranges = |ranks: &Ranks| -> Vec<_> {
            ranks.lab(device).unwrap().memory().segments().map(|segment| segment.range()).collect()
        };
        assert_eq!(ranges(&ranks), ranges(&again));
        let (old, new) = (ranks.lab_mut(device).unwrap().view(), again.lab_mut(device).unwrap().view());
        assert_eq!((undated(&old), old.ledger, old.by_category), (undated(&new), new.ledger, new.by_category));
        assert_eq!((old.limit, old.host, &old.names.0), (new.limit, new.host, &new.names.0));
        assert_eq!((old.about, old.settings, old.run), (new.about, new.settings, new.run));
        assert_eq!((old.time, old.phase, old.gpu), (new.time, new.phase, new.gpu));
        let memory = |ranks: &Ranks| ranks.lab(device).unwrap().device_memory();
        assert_eq!(memory(&ranks), memory(&again));
        assert_eq!(new.malformed, 0);
    }
}

#[test]
fn any_moment_of_a_run_is_recreated() {
    let run = synthetic::training_run();
    for end in (0..run.len()).step_by(97) {
        assert_recreated(&run[..end]);
    }
    assert_recreated(&synthetic::crowded(3000));
    assert_recreated(&two_ranks()[..5001]);
}

#[test]
fn pages_blocks_that_are_pending_and_all_else_are_recreated() {
    let map = |address, size| EventKind::SegmentMap {
        address: Address(address),
        size: Bytes(size),
        stream: StreamId(3),
        pool: PoolKind::Large,
        range: Address(1 << 40),
        page: Bytes::mib(2),
    };
    let alloc = |address, size, name| EventKind::Alloc {
        address: Address(address),
        size: Bytes(size),
        requested: Bytes(size - 100),
        stream: StreamId(3),
        category: Category::Activation,
        name: NameId(name),
    };
    let base = 1 << 40;
    let mut kinds: Vec<EventKind> =
        every_kind().into_iter().filter(|kind| !matches!(kind, EventKind::Oom(_))).collect();
    kinds.extend([
        EventKind::Limit { limit: Some(Bytes::gib(1)) },
        EventKind::Run(RunState::Paused),
        EventKind::Define { id: NameId(9), text: "behind a gap".into() },
        map(base, 4 * MIB),
        map(base + 8 * MIB, 6 * MIB),
        alloc(base + 512, MIB, 9),
        alloc(base + 8 * MIB, 3 * MIB, 7),
        EventKind::FreeRequested { address: Address(base + 8 * MIB) },
        alloc(base + 12 * MIB, 512, 7),
        EventKind::SegmentUnmap { address: Address(base + 2 * MIB), size: Bytes::mib(2) },
    ]);
    let events: Vec<Event> = (0..).map(Micros).zip(kinds).map(|(time, kind)| Event::new(time, kind)).collect();
    assert_recreated(&events);
}
