//! Ranks on real devices, each on a thread of its own: they compute side by side and wait for each other where they exchange
//! something. Whoever holds the gate hears what they do in the order of time, and holds all of them by not listening.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::hand::{Asked, Hand, Job};
use super::interleaved::{Happened, Interleaved};
use super::{BuildError, LabSpec};
use vramlab_allocator::units::Bytes;
use vramlab_device::Sensors;
use vramlab_model::{Event, Micros};
use vramlab_train::{Answer, Libraries, Observer, SafePoint, Seat, TrainError, Trainer};

/// Pieces of news that may wait: ranks that are further ahead of what is told wait, too.
const AHEAD: usize = 256;
/// A rank may be busy for long: so often somebody looks at what is asked meanwhile.
const BEAT: Duration = Duration::from_millis(10);
/// How long ranks that are to stop may take to come to a safe point, and to close their devices.
const PARTING: Duration = Duration::from_millis(1500);

/// What a rank tells.
enum Told {
    Happened(usize, Vec<Happened>),
    /// It has done what it was asked.
    Answered(usize),
    /// It does nothing more.
    Ended(usize),
}

/// What all ranks see.
struct Shared {
    begun: Instant,
    stop: AtomicBool,
    /// Microseconds that a person has held them.
    held: AtomicU64,
}

/// What is known of a rank once it is made.
pub(super) struct Made {
    pub memory: Bytes,
    pub libraries: Libraries,
    pub sensors: Option<Sensors>,
    /// For every rank the lowest one that does the same.
    pub firsts: Vec<usize>,
}

impl Made {
    pub fn of(trainer: &Trainer) -> Self {
        Self {
            memory: trainer.device_info().memory,
            libraries: trainer.libraries(),
            sensors: trainer.sensors(),
            firsts: trainer.alike_ranks(),
        }
    }
}

/// The threads of all ranks, and what they have told.
pub(super) struct RankThreads {
    /// `None` once nobody listens.
    told: Option<Receiver<Told>>,
    tells: SyncSender<Told>,
    shared: Arc<Shared>,
    ranks: Vec<Rank>,
    /// Every thread holds the other end until it has ended.
    gone: Receiver<Infallible>,
    alive: Option<Sender<Infallible>>,
    pauses: Pauses,
    interleaved: Interleaved,
}

struct Rank {
    seat: Arc<Seat>,
    busy: bool,
    ended: bool,
}

impl RankThreads {
    /// Ranks of one process at most.
    pub const MOST: usize = 16;

    pub fn new() -> Self {
        let (tells, told) = sync_channel(AHEAD);
        let (alive, gone) = channel();
        let shared = Arc::new(Shared { begun: Instant::now(), stop: AtomicBool::new(false), held: AtomicU64::new(0) });
        Self {
            told: Some(told),
            tells,
            shared,
            ranks: Vec::new(),
            gone,
            alive: Some(alive),
            pauses: Pauses::default(),
            interleaved: Interleaved::default(),
        }
    }

    /// A thread that makes the rank that `spec` describes, and then does what it is asked.
    pub fn add(&mut self, spec: LabSpec, seat: &Arc<Seat>) -> io::Result<(Hand, Asked<Result<Made, BuildError>>)> {
        let number = self.interleaved.add();
        let (jobs, inbox) = channel();
        let (answer, made) = channel();
        let end = End { number, seat: Arc::clone(seat), tells: self.tells.clone(), _alive: self.alive.clone() };
        let shared = Arc::clone(&self.shared);
        let spec = LabSpec { seat: Some(Arc::clone(seat)), ..spec };
        thread::Builder::new()
            .name(format!("rank {number}"))
            .spawn(move || serve(&spec, &inbox, &answer, &end, &shared))?;
        self.ranks.push(Rank { seat: Arc::clone(seat), busy: true, ended: false });
        Ok((Hand::Thread(jobs), Asked::Awaited(made)))
    }

    /// All have been asked something.
    pub fn all_are_asked(&mut self) {
        self.ranks.iter_mut().for_each(|rank| rank.busy = !rank.ended);
    }

    /// All begin a step together.
    pub fn begin_step(&mut self) {
        self.interleaved.await_steps(self.ranks.len());
    }

    /// The rank that has ended the work of all, where one has.
    pub fn failed(&self) -> Option<usize> {
        self.ranks.first().and_then(|rank| rank.seat.failed())
    }

    /// Whether some have still to answer.
    pub fn busy(&self) -> bool {
        self.ranks.iter().any(|rank| rank.busy)
    }

    /// Takes what a rank tells, and waits for it a moment; false where none came.
    pub fn hear(&mut self) -> bool {
        let told = match self.told.as_ref().map(|told| told.recv_timeout(BEAT)) {
            Some(Ok(told)) => told,
            Some(Err(RecvTimeoutError::Timeout)) => return false,
            // This end holds a sender, too: that nobody is left can't be.
            Some(Err(RecvTimeoutError::Disconnected)) | None => return false,
        };
        match told {
            Told::Happened(number, happened) => {
                for Happened { event, point } in happened {
                    self.interleaved.push(number, event);
                    if let Some(point) = point {
                        self.interleaved.mark(number, point);
                    }
                }
            }
            Told::Answered(number) => self.ranks[number].busy = false,
            Told::Ended(number) => (self.ranks[number].busy, self.ranks[number].ended) = (false, true),
        }
        true
    }

    /// The next of what happened before the time that all ranks have come to.
    pub fn next(&mut self) -> Option<Happened> {
        let busy = self.ranks.iter().enumerate().filter(|(_, rank)| rank.busy);
        let reached = busy.map(|(number, _)| self.interleaved.reached(number)).min();
        let mut happened = self.interleaved.next_until(reached.unwrap_or(Micros(u64::MAX)))?;
        happened.event.time = self.pauses.without(happened.event.time);
        Some(happened)
    }

