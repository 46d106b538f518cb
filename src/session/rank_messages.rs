//! What a lab and the processes of its ranks write to each other: frames of a length and so many bytes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Setup;
use super::interleaved::SafePointEvent;
use super::order::{RankFault, RankRequest, Reply};
use super::rank_worker::RankFacts;
use vramlab_train::Parallelism;

/// The other end counts as gone when it has said nothing for so long.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// How often each says that it is there.
pub(super) const BEAT: Duration = Duration::from_secs(2);
/// Bytes of a frame at most: a step of a large model has some megabytes of events.
const LARGEST: u32 = 256 << 20;
/// Bytes that are read at once.
pub(super) const BUFFER: usize = 1 << 16;
/// How often a silent end is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What the process of rank 0 says to another.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToRank {
    /// What is to be done with the ranks.
    Welcome(Welcome),
    /// Begin a run: meet the others, and make the model.
    Begin {
        /// Which run of this lab.
        round: u32,
        /// Microseconds since it began.
        elapsed: u64,
        way: Parallelism,
        setup: Box<Setup>,
    },
    /// Do something between steps.
    Ask(RankRequest),
    /// A person has held all ranks for so many microseconds, in all.
    Held(u64),
    /// Stop at the next safe point.
    Stop,
    /// The lab has ended.
    Leave,
    /// It is still there.
    Beat,
}

/// What is to be done with ranks that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Welcome {
    /// They train for the lab of rank 0.
    Lab,
    /// They train without a screen.
    Run,
    /// Rank 0 computes them all: their cards are not there.
    Simulated,
    /// Rank 0 and this one were given different arguments.
    Differ(usize),
}

/// What the process of a rank says to that of rank 0.
#[derive(Serialize, Deserialize)]
pub(super) struct FromRank {
    /// Of which run.
    pub round: u32,
    pub said: RankPayload,
}

#[derive(Serialize, Deserialize)]
pub(super) enum RankPayload {
    /// What it was given to do.
    Given(String),
    Happened(Vec<SafePointEvent>),
    Made(Result<RankFacts, Unmade>),
    Answered(Reply),
    /// It is still there.
    Beat,
}

/// Why a rank has no model.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Unmade {
    /// Its device is gone.
    Lost(RankFault),
    /// The model, or a switch, can't be shared so.
    Refused(String),
    /// Anything else.
    Failed(String),
}

/// Writes a message.
pub(super) fn write(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    // The length comes first, in one piece with what it counts.
    let mut bytes = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len() - 4).ok().filter(|length| *length <= LARGEST);
    let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&bytes)
}

/// Reads a message.
pub(super) fn read<T: DeserializeOwned>(reader: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    reader.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    // It grows with what comes, not with what is said to come.
    if reader.take(length.into()).read_to_end(&mut bytes)? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

/// A connection of which nothing is expected for longer than [`SILENCE`]; somebody is told how long it has been silent.
pub(super) struct RankReader<'a, F> {
    stream: &'a TcpStream,
    silent: F,
}

impl<'a, F: FnMut(Duration)> RankReader<'a, F> {
    /// # Errors
    /// Where the connection has no timeouts.
    pub fn to(stream: &'a TcpStream, silent: F) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(None)?;
        Ok(Self { stream, silent })
    }
}

impl<F: FnMut(Duration)> Read for RankReader<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        loop {
            match self.stream.read(buffer) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if begun.elapsed() > SILENCE {
                        return Err(error);
                    }
                    (self.silent)(begun.elapsed());
                }
                read => return read,
            }
        }
    }
}
