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
pub struct Shadow(BTreeMap<u64, Vec<u8>>);

/// A kernel is launched: whether it may overwrite something that is known.
pub fn is_touched() -> bool {
    ANY.load(Ordering::Relaxed)
}

impl Shadow {
    /// The host copied `bytes` there.
    pub fn write(&mut self, address: u64, bytes: Vec<u8>) {
        self.forget(address, bytes.len() as u64);
        if bytes.len() <= LARGEST && self.0.len() < MOST {
            self.0.insert(address, bytes);
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
        self.forget(to, size);
        known.into_iter().for_each(|(at, bytes)| self.write(at, bytes));
    }

    /// Nothing is known any more of what a kernel may have written.
    pub fn launched(&mut self) {
        self.0.clear();
        ANY.store(false, Ordering::Relaxed);
    }

    /// Nothing is known any more of `size` bytes.
    pub fn forget(&mut self, address: u64, size: u64) {
        if self.0.is_empty() {
            return;
        }
        let gone: Vec<u64> = self.known(address, size).map(|(at, _)| at).collect();
        gone.iter().for_each(|at| drop(self.0.remove(at)));
    }

    /// The pieces that touch a range.
    fn known(&self, address: u64, size: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let first = address.saturating_sub(LARGEST as u64);
        self.0
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
