//! Reads recordings: complete ones, ones whose writer was killed, ones that are still being written, and pipes.

use std::io::{self, Read, Seek, SeekFrom};

use super::file::{HEADER, Header, PREFACE, check_preface};
use super::{Frame, RecordingError};
use vramlab_model::Micros;

/// The result of reading on.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The next frame.
    Frame(Frame),
    /// A part of the next frame. The rest may still be written; if the writer is gone, the frame is incomplete.
    NotYet,
    /// Nothing follows the last frame. If the recording is still being written, more may come.
    End,
}

/// Reads frames one after the other, from a file or a pipe.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    /// The bytes read so far of the current part.
    buffer: Vec<u8>,
    part: FilePart,
    events: u64,
}

/// The part of the file that comes next.
#[derive(Clone, Copy, Debug)]
enum FilePart {
    Preface,
    Header,
    Payload(Header),
    /// The file is damaged, and nothing behind the damage can be read.
    Damaged,
}

impl<R: Read> Reader<R> {
    /// The most memory that is reserved before bytes arrive.
    const AT_ONCE: usize = 1 << 18;

    /// A reader that has read nothing yet.
    pub const fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), part: FilePart::Preface, events: 0 }
    }

    /// The number of events in the frames read so far.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The next frame, or why there is none. Waits as long as the source waits. May be called again after
    /// [`Next::NotYet`] and [`Next::End`], when more may have been written.
    ///
    /// # Errors
    /// [`RecordingError`]. Earlier frames stay valid; behind damage no frame is found.
    #[expect(clippy::should_implement_trait, reason = "no iterator: it may go on behind its end, and it fails")]
    pub fn next(&mut self) -> Result<Next, RecordingError> {
        loop {
            let wanted = match &self.part {
                FilePart::Preface => PREFACE,
                FilePart::Header => HEADER,
                FilePart::Payload(header) => header.length as usize,
                FilePart::Damaged => return Err(RecordingError::Damaged(self.events)),
            };
            let whole = self.fill(wanted)?;
            if matches!(self.part, FilePart::Preface) {
                check_preface(&self.buffer)?;
            }
            if !whole {
                let between = matches!(self.part, FilePart::Header) && self.buffer.is_empty();
                return Ok(if between { Next::End } else { Next::NotYet });
            }
            match self.part {
                FilePart::Preface => self.part = FilePart::Header,
                FilePart::Header => {
                    self.part = Header::of_bytes(&self.buffer)
                        .filter(|header| header.first == self.events)
                        .map_or(FilePart::Damaged, FilePart::Payload);
                }
                FilePart::Payload(header) => match Frame::of_parts(&header, &self.buffer) {
                    Some(frame) => {
                        self.buffer.clear();
                        self.part = FilePart::Header;
                        self.events = frame.end();
                        return Ok(Next::Frame(frame));
                    }
                    None => self.part = FilePart::Damaged,
                },
                FilePart::Damaged => {}
            }
            self.buffer.clear();
        }
    }

    /// Reads on until the buffer has `wanted` bytes. Returns false if there are no more now. Memory for what a header
    /// announces is taken only as it is read.
    fn fill(&mut self, wanted: usize) -> Result<bool, RecordingError> {
        let missing = wanted.saturating_sub(self.buffer.len());
        self.buffer.reserve(missing.min(Self::AT_ONCE));
        match self.source.by_ref().take(missing as u64).read_to_end(&mut self.buffer) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(RecordingError::Unreadable(error)),
        }
        Ok(self.buffer.len() >= wanted)
    }
}

/// A summary of a recording, from its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of events in all complete frames.
    pub events: u64,
    /// The number of complete frames.
    pub frames: u64,
    /// The bytes of the file up to the end of the last complete frame.
    pub bytes: u64,
    /// Time of the first event.
    pub from: Micros,
    /// Time of the last event.
    pub to: Micros,
    /// False if an incomplete frame follows: the recording is still being written, was cut off, or is damaged.
    pub whole: bool,
}

/// Reads the headers of a recording from its start, and skips the payloads.
///
/// # Errors
/// [`RecordingError`] if it is not a recording, has another version, or can't be read. What follows damage is not counted.
pub fn summary(mut source: impl Read + Seek) -> Result<Summary, RecordingError> {
    let mut read = || -> io::Result<(Vec<u8>, u64)> {
        let length = source.seek(SeekFrom::End(0))?;
        source.rewind()?;
        let mut preface = Vec::new();
        source.by_ref().take(PREFACE as u64).read_to_end(&mut preface)?;
        Ok((preface, length))
    };
    let (preface, length) = read().map_err(RecordingError::Unreadable)?;
    check_preface(&preface)?;
    let mut summary = Summary { bytes: preface.len() as u64, ..Summary::default() };
    while let Some(header) = next_header(&mut source, &summary, length).map_err(RecordingError::Unreadable)? {
        if summary.frames == 0 {
            summary.from = header.from;
        }
        summary.to = header.to;
        summary.frames += 1;
        summary.events += u64::from(header.count);
        summary.bytes += HEADER as u64 + u64::from(header.length);
    }
    Ok(Summary { whole: summary.bytes == length && length >= PREFACE as u64, ..summary })
}

/// The next header, if its frame is complete; skips the payload.
fn next_header(source: &mut (impl Read + Seek), before: &Summary, length: u64) -> io::Result<Option<Header>> {
    let mut bytes = [0; HEADER];
    if length.saturating_sub(before.bytes) < HEADER as u64 {
        return Ok(None);
    }
    match source.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let end = |header: &Header| before.bytes + HEADER as u64 + u64::from(header.length);
    let header = Header::of_bytes(&bytes).filter(|header| header.first == before.events && end(header) <= length);
    if let Some(header) = &header {
        source.seek_relative(i64::from(header.length))?;
    }
    Ok(header)
}
