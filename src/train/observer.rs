//! The observer of a trainer: it gets every event, and may hold or stop training at safe points.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use vramlab_model::Event;

/// A point between two pieces of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SafePoint {
    /// Between two ops.
    Op,
    /// At the end of a phase.
    Phase,
    /// At the end of a step.
    Step,
}

/// The observer's answer at a safe point. The trainer asks again until the answer is `Continue` or `Stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Continue,
    /// Give free segments back, then ask again.
    EmptyCache,
    /// Reset the peaks of the statistics, then ask again.
    ResetPeaks,
    /// Abandon the step: [`super::TrainError::Stopped`].
    Stop,
}

/// Sees every event and decides at safe points. Blocking inside [`Observer::safe_point`] pauses training.
pub trait Observer {
    /// `event` happened. Called a few hundred times per step: it should only store.
    fn event(&mut self, event: Event);

    /// A safe point was reached.
    fn safe_point(&mut self, point: SafePoint) -> Answer {
        let _ = point;
        Answer::Continue
    }

    /// Time that safe points spent waiting for the user since the last call: it is no part of training.
    fn take_held(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// An observer that ignores everything.
impl Observer for () {
    fn event(&mut self, _: Event) {}
}

/// Keeps everything.
impl Observer for Vec<Event> {
    fn event(&mut self, event: Event) {
        self.push(event);
    }
}

/// An observer shared between the trainer and its owner.
impl<O: Observer> Observer for std::rc::Rc<std::cell::RefCell<O>> {
    fn event(&mut self, event: Event) {
        self.borrow_mut().event(event);
    }

    fn safe_point(&mut self, point: SafePoint) -> Answer {
        self.borrow_mut().safe_point(point)
    }

    fn take_held(&mut self) -> Duration {
        self.borrow_mut().take_held()
    }
}
