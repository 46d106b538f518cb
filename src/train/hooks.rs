//! The seams of a step at which training over several devices does its part.

use super::communicator::Communicator;
use super::error::OpResult;
use super::tensor::Tensor;

/// What a way of sharing the work does beside the ops of a pass of type `P`. A single device has none.
///
/// A unit is a part of the model that is wrapped by itself; the model around all of them is the root.
pub(crate) trait Hooks<P> {
    /// The model's forward begins: what it gets instead of `input`.
    fn enter_model(&mut self, _pass: &mut P, input: Tensor) -> OpResult<Tensor> {
        Ok(input)
    }

    /// The model's forward has returned.
    fn leave_model(&mut self, _pass: &mut P) -> OpResult<()> {
        Ok(())
    }

    /// Whether units are wrapped: the hooks below are called then.
    fn wraps_units(&self) -> bool {
        false
    }

    /// The forward of a unit begins.
    fn enter_unit(&mut self, _pass: &mut P, _unit: usize) -> OpResult<()> {
        Ok(())
    }

    /// The forward of a unit has returned.
    fn leave_unit(&mut self, _pass: &mut P, _unit: usize) -> OpResult<()> {
        Ok(())
    }

    /// The gradient of a unit's output is there, or of the root's where `unit` is `None`.
    fn enter_backward(&mut self, _pass: &mut P, _unit: Option<usize>) -> OpResult<()> {
        Ok(())
    }

    /// The gradient of a unit's input is there.
    fn leave_backward(&mut self, _pass: &mut P, _unit: usize) -> OpResult<()> {
        Ok(())
    }

    /// The gradients of these parameters are whole, in the order in which autograd finished them.
    fn gradients_ready(&mut self, _pass: &mut P, _parameters: &[usize]) -> OpResult<()> {
        Ok(())
    }

    /// Backward has run to its end.
    fn after_backward(&mut self, _pass: &mut P) -> OpResult<()> {
        Ok(())
    }

    /// By parameter, the rank whose optimizer updates it from here on; all other ranks get it from there.
    fn updated_by(&mut self, _owners: Vec<usize>) {}

    /// The optimizer has updated what it updates.
    fn after_optimizer(&mut self, _pass: &mut P) -> OpResult<()> {
        Ok(())
    }

    /// What ranks sum the squares of gradients with, where each has a part of every gradient.
    fn gradients_in_parts(&self) -> Option<&Communicator> {
        None
    }

    /// The step was abandoned: nothing of it goes on.
    fn abandon(&mut self, pass: &mut P);
}
