//! `0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))`.

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::kernels;

impl Context {
    /// GELU in its tanh form, op by op as transformers' `NewGELUActivation` (`gelu_new`).
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn new_gelu(&mut self, input: &Tensor) -> OpResult<Tensor> {
        let half = self.scale(input, 0.5, "half of the input")?;
        // Arguments of an op within the expression are held by no variable.
        let within = {
            let cube = self.cube(input)?;
            self.scale(&cube, 0.044_715, "part of the cube")?
        };
        let within = {
            let part = within;
            self.add(input, &part)?
        };
        let within = {
            let sum = within;
            self.scale(&sum, (2.0 / std::f64::consts::PI).sqrt(), "argument of tanh")?
        };
        let opened = {
            let tanh = {
                let argument = within;
                self.tanh(&argument)?
            };
            self.add_number(&tanh, 1.0)?
        };
        let output = self.mul(&half, &opened)?;
        drop(half);
        Ok(output)
    }

    /// `torch.pow(input, 3.0)`, in f32 under autocast. Saves its input.
    fn cube(&mut self, input: &Tensor) -> OpResult<Tensor> {
        let input = &self.cast_to_f32(input, "input of pow")?;
        self.op("pow", |cx| {
            let saved = if cx.differentiates(&[input]) { Some(cx.save(input)?) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), "cube")?;
            cx.launch(kernels::Elementwise::Mul { a: input.operand(), b: input.operand(), dst: output.operand() })?;
            cx.launch(kernels::Elementwise::Mul { a: output.operand(), b: input.operand(), dst: output.operand() })?;
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("powBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let input = saved.unpack(cx)?;
                let square = cx.product_of(&input, &input, "square")?;
                let slope = cx.temporary(square.shape(), square.dtype(), "slope of the cube")?;
                cx.launch(kernels::Elementwise::Scale { src: square.operand(), dst: slope.operand(), factor: 3.0 })?;
                let dst = cx.product_of(&grad, &slope, "input gradient")?;
                drop((slope, square, grad));
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
