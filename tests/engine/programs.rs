//! Whole programs on the simulated H200, compared with their recordings by PyTorch: every request, its placement, every
//! segment, and the statistics at the end.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;

use serde_json::Value;
use vramlab::allocator::{DeviceMemory, OutOfDeviceMemory, SegmentSource, Settings};
use vramlab::device::sim::SimDevice;
use vramlab::device::{Device, Wrapper};
use vramlab::model::{Event, EventKind};
use vramlab::snapshot::{Action, Snapshot};
use vramlab::train::{Amp, Config, DataPath, Libraries, LoopStyle, Trainer, TrainerOptions, Workload};
use vramlab::units::{Address, Bytes, DeviceIndex};
use vramlab::workload::{Data, Extent, LanguageSizes, Repeats, bert};

/// A simulated H200 whose driver places segments where the recorded program's driver did: that one also placed code and
/// workspaces of libraries between them.
struct Recorded {
    device: SimDevice,
    addresses: Vec<Address>,
}

/// The driver of [`Recorded`].
struct RecordedDriver {
    driver: Box<dyn SegmentSource>,
    addresses: std::vec::IntoIter<Address>,
    /// The simulated driver's address of the segment at a recorded address.
    simulated: HashMap<Address, Address>,
}

impl SegmentSource for RecordedDriver {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let simulated = self.driver.malloc(size)?;
        let address = self.addresses.next().unwrap_or(simulated);
        self.simulated.insert(address, simulated);
        Ok(address)
    }

    fn free(&mut self, address: Address, size: Bytes) {
        self.driver.free(self.simulated[&address], size);
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.driver.reserve_range(size)
    }

    fn release_range(&mut self, address: Address, size: Bytes) {
        self.driver.release_range(address, size);
    }

    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory> {
        self.driver.map(address, size, page)
    }

    fn unmap(&mut self, address: Address, size: Bytes) {
        self.driver.unmap(address, size);
    }

    fn memory(&self) -> DeviceMemory {
        self.driver.memory()
    }
}

impl Wrapper for Recorded {
    fn wrapped(&self) -> &dyn Device {
        &self.device
    }

    fn wrapped_mut(&mut self) -> &mut dyn Device {
        &mut self.device
    }

    fn segments(&mut self) -> Box<dyn SegmentSource> {
        let addresses = std::mem::take(&mut self.addresses).into_iter();
        Box::new(RecordedDriver { driver: self.device.segments(), addresses, simulated: HashMap::new() })
    }
}

/// The entries of a history between two requests, and the request.
#[derive(Debug, PartialEq)]
enum Entry {
    Segment { size: u64 },
    SegmentGone { place: Place },
    Mapped { place: Place, size: u64 },
    Unmapped { place: Place, size: u64 },
    Alloc { size: u64, place: Place },
    Frees(BTreeSet<Place>),
}

/// A segment, in the order in which they were taken, and an offset in it.
type Place = (usize, u64);

/// Writes down a history with places instead of addresses.
#[derive(Default)]
struct Scribe {
    segments: Vec<u64>,
    entries: Vec<Entry>,
}

impl Scribe {
    /// The youngest segment at or below `address`, with the nearest start.
    fn place(&self, address: u64) -> Place {
        let begun = self.segments.iter().enumerate().filter(|(_, start)| **start <= address);
        let (index, start) = begun.max_by_key(|(index, start)| (**start, *index)).unwrap();
        (index, address - start)
    }

    fn note(&mut self, action: Action, address: u64, size: u64) {
        // Far more than any device has: an address range of its own.
        const RANGE: u64 = 1 << 38;
        let entry = match action {
            Action::SegmentAlloc => {
                self.segments.push(address);
                Entry::Segment { size }
            }
            Action::SegmentMap => {
                let known = self.segments.iter().any(|start| (*start..start + RANGE).contains(&address));
                if !known {
                    self.segments.push(address);
                }
                Entry::Mapped { place: self.place(address), size }
            }
            Action::SegmentFree => Entry::SegmentGone { place: self.place(address) },
            Action::SegmentUnmap => Entry::Unmapped { place: self.place(address), size },
            Action::Alloc => Entry::Alloc { size, place: self.place(address) },
            Action::FreeRequested => {
                let place = self.place(address);
                if let Some(Entry::Frees(places)) = self.entries.last_mut() {
                    places.insert(place);
                    return;
                }
                Entry::Frees(BTreeSet::from([place]))
            }
            _ => return,
        };
        self.entries.push(entry);
    }
}

fn recorded(snapshot: &Snapshot) -> Vec<Entry> {
    let mut scribe = Scribe::default();
    for entry in snapshot.device_trace(0) {
        scribe.note(entry.action, entry.address.0, entry.size.0);
    }
    scribe.entries
}

