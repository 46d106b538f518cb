//! What a rank on a real device does by itself: it makes its trainer, does what it is asked, and tells what happens meanwhile.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::interleaved::SafePointEvent;
use super::order::{RankRequest, Reply, obey};
use super::{BuildError, LabSpec};
use vramlab_allocator::units::Bytes;
use vramlab_device::Sensors;
use vramlab_model::Event;
use vramlab_train::{Answer, Libraries, Observer, SafePoint, Seat, Trainer};

/// What the rank of this number tells.
pub(super) enum RankReport {
    Happened(usize, Vec<SafePointEvent>),
    /// It has its model, or why it has none.
    Made(usize, Result<RankFacts, BuildError>),
    /// It has done what it was asked.
    Answered(usize, Reply),
    /// Its process has said nothing for so long; `None`: it says something again.
    Silent(usize, Option<Duration>),
    /// It does nothing more; why, where its process is gone.
    Ended(usize, Option<Arc<str>>),
}

/// What all ranks of a process see.
pub(super) struct RankClock {
    pub begun: Instant,
    pub stop: AtomicBool,
    /// Microseconds that a person has held them.
    pub held: AtomicU64,
}

impl RankClock {
    /// That of a lab which began then.
    pub fn since(begun: Instant) -> Arc<Self> {
        Arc::new(Self { begun, stop: AtomicBool::new(false), held: AtomicU64::new(0) })
    }
}

/// What is known of a rank once it is made.
#[derive(Serialize, Deserialize)]
pub(super) struct RankFacts {
    pub memory: Bytes,
    pub libraries: Libraries,
    /// They are read where the device is.
    #[serde(skip)]
    pub sensors: Option<Sensors>,
    /// For every rank the lowest one that does the same.
    pub firsts: Vec<usize>,
}

impl RankFacts {
    pub fn of(trainer: &Trainer) -> Self {
        Self {
            memory: trainer.device_info().memory,
            libraries: trainer.libraries(),
            sensors: trainer.sensors(),
            firsts: trainer.alike_ranks(),
        }
    }
}

/// What a rank says when it ends, also where it panics.
pub(super) struct End {
    pub number: usize,
    pub seat: Arc<Seat>,
    pub tells: SyncSender<RankReport>,
    pub _alive: Option<Sender<Infallible>>,
}

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            self.seat.fail();
        }
        // Nobody may be left to hear it.
        let _ = self.tells.send(RankReport::Ended(self.number, None));
    }
}

/// Makes a trainer and does with it what `next` asks, until it asks nothing more.
pub(super) fn serve(spec: &LabSpec, mut next: impl FnMut() -> Option<RankRequest>, end: &End, shared: &Arc<RankClock>) {
    let observer = Rc::new(RefCell::new(RankObserver {
        number: end.number,
        tells: end.tells.clone(),
        shared: Arc::clone(shared),
        batch: Vec::new(),
        ahead: None,
        held: 0,
    }));
    let built = spec.build(Box::new(Rc::clone(&observer)));
    let tell = |told| {
        observer.borrow_mut().send();
        // Nobody may be left to hear it.
        let _ = end.tells.send(told);
    };
    let mut trainer = match built {
        Ok(trainer) => trainer,
        Err(error) => {
            end.seat.fail();
            return tell(RankReport::Made(end.number, Err(error)));
        }
    };
    tell(RankReport::Made(end.number, Ok(RankFacts::of(&trainer))));
    while let Some(order) = next() {
        let reply = obey(order, &mut trainer, spec);
        tell(RankReport::Answered(end.number, reply));
    }
}

/// The trainer's end of a rank. Events carry the time since the lab of ranks began, pauses included.
struct RankObserver {
    number: usize,
    tells: SyncSender<RankReport>,
    shared: Arc<RankClock>,
    batch: Vec<SafePointEvent>,
    /// Microseconds that the common clock is ahead of the device's.
    ahead: Option<u64>,
    /// Of the time that a person held all, what the trainer knows of.
    held: u64,
}

impl RankObserver {
    fn send(&mut self) {
        if !self.batch.is_empty() {
            // Nobody may be left to hear it.
            let _ = self.tells.send(RankReport::Happened(self.number, std::mem::take(&mut self.batch)));
        }
    }
}

impl Observer for RankObserver {
    fn event(&mut self, mut event: Event) {
        let now = || micros(self.shared.begun.elapsed());
        let ahead = *self.ahead.get_or_insert_with(|| now().saturating_sub(event.time.0));
        event.time.0 += ahead + self.held;
        self.batch.push(SafePointEvent { event, point: None });
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

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
