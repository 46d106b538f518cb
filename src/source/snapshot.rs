//! PyTorch's memory snapshots: their histories become the events of a run, with each device as one rank.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use thiserror::Error;
use tokio::sync::mpsc;

use super::arrival::{Arrival, Inbox};
use super::handle::Source;
use super::picture::SourceKind;
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_allocator::{DeviceMemory, TorchVersion};
use vramlab_model::{
    About, AlikeRanks, Begins, DeviceKind, Event, EventKind, MOST_SEGMENTS, Micros, Ranks, RunSettings, RunState,
    Setting,
};
use vramlab_narration::{Guesses, Narrator};
use vramlab_snapshot::replay::{Conditions, DeviceReport, HistoryReport};
use vramlab_snapshot::{Beginning, Segment, Snapshot, SnapshotError};

/// The most batches that wait for the keeper, and the most events in a batch.
pub(super) const QUEUE: usize = 8;
const BATCH: usize = 4096;

/// Why a snapshot can't be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file can't be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The snapshot holds neither a history nor memory.
    #[error(
        "the snapshot holds neither segments nor a history; take it while the program holds memory on the GPU, after \
         torch.cuda.memory._record_memory_history()"
    )]
    Nothing,
    /// The files have more devices than can be shown.
    #[error("the snapshots have {0} devices, and {most} can be shown; pass fewer files", most = Ranks::MOST)]
    TooManyDevices(usize),
    /// The system can't start a thread.
    #[error("can't start a thread ({0})")]
    Threads(#[source] std::io::Error),
}

/// A snapshot that has been read.
#[derive(Debug)]
pub(super) struct OpenSnapshot {
    path: PathBuf,
    snapshot: Snapshot,
    conditions: Conditions,
    /// True if its history has not been read yet: it is the memory at the end.
    standing: bool,
}

impl OpenSnapshot {
    /// A snapshot, of version `torch` if that is given.
    pub fn new(path: &Path, snapshot: Snapshot, torch: Option<TorchVersion>) -> Self {
        let conditions = Conditions::find_or_guess(path, &snapshot, torch);
        Self { path: path.to_owned(), snapshot, conditions, standing: false }
    }

    /// The part of a snapshot that is read first: the memory at the end. Its settings are not known yet.
    pub fn standing(path: &Path, memory: Snapshot) -> Self {
        Self { path: path.to_owned(), snapshot: memory, conditions: Conditions::default(), standing: true }
    }

    /// The segments of a device at the end.
    pub fn segments(&self, device: usize) -> impl Iterator<Item = &Segment> + '_ {
        self.snapshot.device_segments(device)
    }

    /// The number of entries in the histories of all devices.
    pub fn entries(&self) -> u64 {
        (0..self.snapshot.device_count()).map(|device| self.snapshot.device_trace(device).len() as u64).sum()
    }

    /// The device's memory, if the file says it.
    pub const fn device_bytes(&self) -> Option<Bytes> {
        self.conditions.device_bytes
    }

    /// The oldest version of PyTorch that it may come from.
    pub const fn oldest(&self) -> TorchVersion {
        self.conditions.oldest
    }

    /// The devices that have a history or memory.
    fn devices(&self) -> Vec<usize> {
        let of_segments = self.snapshot.segments.iter().map(|segment| segment.device as usize);
        let with_history = |device: &usize| !self.snapshot.device_trace(*device).is_empty();
        let mut devices: Vec<usize> =
            of_segments.chain((0..self.snapshot.device_count()).filter(with_history)).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }
}

/// Keeps the histories of snapshots: all devices of all files together.
///
/// # Errors
/// [`OpenError`].
pub(super) fn keep(files: Vec<OpenSnapshot>) -> Result<Source, OpenError> {
    ranks(&files)?;
    let kind = SourceKind::Snapshot(names(&files).into());
    let memory = match &files[..] {
        [file] => memory(file),
        _ => None,
    };
    let (arrive, arrivals) = mpsc::channel(QUEUE);
    // Errors were reported before.
    let tell = move || drop(hand_on(&files, |batch| arrive.blocking_send(Arrival::Events(batch)).is_ok()));
    thread::Builder::new().name("snapshot".to_owned()).spawn(tell).map_err(OpenError::Threads)?;
    Source::keep(kind, memory, Inbox::Read(arrivals), None).map_err(OpenError::Threads)
}

/// Opens a snapshot, of version `torch` if that is given.
///
/// # Errors
/// [`OpenError`].
pub fn snapshot(path: &Path, torch: Option<TorchVersion>) -> Result<Source, OpenError> {
    keep(vec![OpenSnapshot::new(path, Snapshot::open(path)?, torch)])
}

