//! What the ranks of a communicator share: a file with counters, which all map, and with what is known of small data.
//!
//! A rank that enters a call counts, without waiting for the others. What it knows of what it gives stands in its channel before it
//! counts. The file has no name any more once all ranks have it, so that nothing stays behind, however they end.

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

/// What the file begins with, as soon as a rank has it.
const MAGIC: u64 = u64::from_le_bytes(*b"VRLNCL02");
/// Numbers before those of the members.
const HEAD: usize = 8;
/// Numbers of a member.
const MEMBER: usize = 8;
/// Bytes of a channel: what its reader has not read yet.
const CHANNEL: u64 = 256 << 10;
const PAGE: usize = 4096;
/// Collectives and messages of a rank, of which it is kept when it was ready for them.
const COLLECTIVES: usize = 256;
const MESSAGES: usize = 32;
/// Ranks of one communicator, at most.
pub const MOST: usize = 64;

/// Numbers of the head.
const AT_MAGIC: usize = 0;
const AT_RANKS: usize = 1;
const AT_JOINED: usize = 2;
/// Numbers of a member.
const STATE: usize = 0;
const PID: usize = 1;
const BEGAN: usize = 2;
const ENTERED: usize = 3;
const CALL: usize = 4;
/// States of a member: none yet, one that is there, one that took its leave.
const HERE: u64 = 1;
const GONE: u64 = 2;

/// Why a rank can't have its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The others say that there are so many ranks.
    Ranks(u64),
    /// Another process is this rank.
    Taken(u32),
    /// The file can't be made.
    File(String),
}

/// A rank's hold on it.
#[derive(Debug)]
pub struct Meeting {
    rank: usize,
    ranks: usize,
    file: File,
    path: Option<PathBuf>,
    numbers: *mut AtomicU64,
    count: usize,
    /// The place is this one's.
    holds: bool,
}

// SAFETY: the numbers are atomic and stay mapped for as long as this lives.
unsafe impl Send for Meeting {}

impl Meeting {
    /// Takes the place of `rank`, without waiting.
    pub fn claim(identity: Identity, rank: usize, ranks: usize) -> Result<Self, JoinError> {
        let path = folder().join(format!("vramlab-{}-{}", user(), identity.name()));
        let failed = |error: io::Error| JoinError::File(format!("{}: {error}", path.display()));
        let count = times(ranks) + 2 * ranks * (COLLECTIVES + 2 * ranks * MESSAGES);
        let bytes = (count * size_of::<u64>()).next_multiple_of(PAGE);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).mode(0o600).open(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        // Written, not only made longer: where there is no room it is said here. What others wrote stays.
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
            // The file is the others'.
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

    /// Whether all ranks are here; then the file's name is no longer needed.
    pub fn is_complete(&mut self) -> bool {
        let complete = self.at(AT_JOINED).load(Ordering::Acquire) >= self.ranks as u64;
        if complete && let Some(path) = self.path.take() {
            // Another rank may have been first.
            let _ = fs::remove_file(path);
        }
        complete
    }

    fn numbers(&self) -> &[AtomicU64] {
        // SAFETY: so many were mapped, and they stay until this is dropped.
        unsafe { std::slice::from_raw_parts(self.numbers, self.count) }
    }

    /// A number by its place, which is always within.
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

    /// Where it stands when `rank` was ready for a call: of a message, to or from whom.
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

    /// This rank says when it is ready for a call, by its card's clock.
    pub fn is_ready(&self, message: Option<(Call, usize)>, number: u64, time: u64) {
        let place = self.time(self.rank, message, number);
        self.at(place + 1).store(time, Ordering::Release);
        self.at(place).store(number, Ordering::Release);
    }

    /// When a rank is ready for a call; none where it has not said so yet. What is no longer kept is long ago.
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

    /// Whether a rank has come and is still there.
    pub fn is_here(&self, rank: usize) -> bool {
        self.state(rank) == HERE && is_there(self.pid(rank), self.of(rank, BEGAN).load(Ordering::Acquire))
    }

    /// Whether a rank has come.
    pub fn has_come(&self, rank: usize) -> bool {
        self.state(rank) != 0
    }

    /// Whether a rank took its leave.
    pub fn has_left(&self, rank: usize) -> bool {
        self.state(rank) == GONE
    }

    /// How many collectives a rank has entered.
    pub fn entered(&self, rank: usize) -> u64 {
        self.of(rank, ENTERED).load(Ordering::Acquire)
    }

    /// The call that a rank entered last.
    pub fn last_call(&self, rank: usize) -> Option<Call> {
        Call::of(self.of(rank, CALL).load(Ordering::Acquire))
    }

    /// This rank enters a collective.
    pub fn enter(&self, call: Call, number: u64) {
        self.of(self.rank, CALL).store(call as u64, Ordering::Release);
        self.of(self.rank, ENTERED).store(number, Ordering::Release);
    }

    /// How often one rank has sent to another.
    pub fn sent(&self, from: usize, to: usize) -> &AtomicU64 {
        self.pair(0, from, to)
    }

    /// How often a rank was ready to receive from another.
    pub fn received(&self, from: usize, to: usize) -> &AtomicU64 {
        self.pair(1, from, to)
    }

    /// Says something in the channel to one rank. False where there is no room: nothing is known then.
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

    /// Hears what was said in the channel from one rank since the last time.
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

    /// Bytes of the channel from one rank; none where they can't be read.
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

    /// Where bytes of a channel lie in the file: in at most two pieces, for it is a ring.
    fn pieces_of(&self, from: usize, to: usize, at: u64, length: usize) -> [(u64, usize); 2] {
        let base = (self.count * size_of::<u64>()).next_multiple_of(PAGE) as u64;
        let start = base + (from * self.ranks + to) as u64 * CHANNEL;
        let first = length.min((CHANNEL - at % CHANNEL) as usize);
        [(start + at % CHANNEL, first), (start, length - first)]
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // A child that was forked holds nothing.
        if self.holds && self.pid(self.rank) == std::process::id() {
            self.of(self.rank, STATE).store(GONE, Ordering::Release);
            if let Some(path) = self.path.take() {
                let _ = fs::remove_file(path);
            }
        }
        system::give_back(self.numbers as u64, (self.count * size_of::<u64>()).next_multiple_of(PAGE) as u64);
    }
}

/// Where the times begin.
fn times(ranks: usize) -> usize {
    HEAD + ranks * MEMBER + ranks * ranks * 5 + ranks
}

/// The folder of the run, which goes with it; else shared memory.
fn folder() -> PathBuf {
    let of_run = Card::get().and_then(|card| card.counts.as_ref()).map(PathBuf::from);
    let shared = PathBuf::from("/dev/shm");
    of_run.filter(|folder| folder.is_dir()).unwrap_or(if shared.is_dir() { shared } else { std::env::temp_dir() })
}

/// The user's number.
fn user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}
