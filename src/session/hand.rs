//! How the lab reaches the trainer of a rank: it is here, on a thread of its own, or in a process of its own, where it computes
//! beside the others.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::LabSpec;
use super::order::{RankRequest, Reply, obey};
use super::rank_processes::Link;
use vramlab_train::Trainer;

/// A rank's trainer, for whoever asks something of it.
pub(super) enum Hand {
    /// It does at once what it is asked.
    Here(Box<Trainer>),
    /// It does so on its thread.
    Thread(Sender<RankRequest>),
    /// It does so in its process.
    Process(Arc<Link>),
}

impl Hand {
    /// Has the trainer of the rank that `spec` describes do something; what it answers, where it does so at once.
    pub fn ask(&mut self, order: RankRequest, spec: &LabSpec) -> Option<Reply> {
        match self {
            Self::Here(trainer) => return Some(obey(order, trainer, spec)),
            // A thread that has ended answers nothing.
            Self::Thread(orders) => drop(orders.send(order)),
            Self::Process(link) => link.ask(order),
        }
        None
    }
}
