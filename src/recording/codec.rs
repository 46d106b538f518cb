//! Encodes events as bytes, and decodes them.
//!
//! The events of a frame are stored by column: kinds, times, addresses and so on are each stored together, as small
//! differences from the value before. Steps of a training run repeat everything except their times, so times don't
//! interrupt what repeats, and it compresses to almost nothing. Rare kinds of events are encoded whole by serde.
//!
//! The encoding is a file format: every change to it needs a new [`super::VERSION`], and so does another order of the
//! variants and fields of [`EventKind`].

use std::sync::Arc;

use thiserror::Error;

use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{Address, Bytes, DeviceIndex, StreamId};
use vramlab_model::{Category, Event, EventKind, Micros, NameId};

/// The most bytes of a single event of a rare kind, encoded. A larger event (no source writes any) is replaced by a
/// note that says so.
pub const LARGEST_EVENT: usize = 1 << 19;

/// The most bytes of an event of a frequent kind: nine numbers of ten bytes.
pub(super) const LARGEST_FREQUENT: usize = 90;

/// The bytes are not encoded events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("these bytes are no events")]
pub struct CodecError;

/// The kinds with an encoding of their own. All other kinds are [`mark::RARE`].
mod mark {
    pub const RARE: u8 = 0;
    pub const ALLOC: u8 = 1;
    pub const FREE_REQUESTED: u8 = 2;
    pub const FREE_COMPLETED: u8 = 3;
    /// The free of the block in the event before.
    pub const FREE_COMPLETED_AT_ONCE: u8 = 4;
    pub const OP_BEGIN: u8 = 5;
    pub const OP_END: u8 = 6;
    pub const RELABEL: u8 = 7;
    pub const SEGMENT_ALLOC: u8 = 8;
    pub const SEGMENT_FREE: u8 = 9;
    pub const SEGMENT_MAP: u8 = 10;
    pub const SEGMENT_UNMAP: u8 = 11;
    /// The bits of a mark that hold the kind.
    pub const KIND: u8 = 0x3f;
    /// Set if the stream differs from that of the last event with a stream.
    pub const OTHER_STREAM: u8 = 0x40;
    /// Set if the device differs from that of the event before.
    pub const OTHER_DEVICE: u8 = 0x80;
}

/// The number of columns in a frame.
const COLUMNS: usize = 8;

/// One value for each column.
#[derive(Clone, Copy, Debug, Default)]
struct PerColumn<T> {
    /// A [`mark`] for every event.
    marks: T,
    /// Time since the event before, for every event.
    times: T,
    /// The distance from the last address, as [`folded`] encodes it.
    addresses: T,
    /// Sizes, as [`folded`] encodes them.
    sizes: T,
    /// Bytes of a block beyond those requested.
    slack: T,
    /// Categories and names.
    labels: T,
    /// Devices and streams where they change, and the pools, ranges and pages of segments.
    others: T,
    /// Events of rare kinds.
    rare: T,
}

impl<T> PerColumn<T> {
    fn each(&self) -> [&T; COLUMNS] {
        let Self { marks, times, addresses, sizes, slack, labels, others, rare } = self;
        [marks, times, addresses, sizes, slack, labels, others, rare]
    }

    fn each_mut(&mut self) -> [&mut T; COLUMNS] {
        let Self { marks, times, addresses, sizes, slack, labels, others, rare } = self;
        [marks, times, addresses, sizes, slack, labels, others, rare]
    }
}

/// The values that differences are relative to.
#[derive(Clone, Copy, Debug, Default)]
struct Previous {
    time: u64,
    device: u16,
    address: u64,
    stream: u64,
}

/// Encodes the events of one frame.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    columns: PerColumn<Vec<u8>>,
    before: Previous,
}

impl Encoder {
    /// An encoder without any events.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts again, so that the following events can be decoded by themselves.
    pub fn clear(&mut self) {
        self.columns.each_mut().into_iter().for_each(Vec::clear);
        self.before = Previous::default();
    }

