//! The points between the ops of a step at which training over several devices acts.

use super::context::Context;
use super::error::OpResult;
use super::hooks::Hooks;
use super::tensor::Tensor;
use vramlab_device::DType;

impl Context {
    /// Runs the hooks of training over several devices at a point of the step; on one device nothing runs.
    pub(crate) fn at_seam(
        &mut self,
        run: impl FnOnce(&mut dyn Hooks<Self>, &mut Self) -> OpResult<()>,
    ) -> OpResult<()> {
        let Some(mut hooks) = self.hooks.take() else { return Ok(()) };
        let ran = run(&mut *hooks, self);
        self.hooks = Some(hooks);
        ran
    }

    /// Registers a part of the model that may be wrapped by itself, such as a transformer block, by its parameters;
    /// returns its number.
    pub fn unit(&mut self, parameters: impl IntoIterator<Item = usize>) -> usize {
        self.units.push(parameters.into_iter().collect());
        self.units.len() - 1
    }

    /// Runs the forward of a unit on `input`.
    ///
    /// # Errors
    /// What `run` returns, and errors of sharing its parameters: out of memory, a lost device.
    pub fn unit_forward(
        &mut self,
        unit: usize,
        input: &Tensor,
        run: impl FnOnce(&mut Self, &Tensor) -> OpResult<Tensor>,
    ) -> OpResult<Tensor> {
        if !self.hooks.as_ref().is_some_and(|hooks| hooks.wraps_units()) {
            return run(self, input);
        }
        self.at_seam(|hooks, cx| hooks.enter_unit(cx, unit))?;
        let input = self.seam_of(input, "post-backward", move |hooks, cx| hooks.leave_backward(cx, unit));
        let output = run(self, &input)?;
        self.at_seam(|hooks, cx| hooks.leave_unit(cx, unit))?;
        Ok(self.seam_of(&output, "pre-backward", move |hooks, cx| hooks.enter_backward(cx, Some(unit))))
    }

    /// Begins the model's forward; returns the input that the model gets.
    pub(crate) fn enter_model(&mut self, input: Tensor) -> OpResult<Tensor> {
        let Some(mut hooks) = self.hooks.take() else { return Ok(input) };
        let entered = hooks.enter_model(self, input);
        self.hooks = Some(hooks);
        entered
    }

    /// Ends the model's forward: returns the `output`, and the output that a program takes for logits, which is f32
    /// under a mixed-precision policy that is not autocast.
    ///
    /// # Errors
    /// Errors of sharing its parameters: out of memory, a lost device.
    pub fn leave_model(&mut self, output: Tensor) -> OpResult<[Tensor; 2]> {
        if !self.hooks.as_ref().is_some_and(|hooks| hooks.wraps_units()) {
            return Ok([output.clone(), output]);
        }
        self.at_seam(|hooks, cx| hooks.leave_model(cx))?;
        let output = self.seam_of(&output, "pre-backward", |hooks, cx| hooks.enter_backward(cx, None));
        let scores =
            if output.dtype() == DType::F32 { output.clone() } else { self.cast(&output, DType::F32, "scores")? };
        Ok([output, scores])
    }

    /// `tensor`, with `run` to run once its gradient has arrived.
    fn seam_of(
        &mut self,
        tensor: &Tensor,
        name: &'static str,
        run: impl FnOnce(&mut dyn Hooks<Self>, &mut Self) -> OpResult<()> + 'static,
    ) -> Tensor {
        if !self.differentiates(&[tensor]) {
            return tensor.clone();
        }
        let source = self.record(name, [Some(tensor)], move |cx, [gradient, ..]| {
            cx.at_seam(run)?;
            Ok([gradient])
        });
        tensor.clone().with_source(source)
    }
}
