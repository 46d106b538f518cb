//! The format of a recording: sixteen bytes that identify it, then frames with a header each.
//!
//! A recording only grows by whole frames, so a recording whose writer was killed is complete up to its last frame. All
//! numbers are little-endian.
//!
//! ```text
//! file    magic (8) · version u16 · zeros (6)
//! frame   length u32 · uncompressed u32 · events u32 · first event u64 · first time u64 · last time u64
//!         · CRC-32 of the payload · CRC-32 of the header up to here · payload (length)
//! ```
//!
//! The payload is a zstd frame of [`super::Encoder`]'s columns, or the columns themselves if that is not longer.

use super::RecordingError;
use vramlab_model::Micros;

/// The format that is written. Every change of a frame's bytes increments it, including another order of the variants
/// or fields of [`vramlab_model::EventKind`].
pub const VERSION: u16 = 8;

/// The oldest format that is read. Version 7 has one more variant ([`vramlab_model::EventKind::DeviceMemory`], after
/// all others), and version 8 another ([`vramlab_model::EventKind::Presence`]); everything else is unchanged.
const OLDEST: u16 = 6;

/// The first bytes of a recording. The first byte never occurs in text.
const MAGIC: [u8; 8] = *b"\xf6vramlab";

/// Bytes before the first frame.
pub(super) const PREFACE: usize = 16;
/// Bytes before a frame's payload.
pub(super) const HEADER: usize = 44;

/// The most events in a frame.
pub(super) const MOST_EVENTS: u32 = 1 << 16;
/// The most bytes in a frame, uncompressed.
pub(super) const MOST_BYTES: u32 = 4 << 20;

/// The first bytes of a recording.
pub(super) fn preface() -> [u8; PREFACE] {
    let mut bytes = [0; PREFACE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Checks the first bytes of a file, as far as they are there.
///
/// # Errors
/// [`RecordingError::NoRecording`], or the version if it can't be read.
pub(super) fn check_preface(bytes: &[u8]) -> Result<(), RecordingError> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) {
        return Err(RecordingError::NoRecording);
    }
    let mut rest = Fields(&bytes[magic.len()..]);
    match rest.u16() {
        Some(version) if version > VERSION => Err(RecordingError::Newer(version)),
        Some(version) if version < OLDEST => Err(RecordingError::Older(version)),
        _ => Ok(()),
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the payload.
    pub length: u32,
    /// Bytes of the uncompressed payload.
    pub raw: u32,
    /// The number of events.
    pub count: u32,
    /// The number of events before the frame.
    pub first: u64,
    /// Time of its first event.
    pub from: Micros,
    /// Time of its last event.
    pub to: Micros,
    /// The checksum of the payload.
    pub checksum: u32,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.raw.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.first.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..40]);
        bytes[40..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header; `None` if the bytes are damaged, or ask for more than a frame may have.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let header = Self {
            length: fields.u32()?,
            raw: fields.u32()?,
            count: fields.u32()?,
            first: fields.u64()?,
            from: Micros(fields.u64()?),
            to: Micros(fields.u64()?),
            checksum: fields.u32()?,
        };
        let written = fields.u32()? == crc32fast::hash(bytes.get(..HEADER - 4)?);
        let possible = (1..=MOST_EVENTS).contains(&header.count)
            && header.raw <= MOST_BYTES
            && header.length <= header.raw
            && header.first.checked_add(u64::from(header.count)).is_some();
        (written && possible).then_some(header)
    }
}

/// Reads consecutive numbers.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.next().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.next().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.next().map(u64::from_le_bytes)
    }
}
