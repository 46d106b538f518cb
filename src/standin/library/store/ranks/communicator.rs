//! One rank's end of a communicator: the calls that it has entered, and their results.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::calls::{Call, Contribution, Result};
use super::identity::Identity;
use super::meeting::Meeting;
use super::pieces::Pieces;
use crate::store::shadow::Shadow;

/// The most pending calls. A card has no room for more kernels either.
pub const MOST: usize = 1024;

/// How long a rank that is in a call may take to say when it is ready; then it is not waited for.
const SAYS_SO: Duration = Duration::from_millis(200);

/// The calls that a stream waits for, by communicator and number, each with the time of the work that follows it, in
/// nanoseconds.
pub type Waits = BTreeMap<(u64, u64), i64>;

/// This bit of a tag distinguishes messages from collectives.
const MESSAGE: u64 = 1 << 63;

/// One rank's end.
#[derive(Debug)]
pub struct Communicator {
    /// The rank.
    pub rank: usize,
    /// The number of ranks.
    pub ranks: usize,
    /// The rank's device.
    pub device: usize,
    /// The identity by which the ranks find each other.
    pub identity: Identity,
    /// The file that the ranks share; `None` if there is only one rank.
    pub meeting: Option<Meeting>,
    /// Why the communicator can't go on.
    pub failed: Option<String>,
    /// Whether a message said that it waits.
    pub told: bool,
    looked: Option<Instant>,
    /// Bytes of the device that NCCL took for this communicator.
    pub taken: u64,
    /// Number of communicators that were made from this one.
    pub children: u64,
    collectives: u64,
    /// The number of the oldest pending call.
    first: u64,
    pending: VecDeque<PendingCall>,
    /// What other ranks have sent and nobody has used yet, by rank and tag.
    heard: BTreeMap<(usize, u64), Pieces>,
}

/// A pending call.
#[derive(Debug)]
struct PendingCall {
    call: Call,
    /// The number of the collective, or of the message with its peer.
    number: u64,
    peer: Option<usize>,
    result: Result,
    /// The ticket with which the shadow waits for the result.
    ticket: Option<u64>,
    /// Whether the result itself will be asked for.
    kept: bool,
    /// When the call begins on this rank, and its time.
    start: Start,
    /// When all ranks had entered it.
    complete: Option<Instant>,
}

/// When a call begins on its stream.
#[derive(Debug, Default)]
pub struct Start {
    /// When the stream is ready for it, as far as is known.
    pub ready: u64,
    /// The calls that its stream waits for first, and how long after each of them the stream is ready.
    pub waits: Waits,
    /// The call's time once all ranks are ready; `None` for a call of the host.
    pub takes: Option<u64>,
    /// Whether the other ranks know when this rank is ready.
    said: bool,
}

impl Start {
    /// The start of a call that takes `takes`, on a stream that is ready at `ready`.
    pub fn new(ready: u64, waits: Waits, takes: u64) -> Self {
        Self { ready, waits, takes: Some(takes), said: false }
    }
}

/// A finished call: its number, and when it ended by the card's clock.
pub type Done = (u64, Option<u64>);

/// The ranks that a call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentRanks {
    /// The call.
    pub call: Call,
    /// The call's number among those of its kind, from 1: collectives are counted together, messages by peer.
    pub number: u64,
    /// The ranks.
    pub ranks: Vec<usize>,
}

impl Communicator {
    /// The end of a rank that has its place in the meeting.
    pub fn new(identity: Identity, rank: usize, ranks: usize, device: usize, meeting: Option<Meeting>) -> Self {
        Self {
            rank,
            ranks,
            device,
            identity,
            meeting,
            failed: None,
            told: false,
            looked: None,
            taken: 0,
            children: 0,
            collectives: 0,
            first: 0,
            pending: VecDeque::new(),
            heard: BTreeMap::new(),
        }
    }

    /// Enters a collective, and returns its number among the calls.
    pub fn enter(&mut self, call: Call, given: Contribution, result: Result, ticket: Option<u64>, kept: bool) -> u64 {
        self.collectives += 1;
        let number = self.collectives;
        if let Contribution::Known(pieces) = given
            && !pieces.is_empty()
        {
            if let Some(meeting) = &self.meeting {
                for to in (0..self.ranks).filter(|to| *to != self.rank) {
                    meeting.say(to, number, &pieces);
                }
            }
            self.heard.insert((self.rank, number), pieces);
        }
        if let Some(meeting) = &self.meeting {
            meeting.enter(call, number);
        }
        self.under_way(call, number, None, result, ticket, kept)
    }

