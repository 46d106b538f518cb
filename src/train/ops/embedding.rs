//! Embedding tables.

use crate::device::Kernel;
use crate::train::context::Context;
use crate::train::error::OpResult;
use crate::train::tape::Gradients;
use crate::train::tensor::Tensor;

impl Context {
    /// The rows of `weight` (vocabulary, width) that `indices` (i64) name: (…, width). Saves the indices.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn embedding(&mut self, weight: &Tensor, indices: &Tensor) -> OpResult<Tensor> {
        self.op("embedding", |cx| {
            let width = weight.shape().last();
            let differentiates = cx.differentiates(&[weight]);
            let saved = if differentiates { Some(cx.save(indices)?) } else { None };
            let shape = indices.shape().with_appended(width);
            let output = cx.activation(shape, weight.dtype(), "output")?;
            cx.launch(&Kernel::Embedding {
                weight: weight.operand(),
                indices: indices.operand(),
                dst: output.operand(),
                width,
            })?;
            let Some(saved) = saved else { return Ok(output) };
            let shape = weight.shape();
            let source = cx.record("embeddingBackward", [Some(weight), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let indices = saved.unpack(cx)?;
                let dst = cx.embedding_gradient(&grad, &indices, shape)?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    fn embedding_gradient(
        &mut self,
        grad: &Tensor,
        indices: &Tensor,
        shape: crate::train::tensor::Shape,
    ) -> OpResult<Tensor> {
        let dst = self.temporary(shape, grad.dtype(), "weight gradient")?;
        self.launch(&Kernel::EmbeddingBackward {
            grad: grad.operand(),
            indices: indices.operand(),
            dst: dst.operand(),
            width: shape.last(),
        })?;
        Ok(dst)
    }
}
