//! Messages between a lab and the processes of its ranks: frames of a length and that many bytes.

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

/// The other end counts as gone after this much silence.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// How often each end sends a sign of life.
pub(super) const BEAT: Duration = Duration::from_secs(2);
/// The most bytes of a frame. A step of a large model has some megabytes of events.
const LARGEST: u32 = 256 << 20;
/// How many bytes are read at once.
pub(super) const BUFFER: usize = 1 << 16;
/// How often a silent end is checked.
const LOOK: Duration = Duration::from_secs(1);

/// A message from rank 0's process to another rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToRank {
    /// What the ranks are to do.
    Welcome(Welcome),
    /// Begin a run: meet the others, and build the model.
    Begin {
        /// The number of the run in this lab.
        round: u32,
        /// Microseconds since the run began.
        elapsed: u64,
        way: Parallelism,
        setup: Box<Setup>,
    },
    /// An order between steps.
    Ask(RankRequest),
    /// The total microseconds for which a person has paused all ranks.
    Held(u64),
    /// Stop at the next safe point.
    Stop,
    /// The lab has ended.
    Leave,
    /// A sign of life.
    Beat,
}

/// What ranks that have joined are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Welcome {
    /// They train for the lab of rank 0.
    Lab,
    /// Train without a screen.
    Run,
    /// Wait: rank 0 computes them all, because their cards are simulated.
    Simulated,
    /// This rank was given other arguments than rank 0.
    Differ(usize),
}

/// A message from a rank's process to rank 0.
#[derive(Serialize, Deserialize)]
pub(super) struct FromRank {
    /// The number of the run.
    pub round: u32,
    pub said: RankPayload,
}

#[derive(Serialize, Deserialize)]
pub(super) enum RankPayload {
    /// The rank's arguments.
    Given(String),
    Happened(Vec<SafePointEvent>),
    Made(Result<RankFacts, Unmade>),
    Answered(Reply),
    /// A sign of life.
    Beat,
}

/// Why a rank has no model.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Unmade {
    /// Its device is gone.
    Lost(RankFault),
    /// The model, or a switch, does not allow this way of sharing.
    Refused(String),
    /// Anything else.
    Failed(String),
}

/// Writes a message.
pub(super) fn write(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    // The length comes first, written together with its content.
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
    // Memory grows with what arrives, not with the announced length.
    if reader.take(length.into()).read_to_end(&mut bytes)? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

/// A connection that ends after [`SILENCE`]. `silent` hears how long it has been silent.
pub(super) struct RankReader<'a, F> {
    stream: &'a TcpStream,
    silent: F,
}

impl<'a, F: FnMut(Duration)> RankReader<'a, F> {
    /// # Errors
    /// If the connection has no timeouts.
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
