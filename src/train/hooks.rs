//! The points of a step at which training over several devices does its part.

use super::communicator::Communicator;
use super::error::OpResult;
use super::tensor::Tensor;

/// What a way of sharing the work does besides the ops of a pass of type `P`. A single device has none.
///
/// A unit is a part of the model that is wrapped by itself; the model around all of them is the root.
pub(crate) trait Hooks<P> {
    /// The model's forward begins; returns the input to use instead of `input`.
    fn enter_model(&mut self, _pass: &mut P, input: Tensor) -> OpResult<Tensor> {
        Ok(input)
    }

    /// The model's forward has returned.
    fn leave_model(&mut self, _pass: &mut P) -> OpResult<()> {
        Ok(())
    }

    /// Whether units are wrapped: only then are the hooks below called.
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

    /// The gradient of a unit's output has arrived, or of the root's output if `unit` is `None`.
    fn enter_backward(&mut self, _pass: &mut P, _unit: Option<usize>) -> OpResult<()> {
        Ok(())
    }

    /// The gradient of a unit's input has arrived.
    fn leave_backward(&mut self, _pass: &mut P, _unit: usize) -> OpResult<()> {
        Ok(())
    }

    /// The gradients of these parameters are complete, in the order in which autograd finished them.
    fn gradients_ready(&mut self, _pass: &mut P, _parameters: &[usize]) -> OpResult<()> {
        Ok(())
    }

    /// Backward has finished.
    fn after_backward(&mut self, _pass: &mut P) -> OpResult<()> {
        Ok(())
    }

    /// Sets, by parameter, the rank whose optimizer updates it from here on; all other ranks get its values from that rank.
    fn updated_by(&mut self, _owners: Vec<usize>) {}

    /// The optimizer has finished its updates.
    fn after_optimizer(&mut self, _pass: &mut P) -> OpResult<()> {
        Ok(())
    }

    /// The communicator with which ranks sum the squares of gradients, if each rank has a part of every gradient.
    fn gradients_in_parts(&self) -> Option<&Communicator> {
        None
    }

    /// The step was abandoned: drops everything that belongs to it.
    fn abandon(&mut self, pass: &mut P);
}
