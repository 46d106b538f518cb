//! A whole file for commands without a screen: all its events, kept compressed and read as often as needed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use thiserror::Error;
use tokio::sync::mpsc;

use super::arrival::{Arrival, Inbox};
use super::counted::MeteredReader;
use super::handle::Source;
use super::picture::SourceKind;
use super::snapshot::{Histories, OpenError, OpenSnapshot, is_snapshot, narrate};
use vramlab_allocator::TorchVersion;
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_model::{Event, EventKind};
use vramlab_recording::{Frame, FrameBuilder, Next, Reader, RecordingError};
use vramlab_snapshot::replay::HistoryReport;
use vramlab_snapshot::{Listener, Snapshot, TraceEntry};

/// The most frames that wait for the keeper.
const QUEUE: usize = 8;

/// Why a file can't be read.
#[derive(Debug, Error)]
pub enum WholeError {
    /// It is not a recording that can be read from the start.
    #[error(transparent)]
    Recording(RecordingError),
    /// Its first bytes match no known kind of file.
    #[error("it is neither a recording of vramlab nor a PyTorch snapshot; name one of those")]
    Neither,
    /// It is not a snapshot that can be followed.
    #[error(transparent)]
    Snapshot(#[from] OpenError),
    /// It is empty.
    #[error("nothing happens in it; record a run that goes further")]
    Empty,
}

impl From<RecordingError> for WholeError {
    fn from(error: RecordingError) -> Self {
        match error {
            RecordingError::NoRecording => Self::Neither,
            error => Self::Recording(error),
        }
    }
}

/// The progress of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadProgress {
    /// Bytes read, and bytes of the file; 0 if unknown.
    Bytes(u64, u64),
    /// Entries of a snapshot's history that were replayed, and the total.
    Entries(u64, u64),
}

/// All events of a recording, or of the histories in a PyTorch snapshot.
///
/// Takes as much memory as the compressed events: about ten bytes each.
#[derive(Debug)]
pub struct Whole {
    kind: SourceKind,
    frames: Vec<Frame>,
    remarks: Vec<String>,
    device_bytes: Option<Bytes>,
    oldest: TorchVersion,
    histories: Histories,
}

impl Whole {
    /// Reads the file at `path`; `-` is the standard input. A snapshot is of version `torch` if that is given. What
    /// follows damage, or the end of what was written, is left out; [`Whole::remarks`] says so.
    ///
    /// # Errors
    /// [`WholeError`].
    pub fn read(
        path: &Path,
        torch: Option<TorchVersion>,
        mut progress: impl FnMut(LoadProgress),
    ) -> Result<Self, WholeError> {
        let (source, length): (Box<dyn Read>, u64) = if path == Path::new("-") {
            (Box::new(io::stdin()), 0)
        } else {
            let file = File::open(path).map_err(RecordingError::Unreadable)?;
            let length = file.metadata().map_err(RecordingError::Unreadable)?.len();
            (Box::new(file), length)
        };
        let mut done = 0;
        let mut source = BufReader::with_capacity(
            1 << 16,
            MeteredReader {
                source,
                each: |bytes| {
                    done += bytes;
                    progress(LoadProgress::Bytes(done, length));
                },
            },
        );
        let head = source.fill_buf().map_err(RecordingError::Unreadable)?;
        let whole = if is_snapshot(head) {
            match Snapshot::read(source) {
                Ok(snapshot) => Self::of_snapshot(snapshot, path, torch, progress)?,
                // What comes before the damage can be used.
                Err(error) => match IntactPart::of(path) {
                    Some((memory, entries)) => {
                        let mut whole = Self::of_snapshot(memory, path, torch, progress)?;
                        whole.remarks = vec![format!(
                            "the file is damaged or cut off: {entries} entries of its history were read, and none can be used without \
                             the rest; this is memory at its end ({error})"
                        )];
                        whole
                    }
                    None => return Err(OpenError::from(error).into()),
                },
            }
        } else {
            Self { kind: SourceKind::Recording(name_of(path)), ..Self::recording(source)? }
        };
        if whole.frames.is_empty() { Err(WholeError::Empty) } else { Ok(whole) }
    }

