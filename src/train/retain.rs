//! What a program keeps by mistake of finished steps.
//!
//! [`Retain::Losses`] is a list of loss tensors: each is four bytes, in a block of 512. [`Retain::Graph`] is the same list
//! where backward ran with `retain_graph=True`: each loss then holds its graph, and the graph every saved tensor.

use super::config::Retain;
use super::context::Saved;
use super::tensor::Tensor;

/// The list, and what the present step will add to it.
#[derive(Default)]
pub(crate) struct Retained {
    mode: Retain,
    present: Vec<Saved>,
    finished: Vec<Saved>,
}

impl Retained {
    /// What is kept from now on; nothing of what was kept before, when that changes.
    pub fn keep(&mut self, mode: Retain) {
        if self.mode != mode {
            *self = Self { mode, ..Self::default() };
        }
    }

    /// An op saved something.
    pub fn saved(&mut self, saved: &Saved) {
        if self.mode == Retain::Graph {
            self.present.push(saved.clone());
        }
    }

    /// A loss was computed.
    pub fn loss(&mut self, loss: &Tensor) {
        if self.mode != Retain::Off {
            self.present.push(Saved::Kept(loss.detach()));
        }
    }

    /// The step is over; what it made is on the list for good.
    pub fn end_step(&mut self) {
        self.finished.append(&mut self.present);
    }

    /// The step was abandoned before it came to the list.
    pub fn abandon(&mut self) {
        self.present.clear();
    }
}