    /// The number of bytes that [`Self::finish`] adds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.each().into_iter().map(|column| column.len() + varint_len(column.len() as u64)).sum()
    }

    /// True if no event has been added.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.columns.marks.is_empty()
    }

    /// The number of bytes that events of rare kinds take.
    pub(super) const fn rare_bytes(&self) -> usize {
        self.columns.rare.len()
    }

    /// Adds the next event.
    pub fn push(&mut self, event: &Event) {
        put(&mut self.columns.times, event.time.0.wrapping_sub(self.before.time));
        self.before.time = event.time.0;
        let device = self.device(event.device);
        let kind = match event.kind {
            EventKind::Alloc { address, size, requested, stream, category, name } => {
                self.address(address);
                put(&mut self.columns.sizes, folded(size.0));
                put(&mut self.columns.slack, size.0.wrapping_sub(requested.0));
                self.label(category, name);
                mark::ALLOC | self.stream(stream)
            }
            EventKind::FreeRequested { address } => {
                self.address(address);
                mark::FREE_REQUESTED
            }
            EventKind::FreeCompleted { address } if address.0 == self.before.address => mark::FREE_COMPLETED_AT_ONCE,
            EventKind::FreeCompleted { address } => {
                self.address(address);
                mark::FREE_COMPLETED
            }
            EventKind::OpBegin { name } => {
                put(&mut self.columns.labels, u64::from(name.0));
                mark::OP_BEGIN
            }
            EventKind::OpEnd => mark::OP_END,
            EventKind::Relabel { address, category, name } => {
                self.address(address);
                self.label(category, name);
                mark::RELABEL
            }
            EventKind::SegmentAlloc { address, size, stream, pool } => {
                self.extent(address, size);
                let stream = self.stream(stream);
                self.columns.others.push(pool as u8);
                mark::SEGMENT_ALLOC | stream
            }
            EventKind::SegmentFree { address, size } => {
                self.extent(address, size);
                mark::SEGMENT_FREE
            }
            EventKind::SegmentMap { address, size, stream, pool, range, page } => {
                self.extent(address, size);
                let stream = self.stream(stream);
                self.columns.others.push(pool as u8);
                put(&mut self.columns.others, folded(address.0.wrapping_sub(range.0)));
                put(&mut self.columns.others, folded(page.0));
                mark::SEGMENT_MAP | stream
            }
            EventKind::SegmentUnmap { address, size } => {
                self.extent(address, size);
                mark::SEGMENT_UNMAP
            }
            ref kind => {
                self.columns.rare.extend_from_slice(&rare(kind));
                mark::RARE
            }
        };
        self.columns.marks.push(kind | device);
    }

    /// Appends the encoded events to `bytes`.
    pub fn finish(&self, bytes: &mut Vec<u8>) {
        bytes.reserve(self.len());
        for column in self.columns.each() {
            put(bytes, column.len() as u64);
        }
        for column in self.columns.each() {
            bytes.extend_from_slice(column);
        }
    }

    /// The events encoded so far.
    #[must_use]
    pub fn decoder(&self) -> Decoder<'_> {
        let PerColumn { marks, times, addresses, sizes, slack, labels, others, rare } = &self.columns;
        Decoder {
            columns: PerColumn {
                marks: ByteCursor(marks),
                times: ByteCursor(times),
                addresses: ByteCursor(addresses),
                sizes: ByteCursor(sizes),
                slack: ByteCursor(slack),
                labels: ByteCursor(labels),
                others: ByteCursor(others),
                rare: ByteCursor(rare),
            },
            before: Previous::default(),
        }
    }

    #[inline]
    fn address(&mut self, address: Address) {
        put(&mut self.columns.addresses, folded(address.0.wrapping_sub(self.before.address)));
        self.before.address = address.0;
    }

    fn extent(&mut self, address: Address, size: Bytes) {
        self.address(address);
        put(&mut self.columns.sizes, folded(size.0));
    }

    #[inline]
    fn label(&mut self, category: Category, name: NameId) {
        self.columns.labels.push(category as u8);
        put(&mut self.columns.labels, u64::from(name.0));
    }

    #[inline]
    fn stream(&mut self, stream: StreamId) -> u8 {
        if stream.0 == self.before.stream {
            return 0;
        }
        self.before.stream = stream.0;
        put(&mut self.columns.others, stream.0);
        mark::OTHER_STREAM
    }

    #[inline]
    fn device(&mut self, device: DeviceIndex) -> u8 {
        if device.0 == self.before.device {
            return 0;
        }
        self.before.device = device.0;
        put(&mut self.columns.others, u64::from(device.0));
        mark::OTHER_DEVICE
    }
}

