//! What a transformers model does around its layers to predict each next token: positions before the layers, a loss after them.

use crate::config::LossHead;
use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use super::embedding::{SCAN_TILE, float_scan_storage, scan_storage};

/// The target of positions that don't count: PyTorch's default `ignore_index`.
const IGNORED: f64 = -100.0;

/// The targets of logits: at each position the label of the next one.
#[derive(Clone, Copy, Debug)]
pub struct NextLabels<'a> {
    /// (batch, rows), i64; -100 for padding.
    pub labels: &'a Tensor,
    /// How many of each sample's labels count, from the first on, if not all do.
    pub lengths: Option<&'a [u32]>,
}

impl NextLabels<'_> {
    /// Positions of sequence `sequence` from `first` to before `until` whose next label counts.
    pub(super) fn learned(self, sequence: usize, first: usize, until: usize) -> usize {
        let rows = self.labels.shape().last();
        let length = self.lengths.and_then(|lengths| lengths.get(sequence)).map_or(rows, |&length| length as usize);
        until.min(length.saturating_sub(1)).saturating_sub(first)
    }
}

/// Positions that were computed from a mask of padding, and that mask.
pub struct CountedPositions {
    /// i64, (samples, rows), from 0 on.
    pub positions: Tensor,
    /// The mask that was passed, or ones in f32.
    pub mask: Tensor,
}

