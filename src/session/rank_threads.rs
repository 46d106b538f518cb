//! Ranks on real devices. Each has a thread here, or is a process of its own. They compute side by side and wait for
//! each other where they exchange data. The holder of the gate gets their events in the order of time, and pauses all
//! of them by not listening.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::hand::Hand;
use super::interleaved::{EventInterleaver, SafePointEvent};
use super::order::Reply;
use super::rank_processes::{Link, RankProcesses, gone};
use super::rank_worker::{End, RankClock, RankFacts, RankReport, micros, serve};
use super::{BuildError, GroupError, LabSpec, PANICKED, Parallel, Setup};
use vramlab_model::Micros;
use vramlab_train::{Seat, TrainError};

/// The most reports that may wait. Ranks that are further ahead wait too.
const AHEAD: usize = 256;
/// A rank may be busy for long: commands are checked this often meanwhile.
const BEAT: Duration = Duration::from_millis(10);
/// How long ranks may take to reach a safe point and to close their devices.
const PARTING: Duration = Duration::from_millis(1500);

/// All ranks, and their reports.
pub(super) struct RankThreads {
    /// `None` once nobody listens.
    told: Option<Receiver<RankReport>>,
    tells: SyncSender<RankReport>,
    shared: Arc<RankClock>,
    ranks: Vec<RankThread>,
    /// Where the first rank of this process meets the others.
    seat: Option<Arc<Seat>>,
    /// The processes of the other ranks, if there are any.
    links: Vec<Arc<Link>>,
    /// Every thread holds the other end until it has ended.
    gone: Receiver<Infallible>,
    alive: Option<Sender<Infallible>>,
    pauses: Pauses,
    interleaved: EventInterleaver,
}

#[derive(Default)]
struct RankThread {
    busy: bool,
    ended: bool,
    made: Option<Result<RankFacts, BuildError>>,
    reply: Option<Reply>,
    /// Why its process is gone.
    gone: Option<Arc<str>>,
    /// True if its process is silent and will not stop soon.
    quiet: bool,
    /// A silence to be reported: its length, or `None` if it has ended.
    silent: Option<Option<Duration>>,
}

impl RankThreads {
    pub fn new() -> Self {
        let (tells, told) = sync_channel(AHEAD);
        let (alive, gone) = channel();
        Self {
            told: Some(told),
            tells,
            shared: RankClock::since(Instant::now()),
            ranks: Vec::new(),
            seat: None,
            links: Vec::new(),
            gone,
            alive: Some(alive),
            pauses: Pauses::default(),
            interleaved: EventInterleaver::default(),
        }
    }

    /// Adds a thread for each of these ranks, which builds the rank and then obeys orders.
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub fn add_all(&mut self, specs: &[LabSpec]) -> io::Result<Vec<Hand>> {
        let seats = Seat::for_all(specs.len());
        specs.iter().zip(&seats).map(|(spec, seat)| self.add(spec, seat)).collect()
    }

    /// Adds a thread for rank 0, whose `spec` this is. The other ranks begin in their processes.
    ///
    /// # Errors
    /// If a rank is gone or does not come, or the system can't start a thread.
    pub fn add_with(
        &mut self,
        processes: &mut RankProcesses,
        spec: &LabSpec,
        parallel: Parallel,
        setup: &Setup,
    ) -> Result<Vec<Hand>, GroupError> {
        self.links = processes.links().to_vec();
        let seat = processes.begin(parallel, setup, self.shared.begun, &self.tells)?;
        let first = self.add(spec, &seat).map_err(|error| GroupError::Refused(error.to_string()))?;
        let mut hands = vec![first];
        for link in processes.links() {
            self.interleaved.add();
            self.ranks.push(RankThread { busy: true, ..RankThread::default() });
            hands.push(Hand::Process(Arc::clone(link)));
        }
        Ok(hands)
    }

