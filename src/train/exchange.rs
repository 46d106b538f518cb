//! Where the ranks of one process meet: what they pass on goes through host memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::error::{OpResult, TrainError};
use super::member::World;
use vramlab_device::SharedAbort;

/// Bytes of every rank.
pub(crate) type Given = Arc<Vec<Vec<u8>>>;

#[derive(Debug, Default)]
struct Meeting {
    /// Collectives that are over.
    rounds: u64,
    /// What ranks have given to the next one.
    given: Vec<Option<Vec<u8>>>,
    /// What they gave to the last one.
    last: Given,
    /// What was sent and not received, by sender and receiver.
    mail: BTreeMap<[usize; 2], VecDeque<Vec<u8>>>,
    /// Ranks that have ended.
    ended: Vec<bool>,
    /// The rank whose failure ended all.
    failed: Option<usize>,
    /// What ends the exchanges of devices.
    aborts: Vec<SharedAbort>,
}

#[derive(Debug)]
struct Exchange {
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

/// A rank's place where the ranks of one process meet. Who waits for a rank whose place is gone gets an error.
#[derive(Debug)]
pub struct Seat {
    exchange: Arc<Exchange>,
    world: World,
}

impl Seat {
    /// One for every rank of a world of this size.
    #[must_use]
    pub fn for_all(size: usize) -> Vec<Arc<Self>> {
        let given = (0..size).map(|_| None).collect();
        let meeting = Mutex::new(Meeting { given, ended: vec![false; size], ..Meeting::default() });
        let exchange = Arc::new(Exchange { meeting, changed: Condvar::new() });
        let seat = |rank| Some(Arc::new(Self { exchange: Arc::clone(&exchange), world: World::new(size, rank)? }));
        (0..size).filter_map(seat).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Meeting> {
        self.exchange.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, meeting: MutexGuard<'a, Meeting>) -> MutexGuard<'a, Meeting> {
        self.exchange.changed.wait(meeting).unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives `bytes` to all ranks, and gets what each of them gives.
    pub(crate) fn all(&self, bytes: Vec<u8>) -> OpResult<Given> {
        let mut meeting = self.lock();
        let round = meeting.rounds;
        meeting.given[self.world.rank()] = Some(bytes);
        if meeting.given.iter().all(Option::is_some) {
            let given = meeting.given.iter_mut().filter_map(Option::take).collect();
            meeting.last = Arc::new(given);
            meeting.rounds += 1;
            self.exchange.changed.notify_all();
        }
        while meeting.rounds == round {
            if let Some(rank) = meeting.failed {
                return Err(TrainError::RankEnded(rank).into());
            }
            let missing = |rank: &usize| meeting.ended[*rank] && meeting.given[*rank].is_none();
            if let Some(rank) = (0..self.world.size()).find(missing) {
                return Err(TrainError::RankEnded(rank).into());
            }
            meeting = self.wait(meeting);
        }
        Ok(Arc::clone(&meeting.last))
    }

    /// Ends all ranks, because this one has failed: devices that wait for it go on, and what they ask next is refused. Only the
    /// first failure counts.
    pub fn fail(&self) {
        let aborts = {
            let mut meeting = self.lock();
            meeting.ended[self.world.rank()] = true;
            meeting.failed.get_or_insert(self.world.rank());
            std::mem::take(&mut meeting.aborts)
        };
        self.exchange.changed.notify_all();
        aborts.iter().for_each(|abort| abort.abort());
    }

    /// The rank that has ended all, where one has.
    #[must_use]
    pub fn failed(&self) -> Option<usize> {
        self.lock().failed
    }

    /// Waits until all ranks are here, or one has ended.
    pub fn meet(&self) {
        let _ = self.all(Vec::new());
    }

    /// Has `abort` called when a rank fails.
    pub(crate) fn abort_on_failure(&self, abort: SharedAbort) {
        let mut meeting = self.lock();
        if meeting.failed.is_none() {
            meeting.aborts.push(abort);
            return;
        }
        drop(meeting);
        abort.abort();
    }

    /// Sends `bytes` to a rank, which need not wait for them yet.
    pub(crate) fn send(&self, to: usize, bytes: Vec<u8>) {
        self.lock().mail.entry([self.world.rank(), to]).or_default().push_back(bytes);
        self.exchange.changed.notify_all();
    }

    /// Waits for what a rank sends.
    pub(crate) fn receive(&self, from: usize) -> OpResult<Vec<u8>> {
        let mut meeting = self.lock();
        loop {
            if let Some(bytes) = meeting.mail.get_mut(&[from, self.world.rank()]).and_then(VecDeque::pop_front) {
                return Ok(bytes);
            }
            if meeting.ended[from] {
                return Err(TrainError::RankEnded(from).into());
            }
            meeting = self.wait(meeting);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let rank = self.world.rank();
        self.lock().ended[rank] = true;
        self.exchange.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_get_what_each_gives_and_nobody_waits_for_who_is_gone() {
        let ranks: Vec<_> = Seat::for_all(3)
            .into_iter()
            .enumerate()
            .map(|(rank, seat)| {
                thread::spawn(move || {
                    for round in 0..50_u8 {
                        let given = seat.all(vec![rank as u8, round]).ok()?;
                        assert_eq!(*given, [[0, round], [1, round], [2, round]]);
                    }
                    if rank == 2 {
                        return None;
                    }
                    seat.send(1 - rank, vec![rank as u8]);
                    assert_eq!(seat.receive(1 - rank).ok()?, [1 - rank as u8]);
                    seat.all(Vec::new()).err()
                })
            })
            .collect();
        let ended: Vec<bool> = ranks.into_iter().map(|rank| rank.join().unwrap().is_some()).collect();
        assert_eq!(ended, [true, true, false]);
    }
}