    /// A person has held all for so long, until now.
    pub fn held(&mut self, held: Duration) {
        let held = micros(held);
        if held > 0 {
            let now = micros(self.shared.begun.elapsed());
            self.pauses.add(now.saturating_sub(held), now);
            self.shared.held.fetch_add(held, Ordering::Relaxed);
        }
    }

    /// Has all stop at their next safe point, and nobody wait for another. What they are asked still counts as asked until they
    /// have, but not for long.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Who waits for another rank, or has its device wait, comes back.
        self.ranks.iter().take(1).for_each(|rank| rank.seat.fail());
        let until = Instant::now() + PARTING;
        while self.busy() && Instant::now() < until {
            self.hear();
        }
    }
}

impl Drop for RankThreads {
    /// Devices are closed when this returns, unless one of them takes too long.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.ranks.iter().take(1).for_each(|rank| rank.seat.fail());
        self.told = None;
        self.alive = None;
        // Nothing is ever sent: it ends when the last thread does.
        let _ = self.gone.recv_timeout(PARTING);
    }
}

/// What a thread says when it ends, also where it panics.
struct End {
    number: usize,
    seat: Arc<Seat>,
    tells: SyncSender<Told>,
    _alive: Option<Sender<Infallible>>,
}

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            self.seat.fail();
        }
        // Nobody may be left to hear it.
        let _ = self.tells.send(Told::Ended(self.number));
    }
}

/// Makes a trainer and does what it is asked with it.
fn serve(
    spec: &LabSpec,
    inbox: &Receiver<Job>,
    answer: &Sender<Result<Made, BuildError>>,
    end: &End,
    shared: &Arc<Shared>,
) {
    let observer = Rc::new(RefCell::new(OfThread {
        number: end.number,
        tells: end.tells.clone(),
        shared: Arc::clone(shared),
        batch: Vec::new(),
        ahead: None,
        held: 0,
    }));
    let built = spec.build(Box::new(Rc::clone(&observer)));
    let answered = || {
        observer.borrow_mut().send();
        // Nobody may be left to hear it.
        let _ = end.tells.send(Told::Answered(end.number));
    };
    let mut trainer = match built {
        Ok(trainer) => {
            let _ = answer.send(Ok(Made::of(&trainer)));
            trainer
        }
        Err(error) => {
            end.seat.fail();
            let _ = answer.send(Err(error));
            return observer.borrow_mut().send();
        }
    };
    answered();
    while let Ok(job) = inbox.recv() {
        job(&mut trainer);
        answered();
    }
}

/// One step of a rank that waits for others: when it fails, nobody waits for it.
pub(super) fn step_beside(trainer: &mut Trainer, seat: &Seat) -> Result<(), TrainError> {
    match (trainer.step(), seat.failed()) {
        // What a device computed while its exchanges were ended is nothing.
        (Ok(_), Some(other)) if trainer.memory().exchanges() => Err(TrainError::RankEnded(other)),
        (Ok(_), _) => Ok(()),
        (Err(TrainError::Stopped), _) => Err(TrainError::Stopped),
        (Err(error), _) => {
            // A device that is gone has no memory to give either, and its kernels fail.
            let error = trainer.check_device().err().map_or(error, Into::into);
            seat.fail();
            Err(error)
        }
    }
}

/// The trainer's end of its thread. Events carry the time since the lab of ranks began, pauses included.
struct OfThread {
    number: usize,
    tells: SyncSender<Told>,
    shared: Arc<Shared>,
    batch: Vec<Happened>,
    /// Microseconds that the common clock is ahead of the device's.
    ahead: Option<u64>,
    /// Of the time that a person held all, what the trainer knows of.
    held: u64,
}

impl OfThread {
    fn send(&mut self) {
        if !self.batch.is_empty() {
            // Nobody may be left to hear it.
            let _ = self.tells.send(Told::Happened(self.number, std::mem::take(&mut self.batch)));
        }
    }
}

impl Observer for OfThread {
    fn event(&mut self, mut event: Event) {
        let now = || micros(self.shared.begun.elapsed());
        let ahead = *self.ahead.get_or_insert_with(|| now().saturating_sub(event.time.0));
        event.time.0 += ahead + self.held;
        self.batch.push(Happened { event, point: None });
    }

    fn safe_point(&mut self, point: SafePoint) -> Answer {
        if let Some(last) = self.batch.last_mut() {
            last.point = Some(point);
        }
        self.send();
        if self.shared.stop.load(Ordering::Relaxed) { Answer::Stop } else { Answer::Continue }
    }

    /// Also of a pause that it spent waiting for another rank.
    fn take_held(&mut self) -> Duration {
        let held = self.shared.held.load(Ordering::Relaxed);
        Duration::from_micros(held - std::mem::replace(&mut self.held, held))
    }
}

/// When a person held all ranks.
#[derive(Debug, Default)]
struct Pauses {
    /// Begins and ends of those that are not wholly past, in order.
    recent: VecDeque<[u64; 2]>,
    /// How long the others took.
    past: u64,
}

impl Pauses {
    fn add(&mut self, begin: u64, end: u64) {
        self.recent.push_back([begin, end]);
    }

    /// A time without the pauses before it; times are asked for in order.
    fn without(&mut self, time: Micros) -> Micros {
        while let Some([begin, end]) = self.recent.front().copied().filter(|[_, end]| *end <= time.0) {
            self.past += end - begin;
            self.recent.pop_front();
        }
        let under_way: u64 = self.recent.iter().map(|[begin, end]| time.0.clamp(*begin, *end) - begin).sum();
        Micros(time.0 - self.past - under_way)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