    fn add(&mut self, spec: &LabSpec, seat: &Arc<Seat>) -> io::Result<Hand> {
        let number = self.interleaved.add();
        let (orders, inbox) = channel();
        let end = End { number, seat: Arc::clone(seat), tells: self.tells.clone(), _alive: self.alive.clone() };
        let shared = Arc::clone(&self.shared);
        let spec = LabSpec { seat: Some(Arc::clone(seat)), ..spec.clone() };
        thread::Builder::new()
            .name(format!("rank {number}"))
            .spawn(move || serve(&spec, || inbox.recv().ok(), &end, &shared))?;
        self.seat.get_or_insert_with(|| Arc::clone(seat));
        self.ranks.push(RankThread { busy: true, ..RankThread::default() });
        Ok(Hand::Thread(orders))
    }

    /// The result of building a rank.
    pub fn take_made(&mut self, number: usize) -> Result<RankFacts, BuildError> {
        let made = self.ranks.get_mut(number).and_then(|rank| rank.made.take());
        made.unwrap_or_else(|| Err(BuildError::Train(self.why_gone(number))))
    }

    /// A rank's reply; `None` if it ended without one.
    pub fn take_reply(&mut self, number: usize) -> Option<Reply> {
        self.ranks.get_mut(number)?.reply.take()
    }

    /// Why a rank has not answered.
    pub fn why_gone(&self, number: usize) -> TrainError {
        match self.ranks.get(number).and_then(|rank| rank.gone.as_deref()) {
            Some(why) => TrainError::Device(gone(why)),
            None => TrainError::Workload(PANICKED.to_owned()),
        }
    }

    /// Why a rank ended the work of all although it had done its order. Usually its process is gone: the other ranks
    /// may notice that before this one does.
    pub fn why_ended(&mut self, number: usize) -> TrainError {
        let until = Instant::now() + PARTING;
        while self.ranks.get(number).is_some_and(|rank| !rank.ended) && Instant::now() < until {
            self.hear();
        }
        match self.ranks.get(number) {
            Some(rank) if !rank.ended => TrainError::Device(gone("another rank can't reach it")),
            _ => self.why_gone(number),
        }
    }

    /// A rank that has been silent for long, and how long, or that is no longer silent. Each is returned once.
    pub fn take_silent(&mut self) -> Option<(usize, Option<Duration>)> {
        self.ranks.iter_mut().enumerate().find_map(|(number, rank)| Some((number, rank.silent.take()?)))
    }

    /// Notes that all ranks have an order.
    pub fn all_are_asked(&mut self) {
        self.ranks.iter_mut().for_each(|rank| rank.busy = !rank.ended);
    }

    /// Notes that all ranks begin a step together.
    pub fn begin_step(&mut self) {
        self.interleaved.await_steps(self.ranks.len());
    }

    /// The rank that ended the work of all, if there is one.
    pub fn failed(&self) -> Option<usize> {
        self.seat.as_ref().and_then(|seat| seat.failed())
    }

    /// True if some ranks have not answered yet.
    pub fn busy(&self) -> bool {
        self.ranks.iter().any(|rank| rank.busy)
    }

    /// Takes the next report, waiting for it a moment. Returns false if there was none.
    pub fn hear(&mut self) -> bool {
        let told = match self.told.as_ref().map(|told| told.recv_timeout(BEAT)) {
            Some(Ok(told)) => told,
            Some(Err(RecvTimeoutError::Timeout)) => return false,
            // This end also holds a sender, so the channel can't be disconnected.
            Some(Err(RecvTimeoutError::Disconnected)) | None => return false,
        };
        match told {
            RankReport::Happened(number, happened) => {
                for SafePointEvent { event, point } in happened {
                    self.interleaved.push(number, event);
                    if let Some(point) = point {
                        self.interleaved.mark(number, point);
                    }
                }
            }
            RankReport::Made(number, made) => {
                let ended = made.is_err();
                let rank = &mut self.ranks[number];
                (rank.busy, rank.ended, rank.made) = (false, ended, Some(made));
            }
            RankReport::Answered(number, reply) => {
                let rank = &mut self.ranks[number];
                (rank.busy, rank.reply) = (false, Some(reply));
            }
            RankReport::Silent(number, silence) => {
                let rank = &mut self.ranks[number];
                (rank.quiet, rank.silent) = (silence.is_some(), Some(silence));
            }
            RankReport::Ended(number, gone) => {
                let rank = &mut self.ranks[number];
                (rank.busy, rank.ended, rank.gone) = (false, true, gone);
            }
        }
        true
    }

