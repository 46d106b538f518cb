//! A transformer of elementary ops, as courses have it written: products by `einsum`, a mask by `where`, softmax and cross-entropy
//! by their formulas, no `nn.functional`.
//!
//! Several ops of PyTorch's are one op here where one kernel computes what they come to: each asks for the blocks of all of them, in
//! their order, and gives each back where its node would. What a block holds that nobody reads is some copy, at the price of the
//! op that PyTorch runs there.

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
    /// A block of the shape of `input`, filled with it at the price of an op on each element.
    fn elementwise(&self, input: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let output = self.temporary(input.shape(), dtype, what)?;
        self.launch(kernels::Elementwise::Cast { src: input.operand(), dst: output.operand() })?;
        Ok(output)
    }

    /// The same for backward.
    fn elementwise_activation(&self, input: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let output = self.activation(input.shape(), dtype, what)?;
        self.launch(kernels::Elementwise::Cast { src: input.operand(), dst: output.operand() })?;
        Ok(output)
    }

    /// A block of a number for each row of `input`, at the price of a reduction of it.
    fn by_row(&self, input: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        let output = self.temporary(row_numbers(input), dtype, what)?;
        self.reduce_rows(input, &output)?;
        Ok(output)
    }

    /// The same for backward.
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

/// The shape of a number for each row.
fn row_numbers(input: &Tensor) -> Shape {
    input.shape().with_last(1)
}
