//! Some consecutive events, encoded and compressed together. Frames are kept, stored and dropped as a whole.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::{fmt, io};

use zstd::bulk;

use super::codec::{Decoder, Encoder, LARGEST_EVENT, LARGEST_FREQUENT};
use super::file::{Header, MOST_BYTES, MOST_EVENTS};
use super::{CodecError, RecordingError};
use vramlab_model::{Event, Micros};

/// Some consecutive events, compressed. A copy shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    first: u64,
    count: u32,
    from: Micros,
    to: Micros,
    raw: u32,
    bytes: Arc<[u8]>,
}

impl Frame {
    /// The index of its first event.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The index behind its last event.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.first + self.count as u64
    }

    /// The number of events; at least one.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Time of its first event.
    #[must_use]
    pub const fn from(&self) -> Micros {
        self.from
    }

    /// Time of its last event.
    #[must_use]
    pub const fn to(&self) -> Micros {
        self.to
    }

    /// The encoded events.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of memory that it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        const COUNTERS: usize = 2 * size_of::<usize>();
        size_of::<Self>() + COUNTERS + self.bytes.len()
    }

    /// The same frame as part of another stream, in which `first` events come before it.
    #[must_use]
    pub fn numbered(self, first: u64) -> Self {
        Self { first: first.min(u64::MAX - u64::from(self.count)), ..self }
    }

    /// Decompresses its events without decoding them: at most 4 MiB, whatever the bytes are.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`].
    pub fn unpack(&self) -> Result<FrameEvents<'_>, RecordingError> {
        let damaged = || RecordingError::Damaged(self.first);
        let raw = self.raw as usize;
        let bytes = if self.bytes.len() == raw {
            Cow::Borrowed(&*self.bytes)
        } else {
            Cow::Owned(bulk::decompress(&self.bytes, raw).map_err(|_| damaged())?)
        };
        let unpacked = FrameEvents { first: self.first, bytes };
        let whole = unpacked.bytes.len() == raw && unpacked.decoder().is_ok_and(|events| events.len() == self.len());
        if whole { Ok(unpacked) } else { Err(damaged()) }
    }

    const fn len(&self) -> usize {
        self.count as usize
    }

    /// Its header in a file.
    pub(super) fn header(&self) -> Header {
        Header {
            length: u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
            raw: self.raw,
            count: self.count,
            first: self.first,
            from: self.from,
            to: self.to,
            checksum: crc32fast::hash(&self.bytes),
        }
    }

    /// The frame with this header and payload; `None` if they don't belong together.
    pub(super) fn of_parts(header: &Header, payload: &[u8]) -> Option<Self> {
        let Header { length, raw, count, first, from, to, checksum } = *header;
        let whole = payload.len() == length as usize && crc32fast::hash(payload) == checksum;
        whole.then(|| Self { first, count, from, to, raw, bytes: payload.into() })
    }
}

/// A frame's events, decompressed.
#[derive(Clone, Debug)]
pub struct FrameEvents<'a> {
    first: u64,
    bytes: Cow<'a, [u8]>,
}

impl FrameEvents<'_> {
    /// The events in order. Ends with an error if the bytes are not events.
    pub fn events(&self) -> impl Iterator<Item = Result<Event, RecordingError>> + '_ {
        // It was checked when the frame was unpacked.
        let decoder = self.decoder().into_iter().flatten();
        (self.first..).zip(decoder).map(|(index, event)| event.map_err(|_| RecordingError::Damaged(index)))
    }

    /// Hands over the events with indices in `range`.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`]; the events before the damage have been handed over.
    pub fn each(&self, range: Range<u64>, mut each: impl FnMut(&Event)) -> Result<(), RecordingError> {
        let skipped = usize::try_from(range.start.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut left = range.end.saturating_sub(range.start.max(self.first));
        let end = range.end;
        for event in self.decoder().into_iter().flatten().skip(skipped) {
            if left == 0 {
                break;
            }
            match event {
                Ok(event) => each(&event),
                Err(CodecError) => return Err(RecordingError::Damaged(end - left)),
            }
            left -= 1;
        }
        Ok(())
    }

    fn decoder(&self) -> Result<Decoder<'_>, CodecError> {
        Decoder::new(&self.bytes)
    }
}

/// Builds frames from the events it is given.
#[derive(Default)]
pub struct FrameBuilder {
    encoder: Encoder,
    /// Created when it is first needed, and reused for its tables.
    compressor: Option<bulk::Compressor<'static>>,
    raw: Vec<u8>,
    first: u64,
    count: u32,
    from: Micros,
    to: Micros,
}

impl FrameBuilder {
    /// The number of events that make a frame full. A frame is searched and replayed as a whole.
    const FULL: u32 = 1 << 15;
    /// The bytes of rare events that make a frame full.
    const FULL_RARE: usize = 1 << 19;
    /// zstd's compression level. Higher levels gain little on columns of small differences.
    const LEVEL: i32 = 1;

    /// A builder whose next event has the index `first`.
    #[must_use]
    pub fn new(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    /// Adds the next event.
    pub fn push(&mut self, event: &Event) {
        if self.count == 0 {
            self.from = event.time;
        }
        self.to = event.time;
        self.count += 1;
        self.encoder.push(event);
    }

    /// Time of the open frame's first event; `None` if the frame is empty.
    #[must_use]
    pub fn since(&self) -> Option<Micros> {
        (!self.is_empty()).then_some(self.from)
    }

    /// Index of the open frame's first event.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The number of events in the open frame.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// True if the open frame is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of its events before compression.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.encoder.len()
    }

    /// True if it should be finished: it has 32,768 events, or very large ones.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count >= Self::FULL || self.encoder.rare_bytes() >= Self::FULL_RARE
    }

    /// The events of the open frame.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.encoder.decoder().flatten()
    }

    /// Ends the frame, so that the next event begins another. `None` if the frame is empty.
    pub fn finish(&mut self) -> Option<Frame> {
        if self.is_empty() {
            return None;
        }
        self.raw.clear();
        self.encoder.finish(&mut self.raw);
        let bytes = match self.compressed() {
            Ok(compressed) if compressed.len() < self.raw.len() => compressed.into(),
            // Its length equals the announced uncompressed length, which marks it as not compressed.
            _ => Arc::from(self.raw.as_slice()),
        };
        let raw = u32::try_from(self.raw.len()).unwrap_or(u32::MAX);
        let frame = Frame { first: self.first, count: self.count, from: self.from, to: self.to, raw, bytes };
        self.encoder.clear();
        (self.first, self.count) = (frame.end(), 0);
        Some(frame)
    }

    fn compressed(&mut self) -> io::Result<Vec<u8>> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(bulk::Compressor::new(Self::LEVEL)?),
        };
        compressor.compress(&self.raw)
    }
}

impl fmt::Debug for FrameBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameBuilder").field("first", &self.first).field("count", &self.count).finish_non_exhaustive()
    }
}

/// The reader must accept everything that is written here.
const _: () = {
    let rare = FrameBuilder::FULL_RARE + LARGEST_EVENT;
    let longest = FrameBuilder::FULL as usize * LARGEST_FREQUENT + rare;
    assert!(FrameBuilder::FULL <= MOST_EVENTS && longest < MOST_BYTES as usize);
};
