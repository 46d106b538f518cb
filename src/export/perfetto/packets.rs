//! The kinds of packets of a Perfetto trace that are used here: tracks, slices, instants, counters.
//!
//! Field numbers are those of `protos/perfetto/trace`: `trace_packet.proto`, `track_event/*.proto`,
//! `interned_data.proto`.

use std::collections::HashMap;
use std::io::{self, Write};

use super::wire::ProtoMessage;

/// A track: its number is unique in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track(pub u64);

/// The kind of a track.
#[derive(Clone, Copy, Debug)]
pub(super) enum TrackKind<'a> {
    /// A group that is shown as a process.
    Process { pid: u32, name: &'a str },
    /// Slices and instants.
    Slices { parent: Track, name: &'a str },
    /// A number of bytes.
    Bytes { parent: Track, name: &'a str },
}

/// Writes packets.
#[derive(Debug)]
pub(super) struct Packets<W> {
    out: W,
    /// The identifiers of texts that were written.
    interned: HashMap<Box<str>, u64>,
    /// The total bytes of these texts.
    kept: usize,
    packet: ProtoMessage,
    begun: bool,
}

/// `TracePacket`.
mod packet {
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const FLAGS: u32 = 13;
    pub const DESCRIPTOR: u32 = 60;
    /// Earlier interned texts are discarded.
    pub const CLEARED: u64 = 1;
    /// The packet uses interned texts.
    pub const NEEDS: u64 = 2;
}

/// `TrackEvent`.
mod event {
    pub const DEBUG: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_ID: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const NAME: u32 = 23;
    pub const COUNTER: u32 = 30;
    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const COUNT: u64 = 4;
}

/// The only writer of the trace.
const SEQUENCE: u64 = 1;

impl<W: Write> Packets<W> {
    /// The most bytes of texts that are interned.
    const MOST: usize = 1 << 26;

    pub fn new(out: W) -> Self {
        Self { out, interned: HashMap::new(), kept: 0, packet: ProtoMessage::default(), begun: false }
    }

    pub fn track(&mut self, Track(id): Track, of: TrackKind<'_>) -> io::Result<()> {
        self.packet.message(packet::DESCRIPTOR, |descriptor| {
            descriptor.varint(1, id);
            match of {
                TrackKind::Process { pid, name } => descriptor.message(3, |process| {
                    process.varint(1, u64::from(pid));
                    process.text(6, name);
                }),
                TrackKind::Slices { parent, name } => {
                    descriptor.text(2, name);
                    descriptor.varint(5, parent.0);
                }
                TrackKind::Bytes { parent, name } => {
                    descriptor.text(2, name);
                    descriptor.varint(5, parent.0);
                    // UNIT_SIZE_BYTES
                    descriptor.message(8, |counter| counter.varint(3, 3));
                }
            }
        });
        self.write(0)
    }

    /// Begins a slice at `time` (ns).
    pub fn begin(&mut self, track: Track, time: u64, name: &str) -> io::Result<()> {
        self.named(track, time, event::BEGIN, name, &[])
    }

    /// Ends the slice of the track that began last.
    pub fn end(&mut self, track: Track, time: u64) -> io::Result<()> {
        self.packet.varint(packet::TIMESTAMP, time);
        self.packet.message(packet::TRACK_EVENT, |event| {
            event.varint(event::TYPE, event::END);
            event.varint(event::TRACK, track.0);
        });
        self.write(packet::NEEDS)
    }

    /// Writes an event without duration, with figures and texts.
    pub fn instant(&mut self, track: Track, time: u64, name: &str, details: &[(&str, Detail<'_>)]) -> io::Result<()> {
        self.named(track, time, event::INSTANT, name, details)
    }

    /// Sets a counter's value from `time` (ns) on.
    pub fn count(&mut self, track: Track, time: u64, value: i64) -> io::Result<()> {
        self.packet.varint(packet::TIMESTAMP, time);
        self.packet.message(packet::TRACK_EVENT, |event| {
            event.varint(event::TYPE, event::COUNT);
            event.varint(event::TRACK, track.0);
            event.int(event::COUNTER, value);
        });
        self.write(packet::NEEDS)
    }

    fn named(
        &mut self,
        track: Track,
        time: u64,
        kind: u64,
        name: &str,
        details: &[(&str, Detail<'_>)],
    ) -> io::Result<()> {
        let known = self.interned.get(name).copied();
        let number = match known {
            Some(number) => Some(number),
            None if self.kept + name.len() <= Self::MOST => {
                let number = self.interned.len() as u64 + 1;
                self.interned.insert(name.into(), number);
                self.kept += name.len();
                self.packet.message(packet::INTERNED, |interned| {
                    interned.message(2, |entry| {
                        entry.varint(1, number);
                        entry.text(2, name);
                    });
                });
                Some(number)
            }
            None => None,
        };
        self.packet.varint(packet::TIMESTAMP, time);
        self.packet.message(packet::TRACK_EVENT, |event| {
            event.varint(event::TYPE, kind);
            event.varint(event::TRACK, track.0);
            match number {
                Some(number) => event.varint(event::NAME_ID, number),
                None => event.text(event::NAME, name),
            }
            for (name, detail) in details {
                event.message(event::DEBUG, |annotation| {
                    annotation.text(10, name);
                    match *detail {
                        Detail::Number(number) => annotation.varint(3, number),
                        Detail::Text(text) => annotation.text(6, text),
                    }
                });
            }
        });
        self.write(packet::NEEDS)
    }

    /// Ends the packet, which is a field of the trace.
    fn write(&mut self, flags: u64) -> io::Result<()> {
        let flags = if self.begun { flags } else { packet::CLEARED };
        self.begun = true;
        self.packet.varint(packet::SEQUENCE, SEQUENCE);
        if flags != 0 {
            self.packet.varint(packet::FLAGS, flags);
        }
        let mut head = ProtoMessage::default();
        head.head(1, self.packet.as_bytes().len());
        self.out.write_all(head.as_bytes())?;
        self.out.write_all(self.packet.as_bytes())?;
        self.packet.clear();
        Ok(())
    }
}

/// A detail of an instant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Detail<'a> {
    Number(u64),
    Text(&'a str),
}
