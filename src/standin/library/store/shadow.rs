//! What is known of the bytes on the devices: what came from the host, until a kernel may have overwritten it.
//!
//! No kernel computes anything, so every other byte is unknown and reads as zero.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{launches, report};

/// Larger copies are a model's or a batch's: no program reads them back to decide something.
const LARGEST: usize = 64 << 10;
/// So many pieces are known at once.
const MOST: usize = 4096;

/// Something is known: a launch then has to look.
static ANY: AtomicBool = AtomicBool::new(false);

/// Bytes by address.
#[derive(Debug, Default)]
pub struct Shadow {
    pieces: BTreeMap<u64, Vec<u8>>,
    /// What other ranks will say, by address.
    awaited: BTreeMap<u64, RemoteBytes>,
}

/// Bytes that other ranks will say.
#[derive(Clone, Copy, Debug)]
struct RemoteBytes {
    size: u64,
    /// Under which number it comes.
    number: u64,
    /// Where in it these bytes begin: what is copied before it is there is a part of it.
    offset: u64,
}

/// A kernel is launched: whether it may overwrite something that is known.
pub fn is_touched() -> bool {
    ANY.load(Ordering::Relaxed)
}

impl Shadow {
    /// The host copied `bytes` there.
    pub fn write(&mut self, address: u64, bytes: Vec<u8>) {
        self.forget(address, bytes.len() as u64);
        if bytes.len() <= LARGEST && self.pieces.len() < MOST {
            self.pieces.insert(address, bytes);
            ANY.store(true, Ordering::Relaxed);
        }
    }

    /// What is known of `size` bytes goes from one place to another.
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

    /// Nothing is known any more of what a kernel may have written.
    pub fn launched(&mut self) {
        self.pieces.clear();
        self.awaited.clear();
        ANY.store(false, Ordering::Relaxed);
    }

    /// Nothing is known any more of `size` bytes.
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

    /// Other ranks will say what is in `size` bytes, unless something is written there before.
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

    /// They said it: pieces, by their offset.
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

    /// Whether other ranks will say something of a range.
    pub fn is_awaited(&self, address: u64, size: u64) -> bool {
        self.awaited_in(address, size).next().is_some()
    }

    fn awaited_in(&self, address: u64, size: u64) -> impl Iterator<Item = u64> {
        let touching = move |(at, part): &(&u64, &RemoteBytes)| *at + part.size > address;
        self.awaited.range(..address.saturating_add(size)).filter(touching).map(|(at, _)| *at)
    }

    /// What is known of a range: pieces, by their offset.
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

    /// The pieces that touch a range.
    fn known(&self, address: u64, size: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let first = address.saturating_sub(LARGEST as u64);
        self.pieces
            .range(first..address.saturating_add(size))
            .filter(move |(at, bytes)| **at + bytes.len() as u64 > address)
            .map(|(at, bytes)| (*at, &**bytes))
    }

    /// The program reads `size` bytes: each known piece, with its place among them.
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
            // A flag behind a kernel that asks whether all hold: nothing is there that speaks against it.
            if size == 1 && launches::last_asks_for_all() {
                take(0, &[1]);
                report::ruled_read();
            } else {
                report::unknown_read();
            }
        }
    }
}
