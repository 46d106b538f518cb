//! What the ranks of a communicator share: a file that all of them map. It has counters, and the known values of small
//! data.
//!
//! A rank that enters a call increments a counter and does not wait for the others. Before that it writes the known
//! values of its contribution to its channel. Once all ranks have opened the file, its name is removed, so that nothing
//! is left behind however they end.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::calls::Call;
use super::identity::Identity;
use super::members::{began, is_there};
use super::pieces::Pieces;
use crate::card::Card;
use crate::system;

/// The file's first number, as soon as a rank has joined.
const MAGIC: u64 = u64::from_le_bytes(*b"VRLNCL02");
/// Number of numbers in the head.
const HEAD: usize = 8;
/// Number of numbers of each member.
const MEMBER: usize = 8;
/// Bytes of a channel: it holds what its reader has not read yet.
const CHANNEL: u64 = 256 << 10;
const PAGE: usize = 4096;
/// The number of a rank's collectives, and of its messages, for which the file keeps when the rank was ready.
const COLLECTIVES: usize = 256;
const MESSAGES: usize = 32;
/// The most ranks of a communicator.
pub const MOST: usize = 64;

/// The places of the head's numbers.
const AT_MAGIC: usize = 0;
const AT_RANKS: usize = 1;
const AT_JOINED: usize = 2;
/// The places of a member's numbers.
const STATE: usize = 0;
const PID: usize = 1;
const BEGAN: usize = 2;
const ENTERED: usize = 3;
const CALL: usize = 4;
/// The states of a member: 0 before it joins, then joined, then left.
const HERE: u64 = 1;
const GONE: u64 = 2;

/// Why a rank can't join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The other ranks have this number of ranks.
    Ranks(u64),
    /// Another process is this rank.
    Taken(u32),
    /// The file can't be created.
    File(String),
}

/// A rank's access to the file.
#[derive(Debug)]
pub struct Meeting {
    rank: usize,
    ranks: usize,
    file: File,
    path: Option<PathBuf>,
    numbers: *mut AtomicU64,
    count: usize,
    /// Whether the rank's place is taken by this process.
    holds: bool,
}

// SAFETY: the numbers are atomic and stay mapped for as long as this lives.
unsafe impl Send for Meeting {}

impl Meeting {
    /// Joins as `rank`, without waiting.
    pub fn claim(identity: Identity, rank: usize, ranks: usize) -> Result<Self, JoinError> {
        let path = folder().join(format!("vramlab-{}-{}", user(), identity.name()));
        let failed = |error: io::Error| JoinError::File(format!("{}: {error}", path.display()));
        let count = times(ranks) + 2 * ranks * (COLLECTIVES + 2 * ranks * MESSAGES);
        let bytes = (count * size_of::<u64>()).next_multiple_of(PAGE);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).mode(0o600).open(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        // The file is filled with zeros, not only extended: if the disk is full, the error comes here. What other ranks
        // wrote stays.
        let written = file.metadata().map_err(failed)?.len();
        if let Some(missing) = (bytes as u64).checked_sub(written) {
            file.write_all_at(&vec![0; missing as usize], written).map_err(failed)?;
        }
        let numbers = system::share(&file, bytes).ok_or_else(|| failed(io::Error::last_os_error()))?.cast();
        let mut meeting = Self { rank, ranks, file, path: Some(path.clone()), numbers, count, holds: false };
        let known = meeting.at(AT_RANKS).swap(ranks as u64, Ordering::AcqRel);
        let taken = meeting.state(rank) != 0;
        if known != 0 && known != ranks as u64 {
            meeting.at(AT_RANKS).store(known, Ordering::Release);
        }
        let refusal = match known {
            known if known != 0 && known != ranks as u64 => Some(JoinError::Ranks(known)),
            _ if taken => Some(JoinError::Taken(meeting.pid(rank))),
            _ => None,
        };
        if let Some(refusal) = refusal {
            // The file belongs to the others.
            meeting.path = None;
            let _ = meeting.file.unlock();
            return Err(refusal);
        }
        let pid = std::process::id();
        meeting.of(rank, PID).store(u64::from(pid), Ordering::Release);
        meeting.of(rank, BEGAN).store(began(pid).unwrap_or_default(), Ordering::Release);
        meeting.of(rank, STATE).store(HERE, Ordering::Release);
        meeting.holds = true;
        meeting.at(AT_MAGIC).store(MAGIC, Ordering::Release);
        meeting.at(AT_JOINED).fetch_add(1, Ordering::AcqRel);
        meeting.file.unlock().map_err(failed)?;
        meeting.is_complete();
        Ok(meeting)
    }

