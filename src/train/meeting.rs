//! What ranks have given each other and not taken yet, and which ranks have ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::{OpResult, TrainError};
use vramlab_device::SharedAbort;

/// The bytes of every rank, by rank.
pub(crate) type RankBytes = Arc<Vec<Vec<u8>>>;

#[derive(Debug, Default)]
struct MeetingState {
    /// Collectives that are over.
    rounds: u64,
    /// What each rank has given to the next collectives: a rank in another process may be ahead by one.
    given: Vec<VecDeque<Vec<u8>>>,
    /// What the ranks gave to the last collective.
    last: RankBytes,
    /// Messages that were sent and not received, by sender and receiver.
    mail: BTreeMap<[usize; 2], VecDeque<Vec<u8>>>,
    /// Ranks that have ended.
    ended: Vec<bool>,
    /// The rank whose failure ended all.
    failed: Option<usize>,
    /// Functions that abort the devices' exchanges.
    aborts: Vec<SharedAbort>,
}

/// Holds what ranks pass on until it is taken.
#[derive(Debug)]
pub(super) struct Meeting {
    state: Mutex<MeetingState>,
    changed: Condvar,
}

impl Meeting {
    pub fn of(ranks: usize) -> Self {
        let given = (0..ranks).map(|_| VecDeque::new()).collect();
        let state = MeetingState { given, ended: vec![false; ranks], ..MeetingState::default() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, MeetingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, MeetingState>) -> MutexGuard<'a, MeetingState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives `bytes` of a rank to its next collective; returns how many collectives are over.
    pub fn give(&self, rank: usize, bytes: Vec<u8>) -> u64 {
        let mut state = self.lock();
        let round = state.rounds;
        state.given[rank].push_back(bytes);
        if state.given.iter().all(|given| !given.is_empty()) {
            let given = state.given.iter_mut().filter_map(VecDeque::pop_front).collect();
            state.last = Arc::new(given);
            state.rounds += 1;
            self.changed.notify_all();
        }
        round
    }

    /// Waits until all ranks have given to a collective.
    pub fn take(&self, round: u64) -> OpResult<RankBytes> {
        let mut state = self.lock();
        while state.rounds == round {
            if let Some(rank) = state.failed {
                return Err(TrainError::RankEnded(rank).into());
            }
            let missing = |rank: &usize| state.ended[*rank] && state.given[*rank].is_empty();
            if let Some(rank) = (0..state.ended.len()).find(missing) {
                return Err(TrainError::RankEnded(rank).into());
            }
            state = self.wait(state);
        }
        Ok(Arc::clone(&state.last))
    }

    /// Sends `bytes` from a rank to another.
    pub fn send(&self, from: usize, to: usize, bytes: Vec<u8>) {
        self.lock().mail.entry([from, to]).or_default().push_back(bytes);
        self.changed.notify_all();
    }

    /// Waits for the bytes that a rank sends to another.
    pub fn receive(&self, from: usize, to: usize) -> OpResult<Vec<u8>> {
        let mut state = self.lock();
        loop {
            if let Some(bytes) = state.mail.get_mut(&[from, to]).and_then(VecDeque::pop_front) {
                return Ok(bytes);
            }
            if let Some(rank) = state.failed.or(state.ended[from].then_some(from)) {
                return Err(TrainError::RankEnded(rank).into());
            }
            state = self.wait(state);
        }
    }

    /// Notes that a rank takes part no more.
    pub fn end(&self, rank: usize) {
        self.lock().ended[rank] = true;
        self.changed.notify_all();
    }

    /// Notes that a rank has failed: devices that wait for it go on, and their next requests are refused. Only the first failure
    /// counts; returns its rank.
    pub fn fail(&self, rank: usize) -> usize {
        let (first, aborts) = {
            let mut state = self.lock();
            state.ended[rank] = true;
            (*state.failed.get_or_insert(rank), std::mem::take(&mut state.aborts))
        };
        self.changed.notify_all();
        aborts.iter().for_each(|abort| abort.abort());
        first
    }

    /// The rank whose failure ended all, if there is one.
    pub fn failed(&self) -> Option<usize> {
        self.lock().failed
    }

    /// Whether a rank takes part no more.
    pub fn has_ended(&self, rank: usize) -> bool {
        self.lock().ended[rank]
    }

    /// Registers `abort` to be called when a rank fails.
    pub fn abort_on_failure(&self, abort: SharedAbort) {
        let mut state = self.lock();
        if state.failed.is_none() {
            state.aborts.push(abort);
            return;
        }
        drop(state);
        abort.abort();
    }

    /// Waits until all ranks have ended, but no longer than `patience`.
    pub fn wait_for_the_end(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while !state.ended.iter().all(|ended| *ended) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
