//! Ranks in other processes, with a connection to each.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::meeting::Meeting;
use super::member::World;

/// How long a rank may be silent before it counts as gone.
const SILENCE: Duration = Duration::from_secs(60);
/// How often a rank sends a sign of life.
const BEAT: Duration = Duration::from_secs(5);
/// How long a rank that has ended waits for the others to hear of it.
const PARTING: Duration = Duration::from_secs(2);

/// The kind of a message. A message is a byte for its kind, the length of its content in eight bytes, and the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    /// Bytes for a collective.
    Give,
    /// Bytes for this rank alone.
    Send,
    /// The rank of this number, in eight bytes, has failed.
    Fail,
    /// The last message.
    End,
    /// A sign of life.
    Beat,
}

impl MessageKind {
    const ALL: [Self; 5] = [Self::Give, Self::Send, Self::Fail, Self::End, Self::Beat];
}

/// The connection to a rank.
struct Link {
    rank: usize,
    writer: Mutex<TcpStream>,
    /// Another handle, which closes the connection even while a writer holds the lock.
    stream: TcpStream,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, TcpStream> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(writer: &mut TcpStream, kind: MessageKind, bytes: &[u8]) -> io::Result<()> {
    let mut header = [kind as u8; 9];
    header[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    writer.write_all(&header)?;
    writer.write_all(bytes)
}

fn read(reader: &mut impl Read) -> io::Result<(MessageKind, Vec<u8>)> {
    let mut header = [0; 9];
    reader.read_exact(&mut header)?;
    let [kind, length @ ..] = header;
    let kind = MessageKind::ALL.into_iter().find(|known| *known as u8 == kind).ok_or(io::ErrorKind::InvalidData)?;
    let length = u64::from_le_bytes(length);
    let mut bytes = Vec::new();
    // The buffer grows with the bytes that arrive, not with the announced length.
    if reader.take(length).read_to_end(&mut bytes)? as u64 == length {
        return Ok((kind, bytes));
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Connections to all other ranks.
pub(super) struct Peers {
    links: Arc<Vec<Link>>,
    meeting: Arc<Meeting>,
    /// Dropping it ends the thread that sends signs of life.
    _beating: Sender<()>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("links", &self.links.len()).finish_non_exhaustive()
    }
}

impl Peers {
    /// Takes connections to these ranks. A thread for each passes its messages to the meeting.
    pub fn new(world: World, streams: Vec<(usize, TcpStream)>, meeting: &Arc<Meeting>) -> io::Result<Self> {
        let mut links = Vec::with_capacity(streams.len());
        for (rank, stream) in streams {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(SILENCE))?;
            stream.set_write_timeout(Some(SILENCE))?;
            links.push(Link { rank, writer: Mutex::new(stream.try_clone()?), stream });
        }
        let links = Arc::new(links);
        for (place, link) in links.iter().enumerate() {
            let (meeting, links) = (Arc::clone(meeting), Arc::clone(&links));
            let name = format!("rank {}", link.rank);
            thread::Builder::new().name(name).spawn(move || hear(&links, place, world, &meeting))?;
        }
        let (beating, beats) = channel::<()>();
        let (each, told) = (Arc::clone(&links), Arc::clone(meeting));
        thread::Builder::new().name("ranks".to_owned()).spawn(move || {
            while beats.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                for link in each.iter().filter(|link| !told.has_ended(link.rank)) {
                    // If another thread is writing, that message is a sign of life by itself.
                    if let Ok(mut writer) = link.writer.try_lock() {
                        // If the connection is gone, its reader finds out.
                        let _ = write(&mut writer, MessageKind::Beat, &[]);
                    }
                }
            }
        })?;
        Ok(Self { links, meeting: Arc::clone(meeting), _beating: beating })
    }

    /// Gives `bytes` to all other ranks.
    pub fn give(&self, bytes: &[u8]) {
        self.links.iter().for_each(|link| self.tell(link, MessageKind::Give, bytes));
    }

    /// Sends `bytes` to a rank.
    pub fn send(&self, to: usize, bytes: &[u8]) {
        self.links.iter().filter(|link| link.rank == to).for_each(|link| self.tell(link, MessageKind::Send, bytes));
    }

    /// Tells all other ranks that a rank has failed.
    pub fn fail(&self, rank: usize) {
        tell_of_failure(&self.links, rank);
    }

    fn tell(&self, link: &Link, kind: MessageKind, bytes: &[u8]) {
        let written = write(&mut link.lock(), kind, bytes);
        if written.is_err() && !self.meeting.has_ended(link.rank) {
            self.meeting.fail(link.rank);
        }
    }
}

impl Drop for Peers {
    /// Sends the last message and waits for that of every other rank: closing a connection with unread data would discard the
    /// last message that was sent.
    fn drop(&mut self) {
        for link in self.links.iter() {
            let _ = write(&mut link.lock(), MessageKind::End, &[]);
        }
        self.meeting.wait_for_the_end(PARTING);
        for link in self.links.iter() {
            let _ = link.stream.shutdown(Shutdown::Both);
        }
    }
}

fn tell_of_failure(links: &[Link], rank: usize) {
    for link in links.iter().filter(|link| link.rank != rank) {
        // A rank that is gone need not know.
        let _ = write(&mut link.lock(), MessageKind::Fail, &(rank as u64).to_le_bytes());
    }
}

/// Passes the messages of a rank on to the meeting until the last one.
fn hear(links: &[Link], place: usize, world: World, meeting: &Meeting) {
    let (from, own) = (links[place].rank, world.rank());
    let mut reader = io::BufReader::with_capacity(1 << 16, &links[place].stream);
    loop {
        match read(&mut reader) {
            Ok((MessageKind::Give, bytes)) => drop(meeting.give(from, bytes)),
            Ok((MessageKind::Send, bytes)) => meeting.send(from, own, bytes),
            Ok((MessageKind::Fail, bytes)) => {
                let number =
                    bytes.try_into().map_or(from, |bytes| usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(from));
                meeting.fail(if number < world.size() { number } else { from });
            }
            Ok((MessageKind::End, _)) => return meeting.end(from),
            Ok((MessageKind::Beat, _)) => {}
            Err(_) => {
                // A thread that writes to a silent rank would wait as long as the silence lasts.
                let _ = links[place].stream.shutdown(Shutdown::Both);
                if !meeting.has_ended(from) {
                    let first = meeting.fail(from);
                    tell_of_failure(links, first);
                }
                return;
            }
        }
    }
}
