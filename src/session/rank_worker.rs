//! The work of a rank on a real device: it builds its trainer, obeys orders, and reports events.

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

/// A report of the rank with this number.
pub(super) enum RankReport {
    Happened(usize, Vec<SafePointEvent>),
    /// It has built its model, or could not.
    Made(usize, Result<RankFacts, BuildError>),
    /// It has done its order.
    Answered(usize, Reply),
    /// Its process has been silent for this long; `None` if it no longer is.
    Silent(usize, Option<Duration>),
    /// It has ended, with the reason if its process is gone.
    Ended(usize, Option<Arc<str>>),
}

/// The clock that all ranks of a process share.
pub(super) struct RankClock {
    pub begun: Instant,
    pub stop: AtomicBool,
    /// Total microseconds for which a person has paused them.
    pub held: AtomicU64,
}

impl RankClock {
    /// The clock of a lab that began at `begun`.
    pub fn since(begun: Instant) -> Arc<Self> {
        Arc::new(Self { begun, stop: AtomicBool::new(false), held: AtomicU64::new(0) })
    }
}

/// What is known of a rank once it is built.
#[derive(Serialize, Deserialize)]
pub(super) struct RankFacts {
    pub memory: Bytes,
    pub libraries: Libraries,
    /// Sensors are read in the process that has the device.
    #[serde(skip)]
    pub sensors: Option<Sensors>,
    /// For each rank the lowest one that does the same work.
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

/// Reports the end of a rank, even after a panic.
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
        // The receiver may be gone.
        let _ = self.tells.send(RankReport::Ended(self.number, None));
    }
}

/// Builds a trainer and obeys the orders of `next` until there are no more.
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
        // The receiver may be gone.
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

/// The trainer's observer. Events carry the time since the lab began, including pauses.
struct RankObserver {
    number: usize,
    tells: SyncSender<RankReport>,
    shared: Arc<RankClock>,
    batch: Vec<SafePointEvent>,
    /// How many microseconds the common clock is ahead of the device's.
    ahead: Option<u64>,
    /// How much of the pauses the trainer knows of.
    held: u64,
}

impl RankObserver {
    fn send(&mut self) {
        if !self.batch.is_empty() {
            // The receiver may be gone.
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

    /// Includes a pause that it spent waiting for another rank.
    fn take_held(&mut self) -> Duration {
        let held = self.shared.held.load(Ordering::Relaxed);
        Duration::from_micros(held - std::mem::replace(&mut self.held, held))
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