/// The device's memory, if it is known for a file. As far as is known, all of it was free when the history began.
pub(super) fn memory(file: &OpenSnapshot) -> Option<DeviceMemory> {
    file.device_bytes().map(|total| DeviceMemory { free: total, total })
}

fn names(files: &[OpenSnapshot]) -> String {
    match files {
        [] => String::new(),
        [one] => name(&one.path),
        [first, others @ ..] => format!("{} and {} more", name(&first.path), others.len()),
    }
}

/// The name of a file.
pub(super) fn name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Sends the histories in batches, until the receiver is gone.
///
/// # Errors
/// [`OpenError`] if there is no history.
pub(super) fn hand_on(files: &[OpenSnapshot], mut take: impl FnMut(Vec<Event>) -> bool) -> Result<(), OpenError> {
    let mut batch: Vec<Event> = Vec::new();
    let mut gone = false;
    narrate(files, |event| {
        batch.push(event);
        if batch.len() >= BATCH && !gone {
            gone = !take(std::mem::take(&mut batch));
        }
    })?;
    take(batch);
    Ok(())
}

/// The devices of all files, each with its rank in the stream: for a single file its own number, otherwise consecutive numbers.
fn ranks(files: &[OpenSnapshot]) -> Result<Vec<(usize, usize, DeviceIndex)>, OpenError> {
    let mut ranks = Vec::new();
    for (file, opened) in files.iter().enumerate() {
        for device in opened.devices() {
            let index = if files.len() == 1 { device } else { ranks.len() };
            let index = u16::try_from(index).ok().filter(|index| usize::from(*index) < Ranks::MOST);
            ranks.push((
                file,
                device,
                DeviceIndex(index.ok_or(OpenError::TooManyDevices(device.max(ranks.len()) + 1))?),
            ));
        }
    }
    if ranks.is_empty() { Err(OpenError::Nothing) } else { Ok(ranks) }
}

/// The rank numbers of one program's devices: from the files' names (`run.rank3.pickle`), otherwise in their order. A
/// single device has none.
fn numbers(files: &[OpenSnapshot], places: &[(usize, usize, DeviceIndex)]) -> Vec<u16> {
    if places.len() < 2 {
        return Vec::new();
    }
    let called = |path: &Path| {
        let name = name(path);
        let (_, behind) = name.rsplit_once("rank")?;
        let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        behind[..digits].parse().ok()
    };
    let all: Option<Vec<u16>> = places.iter().map(|(file, ..)| called(&files[*file].path)).collect();
    let apart = |all: &Vec<u16>| all.iter().collect::<BTreeSet<_>>().len() == all.len();
    all.filter(apart).unwrap_or_else(|| places.iter().map(|(.., index)| index.0).collect())
}

/// The history of one device while it is reported.
struct DeviceHistory<'a> {
    index: DeviceIndex,
    narrator: Narrator<'a>,
    report: DeviceReport,
    sentence: Option<String>,
    entries: usize,
    last: Micros,
}

/// For each device, where its history begins and what it does not tell.
pub(super) type Histories = Vec<(DeviceIndex, HistoryReport)>;