fn rare(kind: &EventKind) -> Vec<u8> {
    let encoded = postcard::to_stdvec(kind).ok().filter(|bytes| bytes.len() <= LARGEST_EVENT);
    encoded.unwrap_or_else(|| {
        let text: Arc<str> = "an event too large to be recorded was left out".into();
        postcard::to_stdvec(&EventKind::Note { text }).unwrap_or_default()
    })
}

/// Decodes the events of one frame. Ends after the last event, or with [`CodecError`].
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    columns: PerColumn<ByteCursor<'a>>,
    before: Previous,
}

impl<'a> Decoder<'a> {
    /// A decoder for `bytes` that [`Encoder::finish`] wrote.
    ///
    /// # Errors
    /// [`CodecError`] if `bytes` are not the columns of a frame.
    pub fn new(bytes: &'a [u8]) -> Result<Self, CodecError> {
        let mut input = ByteCursor(bytes);
        let mut lengths = [0; COLUMNS];
        for length in &mut lengths {
            *length = usize::try_from(input.varint()?).map_err(|_| CodecError)?;
        }
        let mut columns = PerColumn::default();
        for (column, length) in columns.each_mut().into_iter().zip(lengths) {
            *column = ByteCursor(input.take(length)?);
        }
        if !input.0.is_empty() {
            return Err(CodecError);
        }
        Ok(Self { columns, before: Previous::default() })
    }

    /// The number of events left.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.columns.marks.0.len()
    }

    /// True if no events are left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.columns.marks.0.is_empty()
    }

    /// Decodes the last event. Bytes left after it were not written by an encoder.
    #[cold]
    fn decode_last(&mut self, mark: u8) -> Result<Event, CodecError> {
        let event = self.decode(mark)?;
        let nothing_left = self.columns.each().into_iter().all(|column| column.0.is_empty());
        if nothing_left { Ok(event) } else { Err(CodecError) }
    }

    #[inline]
    fn decode(&mut self, mark: u8) -> Result<Event, CodecError> {
        let time = self.before.time.wrapping_add(self.columns.times.varint()?);
        self.before.time = time;
        if mark & mark::OTHER_DEVICE != 0 {
            self.before.device = u16::try_from(self.columns.others.varint()?).map_err(|_| CodecError)?;
        }
        if mark & mark::OTHER_STREAM != 0 {
            self.before.stream = self.columns.others.varint()?;
        }
        let stream = StreamId(self.before.stream);
        let kind = match mark & mark::KIND {
            mark::ALLOC => {
                let (address, size) = self.extent()?;
                let requested = Bytes(size.0.wrapping_sub(self.columns.slack.varint()?));
                let (category, name) = self.label()?;
                EventKind::Alloc { address, size, requested, stream, category, name }
            }
            mark::FREE_REQUESTED => EventKind::FreeRequested { address: self.address()? },
            mark::FREE_COMPLETED => EventKind::FreeCompleted { address: self.address()? },
            mark::FREE_COMPLETED_AT_ONCE => EventKind::FreeCompleted { address: Address(self.before.address) },
            mark::OP_BEGIN => EventKind::OpBegin { name: self.name()? },
            mark::OP_END => EventKind::OpEnd,
            mark::RELABEL => {
                let address = self.address()?;
                let (category, name) = self.label()?;
                EventKind::Relabel { address, category, name }
            }
            mark::SEGMENT_ALLOC => {
                let (address, size) = self.extent()?;
                EventKind::SegmentAlloc { address, size, stream, pool: self.pool()? }
            }
            mark::SEGMENT_FREE => {
                let (address, size) = self.extent()?;
                EventKind::SegmentFree { address, size }
            }
            mark::SEGMENT_MAP => {
                let (address, size) = self.extent()?;
                let pool = self.pool()?;
                let range = Address(address.0.wrapping_sub(unfolded(self.columns.others.varint()?)));
                let page = Bytes(unfolded(self.columns.others.varint()?));
                EventKind::SegmentMap { address, size, stream, pool, range, page }
            }
            mark::SEGMENT_UNMAP => {
                let (address, size) = self.extent()?;
                EventKind::SegmentUnmap { address, size }
            }
            mark::RARE => self.rare()?,
            _ => return Err(CodecError),
        };
        Ok(Event { time: Micros(time), device: DeviceIndex(self.before.device), kind })
    }

    #[inline]
    fn address(&mut self) -> Result<Address, CodecError> {
        self.before.address = self.before.address.wrapping_add(unfolded(self.columns.addresses.varint()?));
        Ok(Address(self.before.address))
    }

    #[inline]
    fn extent(&mut self) -> Result<(Address, Bytes), CodecError> {
        Ok((self.address()?, Bytes(unfolded(self.columns.sizes.varint()?))))
    }

    #[inline]
    fn name(&mut self) -> Result<NameId, CodecError> {
        u32::try_from(self.columns.labels.varint()?).map(NameId).map_err(|_| CodecError)
    }

    #[inline]
    fn label(&mut self) -> Result<(Category, NameId), CodecError> {
        let category = Category::ALL.get(usize::from(self.columns.labels.byte()?)).ok_or(CodecError)?;
        Ok((*category, self.name()?))
    }

    fn pool(&mut self) -> Result<PoolKind, CodecError> {
        match self.columns.others.byte()? {
            small if small == PoolKind::Small as u8 => Ok(PoolKind::Small),
            large if large == PoolKind::Large as u8 => Ok(PoolKind::Large),
            _ => Err(CodecError),
        }
    }

    #[cold]
    fn rare(&mut self) -> Result<EventKind, CodecError> {
        let bytes = self.columns.rare.0;
        let longest = &bytes[..bytes.len().min(LARGEST_EVENT)];
        let (kind, rest) = postcard::take_from_bytes(longest).map_err(|_| CodecError)?;
        self.columns.rare.0 = &bytes[longest.len() - rest.len()..];
        Ok(kind)
    }
}

