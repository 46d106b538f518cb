//! Dropout: sets a share of the elements to 0, and scales up the others accordingly.

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, DropoutMask, kernels};

impl Context {
    /// Whether a `share` is dropped from an input; not in evaluation mode. Random numbers are drawn even without a backward pass
    /// to come, as when a pipeline stage runs to find shapes.
    #[must_use]
    pub const fn drops_out(&self, share: f64) -> bool {
        share > 0.0 && self.training
    }

    /// The mask of the next call, if [`Context::drops_out`] says so.
    pub(in crate::ops) fn dropout_mask(&mut self, share: f64) -> Option<DropoutMask> {
        let drawn = self.drops_out(share).then(|| DropoutMask::new(self.generator, share))?;
        self.generator = self.generator.wrapping_add(1);
        Some(drawn)
    }

    /// `input` without a `share` of its elements, drawn again at each call; the others are divided by 1 −
    /// `share` (`torch.nn.functional.dropout`), if [`Context::drops_out`] says so. Saves the mask.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn dropout(&mut self, input: &Tensor, share: f64) -> OpResult<Tensor> {
        let Some(drawn) = self.dropout_mask(share) else { return Ok(input.clone()) };
        self.op("native_dropout", |cx| {
            let mask = cx.activation(input.shape(), DType::U8, "dropout mask")?;
            let output = cx.activation(input.shape(), input.dtype(), "dropped out")?;
            let rows = cx.in_rows(input, &output)?;
            cx.launch(kernels::Elementwise::Dropout { src: rows.operand(), dst: output.operand(), mask: drawn })?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let mask = cx.save(&mask)?;
            let source = cx.record("native_dropoutBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // The mask's bytes are never read: the kernel computes them from the call's number.
                let _mask = mask.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "gradient of what stayed")?;
                cx.launch(kernels::Elementwise::Dropout { src: grad.operand(), dst: dst.operand(), mask: drawn })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
