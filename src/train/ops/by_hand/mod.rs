//! A transformer of elementary ops, as courses write it: products by `einsum`, a mask by `where`, softmax and cross-entropy by
//! their formulas, no `nn.functional`.
//!
//! Where one kernel computes the result of several PyTorch ops, they are one op here. It requests the blocks of all of them in
//! their order, and frees each where its PyTorch node would. Blocks that are never read are filled with some copy, which takes
//! the time of the PyTorch op that writes them.

mod attention;
mod lookup;
mod loss;
mod norm;
mod product;
mod rotary;
mod swish;

pub use attention::AttentionOutput;

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

impl Context {
    /// A copy of `input` in a new block, which takes the time of an elementwise op.
    fn elementwise(&self, input: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let output = self.temporary(input.shape(), dtype, what)?;
        self.launch(kernels::Elementwise::Cast { src: input.operand(), dst: output.operand() })?;
        Ok(output)
    }

    /// The same for a tensor that backward needs.
    fn elementwise_activation(&self, input: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let output = self.activation(input.shape(), dtype, what)?;
        self.launch(kernels::Elementwise::Cast { src: input.operand(), dst: output.operand() })?;
        Ok(output)
    }

    /// A block with one number for each row of `input`, which takes the time of a reduction.
    fn by_row(&self, input: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let output = self.temporary(row_numbers(input), dtype, what)?;
        self.reduce_rows(input, &output)?;
        Ok(output)
    }

    /// The same for a tensor that backward needs.
    fn by_row_activation(&self, input: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let output = self.activation(row_numbers(input), dtype, what)?;
        self.reduce_rows(input, &output)?;
        Ok(output)
    }

    fn reduce_rows(&self, input: &Tensor, output: &Tensor) -> OpResult<()> {
        let (outer, middle) = (input.shape().rows(), input.shape().last());
        self.launch(kernels::Sums::Mean { src: input.operand(), dst: output.operand(), outer, middle, inner: 1 })
    }
}

/// The shape of one number per row.
fn row_numbers(input: &Tensor) -> Shape {
    input.shape().with_last(1)
}