    /// Sends to a rank.
    pub fn send(&mut self, to: usize, pieces: &Pieces) -> u64 {
        let sent = self.meeting.as_ref().map(|meeting| meeting.sent(self.rank, to));
        let number = sent.map_or(1, |sent| sent.load(Ordering::Acquire) + 1);
        if to == self.rank {
            self.heard.insert((to, number | MESSAGE), pieces.clone());
        } else if let Some(meeting) = &self.meeting
            && !pieces.is_empty()
        {
            meeting.say(to, number | MESSAGE, pieces);
        }
        if let Some(sent) = sent {
            sent.store(number, Ordering::Release);
        }
        self.under_way(Call::Send, number, Some(to), Result::Nothing, None, false)
    }

    /// Receives `size` bytes from a rank.
    pub fn receive(&mut self, from: usize, size: u64, ticket: Option<u64>) -> u64 {
        let number = self.meeting.as_ref().map_or(1, |meeting| {
            let received = meeting.received(from, self.rank);
            received.fetch_add(1, Ordering::AcqRel) + 1
        });
        let result = Result::Of { rank: from, offset: 0, size };
        self.under_way(Call::Recv, number, Some(from), result, ticket, false)
    }

    fn under_way(
        &mut self,
        call: Call,
        number: u64,
        peer: Option<usize>,
        result: Result,
        ticket: Option<u64>,
        kept: bool,
    ) -> u64 {
        let start = Start::default();
        self.pending.push_back(PendingCall { call, number, peer, result, ticket, kept, start, complete: None });
        self.first + self.pending.len() as u64 - 1
    }

    /// Sets when the last entered call begins on this rank.
    pub fn begins(&mut self, start: Start) {
        if let Some(entered) = self.pending.back_mut() {
            entered.start = start;
        }
        self.say_ready();
    }

    /// Notes the end of a call of any communicator, for the calls that wait for it.
    pub fn settle(&mut self, call: (u64, u64), done: u64) {
        for pending in &mut self.pending {
            if let Some(after) = pending.start.waits.remove(&call) {
                pending.start.ready = pending.start.ready.max(done.saturating_add_signed(after));
            }
        }
        self.say_ready();
    }

    /// Notes that another communicator is gone: nothing waits for its calls any more.
    pub fn leave(&mut self, other: u64) {
        for pending in &mut self.pending {
            pending.start.waits.retain(|(handle, _), _| *handle != other);
        }
        self.say_ready();
    }

    /// Tells the other ranks when this rank is ready, for each call for which this is known.
    fn say_ready(&mut self) {
        let Some(meeting) = &self.meeting else { return };
        for pending in &mut self.pending {
            let start = &mut pending.start;
            if start.takes.is_some() && !start.said && start.waits.is_empty() {
                start.said = true;
                meeting.is_ready(pending.peer.map(|peer| (pending.call, peer)), pending.number, start.ready);
            }
        }
    }

    /// When a call ends that all ranks have entered: `Some(None)` for a call of the host, and `None` if a rank has not
    /// said yet when it is ready.
    fn done(&self, pending: &PendingCall) -> Option<Option<u64>> {
        let start = &pending.start;
        let Some(takes) = start.takes else { return Some(None) };
        let others = match (&self.meeting, pending.peer) {
            (None, _) => Vec::new(),
            (Some(_), Some(peer)) if peer == self.rank => Vec::new(),
            (Some(meeting), Some(peer)) => {
                let theirs = if pending.call == Call::Send { Call::Recv } else { Call::Send };
                vec![meeting.ready(peer, Some((theirs, self.rank)), pending.number)]
            }
            (Some(meeting), None) => {
                let others = (0..self.ranks).filter(|rank| *rank != self.rank);
                others.map(|rank| meeting.ready(rank, None, pending.number)).collect()
            }
        };
        let is_known = start.waits.is_empty() && others.iter().all(Option::is_some);
        let is_late = pending.complete.is_some_and(|since| since.elapsed() >= SAYS_SO);
        let last = others.into_iter().flatten().max().unwrap_or(0).max(start.ready);
        (is_known || is_late).then_some(Some(last + takes))
    }

