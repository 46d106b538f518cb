//! A gate for each row.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::kernels;

impl Context {
    /// `input` (…, width) as a matrix of rows, a view; gradients pass as in [`Context::as_rows`].
    #[must_use]
    pub fn as_matrix(&mut self, input: &Tensor) -> Tensor {
        let shape = input.shape();
        self.as_rows(input).reshaped(Shape::new(&[shape.rows(), shape.last()]))
    }

    /// The rows of a matrix in the shape of `input`, a view.
    #[must_use]
    pub fn rows_as(&self, rows: &Tensor, input: &Tensor) -> Tensor {
        rows.reshaped(input.shape())
    }

    /// `gates · rows` with a gate (…, 1) for each of the `rows` (…, width), of one type. Saves both.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn gated(&mut self, gates: &Tensor, rows: &Tensor) -> OpResult<Tensor> {
        self.op("mul", |cx| {
            let differentiates = cx.differentiates(&[gates, rows]);
            let saved = if differentiates { Some((cx.save(gates)?, cx.save(rows)?)) } else { None };
            let cols = rows.shape().last();
            let output = cx.activation(rows.shape(), rows.dtype(), "gated rows")?;
            cx.launch(kernels::Elementwise::MulRows {
                a: rows.operand(),
                b: gates.operand(),
                dst: output.operand(),
                cols,
            })?;
            let Some((saved_gates, saved_rows)) = saved else { return Ok(output) };
            let source = cx.record("mulBackward", [Some(gates), Some(rows), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // The second argument and its gradient come first: its name (other) sorts before self.
                let rows = saved_rows.unpack(cx)?;
                let gates = saved_gates.unpack(cx)?;
                let to_rows = cx.temporary(rows.shape(), grad.dtype(), "gradient of rows")?;
                let (a, b) = (grad.operand(), gates.operand());
                cx.launch(kernels::Elementwise::MulRows { a, b, dst: to_rows.operand(), cols })?;
                let products = cx.product_of(&grad, &rows, "gradient times rows")?;
                let (n, shape) = (gates.numel(), gates.shape());
                // Sums come after the node.
                drop((gates, rows));
                let to_gates = cx.temporary(shape, grad.dtype(), "gradient of gates")?;
                let (src, sums) = (products.operand(), to_gates.operand());
                cx.launch(kernels::Sums::Mean { src, dst: sums, outer: n, middle: cols, inner: 1 })?;
                #[expect(clippy::cast_precision_loss, reason = "the width of a model")]
                cx.launch(kernels::Elementwise::Scale { src: sums, dst: sums, factor: cols as f64 })?;
                Ok([Some(to_gates), Some(to_rows), None])
            });
            Ok(output.with_source(source))
        })
    }
}