/// Turns the histories of all devices into the events of one run, by time. Returns what the histories do not tell.
///
/// # Errors
/// [`OpenError`] if there is no history.
pub(super) fn narrate(files: &[OpenSnapshot], mut emit: impl FnMut(Event)) -> Result<Histories, OpenError> {
    let places = ranks(files)?;
    let mut beginnings = Vec::new();
    for (file, device, _) in &places {
        let OpenSnapshot { snapshot, conditions, .. } = &files[*file];
        let beginning = Beginning::of(snapshot, *device, &conditions.settings);
        let guesses = Guesses::of(snapshot, *device, &beginning);
        beginnings.push((beginning, guesses));
    }
    let together = beginnings.iter().all(|(_, guesses)| guesses.as_ref().is_some_and(Guesses::exchanges));
    let numbers = if together { numbers(files, &places) } else { Vec::new() };
    let mut ranks = Vec::new();
    for ((file, device, index), (beginning, guesses)) in places.iter().zip(&beginnings) {
        let (opened, index) = (&files[*file], *index);
        let (mut narrator, report) =
            Narrator::new(&opened.snapshot, *device, &opened.conditions, beginning, guesses.as_ref());
        let time = narrator.time().unwrap_or_default();
        let mut tell = |event: Event| emit(Event { device: index, ..event });
        let entries = opened.snapshot.device_trace(*device).len();
        let first = [
            EventKind::Begin(Arc::new(about(opened, *device, entries, guesses.is_some(), report.history.begins))),
            EventKind::Settings(Arc::new(settings_of(&opened.conditions))),
            EventKind::Run(RunState::Finished),
        ];
        first.into_iter().for_each(|kind| tell(Event::new(time, kind)));
        if let Some(number) = numbers.get(ranks.len()) {
            let world = numbers.iter().max().map_or(0, |last| u32::from(*last) + 1);
            let alike = AlikeRanks { parallelism: None, world, ranks: vec![*number] };
            tell(Event::new(time, EventKind::AlikeRanks(Arc::new(alike))));
        }
        narrator.begin(&mut tell);
        ranks.push(DeviceHistory { index, narrator, report, sentence: beginning.sentence(), entries, last: time });
    }
    while let Some(rank) = ranks
        .iter_mut()
        .filter(|rank| rank.narrator.time().is_some())
        .min_by_key(|rank| (rank.narrator.time(), rank.index))
    {
        let (index, last) = (rank.index, &mut rank.last);
        rank.narrator.advance(&mut |event| {
            *last = event.time;
            emit(Event { device: index, ..event });
        });
    }
    for (rank, (file, ..)) in ranks.iter_mut().zip(&places) {
        let (index, last) = (rank.index, &mut rank.last);
        rank.narrator.end(&mut |event| {
            *last = event.time;
            emit(Event { device: index, ..event });
        });
        let standing =
            || vec!["this is memory at the end of the file; its history follows when all of it is read".to_owned()];
        for text in if files[*file].standing { standing() } else { remarks(rank) } {
            let kind = EventKind::Notice { text: text.into() };
            emit(Event { time: rank.last, device: rank.index, kind });
        }
    }
    Ok(ranks.into_iter().map(|rank| (rank.index, rank.report.history)).collect())
}

fn about(opened: &OpenSnapshot, device: usize, entries: usize, guessed: bool, begins: Begins) -> About {
    let stem = opened.path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let version = match opened.conditions.settings.torch() {
        TorchVersion::V2_11 => String::new(),
        torch => format!("{torch} "),
    };
    let detail = if opened.standing {
        "PyTorch snapshot · memory at its end".to_owned()
    } else {
        let remark = if guessed { " · categories guessed" } else { "" };
        format!("PyTorch {version}snapshot{remark} · {entries} entries")
    };
    About {
        workload: stem.into(),
        detail: detail.into(),
        device: format!("device {device}").into(),
        kind: DeviceKind::Gpu,
        torch: opened.conditions.settings.torch(),
        guessed,
        history: Some(begins),
        ..About::default()
    }
}

/// Remarks about a history for a person: a sentence each, without a period. The last one is shown first.
fn remarks(rank: &DeviceHistory<'_>) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(mismatch) = &rank.report.first_mismatch {
        let why = mismatch
            .explanation
            .as_ref()
            .map_or_else(|| format!("it has \"{}\"", mismatch.found), |why| format!("probably {why}"));
        remarks.push(format!(
            "figures and places are the recording's; the allocator's rules explain them up to entry {} of {}: {why}",
            mismatch.entry, rank.entries
        ));
    }
    match rank.narrator.contradictions() {
        0 => {}
        1 => remarks.push("1 entry contradicts those before it, and was read as far as it can be true".to_owned()),
        many => remarks
            .push(format!("{many} entries contradict those before them, and were read as far as they can be true")),
    }
    remarks.extend(rank.sentence.clone());
    remarks.extend(beyond(rank.narrator.most_segments()));
    remarks
}

/// A remark if not all segments are followed.
fn beyond(most: usize) -> Option<String> {
    (most > MOST_SEGMENTS).then(|| {
        format!(
            "it has {most} segments at once, and {MOST_SEGMENTS} are followed: what is beyond them is missing from every figure"
        )
    })
}

/// The settings of a snapshot, in the form of a lab's settings.
fn settings_of(conditions: &Conditions) -> RunSettings {
    let value = conditions.settings.text().into();
    RunSettings(vec![Setting { switch: "alloc-conf".into(), value, wanted: None, idle: None }])
}