    /// Whether all ranks have joined; then the file's name is removed.
    pub fn is_complete(&mut self) -> bool {
        let complete = self.at(AT_JOINED).load(Ordering::Acquire) >= self.ranks as u64;
        if complete && let Some(path) = self.path.take() {
            // Another rank may have removed it already.
            let _ = fs::remove_file(path);
        }
        complete
    }

    fn numbers(&self) -> &[AtomicU64] {
        // SAFETY: so many were mapped, and they stay until this is dropped.
        unsafe { std::slice::from_raw_parts(self.numbers, self.count) }
    }

    /// The number at a place, which is always within the file.
    fn at(&self, place: usize) -> &AtomicU64 {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        self.numbers().get(place).unwrap_or(&NOWHERE)
    }

    fn of(&self, rank: usize, what: usize) -> &AtomicU64 {
        self.at(HEAD + rank * MEMBER + what)
    }

    fn pair(&self, table: usize, from: usize, to: usize) -> &AtomicU64 {
        self.at(HEAD + self.ranks * MEMBER + self.ranks * (self.ranks * table + from) + to)
    }

    /// The place of the time at which `rank` was ready for a call; for a message, `message` is its direction and peer.
    fn time(&self, rank: usize, message: Option<(Call, usize)>, number: u64) -> usize {
        let of_messages = 2 * self.ranks * COLLECTIVES;
        let place = match message {
            None => rank * COLLECTIVES + number as usize % COLLECTIVES,
            Some((call, peer)) => {
                let table = usize::from(call == Call::Recv);
                let pair = (table * self.ranks + rank) * self.ranks + peer;
                of_messages / 2 + pair * MESSAGES + number as usize % MESSAGES
            }
        };
        times(self.ranks) + 2 * place
    }

    /// Tells the others when this rank is ready for a call, by its card's clock.
    pub fn is_ready(&self, message: Option<(Call, usize)>, number: u64, time: u64) {
        let place = self.time(self.rank, message, number);
        self.at(place + 1).store(time, Ordering::Release);
        self.at(place).store(number, Ordering::Release);
    }

    /// When a rank is ready for a call; `None` if it has not said so yet. If the time is no longer kept, it is long
    /// past.
    pub fn ready(&self, rank: usize, message: Option<(Call, usize)>, number: u64) -> Option<u64> {
        let place = self.time(rank, message, number);
        match self.at(place).load(Ordering::Acquire) {
            said if said == number => Some(self.at(place + 1).load(Ordering::Acquire)),
            said if said > number => Some(0),
            _ => None,
        }
    }

    fn state(&self, rank: usize) -> u64 {
        self.of(rank, STATE).load(Ordering::Acquire)
    }

    /// The process of a rank.
    pub fn pid(&self, rank: usize) -> u32 {
        self.of(rank, PID).load(Ordering::Acquire) as u32
    }

    /// Whether a rank has joined and its process still exists.
    pub fn is_here(&self, rank: usize) -> bool {
        self.state(rank) == HERE && is_there(self.pid(rank), self.of(rank, BEGAN).load(Ordering::Acquire))
    }

    /// Whether a rank has joined.
    pub fn has_come(&self, rank: usize) -> bool {
        self.state(rank) != 0
    }

    /// Whether a rank has left.
    pub fn has_left(&self, rank: usize) -> bool {
        self.state(rank) == GONE
    }

    /// The number of collectives that a rank has entered.
    pub fn entered(&self, rank: usize) -> u64 {
        self.of(rank, ENTERED).load(Ordering::Acquire)
    }

    /// The last call that a rank entered.
    pub fn last_call(&self, rank: usize) -> Option<Call> {
        Call::of(self.of(rank, CALL).load(Ordering::Acquire))
    }

