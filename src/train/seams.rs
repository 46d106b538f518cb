//! Where training over several devices comes between the ops of a step.

use super::context::Context;
use super::error::OpResult;
use super::hooks::Hooks;
use super::tensor::Tensor;
use vramlab_device::DType;

impl Context {
    /// Runs what training over several devices does at a seam of the step; nothing on one device.
    pub(crate) fn at_seam(
        &mut self,
        run: impl FnOnce(&mut dyn Hooks<Self>, &mut Self) -> OpResult<()>,
    ) -> OpResult<()> {
        let Some(mut hooks) = self.hooks.take() else { return Ok(()) };
        let ran = run(&mut *hooks, self);
        self.hooks = Some(hooks);
        ran
    }

    /// Notes that the model has a part that may be wrapped by itself, such as a transformer block, with these parameters;
    /// returns its number.
    pub fn unit(&mut self, parameters: impl IntoIterator<Item = usize>) -> usize {
        self.units.push(parameters.into_iter().collect());
        self.units.len() - 1
    }

    /// Runs the forward of a unit on `input`.
    ///
    /// # Errors
    /// What `run` returns, and what sharing its parameters may fail with: out of memory, a device that is lost.
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

    /// What the model gets as `input`, when its forward begins.
    pub(crate) fn enter_model(&mut self, input: Tensor) -> OpResult<Tensor> {
        let Some(mut hooks) = self.hooks.take() else { return Ok(input) };
        let entered = hooks.enter_model(self, input);
        self.hooks = Some(hooks);
        entered
    }

    /// The `output` of the model, whose forward has returned, and what a program takes for scores: f32 under a policy of
    /// mixed precision that is no autocast.
    ///
    /// # Errors
    /// What sharing its parameters may fail with: out of memory, a device that is lost.
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

    /// `tensor`, behind whose gradient `run` runs.
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