    /// The next event before the time that all ranks have reached.
    pub fn next(&mut self) -> Option<SafePointEvent> {
        let busy = self.ranks.iter().enumerate().filter(|(_, rank)| rank.busy);
        let reached = busy.map(|(number, _)| self.interleaved.reached(number)).min();
        let mut happened = self.interleaved.next_until(reached.unwrap_or(Micros(u64::MAX)))?;
        happened.event.time = self.pauses.without(happened.event.time);
        Some(happened)
    }

    /// Notes that a person has paused all ranks for this long, until now.
    pub fn held(&mut self, held: Duration) {
        let held = micros(held);
        if held > 0 {
            let now = micros(self.shared.begun.elapsed());
            self.pauses.add(now.saturating_sub(held), now);
            let all = self.shared.held.fetch_add(held, Ordering::Relaxed) + held;
            self.links.iter().for_each(|link| link.held(all));
        }
    }

    /// Makes all ranks stop at their next safe point, and nobody wait for another. Their orders still count as open
    /// until they have stopped, but not for long.
    pub fn stop(&mut self) {
        self.end();
        let until = Instant::now() + PARTING;
        while self.ranks.iter().any(|rank| rank.busy && !rank.quiet) && Instant::now() < until {
            self.hear();
        }
    }

    /// Tells the processes of other ranks that the lab ends. This process may end before a silent one has closed
    /// everything else.
    pub fn leave(&self) {
        self.links.iter().for_each(|link| link.leave());
    }

    fn end(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.links.iter().for_each(|link| link.stop());
        // Wakes up whoever waits for another rank.
        self.seat.iter().for_each(|seat| seat.fail());
    }
}

impl Drop for RankThreads {
    /// Devices are closed when this returns, unless one takes too long.
    fn drop(&mut self) {
        self.end();
        self.links.iter().for_each(|link| link.forget());
        self.told = None;
        self.alive = None;
        // Nothing is ever sent: the channel ends with the last thread.
        let _ = self.gone.recv_timeout(PARTING);
    }
}

/// When a person paused all ranks.
#[derive(Debug, Default)]
struct Pauses {
    /// The begin and end of recent pauses, in order.
    recent: VecDeque<[u64; 2]>,
    /// The total length of earlier pauses.
    past: u64,
}

impl Pauses {
    fn add(&mut self, begin: u64, end: u64) {
        self.recent.push_back([begin, end]);
    }

    /// A time without the pauses before it. Calls must come in the order of time.
    fn without(&mut self, time: Micros) -> Micros {
        while let Some([begin, end]) = self.recent.front().copied().filter(|[_, end]| *end <= time.0) {
            self.past += end - begin;
            self.recent.pop_front();
        }
        let under_way: u64 = self.recent.iter().map(|[begin, end]| time.0.clamp(*begin, *end) - begin).sum();
        Micros(time.0 - self.past - under_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_did_what_it_was_asked_and_is_gone_says_why_a_moment_later() {
        let mut threads = RankThreads::new();
        threads.interleaved.add();
        threads.ranks.push(RankThread { busy: true, ..RankThread::default() });
        threads.tells.send(RankReport::Answered(0, Reply::Stepped(Ok(())))).unwrap();
        assert!(threads.hear() && !threads.busy());
        let tells = threads.tells.clone();
        let closes = thread::spawn(move || {
            thread::sleep(5 * BEAT);
            tells.send(RankReport::Ended(0, Some("its connection has closed".into()))).unwrap();
        });
        let why = threads.why_ended(0).to_string();
        closes.join().unwrap();
        assert!(why.contains("its process") && why.contains("its connection has closed"), "{why}");
    }

    #[test]
    fn a_pause_takes_no_time_and_what_happened_in_it_happened_where_it_began() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.without(Micros(5)), Micros(5));
        pauses.add(10, 110);
        pauses.add(120, 220);
        let times = [9, 10, 60, 110, 115, 120, 200, 230].map(|time| pauses.without(Micros(time)).0);
        assert_eq!(times, [9, 10, 10, 10, 15, 20, 20, 30]);
        assert!(pauses.recent.is_empty());
    }
}