impl Context {
    /// The positions of `tokens` (batch, rows), i64: `torch.arange(rows) + past`.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn positions(&mut self, rows: usize) -> OpResult<Tensor> {
        self.op("positions", |cx| {
            let counted = cx.temporary(Shape::new(&[rows]), DType::I64, "positions")?;
            let positions = cx.activation(Shape::new(&[rows]), DType::I64, "positions")?;
            cx.launch(kernels::Elementwise::Arange { dst: counted.operand() })?;
            cx.launch(kernels::Elementwise::Cast { src: counted.operand(), dst: positions.operand() })?;
            drop(counted);
            Ok(positions)
        })
    }

    /// The positions of samples of `[samples, rows]`, i64 of that shape, computed from a mask of padding, or from a mask of ones
    /// in f32 if there is none: `(mask.cumsum(1) * mask - 1).long()`. Padding comes last, so tokens count from 0 with any mask.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    pub fn positions_of_mask(
        &mut self,
        mask: Option<&Tensor>,
        [samples, rows]: [usize; 2],
    ) -> OpResult<CountedPositions> {
        self.op("positions", |cx| {
            let shape = Shape::new(&[samples, rows]);
            let mask = match mask {
                Some(mask) => mask.clone(),
                None => cx.activation(shape, DType::F32, "mask of ones")?,
            };
            let number = |what| cx.temporary(shape, mask.dtype(), what);
            let counted = cx.tokens_so_far(&mask)?;
            let of_tokens = number("tokens so far of tokens")?;
            let from_0 = number("positions as floats")?;
            drop(of_tokens);
            let positions = match mask.dtype() {
                DType::I64 => from_0,
                _ => {
                    let positions = cx.activation(shape, DType::I64, "positions")?;
                    drop(from_0);
                    positions
                }
            };
            drop(counted);
            cx.write_positions(&positions, 0)?;
            Ok(CountedPositions { positions, mask })
        })
    }

    /// `mask.cumsum(-1)` of a mask (samples, rows), in its dtype.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn tokens_so_far(&self, mask: &Tensor) -> OpResult<Tensor> {
        let counted = self.temporary(mask.shape(), mask.dtype(), "tokens so far")?;
        // CUB sums one row, a kernel of PyTorch's several.
        let rows = mask.shape().last();
        if mask.numel() == rows {
            let bytes = match mask.dtype() {
                DType::I64 => scan_storage(rows.div_ceil(SCAN_TILE)),
                _ => float_scan_storage(rows),
            };
            drop(self.scratch(bytes, "scan storage")?);
        }
        Ok(counted)
    }

    /// The same positions plus `before`: for a table with that many other rows in front.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    pub fn shifted_positions(&mut self, positions: &Tensor, before: usize) -> OpResult<Tensor> {
        self.op("add", |cx| {
            let shifted = cx.activation(positions.shape(), DType::I64, "rows of positions")?;
            cx.write_positions(&shifted, before)?;
            Ok(shifted)
        })
    }

    fn write_positions(&self, to: &Tensor, first: usize) -> OpResult<()> {
        let rows = to.shape().last().max(1);
        self.memory().fill(to, |begin, bytes| {
            for (i, element) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                let position = (begin + i) % rows + first;
                *element = i64::try_from(position).unwrap_or(i64::MAX).to_le_bytes();
            }
        })
    }

    /// Counts the positions as a program does on the device and compares on the host: `torch.max(positions) + 1`, and whether
    /// that exceeds some number.
    ///
    /// # Errors
    /// Out of memory.
    pub fn count_positions(&mut self) -> OpResult<Tensor> {
        self.op("count positions", |cx| {
            let number = |dtype, what| cx.temporary(Shape::new(&[]), dtype, what);
            let last = number(DType::I64, "last position")?;
            let count = number(DType::I64, "number of positions")?;
            drop(last);
            drop(number(DType::U8, "there are more")?);
            Ok(count)
        })
    }

    /// Compares two counts of positions on the device, for a program on the host.
    ///
    /// # Errors
    /// Out of memory.
    pub fn compare_counts(&mut self) -> OpResult<()> {
        self.op("compare counts", |cx| cx.temporary(Shape::new(&[]), DType::U8, "there are fewer").map(drop))
    }

    /// The search of `create_causal_mask` for several sequences packed in one row, from a batch's positions, run without a
    /// cache. It finds none.
    ///
    /// # Errors
    /// Out of memory.
    pub fn find_sequences(&mut self, [batch, rows]: [usize; 2]) -> OpResult<()> {
        self.op("find sequences", |cx| {
            let list = |len: usize, what| cx.temporary(Shape::new(&[len]), DType::I64, what);
            let before = list(batch, "position before the first")?;
            let prepended = list(batch * (rows + 1), "positions with that one")?;
            let differences = list(batch * rows, "differences of positions")?;
            drop(prepended);
            let begins = cx.temporary(Shape::new(&[batch, rows]), DType::U8, "begins of sequences")?;
            let numbers = list(batch * rows, "numbers of sequences")?;
            let as_numbers = list(batch * rows, "begins as numbers")?;
            // CUB sums one row, a kernel of PyTorch's several.
            if batch == 1 {
                drop(cx.scratch(scan_storage(rows.div_ceil(SCAN_TILE)), "scan storage")?);
            }
            drop((begins, as_numbers));
            let single = cx.temporary(Shape::new(&[batch]), DType::U8, "rows of one sequence")?;
            let all = cx.temporary(Shape::new(&[]), DType::U8, "all rows are")?;
            drop((single, all, before, differences, numbers));
            Ok(())
        })
    }

    /// The loss of `logits` (batch, rows, classes) against the next labels, by the chosen method.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn loss_of_next(&mut self, logits: &Tensor, next: NextLabels<'_>) -> OpResult<Tensor> {
        match self.causal.head {
            LossHead::Labels => self.causal_loss(logits, next.labels),
            LossHead::Shifted | LossHead::LabelsCopied => self.shifted_loss(logits, next.labels),
            LossHead::Chunked => self.chunked_loss(logits, next),
            // The op that makes the logits computes this loss; see `train/ops/fused_loss.rs`.
            LossHead::Fused | LossHead::FusedF32 => self.causal_loss(logits, next.labels),
        }
    }

    /// `cross_entropy(logits.float()[:, :-1].reshape(-1, classes), labels[:, 1:].reshape(-1))`, as often written by hand, and by
    /// transformers itself before.
    fn shifted_loss(&mut self, logits: &Tensor, labels: &Tensor) -> OpResult<Tensor> {
        let logits = self.float(logits)?;
        let [batch, rows, classes] = *logits.shape().dims() else { return self.cross_entropy(&logits, labels) };
        let (learned, all) = (Shape::new(&[batch, rows.saturating_sub(1), classes]), logits.shape());
        let of_all = all.contiguous_strides();
        let first = self.op("slice", |cx| {
            // A single sequence is already contiguous.
            let first = if batch == 1 {
                logits.window(learned, 0)
            } else {
                let first = cx.activation(learned, logits.dtype(), "logits with a next token")?;
                cx.copy(&logits.strided(learned, of_all, 0), &first)?;
                first
            };
            if !cx.differentiates(&[&logits]) {
                return Ok(first);
            }
            let source = cx.record("sliceBackward", [Some(&logits), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let dst = cx.temporary(all, grad.dtype(), "gradient of all logits")?;
                cx.launch(kernels::Elementwise::Fill { dst: dst.operand(), value: 0.0 })?;
                cx.copy(&grad, &dst.strided(learned, of_all, 0))?;
                drop(grad);
                Ok([Some(dst), None, None])
            });
            Ok(first.with_source(source))
        })?;
        let targets = self.op("slice", |cx| {
            let targets = Shape::new(&[batch, rows.saturating_sub(1)]);
            let behind = labels.strided(targets, labels.shape().contiguous_strides(), 1);
            if batch == 1 {
                return Ok(labels.window(targets, 1));
            }
            let copy = cx.activation(targets, DType::I64, "next tokens")?;
            cx.copy(&behind, &copy)?;
            Ok(copy)
        })?;
        let loss = self.cross_entropy(&first, &targets);
        drop((first, logits));
        loss
    }

    /// The mean cross-entropy of `logits` (batch, rows, classes) against the next of `labels` (batch, rows; i64), as
    /// transformers' `ForCausalLMLoss`: logits in f32, labels shifted by one with an ignored label at the end.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn causal_loss(&mut self, logits: &Tensor, labels: &Tensor) -> OpResult<Tensor> {
        let logits = self.float(logits)?;
        let (padded, shifted) = self.next_labels(labels)?;
        let loss = self.cross_entropy(&logits, &shifted);
        drop((padded, logits));
        loss
    }

    /// `pad(labels, (0, 1), value=-100)`: (batch, rows + 1).
    pub(super) fn padded_labels(&self, labels: &Tensor) -> OpResult<Tensor> {
        let (batch, rows) = (labels.shape().rows(), labels.shape().last());
        let padded = self.temporary(Shape::new(&[batch, rows + 1]), DType::I64, "padded labels")?;
        self.launch(kernels::Elementwise::Fill { dst: padded.operand(), value: IGNORED })?;
        self.copy(labels, &padded.strided(labels.shape(), [rows + 1, 1, 0, 0], 0))?;
        Ok(padded)
    }

    /// The padded labels, and the next label of every position.
    pub(super) fn next_labels(&mut self, labels: &Tensor) -> OpResult<(Tensor, Tensor)> {
        let (batch, rows) = (labels.shape().rows(), labels.shape().last());
        self.op("shift", |cx| {
            let padded = cx.padded_labels(labels)?;
            let shape = Shape::new(&[batch, rows]);
            // A single row is already contiguous.
            let shifted = if batch == 1 {
                padded.window(shape, 1)
            } else {
                let shifted = cx.activation(shape, DType::I64, "shifted labels")?;
                cx.copy(&padded.strided(shape, [rows + 1, 1, 0, 0], 1), &shifted)?;
                shifted
            };
            Ok((padded, shifted))
        })
    }
}