    /// Notes that this rank enters a collective.
    pub fn enter(&self, call: Call, number: u64) {
        self.of(self.rank, CALL).store(call as u64, Ordering::Release);
        self.of(self.rank, ENTERED).store(number, Ordering::Release);
    }

    /// The number of messages that one rank has sent to another.
    pub fn sent(&self, from: usize, to: usize) -> &AtomicU64 {
        self.pair(0, from, to)
    }

    /// The number of messages that a rank was ready to receive from another.
    pub fn received(&self, from: usize, to: usize) -> &AtomicU64 {
        self.pair(1, from, to)
    }

    /// Writes known values to the channel to a rank. False if there is no room: then the values are unknown there.
    pub fn say(&self, to: usize, tag: u64, pieces: &Pieces) -> bool {
        let text = pieces.written();
        let record = [&tag.to_le_bytes()[..], &(text.len() as u64).to_le_bytes(), &text].concat();
        let (written, read) = (self.pair(2, self.rank, to), self.pair(3, self.rank, to));
        let at = written.load(Ordering::Acquire);
        let room = CHANNEL.saturating_sub(at - read.load(Ordering::Acquire).min(at));
        if record.len() as u64 > room {
            return false;
        }
        let done = self.pieces_of(self.rank, to, at, record.len()).into_iter().try_fold(0, |from, (place, length)| {
            let part = record.get(from..from + length).unwrap_or_default();
            self.file.write_all_at(part, place).map(|()| from + length)
        });
        if done.is_err() {
            return false;
        }
        written.store(at + record.len() as u64, Ordering::Release);
        true
    }

    /// Reads what a rank has written to its channel since the last time.
    pub fn hear(&self, from: usize, mut take: impl FnMut(u64, Pieces)) {
        let (written, read) = (self.pair(2, from, self.rank), self.pair(3, from, self.rank));
        let (mut at, until) = (read.load(Ordering::Acquire), written.load(Ordering::Acquire));
        while at < until {
            let number = |bytes: Option<&[u8]>| bytes.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
            let head = self.bytes(from, at, 16);
            let (tag, length) = (number(head.get(..8)), number(head.get(8..16)));
            let (Some(tag), Some(length)) = (tag, length.filter(|length| at + 16 + length <= until)) else {
                at = until;
                break;
            };
            take(tag, Pieces::read(&self.bytes(from, at + 16, length as usize)));
            at += 16 + length;
        }
        read.store(at, Ordering::Release);
    }

    /// Bytes of the channel from a rank; empty if they can't be read.
    fn bytes(&self, from: usize, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut done = 0;
        for (place, length) in self.pieces_of(from, self.rank, at, length) {
            let Some(part) = bytes.get_mut(done..done + length) else { return Vec::new() };
            if self.file.read_exact_at(part, place).is_err() {
                return Vec::new();
            }
            done += length;
        }
        bytes
    }

    /// The places of a channel's bytes in the file: at most two pieces, because the channel is a ring.
    fn pieces_of(&self, from: usize, to: usize, at: u64, length: usize) -> [(u64, usize); 2] {
        let base = (self.count * size_of::<u64>()).next_multiple_of(PAGE) as u64;
        let start = base + (from * self.ranks + to) as u64 * CHANNEL;
        let first = length.min((CHANNEL - at % CHANNEL) as usize);
        [(start + at % CHANNEL, first), (start, length - first)]
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // A forked child has no place.
        if self.holds && self.pid(self.rank) == std::process::id() {
            self.of(self.rank, STATE).store(GONE, Ordering::Release);
            if let Some(path) = self.path.take() {
                let _ = fs::remove_file(path);
            }
        }
        system::give_back(self.numbers as u64, (self.count * size_of::<u64>()).next_multiple_of(PAGE) as u64);
    }
}

/// The place where the times begin.
fn times(ranks: usize) -> usize {
    HEAD + ranks * MEMBER + ranks * ranks * 5 + ranks
}

/// The folder of the run, which is removed with it; else shared memory.
fn folder() -> PathBuf {
    let of_run = Card::get().and_then(|card| card.counts.as_ref()).map(PathBuf::from);
    let shared = PathBuf::from("/dev/shm");
    of_run.filter(|folder| folder.is_dir()).unwrap_or(if shared.is_dir() { shared } else { std::env::temp_dir() })
}

/// The user's ID.
fn user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}
