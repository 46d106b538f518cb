//! Merges recordings of the ranks of one run, a file for each, into one stream.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tokio::sync::mpsc;

use super::arrival::{Arrival, Inbox};
use super::handle::Source;
use super::picture::SourceKind;
use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{AlikeRanks, Event, EventKind, Micros, Ranks};
use vramlab_recording::{Next, Reader, RecordingError};

/// The most batches that wait for the keeper, and the most events in a batch.
const QUEUE: usize = 8;
const BATCH: usize = 4096;
/// The most events before the first step, in which ranks identify themselves and begin together.
const CONSTRUCTION: usize = 1 << 20;

/// One file.
struct Lane {
    reader: Reader<File>,
    /// Events that were read and not yet reported.
    events: VecDeque<Event>,
    /// How far its clock is behind.
    behind: u64,
    /// The message to report at its end.
    last_word: Option<String>,
    ended: bool,
}

impl Lane {
    fn open(path: &Path) -> Result<Self, RecordingError> {
        let reader = Reader::new(File::open(path).map_err(RecordingError::Unreadable)?);
        let mut lane = Self { reader, events: VecDeque::new(), behind: 0, last_word: None, ended: false };
        // A file that is not a recording has no first frame.
        lane.read()?;
        Ok(lane)
    }

    /// Reads the next frame.
    fn read(&mut self) -> Result<(), RecordingError> {
        match self.reader.next()? {
            Next::Frame(frame) => {
                for event in frame.unpack()?.events() {
                    self.events.push_back(event?);
                }
            }
            Next::End => self.ended = true,
            Next::NotYet => {
                self.ended = true;
                self.last_word = Some("the recording was cut off here; all before is as it was".to_owned());
            }
        }
        Ok(())
    }

    /// Like [`Self::read`], but an error becomes a message after the last event.
    fn read_on(&mut self) {
        if let Err(error) = self.read() {
            self.ended = true;
            self.last_word = Some(error.to_string());
        }
    }

    /// Reads up to the first step. Returns the event that begins it.
    fn first_step(&mut self) -> Option<&Event> {
        let mut seen = 0;
        let place = loop {
            let begins = |event: &Event| matches!(event.kind, EventKind::StepBegin { .. });
            if let Some(place) = self.events.iter().skip(seen).position(begins) {
                break seen + place;
            }
            seen = self.events.len();
            if self.ended || seen > CONSTRUCTION {
                return None;
            }
            self.read_on();
        };
        self.events.get(place)
    }

    /// The time of the next event.
    fn time(&mut self) -> Option<Micros> {
        while self.events.is_empty() && !self.ended {
            self.read_on();
        }
        self.events.front().map(|event| Micros(event.time.0.saturating_add(self.behind)))
    }
}

/// The ranks that a recording of one device says it is about.
fn ranks_of(path: &Path) -> Option<AlikeRanks> {
    let mut lane = Lane::open(path).ok()?;
    lane.first_step();
    let first = lane.events.front()?.device;
    let mut alike = None;
    for event in &lane.events {
        if event.device != first {
            return None;
        }
        if let EventKind::AlikeRanks(ranks) = &event.kind {
            alike = Some(AlikeRanks::clone(ranks));
        }
    }
    alike
}

/// Divides `others` into recordings of further ranks of the run in `first`, and the rest.
pub(super) fn belonging(first: &Path, others: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let none = || (Vec::new(), others.to_vec());
    let Some(AlikeRanks { parallelism, world, ranks: mut taken }) = ranks_of(first) else { return none() };
    others.iter().cloned().partition(|path| {
        let of = ranks_of(path).filter(|of| of.parallelism == parallelism && of.world == world);
        let Some(of) = of.filter(|of| of.ranks.iter().all(|rank| !taken.contains(rank))) else { return false };
        taken.extend(of.ranks);
        true
    })
}

/// Opens recordings of the ranks of one run, in the order of ranks.
///
/// # Errors
/// The error, and the file that it is about.
pub(super) fn open(paths: &[PathBuf]) -> Result<Source, (PathBuf, RecordingError)> {
    let mut files: Vec<(Vec<u16>, &PathBuf)> =
        paths.iter().map(|path| (ranks_of(path).unwrap_or_default().ranks, path)).collect();
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut lanes = Vec::with_capacity(files.len());
    for (_, path) in files.iter().take(Ranks::MOST) {
        lanes.push(Lane::open(path).map_err(|error| ((*path).clone(), error))?);
    }
    let name = |path: &PathBuf| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let names = match &files[..] {
        [] => String::new(),
        [(_, one)] => name(one),
        [(_, first), others @ ..] => format!("{} and {} more", name(first), others.len()),
    };
    let failed = |error| (paths.first().cloned().unwrap_or_default(), RecordingError::Unreadable(error));
    let (arrive, arrivals) = mpsc::channel(QUEUE);
    thread::Builder::new().name("reader".to_owned()).spawn(move || tell(lanes, &arrive)).map_err(failed)?;
    Source::keep(SourceKind::Recording(Arc::from(names)), None, Inbox::Read(arrivals), None).map_err(failed)
}

/// Reports the events of all files by time, each file's as a device of its own, until the receiver is gone. Each file's
/// clock began with its process, so the clocks are aligned where the files begin the first step.
fn tell(mut lanes: Vec<Lane>, arrive: &mpsc::Sender<Arrival>) {
    let begun: Vec<Option<u64>> = lanes.iter_mut().map(|lane| lane.first_step().map(|event| event.time.0)).collect();
    let latest = begun.iter().flatten().max().copied().unwrap_or_default();
    for (lane, begun) in lanes.iter_mut().zip(begun) {
        lane.behind = begun.map_or(0, |begun| latest - begun);
    }
    let mut batch = Vec::with_capacity(BATCH);
    let mut last = Micros(0);
    loop {
        let times = lanes.iter_mut().enumerate().filter_map(|(number, lane)| Some((lane.time()?, number)));
        let Some((time, number)) = times.min() else { break };
        let Some(event) = lanes[number].events.pop_front() else { break };
        last = time;
        batch.push(Event { time, device: device(number), ..event });
        if batch.len() >= BATCH && arrive.blocking_send(Arrival::Events(std::mem::take(&mut batch))).is_err() {
            return;
        }
    }
    for (number, lane) in lanes.iter_mut().enumerate() {
        if let Some(word) = lane.last_word.take() {
            let kind = EventKind::Notice { text: word.into() };
            batch.push(Event { device: device(number), ..Event::new(last, kind) });
        }
    }
    // The receiver may be gone.
    let _ = arrive.blocking_send(Arrival::Events(batch));
}

/// There are at most [`Ranks::MOST`].
fn device(number: usize) -> DeviceIndex {
    DeviceIndex(u16::try_from(number).unwrap_or(u16::MAX))
}
