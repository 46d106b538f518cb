//! Access to a rank's trainer, which is in this thread, in a thread of its own, or in a process of its own beside the others.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::LabSpec;
use super::order::{RankRequest, Reply, obey};
use super::rank_processes::Link;
use vramlab_train::Trainer;

/// Access to a rank's trainer.
pub(super) enum Hand {
    /// The trainer is here and obeys at once.
    Here(Box<Trainer>),
    /// The trainer obeys on its own thread.
    Thread(Sender<RankRequest>),
    /// The trainer obeys in its own process.
    Process(Arc<Link>),
}

impl Hand {
    /// Sends an order to the trainer of the rank that `spec` describes. Returns its reply if it obeys at once.
    pub fn ask(&mut self, order: RankRequest, spec: &LabSpec) -> Option<Reply> {
        match self {
            Self::Here(trainer) => return Some(obey(order, trainer, spec)),
            // A thread that has ended does not answer.
            Self::Thread(orders) => drop(orders.send(order)),
            Self::Process(link) => link.ask(order),
        }
        None
    }
}
