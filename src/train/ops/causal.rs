//! What a model of transformers does around its layers to learn each next token: positions before them, a loss behind them.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::{DType, Kernel};

use super::embedding::{SCAN_TILE, scan_storage};

/// Targets of positions that don't count: PyTorch's default `ignore_index`.
const IGNORED: f64 = -100.0;

impl Context {
    /// The positions of `tokens` (batch, rows), i64: `torch.arange(rows) + past`, then the search for several sequences in a row that
    /// `create_causal_mask` makes of them. It finds none.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn positions(&mut self, tokens: &Tensor) -> OpResult<Tensor> {
        let (batch, rows) = (tokens.shape().rows(), tokens.shape().last());
        self.op("positions", |cx| {
            let list = |len: usize, what| cx.temporary(Shape::new(&[len]), DType::I64, what);
            let counted = list(rows, "positions")?;
            let positions = cx.activation(Shape::new(&[rows]), DType::I64, "positions")?;
            cx.launch(&Kernel::Arange { dst: counted.operand() })?;
            cx.launch(&Kernel::Cast { src: counted.operand(), dst: positions.operand() })?;
            drop(counted);
            let before = list(batch, "position before the first")?;
            let prepended = list(batch * (rows + 1), "positions with that one")?;
            let differences = list(batch * rows, "differences of positions")?;
            drop(prepended);
            let begins = cx.temporary(Shape::new(&[batch, rows]), DType::U8, "begins of sequences")?;
            let numbers = list(batch * rows, "numbers of sequences")?;
            let as_numbers = list(batch * rows, "begins as numbers")?;
            // One row is summed by CUB, several by a kernel of PyTorch's.
            if batch == 1 {
                drop(cx.scratch(scan_storage(rows.div_ceil(SCAN_TILE)), "scan storage")?);
            }
            drop((begins, as_numbers));
            let single = cx.temporary(Shape::new(&[batch]), DType::U8, "rows of one sequence")?;
            let all = cx.temporary(Shape::new(&[]), DType::U8, "all rows are")?;
            drop((single, all, before, differences, numbers));
            Ok(positions)
        })
    }

    /// The mean cross-entropy of `logits` (batch, rows, classes) against the next of `labels` (batch, rows; i64), as transformers'
    /// `ForCausalLMLoss`: logits in f32, labels shifted by one with an ignored one at the end.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn causal_loss(&mut self, logits: &Tensor, labels: &Tensor) -> OpResult<Tensor> {
        let logits = self.float(logits)?;
        let (batch, rows) = (labels.shape().rows(), labels.shape().last());
        let (padded, shifted) = self.op("shift", |cx| {
            let padded = cx.temporary(Shape::new(&[batch, rows + 1]), DType::I64, "padded labels")?;
            cx.launch(&Kernel::Fill { dst: padded.operand(), value: IGNORED })?;
            let of_padded = [rows + 1, 1, 0, 0];
            cx.copy(labels, &padded.strided(labels.shape(), of_padded, 0))?;
            let behind = padded.strided(Shape::new(&[batch, rows]), of_padded, 1);
            // One row lies as it should already.
            let shifted = if batch == 1 {
                padded.window(behind.shape(), 1)
            } else {
                let shifted = cx.activation(behind.shape(), DType::I64, "shifted labels")?;
                cx.copy(&behind, &shifted)?;
                shifted
            };
            Ok((padded, shifted))
        })?;
        let loss = self.cross_entropy(&logits, &shifted);
        drop((padded, logits));
        loss
    }
}
