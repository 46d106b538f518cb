//! `x * torch.sigmoid(x)`.

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::kernels;

impl Context {
    /// SiLU as two ops: the first saves its result, the second both of its arguments.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn silu_by_hand(&mut self, input: &Tensor) -> OpResult<Tensor> {
        self.op("silu by hand", |cx| {
            let differentiates = cx.differentiates(&[input]);
            let sigmoid = cx.activation(input.shape(), input.dtype(), "sigmoid")?;
            cx.launch(kernels::Elementwise::Cast { src: input.operand(), dst: sigmoid.operand() })?;
            let saved =
                if differentiates { Some([cx.save(&sigmoid)?, cx.save(input)?, cx.save(&sigmoid)?]) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), "silu output")?;
            cx.launch(kernels::Elementwise::Silu { src: input.operand(), dst: output.operand() })?;
            drop(sigmoid);
            let Some([saved_result, saved_input, saved_sigmoid]) = saved else { return Ok(output) };
            let source = cx.record("silu by handBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (input, sigmoid) = (saved_input.unpack(cx)?, saved_sigmoid.unpack(cx)?);
                let to_sigmoid = cx.product_of(&grad, &input, "sigmoid's gradient")?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "silu gradient")?;
                cx.launch(kernels::Elementwise::SiluBackward {
                    src: input.operand(),
                    grad: grad.operand(),
                    dst: dst.operand(),
                })?;
                drop((input, sigmoid, saved_input, saved_sigmoid, grad));
                let result = saved_result.unpack(cx)?;
                drop(cx.elementwise(&to_sigmoid, to_sigmoid.dtype(), "gradient through the sigmoid")?);
                drop((result, to_sigmoid));
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
