//! The seams of a step at which training over several devices does its part.

use super::error::OpResult;

/// What a way of sharing the work does beside the ops of a pass of type `P`. A single device has none.
pub(crate) trait Hooks<P> {
    /// The model's forward begins.
    fn before_forward(&mut self, _pass: &mut P) -> OpResult<()> {
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

    /// The step was abandoned: nothing of it goes on.
    fn abandon(&mut self);
}
