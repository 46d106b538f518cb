//! `weight[tokens, :]`: rows of a table by indexing, whose gradient is an `index_put_` that adds.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use crate::ops::embedding::sort_storage_below;

/// Up to this many indices are sorted by one thread block, in its own memory.
const ONE_BLOCK: usize = 2304;

impl Context {
    /// The rows of `weight` (vocabulary, width) at `indices` (i64): (…, width). Saves the indices.
    ///
    /// # Errors
    /// Out of memory, a failed kernel, indices of four dimensions.
    pub fn indexed_rows(&mut self, weight: &Tensor, indices: &Tensor) -> OpResult<Tensor> {
        self.op("index", |cx| {
            let (output, saved) = cx.looked_up(weight, indices, "rows")?;
            let Some(saved) = saved else { return Ok(output) };
            let table = weight.shape();
            let source = cx.record("indexBackward", [Some(weight), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let indices = saved.unpack(cx)?;
                let dst = cx.temporary(table, grad.dtype(), "weight gradient")?;
                cx.index_blocks(indices.numel(), table.rows())?;
                cx.launch(kernels::Embedding::Backward {
                    grad: grad.operand(),
                    indices: indices.operand(),
                    dst: dst.operand(),
                    width: table.last(),
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// The blocks of `index_put_(…, accumulate=True)` with `n` indices into a table of `rows` rows.
    fn index_blocks(&self, n: usize, rows: usize) -> OpResult<()> {
        let list = |what| self.temporary(Shape::new(&[n]), DType::I64, what);
        let wrapped = list("indices within the table")?;
        let linear = list("indices of elements")?;
        drop(wrapped);
        let sorted = [list("sorted indices")?, list("original positions")?];
        let positions = list("positions")?;
        let storage = if n <= ONE_BLOCK { 1 } else { sort_storage_below(n, rows) };
        drop(self.scratch(storage, "sort storage")?);
        drop((positions, sorted, linear));
        Ok(())
    }
}
