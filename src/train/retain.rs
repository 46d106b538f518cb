//! What a program keeps by mistake of finished steps.
//!
//! [`Retain::Losses`] is a list of loss tensors: each is four bytes, in a block of 512. [`Retain::Graph`] is the same list
//! where backward ran with `retain_graph=True`: each loss then holds its graph, and the graph every saved tensor.
//! [`Retain::Cycles`] is an object of each step that holds its output and its loss and can be reached from itself (`self.again =
//! lambda: self`): counting references never frees it. Python's garbage collector does, when it comes.

use super::config::Retain;

/// Steps from one coming of Python's garbage collector to the next. It counts containers, not bytes: with PyTorch 2.11 a loop that
/// leaves a cycle in each step of GPT-2 was collected after 5, 8, 11, 14 and 17 steps, one of an MLP after 7 to 21.
const COLLECTED_EVERY: u64 = 16;

/// The list, and what the present step will add to it: saved tensors, as `T` holds them.
pub(crate) struct RetainedTensors<T> {
    mode: Retain,
    present: Vec<T>,
    finished: Vec<T>,
    /// Steps since the garbage collector came last.
    uncollected: u64,
}

impl<T> Default for RetainedTensors<T> {
    fn default() -> Self {
        Self { mode: Retain::default(), present: Vec::new(), finished: Vec::new(), uncollected: 0 }
    }
}

impl<T: Clone> RetainedTensors<T> {
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

    /// A model put something out.
    pub fn output(&mut self, output: impl FnOnce() -> T) {
        if self.mode == Retain::Cycles {
            self.present.push(output());
        }
    }

    /// A loss was computed.
    pub fn loss(&mut self, loss: impl FnOnce() -> T) {
        if self.mode != Retain::Off {
            self.present.push(loss());
        }
    }

    /// The step is over; what it made is on the list for good. True when the garbage collector came: nothing is kept any more.
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

    /// The step was abandoned before it reached the list.
    pub fn abandon(&mut self) {
        self.present.clear();
    }
}
