//! References to finished steps that a program keeps by mistake.
//!
//! [`Retain::Losses`] is a list of loss tensors: each is four bytes, in a block of 512. [`Retain::Graph`] is the same list
//! where backward ran with `retain_graph=True`: each loss then holds its graph, and the graph every saved tensor.
//! [`Retain::Cycles`] is an object of each step that holds the step's output and loss and refers to itself (`self.again =
//! lambda: self`): reference counting never frees it. Python's garbage collector does, when it runs.

use super::config::Retain;

/// Steps between two runs of Python's garbage collector. It counts containers, not bytes: with PyTorch 2.11 a loop that leaves a
/// cycle in each step of GPT-2 was collected after 5, 8, 11, 14 and 17 steps, one of an MLP after 7 to 21.
const COLLECTED_EVERY: u64 = 16;

/// The list, and what the current step will add to it: saved tensors, as `T` holds them.
pub(crate) struct RetainedTensors<T> {
    mode: Retain,
    present: Vec<T>,
    finished: Vec<T>,
    /// Steps since the garbage collector last ran.
    uncollected: u64,
}

impl<T> Default for RetainedTensors<T> {
    fn default() -> Self {
        Self { mode: Retain::default(), present: Vec::new(), finished: Vec::new(), uncollected: 0 }
    }
}

impl<T: Clone> RetainedTensors<T> {
    /// Sets what is kept from now on; a change drops what was kept before.
    pub fn keep(&mut self, mode: Retain) {
        if self.mode != mode {
            *self = Self { mode, ..Self::default() };
        }
    }

    /// Notes what an op saved.
    pub fn saved(&mut self, saved: &T) {
        if self.mode == Retain::Graph {
            self.present.push(saved.clone());
        }
    }

    /// Notes the output of a model.
    pub fn output(&mut self, output: impl FnOnce() -> T) {
        if self.mode == Retain::Cycles {
            self.present.push(output());
        }
    }

    /// Notes a loss.
    pub fn loss(&mut self, loss: impl FnOnce() -> T) {
        if self.mode != Retain::Off {
            self.present.push(loss());
        }
    }

    /// Ends the step: its references stay on the list. True if the garbage collector ran, which empties the list.
    pub fn end_step(&mut self) -> bool {
        self.finished.append(&mut self.present);
        self.uncollected += 1;
        let collected = self.mode == Retain::Cycles && self.uncollected >= COLLECTED_EVERY;
        if collected {
            self.finished.clear();
            self.uncollected = 0;
        }
        collected
    }

    /// Drops what the abandoned step would have added to the list.
    pub fn abandon(&mut self) {
        self.present.clear();
    }
}