impl Iterator for Decoder<'_> {
    type Item = Result<Event, CodecError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&mark, rest) = self.columns.marks.0.split_first()?;
        self.columns.marks.0 = rest;
        if rest.is_empty() {
            return Some(self.decode_last(mark));
        }
        let event = self.decode(mark);
        if event.is_err() {
            self.columns.marks.0 = &[];
        }
        Some(event)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.len()))
    }
}

/// Bytes still to be decoded.
#[derive(Clone, Copy, Debug, Default)]
struct ByteCursor<'a>(&'a [u8]);

impl<'a> ByteCursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], CodecError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CodecError)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, CodecError> {
        let (&byte, rest) = self.0.split_first().ok_or(CodecError)?;
        self.0 = rest;
        Ok(byte)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, CodecError> {
        let first = self.byte()?;
        if first < 0x80 { Ok(u64::from(first)) } else { self.long_varint(first) }
    }

    fn long_varint(&mut self, first: u8) -> Result<u64, CodecError> {
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CodecError)
    }
}

/// Appends a number with seven bits per byte, lowest first. The last byte is below 128.
#[inline]
fn put(column: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        column.push(value as u8 | 0x80);
        value >>= 7;
    }
    column.push(value as u8);
}

const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// The number of low bits that are zero in a multiple of the allocator's smallest block.
const LOW: u32 = 9;

/// Encodes `difference` as a number that is small if the difference is near zero, above or below, and a multiple of
/// 512: the sign becomes the lowest bit, and the low bits move to the top.
#[inline]
const fn folded(difference: u64) -> u64 {
    let sign = difference >> 63;
    let magnitude = difference.cast_signed().unsigned_abs();
    (magnitude << (64 - LOW)) | (magnitude << 1 >> (LOW + 1) << 1) | sign
}

/// The reverse of [`folded`].
#[inline]
const fn unfolded(number: u64) -> u64 {
    let magnitude = (number >> (64 - LOW)) | (number << LOW >> (LOW + 1) << LOW);
    match (number & 1, magnitude) {
        (0, _) => magnitude,
        // The magnitude of the lowest number has one bit, which does not fit. No other number has a sign and no bits.
        (_, 0) => 1 << 63,
        _ => magnitude.wrapping_neg(),
    }
}
