//! What an allocator did, one fact a line, in the wording of the recordings.

use std::cell::Cell;
use std::fmt::Write;
use std::rc::Rc;

use vramlab::allocator::{
    BlockState, CachingAllocator, PoolKind, SegmentSnapshot, SegmentSource, TraceEvent, TraceSink,
};
use vramlab::units::{Address, Bytes, StreamId};

/// Writes events down as facts.
#[derive(Debug, Default)]
pub struct Trace {
    pub facts: Vec<String>,
    /// Number of completed blocks; the device reads it, too.
    pub completed: Rc<Cell<usize>>,
}

impl TraceSink for Trace {
    fn trace(&mut self, event: &TraceEvent) {
        let fact = |action, address: Address, size: Bytes, stream: StreamId| {
            format!("{action} {} {} {}", address.0, size.0, stream.0)
        };
        if matches!(event, TraceEvent::FreeCompleted { .. }) {
            self.completed.set(self.completed.get() + 1);
        }
        self.facts.push(match *event {
            TraceEvent::Alloc { address, requested, stream, .. } => fact("alloc", address, requested, stream),
            TraceEvent::FreeRequested { address, requested, stream } => {
                fact("free_requested", address, requested, stream)
            }
            TraceEvent::FreeCompleted { address, requested, stream } => {
                fact("free_completed", address, requested, stream)
            }
            TraceEvent::SegmentAlloc { address, size, stream, .. } => fact("segment_alloc", address, size, stream),
            TraceEvent::SegmentFree { address, size, stream } => fact("segment_free", address, size, stream),
            TraceEvent::SegmentMap { address, size, stream, .. } => fact("segment_map", address, size, stream),
            TraceEvent::SegmentUnmap { address, size, stream } => fact("segment_unmap", address, size, stream),
            TraceEvent::Oom { device_free, rounded, stream } => fact("oom", Address(device_free.0), rounded, stream),
        });
    }
}

/// A recorded fact in the wording of ours; `None` if it is not compared.
pub fn recorded(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    Some(match words[..] {
        ["trace", "snapshot", ..] => return None,
        ["trace", action, address, size, stream, ..] => format!("{action} {address} {size} {stream}"),
        ["segment" | "block" | "stat" | "number", ..] => line.to_owned(),
        _ => return None,
    })
}

/// Segments, blocks and statistics at the end.
pub fn at_the_end<S: SegmentSource>(allocator: &CachingAllocator<S, Trace>) -> Vec<String> {
    let mut facts = Vec::new();
    for segment in allocator.segments() {
        facts.push(segment_fact(&segment));
        for block in &segment.blocks {
            let (allocated, active) = match block.state {
                BlockState::ActiveAllocated => (1, 1),
                BlockState::ActivePendingFree => (0, 1),
                BlockState::Inactive => (0, 0),
            };
            facts.push(format!("block {} {} {allocated} {active}", block.size.0, block.requested.0));
        }
    }
    let mut numbers = String::new();
    for (name, value) in allocator.statistics().entries() {
        writeln!(numbers, "{name} {value}").unwrap();
    }
    facts.extend(statistics(&numbers));
    facts
}

/// Flattened statistics in the recorded form: four numbers of a counter in one line.
fn statistics(flat: &str) -> Vec<String> {
    let values: std::collections::BTreeMap<&str, &str> =
        flat.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    values
        .iter()
        .filter_map(|(name, value)| match name.rsplit_once('.') {
            None => Some(format!("number {name} {value}")),
            Some((counter, "current")) => {
                let of = |field: &str| values[format!("{counter}.{field}").as_str()];
                Some(format!("stat {counter} {value} {} {} {}", of("peak"), of("allocated"), of("freed")))
            }
            Some(_) => None,
        })
        .collect()
}

fn segment_fact(segment: &SegmentSnapshot) -> String {
    let sum = |states: &[BlockState], size: fn(&vramlab::allocator::BlockSnapshot) -> Bytes| {
        segment.blocks.iter().filter(|block| states.contains(&block.state)).map(|block| size(block).0).sum::<u64>()
    };
    let active = [BlockState::ActiveAllocated, BlockState::ActivePendingFree];
    format!(
        "segment {} {} {} {} {} {} {} {} {} {}",
        segment.address.0,
        segment.size.0,
        sum(&active[..1], |block| block.size),
        sum(&active, |block| block.size),
        sum(&active, |block| block.requested),
        segment.stream.0,
        u8::from(segment.pool == PoolKind::Large),
        u8::from(segment.expandable),
        segment.pool_id.0,
        segment.pool_id.1,
    )
}
