//! Graphs of several forward passes at once, as for the micro-batches of a pipeline.

use super::context::Context;
use super::tape::Tape;
use super::tensor::{GradientTarget, Tensor};

/// The graph of one forward pass, put aside while others run.
#[derive(Default)]
pub(crate) struct Graph {
    tape: Tape<Context>,
    /// Uses of each parameter, by parameter.
    awaited: Vec<usize>,
}

impl Context {
    /// Begins another graph with the 16-bit copies of weights that earlier graphs of the step made: their casts run backward last.
    pub(crate) fn begin_graph(&mut self) {
        let mut copies: Vec<(usize, Tensor)> =
            self.weight_copies.iter().flatten().map(|(&parameter, copy)| (parameter, copy.clone())).collect();
        copies.sort_by_key(|(_, copy)| copy.storage().number());
        for (parameter, copy) in copies {
            let weight = self.leaves[parameter].data.clone().with_source(GradientTarget::Leaf(parameter));
            let copy = self.record_cast(&weight, copy);
            self.autocast.keep_copy(parameter, &copy);
        }
    }

    /// Puts the current graph aside.
    pub(crate) fn end_graph(&mut self) -> Graph {
        let awaited = self.leaves.iter_mut().map(|leaf| leaf.swap_awaited(0)).collect();
        Graph { tape: std::mem::take(&mut self.tape), awaited }
    }

    /// Goes on with a graph that was put aside.
    pub(crate) fn resume_graph(&mut self, graph: Graph) {
        self.tape = graph.tape;
        for (leaf, awaited) in self.leaves.iter_mut().zip(graph.awaited) {
            leaf.swap_awaited(awaited);
        }
    }
}
