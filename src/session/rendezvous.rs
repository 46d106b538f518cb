//! How ranks in separate processes find each other: rank 0 listens at a known place, learns from each rank where it can
//! be reached, and tells all.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use vramlab_train::{Seat, World};

/// How long to wait for the other ranks.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How many ports are tried, because another program may have the first ones.
const PORTS: u16 = 16;
/// How long a program that accepts may take to answer.
const WORD: Duration = Duration::from_secs(2);
/// How long to wait before the next attempt.
const AGAIN: Duration = Duration::from_millis(50);
/// The first bytes of each connection: the program and the version of its protocol.
const MAGIC: [u8; 8] = *b"vramlab1";
/// The most bytes of a text.
const TEXT: usize = 4096;

/// Where the ranks of a run meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// The number of this rank, and the number of ranks.
    pub world: World,
    /// The name or address of rank 0's host.
    pub host: String,
    /// The first port that rank 0 may listen on.
    pub port: u16,
    /// Tells this run from others that meet there.
    pub run: String,
}

/// Why ranks did not meet.
#[derive(Debug, Error)]
pub enum RendezvousError {
    /// The host's name can't be resolved.
    #[error(
        "the host of rank 0, '{host}', can't be found ({error}); set MASTER_ADDR to a name or an address that all ranks reach"
    )]
    Host {
        /// The host's name.
        host: String,
        /// The reason.
        error: io::Error,
    },
    /// Rank 0 can't listen.
    #[error(
        "rank 0 can't listen on {host} at port {port} or the {PORTS} that follow ({error}); set MASTER_PORT to a free one"
    )]
    Listen {
        /// The address.
        host: String,
        /// The first port.
        port: u16,
        /// The reason.
        error: io::Error,
    },
    /// A rank did not come.
    #[error("{missing} of {world} did not come within {} s; start all ranks, with the same MASTER_ADDR and MASTER_PORT", patience.as_secs())]
    Missing {
        /// The missing ranks.
        missing: String,
        /// The number of ranks.
        world: usize,
        /// How long the others waited.
        patience: Duration,
    },
    /// Rank 0 ended the meeting.
    #[error("rank 0 ended before all ranks had come; its own message says why")]
    Ended,
    /// Two processes claim the same rank.
    #[error("two processes are rank {0}; give each a rank of its own, from 0 on")]
    Twice(usize),
    /// Ranks were given different arguments.
    #[error("ranks 0 and {0} were given different arguments; start all ranks with the same")]
    Differ(usize),
    /// Another error of a connection.
    #[error("ranks can't be connected ({0})")]
    Connection(#[from] io::Error),
}

impl Rendezvous {
    /// Waits for all ranks, for `patience` at most.
    ///
    /// # Errors
    /// [`RendezvousError`].
    pub fn meet(&self, patience: Duration) -> Result<Arc<Seat>, RendezvousError> {
        self.meet_unless(patience, &|| false)
    }

    /// Like [`Rendezvous::meet`], but stops waiting once it is `in_vain`.
    pub(super) fn meet_unless(
        &self,
        patience: Duration,
        in_vain: &dyn Fn() -> bool,
    ) -> Result<Arc<Seat>, RendezvousError> {
        let clock = WaitingTime { until: Instant::now() + patience, patience, in_vain };
        Ok(Seat::among(self.world, self.come(&clock)?)?)
    }

    /// Waits for all ranks, for `patience` at most. Returns a connection to each.
    pub(super) fn connect(&self, patience: Duration) -> Result<Vec<(usize, TcpStream)>, RendezvousError> {
        self.come(&WaitingTime { until: Instant::now() + patience, patience, in_vain: &|| false })
    }

    fn come(&self, clock: &WaitingTime<'_>) -> Result<Vec<(usize, TcpStream)>, RendezvousError> {
        if self.world.rank() == 0 { self.gather(clock) } else { self.join(clock) }
    }

