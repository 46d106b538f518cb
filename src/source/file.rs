//! Recordings: complete ones, ones that are still being written, and pipes.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use super::arrival::{Arrival, Inbox, ON_ARRIVAL};
use super::handle::Source;
use super::picture::SourceKind;
use vramlab_model::{Event, EventKind};
use vramlab_recording::{Next, Reader, RecordingError};

/// The most frames that wait for the keeper.
const QUEUE: usize = 8;
/// How often a file that is being written is checked.
const LOOK: Duration = Duration::from_millis(40);

/// Opens a recording; `-` is the standard input. If it `follows`, later additions to the file are shown too.
///
/// # Errors
/// [`RecordingError`] if it is not a recording, or can't be read from the start.
pub fn recording(path: &Path, follows: bool) -> Result<Source, RecordingError> {
    if path == Path::new("-") {
        return of_reader(io::stdin(), "-".into(), false);
    }
    let file = File::open(path).map_err(RecordingError::Unreadable)?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    of_reader(file, name.into(), follows)
}

pub(super) fn of_reader(
    source: impl Read + Send + 'static,
    name: Arc<str>,
    follows: bool,
) -> Result<Source, RecordingError> {
    let mut reader = Reader::new(source);
    // A file that is not a recording is refused before a screen opens.
    let first = first_frame(&mut reader, follows)?;
    let (arrive, arrivals) = mpsc::channel(QUEUE);
    let kind = SourceKind::Recording(name);
    thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || read(reader, first, follows, &arrive))
        .map_err(RecordingError::Unreadable)?;
    Source::keep(kind, None, Inbox::Read(arrivals), None).map_err(RecordingError::Unreadable)
}

/// The first frame, or none if the recording has no frame yet.
fn first_frame<R: Read>(reader: &mut Reader<R>, follows: bool) -> Result<Next, RecordingError> {
    match reader.next()? {
        Next::NotYet | Next::End if !follows => Ok(Next::End),
        next => Ok(next),
    }
}

/// Sends frames until the recording ends or the receiver is gone.
fn read<R: Read>(mut reader: Reader<R>, first: Next, follows: bool, arrive: &mpsc::Sender<Arrival>) {
    let mut next: Result<Next, RecordingError> = Ok(first);
    loop {
        match next {
            Ok(Next::Frame(frame)) => {
                if arrive.blocking_send(Arrival::Frame(frame)).is_err() {
                    return;
                }
            }
            Ok(Next::NotYet | Next::End) if follows => {
                if arrive.is_closed() {
                    return;
                }
                thread::sleep(LOOK);
            }
            Ok(Next::End) => return,
            Ok(Next::NotYet) => return tell(arrive, "the recording was cut off here; all before is as it was"),
            Err(error) => return tell(arrive, &error.to_string()),
        }
        next = reader.next();
    }
}

fn tell(arrive: &mpsc::Sender<Arrival>, sentence: &str) {
    let refused = EventKind::Notice { text: sentence.into() };
    let _ = arrive.blocking_send(Arrival::Events(vec![Event::new(ON_ARRIVAL, refused)]));
}