    /// Reads a recording from any source, as [`Whole::read`] does.
    ///
    /// # Errors
    /// [`WholeError::Recording`].
    pub fn recording(source: impl Read) -> Result<Self, WholeError> {
        let mut reader = Reader::new(source);
        let mut whole = Self {
            kind: SourceKind::Recording("-".into()),
            frames: Vec::new(),
            remarks: Vec::new(),
            device_bytes: None,
            oldest: TorchVersion::default(),
            histories: Vec::new(),
        };
        loop {
            match reader.next() {
                Ok(Next::Frame(frame)) => whole.frames.push(frame),
                Ok(Next::End) => return Ok(whole),
                Ok(Next::NotYet) => {
                    whole.remarks.push("the recording was cut off; all before is as it was".to_owned());
                    return Ok(whole);
                }
                // What comes before can be used.
                Err(error @ RecordingError::Damaged(1..)) => {
                    whole.remarks.push(error.to_string());
                    return Ok(whole);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn of_snapshot(
        snapshot: Snapshot,
        path: &Path,
        torch: Option<TorchVersion>,
        mut progress: impl FnMut(LoadProgress),
    ) -> Result<Self, WholeError> {
        let opened = [OpenSnapshot::new(path, snapshot, torch)];
        let total = opened[0].entries();
        let (mut frames, mut remarks, mut count) = (Vec::new(), Vec::new(), 0_u64);
        let mut open = FrameBuilder::new(0);
        let histories = narrate(&opened, |event| {
            open.push(&event);
            if open.is_full() {
                frames.extend(open.finish());
            }
            if let EventKind::Notice { text } = &event.kind {
                remarks.push(text.to_string());
            }
            count += 1;
            progress(LoadProgress::Entries(count.min(total), total));
        })?;
        frames.extend(open.finish());
        let [opened] = &opened;
        Ok(Self {
            kind: SourceKind::Snapshot(name_of(path)),
            frames,
            remarks,
            device_bytes: opened.device_bytes(),
            oldest: opened.oldest(),
            histories,
        })
    }

    /// The number of events.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.frames.last().map_or(0, Frame::end)
    }

    /// Remarks about the file for a person: a sentence each, without a period.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// The device's memory, if the file says it.
    #[must_use]
    pub const fn device_bytes(&self) -> Option<Bytes> {
        self.device_bytes
    }

    /// The oldest version of PyTorch that it may come from. Advice for it must be valid for that version.
    #[must_use]
    pub const fn oldest_torch(&self) -> TorchVersion {
        self.oldest
    }

    /// Where a device's history begins, and what it does not tell; `None` for a recording, which is complete.
    #[must_use]
    pub fn history(&self, device: DeviceIndex) -> Option<&HistoryReport> {
        self.histories.iter().find(|(of, _)| *of == device).map(|(_, history)| history)
    }

    /// True for a PyTorch snapshot: the history of a GPU whose driver is unknown.
    #[must_use]
    pub const fn is_snapshot(&self) -> bool {
        matches!(self.kind, SourceKind::Snapshot(_))
    }

    /// Hands over the events in `range`, each with its index, until `each` fails.
    ///
    /// # Errors
    /// The error of `each`, or [`RecordingError::Damaged`].
    pub fn each<E: From<RecordingError>>(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(u64, &Event) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = self.frames.partition_point(|frame| frame.end() <= range.start);
        for frame in self.frames[first..].iter().take_while(|frame| frame.first() < range.end) {
            let unpacked = frame.unpack()?;
            for (index, event) in (frame.first()..range.end).zip(unpacked.events()) {
                let event = event?;
                if index >= range.start {
                    each(index, &event)?;
                }
            }
        }
        Ok(())
    }
}

/// The intact part of a damaged snapshot: the memory at its end, and how many entries of the history.
#[derive(Default)]
struct IntactPart {
    memory: Option<Snapshot>,
    entries: u64,
}

impl Listener for IntactPart {
    fn memory(&mut self, memory: Snapshot) {
        self.memory = Some(memory);
    }

    fn entries(&mut self, _: usize, entries: &[TraceEntry]) -> bool {
        self.entries += entries.len() as u64;
        true
    }
}

impl IntactPart {
    /// Reads a damaged file once more; `None` if nothing in it can be used, or it can be read only once.
    fn of(path: &Path) -> Option<(Snapshot, u64)> {
        let source = BufReader::with_capacity(1 << 16, File::open(path).ok().filter(|_| path.is_file())?);
        let mut heard = Self::default();
        // The error at its end is known.
        let _ = Snapshot::read_aloud(source, &mut heard);
        heard.memory.filter(|memory| !memory.segments.is_empty()).map(|memory| (memory, heard.entries))
    }
}

impl Whole {
    /// The same events as a source for screens, at whose end nothing more comes.
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub fn source(&self) -> io::Result<Source> {
        let (arrive, arrivals) = mpsc::channel(QUEUE);
        let frames = self.frames.clone();
        thread::Builder::new().name("frames".to_owned()).spawn(move || {
            for frame in frames {
                // The receiver may be gone.
                if arrive.blocking_send(Arrival::Frame(frame)).is_err() {
                    return;
                }
            }
        })?;
        Source::keep(self.kind.clone(), None, Inbox::Read(arrivals), None)
    }
}

fn name_of(path: &Path) -> Arc<str> {
    path.file_name().map_or_else(|| "-".to_owned(), |name| name.to_string_lossy().into_owned()).into()
}