fn made(events: &[Event]) -> Vec<Entry> {
    let mut scribe = Scribe::default();
    for event in events {
        match &event.kind {
            EventKind::SegmentAlloc { address, size, .. } => scribe.note(Action::SegmentAlloc, address.0, size.0),
            EventKind::SegmentFree { address, size, .. } => scribe.note(Action::SegmentFree, address.0, size.0),
            EventKind::SegmentMap { address, size, .. } => scribe.note(Action::SegmentMap, address.0, size.0),
            EventKind::SegmentUnmap { address, size, .. } => scribe.note(Action::SegmentUnmap, address.0, size.0),
            EventKind::Alloc { address, requested, .. } => scribe.note(Action::Alloc, address.0, requested.0),
            EventKind::FreeRequested { address } => scribe.note(Action::FreeRequested, address.0, 0),
            _ => {}
        }
    }
    scribe.entries
}

fn is_as_recorded(name: &str, workload: Box<dyn Workload>, config: Config, steps: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let snapshot = Snapshot::open(folder.join(format!("{name}.pickle.xz"))).unwrap();
    let facts: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join(format!("{name}.stats.json"))).unwrap()).unwrap();
    let options = TrainerOptions {
        rank: DeviceIndex::FIRST,
        member: None,
        seat: None,
        timetable: None,
        style: LoopStyle::Plain,
        workspaces: Libraries::HOPPER,
        settings: Settings::parse(facts["conf"].as_str().unwrap()).unwrap(),
        limit: facts["limit_bytes"].as_u64().map(Bytes),
        watched: true,
        preallocate: None,
    };
    let events = Rc::new(RefCell::new(Vec::new()));
    let observer = Box::new(Rc::clone(&events));
    let segments = snapshot.device_trace(0).iter().filter(|entry| entry.action == Action::SegmentAlloc);
    let device =
        Recorded { device: SimDevice::h200().unwrap(), addresses: segments.map(|entry| entry.address).collect() };
    let mut trainer = Trainer::new(Box::new(device), workload, config, options, observer).unwrap();
    for _ in 0..steps {
        trainer.step().unwrap();
    }

    let (ours, theirs) = (made(&events.borrow()), recorded(&snapshot));
    for (i, (our, their)) in ours.iter().zip(&theirs).enumerate() {
        // The end of the program frees everything; this is not part of the last step.
        if i + 1 < ours.len() {
            assert_eq!(our, their, "entry {i} of {name}");
        }
    }
    assert!(theirs[ours.len()..].iter().all(|entry| matches!(entry, Entry::Frees(_))), "{name} goes on after our end");

    let ours = trainer.statistics().entries();
    let theirs = facts["stats"].as_object().unwrap();
    for (key, ours) in ours {
        // What the end of the program frees is freed after our last step.
        let settled = key.ends_with(".allocated")
            || (key.ends_with(".peak") && !key.starts_with("inactive_split"))
            || key.starts_with("segment.")
            || key.starts_with("reserved_bytes.")
            || key.starts_with("num_");
        if settled && !key.starts_with("inactive_split") {
            assert_eq!(Some(ours), theirs[&key].as_i64(), "{key} of {name}");
        }
    }
}

const LENGTHS: [usize; 12] = [512, 64, 384, 128, 480, 96, 256, 32, 448, 160, 320, 224];

fn varlen(name: &str) {
    let [vocab, seq, width, heads] = [30522, 512, 1024, 16].map(Extent::nearest);
    let sizes = LanguageSizes { vocab, context: seq, seq, width, layers: Repeats::nearest(24), heads };
    let workload =
        bert("varlen", sizes).unwrap().with_data(Data::Fresh, 0).unwrap().with_lengths(LENGTHS.to_vec()).unwrap();
    let config = Config { data: DataPath::Fresh, ..Config::new(8) };
    is_as_recorded(name, Box::new(workload), config, LENGTHS.len());
}

#[test]
fn bert_of_changing_length() {
    varlen("bert-varlen");
}

#[test]
fn bert_of_changing_length_in_expandable_segments() {
    varlen("bert-varlen-expandable");
}

#[test]
fn bert_of_changing_length_with_a_largest_split() {
    varlen("bert-varlen-max-split");
}

#[test]
fn bert_of_changing_length_with_garbage_collection() {
    varlen("bert-varlen-gc");
}

#[test]
fn gpt2_in_half_precision() {
    let (workload, _) = crate::training::workload("gpt2");
    let config = Config { data: DataPath::Fresh, amp: Amp::Fp16, ..Config::new(8) };
    is_as_recorded("gpt2-amp", workload, config, 3);
}

#[test]
fn a_users_own_gpt() {
    let (workload, batch) = crate::training::workload("gpt-frames");
    let config = Config { data: DataPath::Fresh, amp: Amp::Bf16, ..Config::new(batch) };
    is_as_recorded("gpt-frames", workload, config, 4);
}
