//! One rank's end of a communicator: the calls that it entered, and what came of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::calls::{Call, Contribution, Result};
use super::identity::Identity;
use super::meeting::Meeting;
use super::pieces::Pieces;
use crate::store::shadow::Shadow;

/// Calls that may be under way. A card has room for no more kernels either.
pub const MOST: usize = 1024;

/// A rank that is in a call says by then when it is ready for it, or it is not waited for.
const SAYS_SO: Duration = Duration::from_millis(200);

/// Calls that a stream waits for, by communicator and number; what comes behind each of them, in nanoseconds.
pub type Waits = BTreeMap<(u64, u64), i64>;

/// Collectives and messages are told apart by this bit of their tags.
const MESSAGE: u64 = 1 << 63;

/// One rank's end.
#[derive(Debug)]
pub struct Communicator {
    /// Which one it is.
    pub rank: usize,
    /// Of so many.
    pub ranks: usize,
    /// Its device.
    pub device: usize,
    /// By what the ranks found each other.
    pub identity: Identity,
    /// What they share; nothing where it is the only one.
    pub meeting: Option<Meeting>,
    /// Why it can't go on.
    pub failed: Option<String>,
    /// It was said that it waits.
    pub told: bool,
    looked: Option<Instant>,
    /// Bytes of the device that NCCL took for it.
    pub taken: u64,
    /// Communicators that were made of it.
    pub children: u64,
    collectives: u64,
    /// The number of the oldest call under way.
    first: u64,
    pending: VecDeque<PendingCall>,
    /// What others said that is not used yet, by rank and tag.
    heard: BTreeMap<(usize, u64), Pieces>,
}

/// A call under way.
#[derive(Debug)]
struct PendingCall {
    call: Call,
    /// Which collective, or which message with its peer.
    number: u64,
    peer: Option<usize>,
    result: Result,
    /// Under which number the shadow waits for the result.
    ticket: Option<u64>,
    /// The result itself is asked for.
    kept: bool,
    /// When it begins here, and how long it takes.
    start: Start,
    /// Since when all ranks are in it.
    complete: Option<Instant>,
}

/// When a call begins on its stream.
#[derive(Debug, Default)]
pub struct Start {
    /// The stream is ready for it, by all that is known.
    pub ready: u64,
    /// What its stream waits for before: calls, and how long after each of them it is ready.
    pub waits: Waits,
    /// So long it takes once all ranks are ready; none for a call of the host.
    pub takes: Option<u64>,
    /// The others know when this rank is ready.
    said: bool,
}

impl Start {
    /// On a stream that is ready by then, for a call that takes so long.
    pub fn new(ready: u64, waits: Waits, takes: u64) -> Self {
        Self { ready, waits, takes: Some(takes), said: false }
    }
}

/// A call that is done: its number, and when by the card's clock.
pub type Done = (u64, Option<u64>);

/// Whom a call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentRanks {
    /// The call.
    pub call: Call,
    /// Which of its kind, from 1: collectives are counted together, messages by peer.
    pub number: u64,
    /// The ranks.
    pub ranks: Vec<usize>,
}

impl Communicator {
    /// A rank that has its place.
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

    /// Enters a collective; its number among the calls.
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

    /// Is ready to receive `size` bytes of a rank.
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

    /// When the call that was entered last begins here.
    pub fn begins(&mut self, start: Start) {
        if let Some(entered) = self.pending.back_mut() {
            entered.start = start;
        }
        self.say_ready();
    }

    /// A call that others may wait for behind is done.
    pub fn settle(&mut self, call: (u64, u64), done: u64) {
        for pending in &mut self.pending {
            if let Some(after) = pending.start.waits.remove(&call) {
                pending.start.ready = pending.start.ready.max(done.saturating_add_signed(after));
            }
        }
        self.say_ready();
    }

    /// Another communicator is no more: nothing waits for its calls.
    pub fn leave(&mut self, other: u64) {
        for pending in &mut self.pending {
            pending.start.waits.retain(|(handle, _), _| *handle != other);
        }
        self.say_ready();
    }

    /// Says of each call for which it is known when this rank is ready for it.
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

    /// When a call is done that all ranks have entered: none for a call of the host, and nothing where a rank has yet to say when it is
    /// ready.
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

    /// Whether a call and all before it are done.
    pub fn is_done(&self, number: u64) -> bool {
        number < self.first || self.meeting.is_none() && self.pending.is_empty()
    }

    /// The number of the call that was entered last.
    pub fn last(&self) -> Option<u64> {
        (self.first + self.pending.len() as u64).checked_sub(1)
    }

    /// The number of the oldest call under way, where no more can be.
    pub fn oldest_of_too_many(&self) -> Option<u64> {
        (self.pending.len() >= MOST).then_some(self.first)
    }

    /// Whether it is time to look again who is still there: not more often than `each`.
    pub fn is_due(&mut self, each: Duration) -> bool {
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= each);
        if due {
            self.looked = Some(Instant::now());
        }
        due
    }

    /// Takes what came in, and says of each call that is done what is known of its result.
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
            // A rank that has entered a call has said before what it gives.
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
            // To oneself: both are here.
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

    /// Whom the oldest call under way waits for.
    pub fn missing(&self) -> Option<AbsentRanks> {
        let front = self.pending.front()?;
        let ranks = self.missing_of(front);
        (!ranks.is_empty()).then_some(AbsentRanks { call: front.call, number: front.number, ranks })
    }

    /// Of the ranks that the oldest call waits for the first whose process is no longer there.
    pub fn lost(&self) -> Option<(usize, AbsentRanks)> {
        let meeting = self.meeting.as_ref()?;
        let missing = self.missing()?;
        let lost = missing.ranks.iter().copied().find(|rank| !meeting.is_here(*rank))?;
        Some((lost, missing))
    }
}
