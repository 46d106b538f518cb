//! Writes frames to a file or a pipe, on a thread of its own so that a slow disk holds nothing up.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::picture::RecordingState;
use vramlab_allocator::units::Bytes;
use vramlab_model::Event;
use vramlab_recording::{Frame, FrameBuilder, RecordingError, Writer};

/// A recording that is being written.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    frames: Option<Sender<Frame>>,
    written: Arc<AtomicU64>,
    failure: Arc<Mutex<Option<RecordingError>>>,
    writing: Option<JoinHandle<()>>,
    open: FrameBuilder,
}

impl Recorder {
    /// Begins a recording at `path`, which must not exist yet; `-` is the standard output.
    ///
    /// # Errors
    /// [`RecordingError::Unwritable`].
    pub fn create(path: &Path) -> Result<Self, RecordingError> {
        let out: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            Box::new(File::create_new(path).map_err(RecordingError::Unwritable)?)
        };
        Self::to(out, path.to_owned())
    }

    fn to(out: Box<dyn Write + Send>, path: PathBuf) -> Result<Self, RecordingError> {
        let mut writer = Writer::new(out)?;
        let (frames, inbox) = channel::<Frame>();
        let written = Arc::new(AtomicU64::new(0));
        let failure = Arc::new(Mutex::new(None));
        let (count, told) = (Arc::clone(&written), Arc::clone(&failure));
        let writing = thread::Builder::new().name("recorder".to_owned()).spawn(move || {
            for frame in inbox {
                if let Err(error) = writer.write(&frame) {
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return;
                }
                count.fetch_add(frame.bytes().len() as u64, Ordering::Relaxed);
            }
        });
        let writing = writing.map_err(RecordingError::Unwritable)?;
        let open = FrameBuilder::new(0);
        Ok(Self { path, frames: Some(frames), written, failure, writing: Some(writing), open })
    }

    /// Adds a frame of a timeline.
    pub fn frame(&mut self, frame: &Frame) {
        if let Some(frames) = &self.frames {
            // A writer that failed takes no more frames, and has reported why.
            let _ = frames.send(frame.clone());
        }
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        self.open.push(event);
        if self.open.is_full() {
            self.close_frame();
        }
    }

    /// Hands on the events from [`Recorder::push`], so that they can be read however the program ends.
    pub fn close_frame(&mut self) {
        if let Some(frame) = self.open.finish() {
            self.frame(&frame);
        }
    }

    /// The path, and the number of bytes so far.
    #[must_use]
    pub fn state(&self) -> RecordingState {
        RecordingState { path: self.path.clone(), bytes: Bytes(self.written.load(Ordering::Relaxed)) }
    }

    /// Why the recording can't continue, if so. Returned once.
    pub fn failure(&self) -> Option<RecordingError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// [`RecordingError::Unwritable`] if something could not be written.
    pub fn finish(mut self) -> Result<RecordingState, RecordingError> {
        self.end();
        self.failure().map_or_else(|| Ok(self.state()), Err)
    }

    fn end(&mut self) {
        self.close_frame();
        self.frames = None;
        if let Some(writing) = self.writing.take() {
            // The panic has printed its own message.
            let _ = writing.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

/// A file name for a recording of `workload` in `folder` that does not exist yet.
#[must_use]
pub fn free_name(folder: &Path, workload: &str) -> PathBuf {
    let safe: String = workload.chars().filter(|symbol| symbol.is_alphanumeric() || "-_".contains(*symbol)).collect();
    let stem = if safe.is_empty() { "run" } else { &safe };
    let names = (0..10_000).map(|n| if n == 0 { format!("{stem}.vram") } else { format!("{stem}-{n}.vram") });
    names
        .map(|name| folder.join(name))
        .find(|path| !path.exists())
        .unwrap_or_else(|| folder.join(format!("{stem}.vram")))
}
