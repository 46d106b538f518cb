//! A snapshot can be viewed while it is being read: its end state is shown at once, and the history replaces it when
//! all of it has been read. What is shown meanwhile is never more than the file has said.

use std::io::{PipeWriter, Write, pipe};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::big::Big;
use crate::patience;
use vramlab::model::RunState;
use vramlab::snapshot::{Listener, Snapshot, TraceEntry};
use vramlab::source::{self, Ability, Move, Picture, ReadingStage, Request, Source};
use vramlab::units::Bytes;

fn pickle() -> Vec<u8> {
    let mut pickle = Vec::new();
    Big { entries: 30_000, depth: 9, places: 500 }.write(&mut pickle).unwrap();
    pickle
}

/// A file that comes through a pipe; only its first `part` bytes have arrived.
fn half_read(pickle: &[u8], part: usize) -> (Front, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let first = pickle[..part].to_vec();
    let written: JoinHandle<PipeWriter> = std::thread::spawn(move || {
        writer.write_all(&first).unwrap();
        writer
    });
    let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
    let source = source::open(&[path], false, None).unwrap();
    drop(reader);
    (Front::of(source), written.join().unwrap())
}

/// A viewer of a source.
struct Front {
    source: Source,
}

impl Front {
    fn of(source: Source) -> Self {
        Self { source }
    }

    fn wait(&self, what: &str, holds: impl FnMut(&Arc<Picture>) -> bool) -> Arc<Picture> {
        let mut pictures = self.source.pictures.clone();
        let held = patience::in_time(async { pictures.wait_for(holds).await.unwrap().clone() });
        held.unwrap_or_else(|| panic!("no {what}: {:?}", self.source.pictures.borrow().reading))
    }
}

fn least(picture: &Picture) -> Bytes {
    picture.reading.as_ref().and_then(|reading| reading.least.iter().copied().max()).unwrap_or_default()
}

fn held(picture: &Picture) -> (Bytes, Bytes, usize) {
    let view = &picture.view;
    (view.ledger.allocated(), view.ledger.reserved(), view.segments.len())
}

#[test]
fn the_end_stands_while_the_history_is_read_and_the_history_takes_its_place() {
    let pickle = pickle();
    let whole = Snapshot::read(&pickle[..]).unwrap();
    let reserved = whole.device_segments(0).map(|segment| segment.total_size).sum::<Bytes>();
    let (front, mut writer) = half_read(&pickle, pickle.len() / 2);

    let early = front.wait("first picture", |picture| {
        !picture.view.segments.is_empty() && picture.reading.as_ref().is_some_and(|reading| !reading.least.is_empty())
    });
    let (allocated, early_reserved, segments) = held(&early);
    assert_eq!((early_reserved, segments), (reserved, whole.device_segments(0).count()));
    assert!(early.extent.grows && early.can(Ability::Seek).is_err());
    let reading = early.reading.clone().unwrap();
    assert_eq!((reading.doing, reading.part), (ReadingStage::Reading, None), "nobody knows how long a pipe is");
    // There are no moments yet to which a cursor could go.
    front.source.request(Request::Move(Move::Start));
    let asked = front.wait("answer", |picture| picture.answered > early.answered);
    assert!(asked.is_now() && held(&asked) == held(&early));
    let so_far = least(&asked);

    writer.write_all(&pickle[pickle.len() / 2..]).unwrap();
    drop(writer);
    let late = front.wait("whole history", |picture| !picture.extent.grows && picture.reading.is_none());
    assert_eq!(held(&late), (allocated, reserved, segments), "the end is what it was");
    assert!(late.extent.end > whole.device_trace(0).len() as u64);
    assert_eq!(late.can(Ability::Seek), Ok(()));
    // What was shown before was not too much.
    let peak = late.view.peak_allocated;
    assert!(Bytes::ZERO < so_far && so_far <= peak, "{so_far} {peak}");
    front.source.request(Request::Move(Move::Start));
    front.wait("cursor at the start", |picture| !picture.is_now());
}

#[test]
fn a_file_that_ends_too_early_keeps_what_was_read_and_says_so() {
    let pickle = pickle();
    let (front, writer) = half_read(&pickle, pickle.len() / 2);
    let early = front.wait("first picture", |picture| !picture.view.segments.is_empty());
    drop(writer);
    let late = front.wait("failure", |picture| matches!(picture.run, RunState::Failed(_)));
    let RunState::Failed(why) = &late.run else { panic!() };
    assert!(why.contains("cut off") && why.starts_with("byte "), "{why}");
    assert_eq!(held(&late), held(&early));
    assert_eq!(late.reading.as_ref().map(|reading| reading.doing), Some(ReadingStage::Failed));
    assert!(late.can(Ability::Seek).unwrap_err().contains("damaged"));
}

#[test]
fn nobody_reads_on_for_a_screen_that_was_left() {
    let pickle = pickle();
    let (front, mut writer) = half_read(&pickle, pickle.len() / 2);
    front.wait("first picture", |picture| !picture.view.segments.is_empty());
    drop(front);
    // More than all buffers on the way hold: the writer gets an error because nobody reads any more.
    let error = writer.write_all(&pickle[pickle.len() / 2..]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn what_is_no_snapshot_is_refused_before_a_screen_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.pickle");
    std::fs::write(&path, &pickle()[..500]).unwrap();
    let (named, error) = source::open(std::slice::from_ref(&path), false, None).err().unwrap();
    assert!(named == path && error.to_string().contains("cut off"), "{error}");
}

/// Counts what it hears.
#[derive(Default)]
struct Ear {
    memory: Vec<Snapshot>,
    entries: Vec<TraceEntry>,
    until: Option<usize>,
}

impl Listener for Ear {
    fn memory(&mut self, memory: Snapshot) {
        assert!(self.entries.is_empty(), "the end comes first");
        self.memory.push(memory);
    }

    fn entries(&mut self, device: usize, entries: &[TraceEntry]) -> bool {
        assert_eq!(device, 0);
        self.entries.extend(entries);
        self.until.is_none_or(|until| self.entries.len() < until)
    }
}

#[test]
fn who_listens_hears_every_entry_once_and_the_end_before_them() {
    let pickle = pickle();
    let mut ear = Ear::default();
    let snapshot = Snapshot::read_aloud(&pickle[..], &mut ear).unwrap();
    assert_eq!(ear.entries, snapshot.device_trace(0));
    let [memory] = &*ear.memory else { panic!("{} times", ear.memory.len()) };
    assert_eq!(memory.segments, snapshot.segments);

    let mut ear = Ear { until: Some(5000), ..Ear::default() };
    let stopped = Snapshot::read_aloud(&pickle[..], &mut ear).unwrap_err();
    assert!(stopped.to_string().contains("nobody waited") && ear.entries.len() < 7000, "{stopped}");
}
