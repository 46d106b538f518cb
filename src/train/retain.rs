//! What a program keeps by mistake of finished steps.
//!
//! [`Retain::Losses`] is a list of loss tensors: each is four bytes, in a block of 512. [`Retain::Graph`] is the same list
//! where backward ran with `retain_graph=True`: each loss then holds its graph, and the graph every saved tensor.

use super::config::Retain;

/// The list, and what the present step will add to it: saved tensors, as `T` holds them.
pub(crate) struct Retained<T> {
    mode: Retain,
    present: Vec<T>,
    finished: Vec<T>,
}

impl<T> Default for Retained<T> {
    fn default() -> Self {
        Self { mode: Retain::default(), present: Vec::new(), finished: Vec::new() }
    }
}

impl<T: Clone> Retained<T> {
    /// What is kept from now on; nothing of what was kept before, when that changes.
    pub fn keep(&mut self, mode: Retain) {
        if self.mode != mode {
            *self = Self { mode, ..Self::default() };
        }
    }

    /// An op saved something.
    pub fn saved(&mut self, saved: &T) {
        if self.mode == Retain::Graph {
            self.present.push(saved.clone());
        }
    }

    /// A loss was computed.
    pub fn loss(&mut self, loss: impl FnOnce() -> T) {
        if self.mode != Retain::Off {
            self.present.push(loss());
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