/// True if a file begins like a pickle, plain or compressed.
pub(super) fn is_snapshot(head: &[u8]) -> bool {
    const COMPRESSED: [&[u8]; 6] = [b"\xfd7zXZ", b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"PK"];
    matches!(head.first(), Some(0x80 | b'(' | b'}' | b']')) || COMPRESSED.iter().any(|magic| head.starts_with(magic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_allocator::units::{Address, MIB, StreamId};
    use vramlab_allocator::{PoolId, PoolKind};
    use vramlab_model::MemoryModel;
    use vramlab_snapshot::StackId;

    fn opened(name: &str) -> OpenSnapshot {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/strangers").join(name);
        let snapshot = Snapshot::open(&path).unwrap();
        OpenSnapshot::new(&path, snapshot, None)
    }

    #[test]
    fn several_files_are_ranks_of_one_stream() {
        let files = [opened("cuda-graphs.pickle.xz"), opened("timm-convnext-ring.pickle.xz")];
        let (mut ranks, mut times, mut begun) = (Ranks::default(), Vec::new(), Vec::new());
        narrate(&files, |event| {
            if let EventKind::Begin(about) = &event.kind {
                begun.push((event.device, about.workload.to_string()));
            }
            if event.kind.changes_memory() {
                times.push(event.time);
            }
            ranks.apply(&event);
        })
        .unwrap();
        assert_eq!(ranks.len(), 2);
        let names = ["cuda-graphs.pickle", "timm-convnext-ring.pickle"].map(str::to_owned);
        assert_eq!(begun, [(DeviceIndex(0), names[0].clone()), (DeviceIndex(1), names[1].clone())]);
        let held = |rank| ranks.lab(DeviceIndex(rank)).unwrap().memory().reserved();
        assert_eq!((held(0), held(1)), (Bytes(327_155_712), Bytes(3_628_072_960)));
        // After the initial memory everything is in the order of time.
        let early = times.iter().rposition(|time| *time == times[0]).unwrap_or(0);
        assert!(times[early..].windows(2).filter(|pair| pair[0] > pair[1]).count() <= 1);
    }

    /// A snapshot with this many segments and no history.
    fn many(segments: u64) -> (u64, Vec<String>) {
        let mut snapshot = Snapshot::default();
        let segment = |at: u64| Segment {
            device: 0,
            address: Address(at * 2 * MIB),
            total_size: Bytes::mib(2),
            stream: StreamId::DEFAULT,
            pool: PoolKind::Small,
            pool_id: PoolId::DEFAULT,
            expandable: false,
            stack: StackId::EMPTY,
            blocks: Vec::new(),
        };
        snapshot.segments = (1..=segments).map(segment).collect();
        let (mut memory, mut notices) = (MemoryModel::new(), Vec::new());
        narrate(&[OpenSnapshot::new(Path::new("many.pickle"), snapshot, None)], |event| {
            if let EventKind::Notice { text } = &event.kind {
                notices.push(text.to_string());
            }
            // Segments beyond the bound are refused.
            let _ = memory.apply(&event);
        })
        .unwrap();
        (memory.reserved().0 / (2 * MIB), notices)
    }

    #[test]
    fn a_million_segments_are_read_whole_and_what_is_beyond_is_told() {
        let (read, notices) = many(1_000_000);
        assert_eq!(read, 1_000_000);
        assert!(notices.iter().all(|notice| !notice.contains("missing from every figure")), "{notices:?}");
        let (read, notices) = many(MOST_SEGMENTS as u64 + 1);
        assert_eq!(read, MOST_SEGMENTS as u64);
        let last = notices.last().unwrap();
        assert!(last.contains("1048577 segments") && last.contains("missing from every figure"), "{notices:?}");
    }

    #[test]
    fn a_snapshot_without_a_history_shows_its_end() {
        let mut file = opened("leak-outputs.pickle.xz");
        let segments = std::mem::take(&mut file.snapshot.segments);
        let alone = Snapshot { segments, ..Snapshot::default() };
        let files = [OpenSnapshot::new(Path::new("end.pickle"), alone, None)];
        let (mut ranks, mut notices) = (Ranks::default(), Vec::new());
        narrate(&files, |event| {
            if let EventKind::Notice { text } = &event.kind {
                notices.push(text.to_string());
            }
            ranks.apply(&event);
        })
        .unwrap();
        let memory = ranks.lab(DeviceIndex(0)).unwrap().memory();
        assert_eq!((memory.allocated(), memory.reserved()), (Bytes(309_501_952), Bytes(1_304_428_544)));
        assert!(notices.iter().any(|notice| notice.contains("no history")), "{notices:?}");
        let nothing = [OpenSnapshot::new(Path::new("nothing.pickle"), Snapshot::default(), None)];
        assert!(narrate(&nothing, |_| {}).is_err());
    }
}
