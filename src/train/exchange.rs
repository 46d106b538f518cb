//! Where ranks meet: their data goes through host memory, and to other processes through connections.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use super::error::{OpResult, TrainError};
use super::meeting::{Meeting, RankBytes};
use super::member::World;
use super::peers::Peers;
use vramlab_device::SharedAbort;

/// A rank's place where ranks meet. A rank that waits for one whose place is gone gets an error.
#[derive(Debug)]
pub struct Seat {
    meeting: Arc<Meeting>,
    world: World,
    /// The other ranks, where each is a process.
    peers: Option<Peers>,
}

impl Seat {
    /// One seat for each rank of a world of this size, all in this process.
    #[must_use]
    pub fn for_all(size: usize) -> Vec<Arc<Self>> {
        let meeting = Arc::new(Meeting::of(size));
        let seat =
            |rank| Some(Arc::new(Self { meeting: Arc::clone(&meeting), world: World::new(size, rank)?, peers: None }));
        (0..size).filter_map(seat).collect()
    }

    /// The seat of this process's rank, with a connection to each of the other ranks.
    ///
    /// # Errors
    /// A connection can't be used, or the system starts no thread.
    pub fn among(world: World, connections: Vec<(usize, TcpStream)>) -> io::Result<Arc<Self>> {
        let meeting = Arc::new(Meeting::of(world.size()));
        let peers = Peers::new(world, connections, &meeting)?;
        Ok(Arc::new(Self { meeting, world, peers: Some(peers) }))
    }

    /// Gives `bytes` to all ranks, and returns the bytes of every rank.
    pub(crate) fn all(&self, bytes: Vec<u8>) -> OpResult<RankBytes> {
        if let Some(peers) = &self.peers {
            peers.give(&bytes);
        }
        self.meeting.take(self.meeting.give(self.world.rank(), bytes))
    }

    /// Gathers the bytes of every rank, by rank; all ranks have to call it.
    ///
    /// # Errors
    /// [`TrainError::RankEnded`].
    pub fn gather(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, TrainError> {
        Ok(self.all(bytes)?.to_vec())
    }

    /// Ends all ranks because this one has failed: devices that wait for it go on, and their next requests are refused. Only
    /// the first failure counts.
    pub fn fail(&self) {
        let first = self.meeting.fail(self.world.rank());
        if let Some(peers) = &self.peers {
            peers.fail(first);
        }
    }

    /// The rank whose failure ended all, if there is one.
    #[must_use]
    pub fn failed(&self) -> Option<usize> {
        self.meeting.failed()
    }

    /// Waits until all ranks are here or one has ended.
    pub fn meet(&self) {
        let _ = self.all(Vec::new());
    }

    /// Registers `abort` to be called when a rank fails.
    pub(crate) fn abort_on_failure(&self, abort: SharedAbort) {
        self.meeting.abort_on_failure(abort);
    }

    /// Sends `bytes` to a rank, which need not be waiting for them.
    pub(crate) fn send(&self, to: usize, bytes: Vec<u8>) {
        match &self.peers {
            Some(peers) => peers.send(to, &bytes),
            None => self.meeting.send(self.world.rank(), to, bytes),
        }
    }

    /// Waits for the bytes that a rank sends.
    pub(crate) fn receive(&self, from: usize) -> OpResult<Vec<u8>> {
        self.meeting.receive(from, self.world.rank())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.meeting.end(self.world.rank());
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Connects each rank to each other.
    fn connected(size: usize) -> Vec<Arc<Seat>> {
        let mut connections: Vec<Vec<(usize, TcpStream)>> = (0..size).map(|_| Vec::new()).collect();
        for one in 0..size {
            for other in 0..one {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                connections[one].push((other, TcpStream::connect(listener.local_addr().unwrap()).unwrap()));
                connections[other].push((one, listener.accept().unwrap().0));
            }
        }
        let seat = |(rank, connections)| Seat::among(World::new(size, rank).unwrap(), connections).unwrap();
        connections.into_iter().enumerate().map(seat).collect()
    }

    fn each(seats: Vec<Arc<Seat>>, act: fn(usize, &Seat) -> Option<TrainError>) -> Vec<Option<TrainError>> {
        let ranks: Vec<_> =
            seats.into_iter().enumerate().map(|(rank, seat)| thread::spawn(move || act(rank, &seat))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    }

    #[test]
    fn all_get_what_each_gives_and_nobody_waits_for_who_is_gone() {
        for seats in [Seat::for_all(3), connected(3)] {
            let ended = each(seats, |rank, seat| {
                for round in 0..50_u8 {
                    let given = seat.gather(vec![rank as u8, round]).unwrap();
                    assert_eq!(given, [[0, round], [1, round], [2, round]]);
                }
                if rank == 2 {
                    return None;
                }
                seat.send(1 - rank, vec![rank as u8; 1 << 20]);
                assert_eq!(seat.receive(1 - rank).ok()?, vec![1 - rank as u8; 1 << 20]);
                seat.gather(Vec::new()).err()
            });
            assert!(ended[2].is_none());
            for ended in &ended[..2] {
                assert!(matches!(ended, Some(TrainError::RankEnded(2))), "{ended:?}");
            }
        }
    }

    #[test]
    fn the_first_that_fails_is_named_by_all() {
        for seats in [Seat::for_all(3), connected(3)] {
            let ended = each(seats, |rank, seat| {
                if rank == 1 {
                    seat.fail();
                    return None;
                }
                // One rank waits for all others, one for a rank that did not fail.
                let ended =
                    if rank == 0 { seat.gather(Vec::new()).err() } else { seat.receive(0).err().map(Into::into) };
                seat.fail();
                assert_eq!(seat.failed(), Some(1));
                ended
            });
            for ended in [&ended[0], &ended[2]] {
                assert!(matches!(ended, Some(TrainError::RankEnded(1))), "{ended:?}");
            }
        }
    }

    #[test]
    fn a_connection_that_breaks_or_says_nonsense_ends_the_rank_behind_it() {
        for nonsense in [&b""[..], &[9; 64], &[0, 255, 255, 255, 255, 255, 255, 255, 127]] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let connection = listener.accept().unwrap().0;
            let seat = Seat::among(World::new(2, 0).unwrap(), vec![(1, connection)]).unwrap();
            io::Write::write_all(&mut other, nonsense).unwrap();
            drop(other);
            assert!(matches!(seat.gather(Vec::new()), Err(TrainError::RankEnded(1))));
            assert_eq!(seat.failed(), Some(1));
        }
    }
}