    /// Whether a call and all calls before it are finished.
    pub fn is_done(&self, number: u64) -> bool {
        number < self.first || self.meeting.is_none() && self.pending.is_empty()
    }

    /// The number of the last entered call.
    pub fn last(&self) -> Option<u64> {
        (self.first + self.pending.len() as u64).checked_sub(1)
    }

    /// The number of the oldest pending call, if no more can be pending.
    pub fn oldest_of_too_many(&self) -> Option<u64> {
        (self.pending.len() >= MOST).then_some(self.first)
    }

    /// Whether it is time to check again that the other ranks still exist; at most once in each period `each`.
    pub fn is_due(&mut self, each: Duration) -> bool {
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= each);
        if due {
            self.looked = Some(Instant::now());
        }
        due
    }

    /// Reads what other ranks have sent, and finishes calls: each gets the known part of its result.
    pub fn poll(&mut self, shadow: &mut Shadow, kept: &mut BTreeMap<u64, Option<Pieces>>) -> Vec<Done> {
        let mut all = Vec::new();
        while let Some(front) = self.pending.front() {
            if self.failed.is_none() && !self.missing_of(front).is_empty() {
                break;
            }
            let found = self.done(front);
            if found.is_none() && self.failed.is_none() {
                if let Some(front) = self.pending.front_mut() {
                    front.complete.get_or_insert_with(Instant::now);
                }
                break;
            }
            all.push((self.first, found.flatten()));
            // A rank sends its contribution before it enters a call.
            self.hear();
            let Some(done) = self.pending.pop_front() else { break };
            self.first += 1;
            self.told = false;
            let tag = if done.peer.is_some() { done.number | MESSAGE } else { done.number };
            let known = if self.failed.is_some() {
                Pieces::default()
            } else {
                done.result.of(self.rank, self.ranks, |rank| self.heard.get(&(rank, tag)).cloned().unwrap_or_default())
            };
            match done.peer {
                Some(peer) if done.call == Call::Recv => drop(self.heard.remove(&(peer, tag))),
                Some(_) => {}
                None => (0..self.ranks).for_each(|rank| drop(self.heard.remove(&(rank, tag)))),
            }
            if let Some(ticket) = done.ticket {
                if done.kept {
                    kept.insert(ticket, Some(known.clone()));
                }
                shadow.arrived(ticket, &known.0);
            }
        }
        all
    }

    fn hear(&mut self) {
        let Some(meeting) = &self.meeting else { return };
        for from in (0..self.ranks).filter(|from| *from != self.rank) {
            meeting.hear(from, |tag, pieces| drop(self.heard.insert((from, tag), pieces)));
        }
    }

    /// The ranks that a call waits for.
    fn missing_of(&self, pending: &PendingCall) -> Vec<usize> {
        let Some(meeting) = &self.meeting else { return Vec::new() };
        match (pending.peer, pending.call) {
            // A message to oneself: both ends are here.
            (Some(peer), _) if peer == self.rank => Vec::new(),
            (Some(peer), Call::Send) => {
                let ready = meeting.received(self.rank, peer).load(Ordering::Acquire);
                (ready < pending.number).then_some(peer).into_iter().collect()
            }
            (Some(peer), _) => {
                let sent = meeting.sent(peer, self.rank).load(Ordering::Acquire);
                (sent < pending.number).then_some(peer).into_iter().collect()
            }
            (None, _) => {
                (0..self.ranks).filter(|rank| *rank != self.rank && meeting.entered(*rank) < pending.number).collect()
            }
        }
    }

    /// The ranks that the oldest pending call waits for.
    pub fn missing(&self) -> Option<AbsentRanks> {
        let front = self.pending.front()?;
        let ranks = self.missing_of(front);
        (!ranks.is_empty()).then_some(AbsentRanks { call: front.call, number: front.number, ranks })
    }

    /// The first of the ranks that the oldest call waits for whose process has ended.
    pub fn lost(&self) -> Option<(usize, AbsentRanks)> {
        let meeting = self.meeting.as_ref()?;
        let missing = self.missing()?;
        let lost = missing.ranks.iter().copied().find(|rank| !meeting.is_here(*rank))?;
        Some((lost, missing))
    }
}
