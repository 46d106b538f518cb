//! Writes a recording so that all frames written so far can be read, however the program ends.

use std::io::Write;

use super::file::{HEADER, preface};
use super::{Frame, RecordingError};

/// Writes consecutive frames. Each goes to `out` in one call; nothing is buffered here.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    buffer: Vec<u8>,
    events: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a recording. Its first bytes are written at once.
    ///
    /// # Errors
    /// [`RecordingError::Unwritable`].
    pub fn new(mut out: W) -> Result<Self, RecordingError> {
        write(&mut out, &preface())?;
        Ok(Self { out, buffer: Vec::new(), events: 0 })
    }

    /// Adds the next frame. A recording counts its own events, so one that begins late also starts with 0.
    ///
    /// # Errors
    /// [`RecordingError::Unwritable`]: part of the frame may have been written, and nothing can be added after it.
    pub fn write(&mut self, frame: &Frame) -> Result<(), RecordingError> {
        let frame = frame.clone().numbered(self.events);
        self.buffer.clear();
        self.buffer.reserve(HEADER + frame.bytes().len());
        self.buffer.extend_from_slice(&frame.header().to_bytes());
        self.buffer.extend_from_slice(frame.bytes());
        write(&mut self.out, &self.buffer)?;
        self.events = frame.end();
        Ok(())
    }

    /// Events written so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The destination of the bytes.
    pub fn into_inner(self) -> W {
        self.out
    }
}

fn write(out: &mut impl Write, bytes: &[u8]) -> Result<(), RecordingError> {
    out.write_all(bytes).and_then(|()| out.flush()).map_err(RecordingError::Unwritable)
}
