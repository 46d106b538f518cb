//! Merges the reports of ranks that run on their own threads into one stream.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::headless::{Follow, Listener};
use super::interleaved::EventInterleaver;
use vramlab_model::{Event, Lab, Micros};

/// A report of a rank.
enum StreamMessage {
    Events(usize, Vec<Event>),
    /// The rank has ended.
    Ended(usize),
}

/// The stream of several ranks in the order of time. A rank's events are passed on once all other running ranks have
/// reached the same time.
pub struct RankStream {
    told: Receiver<StreamMessage>,
    interleaved: EventInterleaver,
    /// For each rank, how far it is.
    runs: Vec<RunState>,
    /// True once all clocks agree.
    aligned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RunState {
    /// Its model is being built.
    Starting,
    Running,
    Ended,
}

/// A rank's end of the stream, which follows its run.
struct RankFollower {
    rank: usize,
    batch: Vec<Event>,
    tells: Sender<StreamMessage>,
}

impl Follow for RankFollower {
    fn event(&mut self, event: &Event, _: Option<&Lab>) {
        self.batch.push(event.clone());
    }

    fn caught_up(&mut self) {
        // A receiver that is gone has its own reason.
        let _ = self.tells.send(StreamMessage::Events(self.rank, std::mem::take(&mut self.batch)));
    }
}

impl Drop for RankFollower {
    fn drop(&mut self) {
        self.caught_up();
        let _ = self.tells.send(StreamMessage::Ended(self.rank));
    }
}

impl RankStream {
    /// A stream of `ranks` ranks, and for each rank a function that makes its listener, to be called on the rank's own thread.
    #[must_use]
    pub fn of(ranks: usize) -> (Self, Vec<impl FnOnce() -> Listener + Send>) {
        let (tells, told) = channel();
        let mut interleaved = EventInterleaver::default();
        let makers = (0..ranks)
            .map(|rank| {
                let end = RankFollower { rank: interleaved.add(), batch: Vec::new(), tells: tells.clone() };
                debug_assert_eq!(end.rank, rank);
                move || Box::new(end) as Listener
            })
            .collect();
        (Self { told, interleaved, runs: vec![RunState::Starting; ranks], aligned: false }, makers)
    }

    /// Passes on all events until all ranks have ended.
    pub fn pass_on(mut self, mut listener: Listener) {
        // Reports about steps from ranks that are ready before others.
        let mut early = Vec::new();
        while let Ok(told) = self.told.recv() {
            match told {
                StreamMessage::Events(rank, events) if self.runs[rank] == RunState::Starting => {
                    self.push(rank, events);
                    self.runs[rank] = RunState::Running;
                }
                told if !self.has_begun() && !self.is_starting(&told) => {
                    early.push(told);
                    continue;
                }
                told => self.take(told),
            }
            if !self.has_begun() {
                continue;
            }
            if !self.aligned {
                // Each rank has its own clock, and all begin their first step together.
                self.interleaved.align();
                self.aligned = true;
            }
            early.drain(..).for_each(|told| self.take(told));
            let running = (0..self.runs.len()).filter(|rank| self.runs[*rank] == RunState::Running);
            let reached = running.map(|rank| self.interleaved.reached(rank)).min().unwrap_or(Micros(u64::MAX));
            while let Some(happened) = self.interleaved.next_until(reached) {
                listener.event(&happened.event, None);
            }
            listener.caught_up();
        }
    }

    fn take(&mut self, told: StreamMessage) {
        match told {
            StreamMessage::Events(rank, events) => self.push(rank, events),
            StreamMessage::Ended(rank) => self.runs[rank] = RunState::Ended,
        }
    }

    fn push(&mut self, rank: usize, events: Vec<Event>) {
        events.into_iter().for_each(|event| self.interleaved.push(rank, event));
    }

    fn is_starting(&self, told: &StreamMessage) -> bool {
        let (StreamMessage::Events(rank, _) | StreamMessage::Ended(rank)) = told;
        self.runs[*rank] == RunState::Starting
    }

    /// True once the models of all ranks are built.
    fn has_begun(&self) -> bool {
        self.runs.iter().all(|run| *run != RunState::Starting)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::thread;

    use super::*;
    use vramlab_allocator::units::DeviceIndex;
    use vramlab_model::EventKind;

    #[test]
    fn ranks_are_told_by_time_and_all_of_what_they_did() {
        let (stream, makers) = RankStream::of(3);
        let ranks: Vec<_> = (0_u16..)
            .zip(makers)
            .map(|(rank, make)| {
                thread::spawn(move || {
                    let mut listener = make();
                    // Models take different times to build, and one rank ends early.
                    for step in 0..=100 - u64::from(rank) * 40 {
                        let time = u64::from(rank) * 1000 + step * 10;
                        let event = Event::new(Micros(time), EventKind::StepBegin { step });
                        listener.event(&Event { device: DeviceIndex(rank), ..event }, None);
                        listener.caught_up();
                    }
                })
            })
            .collect();
        let seen: Rc<RefCell<Vec<Event>>> = Rc::default();
        let hears = Rc::clone(&seen);
        stream.pass_on(Box::new(move |event: &Event| hears.borrow_mut().push(event.clone())));
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        let seen = seen.borrow();
        assert!(seen.is_sorted_by_key(|event| event.time));
        let of = |rank| seen.iter().filter(|event| event.device == DeviceIndex(rank)).count();
        assert_eq!([of(0), of(1), of(2)], [101, 61, 21]);
        // After the first event of each rank all clocks agree.
        let tenth: Vec<u64> = (0..3)
            .map(|rank| seen.iter().filter(|event| event.device == DeviceIndex(rank)).nth(10).unwrap().time.0)
            .collect();
        assert_eq!(tenth, [2100, 2100, 2100]);
    }
}
