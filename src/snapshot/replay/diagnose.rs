//! Why an event did not match: what the history alone, without an allocator, can tell.

use std::collections::HashMap;

use super::conditions::Conditions;
use super::mismatch::Mismatch;
use super::tape::describe_entry;
use crate::types::{Action, Snapshot, TraceEntry};
use vramlab_allocator::BlockState;
use vramlab_allocator::units::{Address, Bytes};

/// An error in the history itself.
struct Fault {
    entry: usize,
    explanation: String,
}

/// Adds an explanation to a mismatch, and moves it to the entry that contradicts all others.
pub fn explain(mismatch: &mut Mismatch, snapshot: &Snapshot, device: usize) {
    let trace = snapshot.device_trace(device);
    if let Some(fault) = contradiction(trace, snapshot, device, mismatch.entry) {
        if fault.entry != mismatch.entry
            && let Some(entry) = trace.get(fault.entry)
        {
            mismatch.found = describe_entry(entry);
            mismatch.entry = fault.entry;
        }
        mismatch.explanation = Some(fault.explanation);
    }
}

/// An assumption about the recorded program that may explain the mismatch, if the history itself has no fault.
pub fn unfit_condition(conditions: &Conditions, largest_device: Option<Bytes>) -> Option<String> {
    let Conditions { settings, limit, device_bytes, .. } = conditions;
    if let (Some(given), Some(largest)) = (device_bytes, largest_device)
        && given > &largest
    {
        return Some(format!(
            "the device does not have {given}: its ranges of expandable segments would overlap, so that it has at most \
             {largest}. Give --device-bytes as it is, or leave it out"
        ));
    }
    let share = settings.per_process_memory_fraction < 1.0;
    if limit.is_none() && share && device_bytes.is_none() {
        return Some(
            "the settings limit memory to a share of the device's, which nothing here names: give --device-bytes or --limit"
                .into(),
        );
    }
    if limit.is_none() && !share && settings.garbage_collection_threshold > 0.0 {
        return Some(
            "the settings collect garbage, which is done only under a memory limit, and nothing here names one: give --limit"
                .into(),
        );
    }
    None
}

/// An entry that contradicts the others: a block whose frees give another size, or a new segment that nothing else mentions.
fn contradiction(trace: &[TraceEntry], snapshot: &Snapshot, device: usize, at: usize) -> Option<Fault> {
    odd_size(trace, snapshot, device, at).or_else(|| odd_segment(trace, snapshot, device, at))
}

/// A block's size is in its allocation, its free and its completion (or in the snapshot): two outvote the allocation.
fn odd_size(trace: &[TraceEntry], snapshot: &Snapshot, device: usize, until: usize) -> Option<Fault> {
    let mut live: HashMap<Address, (usize, Bytes)> = HashMap::new();
    let mut doubtful: HashMap<Address, (usize, Bytes)> = HashMap::new();
    let mut odd: Option<(usize, usize, Bytes)> = None;
    for (index, entry) in trace.iter().enumerate() {
        match entry.action {
            Action::Alloc if index <= until => {
                live.insert(entry.address, (index, entry.size));
            }
            // The block before was freed under another address.
            Action::Alloc => {
                live.remove(&entry.address);
            }
            Action::FreeRequested => {
                if let Some((before, _)) = live.remove(&entry.address).filter(|(_, asked)| *asked != entry.size) {
                    doubtful.insert(entry.address, (before, entry.size));
                }
            }
            Action::FreeCompleted => {
                if let Some((before, told)) = doubtful.remove(&entry.address)
                    && told == entry.size
                    && odd.is_none_or(|(first, ..)| before < first)
                {
                    odd = Some((before, index, told));
                }
            }
            _ => {}
        }
    }
    for block in snapshot.device_segments(device).flat_map(|segment| &segment.blocks) {
        let Some((before, asked)) = live.get(&block.address) else { continue };
        let told = block.requested.filter(|_| block.state == BlockState::ActiveAllocated).unwrap_or(*asked);
        if told != *asked && odd.is_none_or(|(first, ..)| *before < first) {
            odd = Some((*before, trace.len(), told));
        }
    }
    let (entry, after, told) = odd?;
    let asked = trace.get(entry)?.size;
    let where_told = if after < trace.len() { format!("freed at entry {after}") } else { "in the snapshot".to_owned() };
    Some(Fault {
        entry,
        explanation: format!("the block is asked for with {} bytes, but has {} {where_told}", asked.0, told.0),
    })
}

/// A new segment that does not hold the block it was fetched for, and that nothing later mentions.
fn odd_segment(trace: &[TraceEntry], snapshot: &Snapshot, device: usize, at: usize) -> Option<Fault> {
    let entry = trace.get(at).filter(|entry| entry.action == Action::Alloc)?;
    let grown = at.checked_sub(1)?;
    let segment = trace.get(grown).filter(|other| other.action == Action::SegmentAlloc)?;
    let inside = entry.address >= segment.address && entry.address < segment.address.offset(segment.size);
    let known = trace[at..].iter().any(|other| other.action == Action::SegmentFree && other.address == segment.address)
        || snapshot.device_segments(device).any(|known| known.address == segment.address);
    (entry.address != segment.address && !known).then(|| Fault {
        entry: grown,
        explanation: format!(
            "the block at entry {at} does not lie {} the segment that was fetched for it, and nothing later knows a \
             segment at {}",
            if inside { "at the beginning of" } else { "in" },
            segment.address
        ),
    })
}
