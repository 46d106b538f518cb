//! A snapshot and the replay of its history: a pickle as it is, or a history that is encoded in the bytes.

use vramlab::allocator::Settings;
use vramlab::model::MemoryModel;
use vramlab::narration::events;
use vramlab::snapshot::Snapshot;
use vramlab::snapshot::replay::{Conditions, Report, verify};
use vramlab::units::Bytes;

const ACTIONS: [&str; 8] = [
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
];
const SETTINGS: [&str; 8] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:20",
    "garbage_collection_threshold:0.3",
    "roundup_power2_divisions:[1:4,>:9223372036854775808]",
    "expandable_segments:True,garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
    "large_segment_size_mb:17592186044415",
    "expandable_segments:True,large_segment_size_mb:30,max_split_size_mb:40,max_non_split_rounding_mb:99999999999999",
];
const SIZES: [u64; 12] =
    [1, 512, 513, 1 << 20, 2 << 20, 3 << 20, 10 << 20, 12 << 20, 20 << 20, 40 << 20, 1 << 56, (1 << 57) - 1];
const LIMITS: [Option<u64>; 5] = [None, Some(30 << 20), Some(64 << 20), Some(1 << 40), Some(u64::MAX)];

/// Reads `data`, and replays the history in it.
pub fn run(data: &[u8]) {
    let spelled;
    let (pickle, (limit, device)) = match data {
        // The first bytes of pickles and of xz files encode no history.
        [0x80 | 0xfd | b'}', ..] | [] => (data, (None, None)),
        [conditions, history @ ..] => {
            spelled = pickle_of(usize::from(*conditions), history);
            let conditions = usize::from(*conditions);
            (&spelled[..], (LIMITS[conditions / 8 % 5], LIMITS[conditions / 40 % 5]))
        }
    };
    let Ok(snapshot) = Snapshot::read(pickle) else {
        assert_eq!(pickle, data, "what is spelled can be read");
        return;
    };
    let conf = snapshot.allocator_settings.conf.as_deref().unwrap_or_default();
    let Ok(settings) = Settings::parse(conf) else { return };
    let conditions =
        Conditions { settings, limit: limit.map(Bytes), device_bytes: device.map(Bytes), ..Conditions::default() };
    let report = verify(&snapshot, &conditions);
    holds_together(&report, &snapshot);
    for device in 0..snapshot.device_count() {
        can_be_true(&snapshot, device, &conditions);
    }
}

/// Whatever a history contains, its events do not contradict each other.
fn can_be_true(snapshot: &Snapshot, device: usize, conditions: &Conditions) {
    let mut model = MemoryModel::new();
    events(snapshot, device, conditions, None, |event| {
        let applied = model.apply(&event);
        assert!(applied.is_ok(), "{event:?}: {applied:?}");
    });
}

fn holds_together(report: &Report, snapshot: &Snapshot) {
    for tally in [report.segments, report.placements, report.stats, report.blocks] {
        assert!(tally.matched <= tally.total);
    }
    let entries: u64 = (0..snapshot.device_count()).map(|device| snapshot.device_trace(device).len() as u64).sum();
    assert_eq!(report.events, entries);
    assert!(!report.is_match() || report.first_mismatch.is_none() && entries > 0);
    for device in &report.devices {
        let trace = snapshot.device_trace(device.device);
        assert!(device.first_mismatch.as_ref().is_none_or(|mismatch| mismatch.entry <= trace.len()));
        // A history that agrees is explained to its end.
        if device.first_mismatch.is_none() {
            assert!(device.segments.is_complete() && device.placements.is_complete() && device.blocks.is_complete());
        }
    }
}

/// Every two bytes are an entry: action and size, then place and stream.
fn pickle_of(conditions: usize, history: &[u8]) -> Vec<u8> {
    let mut bytes = b"}(".to_vec();
    text(&mut bytes, "allocator_settings");
    bytes.extend(b"}");
    text(&mut bytes, "PYTORCH_CUDA_ALLOC_CONF");
    text(&mut bytes, SETTINGS[conditions % SETTINGS.len()]);
    bytes.push(b's');
    text(&mut bytes, "device_traces");
    bytes.extend(b"](](");
    for entry in history.chunks_exact(2).take(400) {
        let (what, place) = (usize::from(entry[0]), u64::from(entry[1]));
        bytes.extend(b"}(");
        text(&mut bytes, "action");
        text(&mut bytes, ACTIONS[what % ACTIONS.len()]);
        text(&mut bytes, "size");
        number(&mut bytes, SIZES[what / ACTIONS.len() % SIZES.len()]);
        text(&mut bytes, "addr");
        // Neighbours within a segment, and segments next to each other.
        number(&mut bytes, (place / 16 % 8 + 1) * (20 << 20) + place % 16 * 512);
        text(&mut bytes, "stream");
        number(&mut bytes, place / 128);
        bytes.push(b'u');
    }
    bytes.extend(b"eeu.");
    bytes
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend([b"X", &u32::try_from(text.len()).unwrap_or(0).to_le_bytes()[..], text.as_bytes()].concat());
}

fn number(bytes: &mut Vec<u8>, n: u64) {
    bytes.extend([&b"\x8a\x08"[..], &n.to_le_bytes()].concat());
}
