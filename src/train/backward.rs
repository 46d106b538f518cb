//! Autograd: the tape, walked backwards.
//!
//! Backward pops nodes from the end of the tape: descending order of creation, so every consumer of a tensor has run
//! before its producer. When a node's closure has run, its saved tensors are released, before the next node runs.

use super::context::Context;
use super::error::OpResult;
use super::tape::Node;
use super::tensor::{GradientTarget, Tensor};

impl Context {
    /// Runs backward from `root`, whose gradient is `gradient`; the caller's handle on `gradient` lives as long as the
    /// pass.
    ///
    /// # Errors
    /// Out of memory, a failed kernel, a stop asked for by the observer.
    pub fn backward(&mut self, root: &Tensor, gradient: &Tensor) -> OpResult<()> {
        self.backward_beyond(0, root, gradient)
    }

    /// Runs backward for the part of the graph that was made after the first `kept` ops, which stay for a later pass.
    ///
    /// # Errors
    /// See [`Context::backward`].
    pub(crate) fn backward_beyond(&mut self, kept: usize, root: &Tensor, gradient: &Tensor) -> OpResult<()> {
        let ran = self.run_backward(kept, root, gradient);
        if ran.is_err() && self.memory().watches_frames() {
            // Autograd's own references to gradients are in no Python frame.
            self.tape.drop_gradients();
            self.gradient_copy = None;
            self.catch_frames();
        }
        ran
    }

    fn run_backward(&mut self, kept: usize, root: &Tensor, gradient: &Tensor) -> OpResult<()> {
        self.backward_within(kept, [(root, gradient)])?;
        // Parameters without a gradient are still here: a frozen part, or a second use that led to no loss.
        self.let_parameters_go();
        self.at_seam(|hooks, cx| hooks.after_backward(cx))
    }

    /// Runs backward, within the backward of a node, through the ops that this node recorded behind the first `kept`.
    ///
    /// # Errors
    /// See [`Context::backward`].
    pub(crate) fn backward_within<'a>(
        &mut self,
        kept: usize,
        roots: impl IntoIterator<Item = (&'a Tensor, &'a Tensor)>,
    ) -> OpResult<()> {
        for (root, gradient) in roots {
            self.deliver(root.source(), gradient.clone())?;
        }
        let mut ready = Vec::new();
        while let Some(node) = self.tape.pop_beyond(kept) {
            let Node { name, scope, inputs, gradients, parameters, copy, backward, .. } = node;
            if gradients.iter().all(Option::is_none) {
                continue;
            }
            let outer = self.memory().set_scope(scope);
            if !parameters.is_empty() {
                self.let_frozen_go(&parameters);
            }
            self.bring_parameters(&parameters)?;
            self.memory().begin_op(name);
            self.memory().begin_node();
            self.gradient_copy = copy;
            let outputs = backward(self, gradients)?;
            self.gradient_copy = None;
            for (input, output) in inputs.into_iter().zip(outputs) {
                if let Some(output) = output {
                    ready.extend(self.deliver(input, output)?);
                }
            }
            if self.hooks.is_some() && !ready.is_empty() {
                // The gradient of a matrix passes the node of its transpose on the way to the parameter, so it arrives after the
                // bias's gradient.
                ready.sort_by_key(|&parameter: &usize| self.leaves[parameter].data.shape().dims().len() == 2);
                self.at_seam(|hooks, cx| hooks.gradients_ready(cx, &ready))?;
            }
            ready.clear();
            self.memory().end_op()?;
            self.memory().set_scope(outer);
        }
        Ok(())
    }

    /// Passes a gradient on to its node or parameter; returns the parameter if this completes its gradient.
    fn deliver(&mut self, to: GradientTarget, gradient: Tensor) -> OpResult<Option<usize>> {
        let memory = self.memory().clone();
        match to {
            GradientTarget::Leaf(index) => Ok(self.leaves[index].receive(&memory, gradient)?.then_some(index)),
            GradientTarget::Node { node, slot } => self.tape.receive(&memory, node, slot, gradient).map(|()| None),
            GradientTarget::Constant | GradientTarget::Frozen(_) | GradientTarget::Recomputed => Ok(None),
        }
    }
}
