//! Dropout: a share of the elements become 0, the others grow by as much.

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, DropoutMask, kernels};

impl Context {
    /// Whether a `share` is left out of an input: nothing is by a model in evaluation mode. Without a backward pass to come all the same
    /// is drawn, as where a stage of a pipeline runs to find shapes.
    #[must_use]
    pub const fn drops_out(&self, share: f64) -> bool {
        share > 0.0 && self.training
    }

    /// What the next call leaves out, where [`Context::drops_out`] says so.
    pub(in crate::ops) fn dropout_mask(&mut self, share: f64) -> Option<DropoutMask> {
        let drawn = self.drops_out(share).then(|| DropoutMask::new(self.generator, share))?;
        self.generator = self.generator.wrapping_add(1);
        Some(drawn)
    }

    /// `input` without a `share` of its elements, drawn anew at each call; the others are divided by 1 − `share`
    /// (`torch.nn.functional.dropout`), where [`Context::drops_out`] says so. Saves which they were.
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
                // Its bytes are never read: what they would say follows from the call.
                let _mask = mask.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "gradient of what stayed")?;
                cx.launch(kernels::Elementwise::Dropout { src: grad.operand(), dst: dst.operand(), mask: drawn })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
