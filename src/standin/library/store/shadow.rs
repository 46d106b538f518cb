//! The known bytes of the devices: values that came from the host, until a kernel may have overwritten them.
//!
//! No kernel computes anything, so every other byte is unknown and reads as zero.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{launches, report};

/// The largest copy that is remembered, in bytes. Larger ones are a model's or a batch's, and no program reads them
/// back to make a decision.
const LARGEST: usize = 64 << 10;
/// The most pieces that are known at once.
const MOST: usize = 4096;

/// Whether any byte is known: then a launch has to look.
static ANY: AtomicBool = AtomicBool::new(false);

/// Known bytes by address.
#[derive(Debug, Default)]
pub struct Shadow {
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Ranges whose values other ranks will send, by address.
    awaited: BTreeMap<u64, RemoteBytes>,
}

/// A range whose values other ranks will send.
#[derive(Clone, Copy, Debug)]
struct RemoteBytes {
    size: u64,
    /// The ticket of the result.
    number: u64,
    /// The offset of this range in the result; a range that is copied before the result arrives is a part of it.
    offset: u64,
}

/// Whether a launched kernel may overwrite known bytes.
pub fn is_touched() -> bool {
    ANY.load(Ordering::Relaxed)
}

impl Shadow {
    /// Notes that the host copied `bytes` to an address.
    pub fn write(&mut self, address: u64, bytes: Vec<u8>) {
        self.forget(address, bytes.len() as u64);
        if bytes.len() <= LARGEST && self.pieces.len() < MOST {
            self.pieces.insert(address, bytes);
            ANY.store(true, Ordering::Relaxed);
        }
    }

    /// Copies the known values of `size` bytes to another address.
    pub fn carry(&mut self, to: u64, from: u64, size: u64) {
        let known: Vec<_> = self
            .known(from, size)
            .filter(|(at, bytes)| *at >= from && at + bytes.len() as u64 <= from + size)
            .map(|(at, bytes)| (to + (at - from), bytes.to_vec()))
            .collect();
        let awaited: Vec<_> =
            self.awaited_in(from, size).filter_map(|at| Some((at, *self.awaited.get(&at)?))).collect();
        self.forget(to, size);
        for (at, whole) in awaited {
            let (first, last) = (at.max(from), (at + whole.size).min(from + size));
            let part = RemoteBytes { size: last - first, offset: whole.offset + (first - at), ..whole };
            self.await_part(to + (first - from), part);
        }
        known.into_iter().for_each(|(at, bytes)| self.write(at, bytes));
    }

    /// Forgets everything that a kernel may have overwritten.
    pub fn launched(&mut self) {
        self.pieces.clear();
        self.awaited.clear();
        ANY.store(false, Ordering::Relaxed);
    }

    /// Forgets the values of `size` bytes.
    pub fn forget(&mut self, address: u64, size: u64) {
        if !self.awaited.is_empty() {
            let gone: Vec<u64> = self.awaited_in(address, size).collect();
            for at in gone {
                self.awaited.remove(&at);
            }
        }
        if self.pieces.is_empty() {
            return;
        }
        let gone: Vec<u64> = self.known(address, size).map(|(at, _)| at).collect();
        gone.iter().for_each(|at| drop(self.pieces.remove(at)));
    }

    /// Notes that other ranks will send the values of `size` bytes, unless something is written there before.
    pub fn await_others(&mut self, address: u64, size: u64, number: u64) {
        self.forget(address, size);
        self.await_part(address, RemoteBytes { size, number, offset: 0 });
    }

    fn await_part(&mut self, address: u64, part: RemoteBytes) {
        if self.awaited.len() < MOST {
            self.awaited.insert(address, part);
            ANY.store(true, Ordering::Relaxed);
        }
    }

    /// Stores the values that other ranks sent: pieces, by their offset.
    pub fn arrived(&mut self, number: u64, pieces: &[(u64, Vec<u8>)]) {
        let is_meant = |(_, part): &(&u64, &RemoteBytes)| part.number == number;
        let places: Vec<(u64, RemoteBytes)> =
            self.awaited.iter().filter(is_meant).map(|(at, part)| (*at, *part)).collect();
        for (address, _) in &places {
            self.awaited.remove(address);
        }
        for (address, part) in places {
            for (at, bytes) in pieces {
                let (first, last) = (part.offset.max(*at), (part.offset + part.size).min(at + bytes.len() as u64));
                let within = last.checked_sub(first).filter(|size| *size > 0);
                let found = within.and_then(|size| bytes.get((first - at) as usize..(first - at + size) as usize));
                if let Some(found) = found {
                    self.write(address + (first - part.offset), found.to_vec());
                }
            }
        }
    }

    /// Whether other ranks will send values of a range.
    pub fn is_awaited(&self, address: u64, size: u64) -> bool {
        self.awaited_in(address, size).next().is_some()
    }

    fn awaited_in(&self, address: u64, size: u64) -> impl Iterator<Item = u64> {
        let touching = move |(at, part): &(&u64, &RemoteBytes)| *at + part.size > address;
        self.awaited.range(..address.saturating_add(size)).filter(touching).map(|(at, _)| *at)
    }

    /// The known values of a range: pieces, by their offset.
    pub fn pieces(&self, address: u64, size: u64) -> Vec<(u64, Vec<u8>)> {
        let end = address.saturating_add(size);
        let clipped = |(at, bytes): (u64, &[u8])| {
            let from = address.max(at);
            let until = end.min(at + bytes.len() as u64);
            let piece = bytes.get((from - at) as usize..(until - at) as usize);
            (from - address, piece.unwrap_or_default().to_vec())
        };
        self.known(address, size).map(clipped).collect()
    }

    /// The known pieces that overlap a range.
    fn known(&self, address: u64, size: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let first = address.saturating_sub(LARGEST as u64);
        self.pieces
            .range(first..address.saturating_add(size))
            .filter(move |(at, bytes)| **at + bytes.len() as u64 > address)
            .map(|(at, bytes)| (*at, &**bytes))
    }

    /// The program reads `size` bytes: calls `take` for each known piece, with its offset.
    pub fn read(&self, address: u64, size: u64, mut take: impl FnMut(u64, &[u8])) {
        let mut found = 0;
        for (at, bytes) in self.known(address, size) {
            let from = address.max(at);
            let until = (address + size).min(at + bytes.len() as u64);
            if let Some(piece) = bytes.get((from - at) as usize..(until - at) as usize) {
                found += piece.len() as u64;
                take(from - address, piece);
            }
        }
        if found < size {
            // A flag after a kernel that tests whether all elements are true: nothing here contradicts it.
            if size == 1 && launches::last_asks_for_all() {
                take(0, &[1]);
                report::ruled_read();
            } else {
                report::unknown_read();
            }
        }
    }
}