    /// Where the ranks of a lab meet: for its screen, or for its run with this number.
    pub(super) fn of_lab(&self, round: u32) -> Self {
        Self { run: format!("{} lab {round}", self.run), ..self.clone() }
    }

    fn addresses(&self, port: u16) -> Result<Vec<SocketAddr>, RendezvousError> {
        let told = |error| RendezvousError::Host { host: self.host.clone(), error };
        Ok((self.host.as_str(), port).to_socket_addrs().map_err(told)?.collect())
    }

    fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        self.port..=self.port.saturating_add(PORTS)
    }

    /// The part of rank 0: listens, and tells each rank where the others are.
    fn gather(&self, clock: &WaitingTime<'_>) -> Result<Vec<(usize, TcpStream)>, RendezvousError> {
        let size = self.world.size();
        let listener = self.listen()?;
        let mut came: Vec<Option<(TcpStream, SocketAddr)>> = (0..size).map(|_| None).collect();
        while came.iter().skip(1).any(Option::is_none) {
            let missing = || clock.missing(ranks((1..size).filter(|rank| came[*rank].is_none())), size);
            let (mut stream, from) = clock.accept(&listener, missing)?;
            // A process that is not a rank of this run is turned away.
            let Some((rank, port)) = self.admit(&mut stream) else { continue };
            if came[rank].as_ref().is_some_and(|(earlier, _)| is_open(earlier)) {
                return Err(RendezvousError::Twice(rank));
            }
            came[rank] = Some((stream, SocketAddr::new(from.ip(), port)));
        }
        let token = token();
        let places: Vec<String> =
            came.iter().map(|came| came.as_ref().map_or_else(String::new, |(_, place)| place.to_string())).collect();
        let mut connections = Vec::with_capacity(size - 1);
        for (rank, came) in came.into_iter().enumerate() {
            let Some((mut stream, _)) = came else { continue };
            stream.write_all(&token)?;
            places.iter().try_for_each(|place| put(&mut stream, place))?;
            connections.push((rank, stream));
        }
        Ok(connections)
    }

    fn listen(&self) -> Result<TcpListener, RendezvousError> {
        let mut why = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for port in self.ports() {
            for address in self.addresses(port)? {
                match TcpListener::bind(address) {
                    Ok(listener) => return Ok(listener),
                    Err(error) => why = error,
                }
            }
            // The address may be one that only others can use.
            if why.kind() == io::ErrorKind::AddrNotAvailable {
                match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)))
                {
                    Ok(listener) => return Ok(listener),
                    Err(error) => why = error,
                }
            }
        }
        Err(RendezvousError::Listen { host: self.host.clone(), port: self.port, error: why })
    }

    /// The rank of a new connection, and the port where it listens; `None` if it does not belong to this run.
    fn admit(&self, stream: &mut TcpStream) -> Option<(usize, u16)> {
        stream.set_read_timeout(Some(WORD)).ok()?;
        let mut magic = [0; MAGIC.len()];
        stream.read_exact(&mut magic).ok()?;
        let run = get(stream).ok()?;
        let [world, rank, port] = [number(stream).ok()?, number(stream).ok()?, number(stream).ok()?];
        let belongs = magic == MAGIC && run == self.run && world as usize == self.world.size();
        let rank = usize::try_from(rank).ok().filter(|rank| belongs && (1..self.world.size()).contains(rank))?;
        stream.write_all(&MAGIC).ok()?;
        Some((rank, u16::try_from(port).ok()?))
    }

    /// The part of the other ranks: they report where they listen, and connect to the ranks before them.
    fn join(&self, clock: &WaitingTime<'_>) -> Result<Vec<(usize, TcpStream)>, RendezvousError> {
        let (own, size) = (self.world.rank(), self.world.size());
        let (mut first, listener) = self.reach_first(clock)?;
        let mut token = [0; 16];
        // The others may still be on their way.
        first.set_read_timeout(Some(clock.left().max(WORD)))?;
        let ended = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => clock.missing("some rank".to_owned(), size),
            _ => RendezvousError::Ended,
        };
        first.read_exact(&mut token).map_err(ended)?;
        let mut places = Vec::with_capacity(size);
        for _ in 0..size {
            places.push(get(&mut first).map_err(ended)?);
        }
        let mut connections = vec![(0, first)];
        for (rank, place) in places.iter().enumerate().take(own).skip(1) {
            let mut stream = loop {
                match TcpStream::connect(place.as_str()) {
                    Ok(stream) if !meets_itself(&stream) => break stream,
                    _ if clock.is_running() => thread::sleep(AGAIN),
                    _ => return Err(clock.missing(ranks([rank]), size)),
                }
            };
            stream.write_all(&token)?;
            stream.write_all(&(own as u32).to_le_bytes())?;
            connections.push((rank, stream));
        }
        let mut missing: Vec<usize> = (own + 1..size).collect();
        while !missing.is_empty() {
            let (mut stream, _) = clock.accept(&listener, || clock.missing(ranks(missing.iter().copied()), size))?;
            stream.set_read_timeout(Some(WORD))?;
            let mut said = [0; 16];
            let rank = stream.read_exact(&mut said).and_then(|()| number(&mut stream));
            let Ok(rank) = rank.map(|rank| rank as usize) else { continue };
            if said == token && missing.contains(&rank) {
                missing.retain(|missing| *missing != rank);
                connections.push((rank, stream));
            }
        }
        Ok(connections)
    }

    /// A connection to rank 0, and the listener for other ranks.
    fn reach_first(&self, clock: &WaitingTime<'_>) -> Result<(TcpStream, TcpListener), RendezvousError> {
        loop {
            for port in self.ports() {
                for address in self.addresses(port)? {
                    // Another program may listen there.
                    if let Ok(reached) = self.greet(address) {
                        return Ok(reached);
                    }
                }
            }
            if !clock.is_running() {
                return Err(clock.missing(ranks([0]), self.world.size()));
            }
            thread::sleep(AGAIN);
        }
    }

    fn greet(&self, address: SocketAddr) -> io::Result<(TcpStream, TcpListener)> {
        let mut stream = TcpStream::connect_timeout(&address, WORD)?;
        if meets_itself(&stream) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_read_timeout(Some(WORD))?;
        let own: IpAddr = stream.local_addr()?.ip();
        let listener = TcpListener::bind((own, 0))?;
        stream.write_all(&MAGIC)?;
        put(&mut stream, &self.run)?;
        for number in [self.world.size() as u32, self.world.rank() as u32, u32::from(listener.local_addr()?.port())] {
            stream.write_all(&number.to_le_bytes())?;
        }
        let mut answer = [0; MAGIC.len()];
        stream.read_exact(&mut answer)?;
        if answer == MAGIC { Ok((stream, listener)) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

/// How long to wait.
struct WaitingTime<'a> {
    until: Instant,
    patience: Duration,
    /// True if a rank that is waited for can't come.
    in_vain: &'a dyn Fn() -> bool,
}

impl WaitingTime<'_> {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn is_running(&self) -> bool {
        self.left() > Duration::ZERO && !(self.in_vain)()
    }

    fn missing(&self, missing: String, world: usize) -> RendezvousError {
        RendezvousError::Missing { missing, world, patience: self.patience }
    }

    /// The next connection.
    fn accept(
        &self,
        listener: &TcpListener,
        missing: impl Fn() -> RendezvousError,
    ) -> Result<(TcpStream, SocketAddr), RendezvousError> {
        listener.set_nonblocking(true)?;
        loop {
            match listener.accept() {
                Ok((stream, from)) => {
                    stream.set_nonblocking(false)?;
                    return Ok((stream, from));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.is_running() => thread::sleep(AGAIN),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(missing()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// True if both ends are the same socket. If nobody listens at a port from the range that the system gives to
/// connecting sockets, a connection may get the very port that it wants to reach, and then reads its own words. That
/// happens once in some thousand attempts, and a rank makes hundreds per second.
fn meets_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(own), Ok(other)) if own == other)
}

/// True if the other end is still there. A rank that waited too long for an answer tries again.
fn is_open(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let open = matches!(&looked, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    open && stream.set_nonblocking(false).is_ok()
}

/// Rank numbers in words.
fn ranks(numbers: impl IntoIterator<Item = usize>) -> String {
    let numbers: Vec<String> = numbers.into_iter().map(|rank| rank.to_string()).collect();
    format!("rank{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

/// A secret that only the ranks of this run know.
fn token() -> [u8; 16] {
    let random = || RandomState::new().build_hasher().finish();
    let mut token = [0; 16];
    token[..8].copy_from_slice(&random().to_le_bytes());
    token[8..].copy_from_slice(&random().to_le_bytes());
    token
}

fn put(stream: &mut TcpStream, text: &str) -> io::Result<()> {
    stream.write_all(&(text.len() as u32).to_le_bytes())?;
    stream.write_all(text.as_bytes())
}

fn get(stream: &mut TcpStream) -> io::Result<String> {
    let length = number(stream)? as usize;
    if length > TEXT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn number(stream: &mut TcpStream) -> io::Result<u32> {
    let mut number = [0; 4];
    stream.read_exact(&mut number)?;
    Ok(u32::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port that was free a moment ago.
    fn port() -> u16 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        port.min(u16::MAX - PORTS)
    }

    fn of(size: usize, rank: usize, port: u16, run: &str) -> Rendezvous {
        Rendezvous { world: World::new(size, rank).unwrap(), host: "127.0.0.1".to_owned(), port, run: run.to_owned() }
    }

    #[test]
    fn ranks_meet_beside_another_run_and_a_stranger_at_their_port() {
        let port = port();
        // The first port belongs to another program, which never answers; two runs share the others.
        let stranger = TcpListener::bind(("127.0.0.1", port));
        let ranks: Vec<_> = ["one", "two"]
            .into_iter()
            .flat_map(|run| (0..3).map(move |rank| (run, rank)))
            .map(|(run, rank)| {
                thread::spawn(move || {
                    let seat = of(3, rank, port, run).meet(PATIENCE).unwrap();
                    let given = seat.gather(format!("{run} {rank}").into_bytes()).unwrap();
                    let given: Vec<String> = given.into_iter().map(|said| String::from_utf8(said).unwrap()).collect();
                    assert_eq!(given, [0, 1, 2].map(|rank| format!("{run} {rank}")));
                })
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        drop(stranger);
    }

    /// A connection to a port without a listener may reach itself. Of this many attempts two do on Linux, on average.
    #[test]
    fn a_rank_that_hears_its_own_words_has_not_reached_rank_0() {
        // Linux gives even ports to connecting sockets.
        let port = port() & !1;
        let joins = of(2, 1, port, "alone");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        assert!((0..30_000).all(|_| joins.greet(address).is_err()));
    }

    #[test]
    fn who_does_not_come_is_named() {
        let port = port();
        let joins = thread::spawn(move || of(3, 2, port, "run").meet(Duration::from_secs(10)).unwrap_err().to_string());
        let error = of(3, 0, port, "run").meet(Duration::from_secs(1)).unwrap_err().to_string();
        assert!(error.contains("rank 1 of 3 did not come within 1 s"), "{error}");
        assert_eq!(joins.join().unwrap(), "rank 0 ended before all ranks had come; its own message says why");
        let error = of(2, 1, port, "run").meet(Duration::from_millis(200)).unwrap_err().to_string();
        assert!(error.contains("rank 0 of 2 did not come"), "{error}");
        let nowhere = Rendezvous { host: "nowhere.invalid".to_owned(), ..of(2, 1, port, "run") };
        assert!(nowhere.meet(Duration::from_secs(1)).unwrap_err().to_string().contains("nowhere.invalid"));
    }
}
