//! Why an event did not fit: what the history alone, without an allocator, has to say.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::conditions::Conditions;
use super::mismatch::Mismatch;
use super::tape::describe_entry;
use crate::allocator::BlockState;
use crate::snapshot::types::{Action, Snapshot, TraceEntry};
use crate::units::{Address, Bytes};

/// What is wrong with a history by itself.
struct Fault {
    entry: usize,
    explanation: String,
}

/// Adds an explanation to a mismatch, and moves it to the entry that is at odds with all others.
pub fn explain(mismatch: &mut Mismatch, snapshot: &Snapshot, device: usize) {
    let trace = snapshot.device_trace(device);
    let end = trace.len().min(mismatch.entry + 1);
    if let Some(fault) = contradiction(trace, snapshot, device, mismatch.entry) {
        if fault.entry != mismatch.entry
            && let Some(entry) = trace.get(fault.entry)
        {
            mismatch.found = describe_entry(entry);
            mismatch.entry = fault.entry;
        }
        mismatch.explanation = Some(fault.explanation);
    } else if let Some(fault) = missing_beginning(&trace[..end]) {
        mismatch.explanation = Some(fault.explanation);
    } else if mismatch.entry >= trace.len() {
        mismatch.explanation = unexplained_segments(trace, snapshot, device);
    }
    if mismatch.explanation.is_none() && snapshot.device_segments(device).any(|segment| !segment.pool_id.is_default()) {
        mismatch.explanation = Some(
            "the program used private pools (CUDA graphs or torch.cuda.use_mem_pool), which a trace does not tell apart \
             from the default pool; such a history can't be replayed"
                .into(),
        );
    }
}

/// What was assumed of the recorded program, where that can be why: the history itself has no fault.
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

/// An entry that contradicts the others: a block whose frees tell another size, a new segment that nothing else knows.
fn contradiction(trace: &[TraceEntry], snapshot: &Snapshot, device: usize, at: usize) -> Option<Fault> {
    odd_size(trace, snapshot, device, at).or_else(|| odd_segment(trace, snapshot, device, at))
}

/// A block's size stands at its allocation, its free and its completion (or in the snapshot): two outvote the first.
fn odd_size(trace: &[TraceEntry], snapshot: &Snapshot, device: usize, until: usize) -> Option<Fault> {
    let mut live: HashMap<Address, (usize, Bytes)> = HashMap::new();
    let mut doubtful: HashMap<Address, (usize, Bytes)> = HashMap::new();
    let mut odd: Option<(usize, usize, Bytes)> = None;
    for (index, entry) in trace.iter().enumerate() {
        match entry.action {
            Action::Alloc if index <= until => {
                live.insert(entry.address, (index, entry.size));
            }
            // Whatever was there has been freed under another address.
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

/// A new segment that does not hold the block it was fetched for, and that nothing later knows.
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

/// Memory that came from the driver and has not gone back: disjoint stretches, start and end. Segments come again at the
/// address of an older, longer one, and pages are mapped and unmapped piece by piece.
#[derive(Debug, Default)]
struct Held(BTreeMap<Address, Address>);

impl Held {
    fn contains(&self, address: Address) -> bool {
        self.0.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
    }

    fn insert(&mut self, start: Address, end: Address) {
        self.remove(start, end);
        self.0.insert(start, end);
    }

    /// Takes a stretch out; what sticks out of it on either side stays.
    fn remove(&mut self, start: Address, end: Address) {
        while let Some((first, last)) = self.0.range(..end).next_back().map(|(first, last)| (*first, *last)) {
            if last <= start {
                return;
            }
            self.0.remove(&first);
            if last > end {
                self.0.insert(end, last);
            }
            if first < start {
                self.0.insert(first, start);
                return;
            }
        }
    }
}

/// The first entry that only makes sense if something came before the history.
fn missing_beginning(trace: &[TraceEntry]) -> Option<Fault> {
    let mut held = Held::default();
    let mut live: HashSet<Address> = HashSet::new();
    for (index, entry) in trace.iter().enumerate() {
        let what = match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                held.insert(entry.address, entry.address.offset(entry.size));
                None
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                held.remove(entry.address, entry.address.offset(entry.size));
                None
            }
            Action::Alloc => {
                live.insert(entry.address);
                (!held.contains(entry.address))
                    .then_some("allocates in a segment that the trace never saw come from the driver")
            }
            Action::FreeRequested => {
                (!live.remove(&entry.address)).then_some("frees a block that the trace never saw allocated")
            }
            _ => None,
        };
        if let Some(what) = what {
            return Some(Fault { entry: index, explanation: beginning(index, what) });
        }
    }
    None
}

fn beginning(index: usize, what: &str) -> String {
    format!(
        "the history does not begin at the first allocation: entry {index} {what}. Start \
         torch.cuda.memory._record_memory_history() before the first CUDA allocation, with max_entries large enough \
         that nothing is overwritten"
    )
}

/// Segments of the snapshot that no entry explains.
fn unexplained_segments(trace: &[TraceEntry], snapshot: &Snapshot, device: usize) -> Option<String> {
    let mut grown: Vec<(Address, Address)> = trace
        .iter()
        .filter(|entry| matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap))
        .map(|entry| (entry.address, entry.address.offset(entry.size)))
        .collect();
    grown.sort_unstable();
    // The farthest end of all that begin up to here.
    let mut farthest = Address(0);
    for (_, end) in &mut grown {
        farthest = farthest.max(*end);
        *end = farthest;
    }
    let explained = |address: Address| {
        let after = grown.partition_point(|(start, _)| *start <= address);
        grown[..after].last().is_some_and(|(_, end)| address < *end)
    };
    let segment = snapshot.device_segments(device).find(|segment| !explained(segment.address))?;
    Some(format!(
        "the history does not begin at the first allocation: nothing in it explains the segment at {}. Start \
         torch.cuda.memory._record_memory_history() before the first CUDA allocation",
        segment.address
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_held_until_it_goes_back() {
        let mut held = Held::default();
        let holds = |held: &Held, addresses: &[u64]| addresses.iter().all(|at| held.contains(Address(*at)));
        held.insert(Address(100), Address(200));
        // A shorter piece at the address of a longer one hides nothing of it.
        held.insert(Address(100), Address(110));
        assert!(holds(&held, &[100, 109, 110, 199]) && !held.contains(Address(200)));
        // Pages go back from the middle, and come again.
        held.remove(Address(120), Address(180));
        assert!(holds(&held, &[119, 180]) && !held.contains(Address(120)) && !held.contains(Address(179)));
        held.insert(Address(130), Address(140));
        assert!(holds(&held, &[119, 130, 139, 180]) && !held.contains(Address(140)));
        held.remove(Address(0), Address(185));
        assert!(holds(&held, &[185, 199]) && !held.contains(Address(184)));
    }
}
