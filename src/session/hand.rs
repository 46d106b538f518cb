//! How the lab reaches the trainer of a rank: it is here, or on a thread of its own, where it computes beside the others.

use std::sync::mpsc::{Receiver, Sender, channel};

use vramlab_train::Trainer;

/// What is to be done with a trainer.
pub(super) type Job = Box<dyn FnOnce(&mut Trainer) + Send>;

/// A rank's trainer, for whoever asks something of it.
pub(super) enum Hand {
    /// It does at once what it is asked.
    Here(Box<Trainer>),
    /// It does so on its thread.
    Thread(Sender<Job>),
}

/// What a trainer was asked, and comes to.
pub(super) enum Asked<T> {
    Known(T),
    /// It is known once the thread has answered.
    Awaited(Receiver<T>),
}

impl Hand {
    /// Has the trainer do something.
    pub fn ask<T: Send + 'static>(&mut self, job: impl FnOnce(&mut Trainer) -> T + Send + 'static) -> Asked<T> {
        match self {
            Self::Here(trainer) => Asked::Known(job(trainer)),
            Self::Thread(jobs) => {
                let (answer, answered) = channel();
                let job = move |trainer: &mut Trainer| {
                    // Who no longer waits has left.
                    let _ = answer.send(job(trainer));
                };
                // A thread that has ended answers nothing.
                let _ = jobs.send(Box::new(job));
                Asked::Awaited(answered)
            }
        }
    }
}

impl<T> Asked<T> {
    /// What came of it; `None` where the thread has ended without an answer, or has not answered yet.
    pub fn answer(self) -> Option<T> {
        match self {
            Self::Known(answer) => Some(answer),
            Self::Awaited(answered) => answered.try_recv().ok(),
        }
    }
}
