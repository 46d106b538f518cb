//! A loss of next tokens that converts logits to f32 chunk by chunk, never all at once.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use super::causal::NextLabels;

/// Chunks of [`Context::chunked_loss`]: torchtune's default.
const CHUNKS: usize = 8;

/// A run of positions of every sequence.
#[derive(Clone, Copy)]
struct Chunk {
    first: usize,
    rows: usize,
    /// Its share of all positions that have a next label; zero if it is the last position alone.
    share: f64,
}

/// The saved tensors of a chunk.
struct ChunkSaved {
    log_probabilities: SavedVariable,
    targets: SavedVariable,
    total_weight: SavedVariable,
}

impl Chunk {
    #[expect(clippy::cast_precision_loss, reason = "positions of a batch")]
    fn all(next: NextLabels<'_>) -> Vec<Self> {
        let (batch, rows) = (next.labels.shape().rows(), next.labels.shape().last());
        let learned = |first, until| (0..batch).map(|sequence| next.learned(sequence, first, until)).sum::<usize>();
        let (size, total) = (rows.div_ceil(CHUNKS).max(1), learned(0, rows).max(1) as f64);
        let of = |first: usize| {
            let rows = size.min(rows - first);
            Self { first, rows, share: learned(first, first + rows) as f64 / total }
        };
        (0..rows).step_by(size).map(of).collect()
    }
}

impl Context {
    /// The mean cross-entropy of `logits` (batch, rows, classes) against the next labels, in eight chunks of the positions, as
    /// torchtune's `CEWithChunkedOutputLoss`: only one chunk's logits are in f32 at a time; the log-probabilities of all chunks
    /// are kept.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub(super) fn chunked_loss(&mut self, logits: &Tensor, next: NextLabels<'_>) -> OpResult<Tensor> {
        let labels = next.labels;
        let [batch, rows, classes] = *logits.shape().dims() else { return self.cross_entropy(logits, labels) };
        let (dtype, chunks) = (logits.dtype(), Chunk::all(next));
        let of_logits = logits.shape().contiguous_strides();
        self.op("chunked_cross_entropy", |cx| {
            let differentiates = cx.differentiates(&[logits]);
            let padded = cx.padded_labels(labels)?;
            let counted = cx.temporary(Shape::new(&[batch, rows]), DType::U8, "positions with a next token")?;
            let count = cx.activation(Shape::new(&[]), DType::I64, "number of them")?;
            drop((cx.temporary(Shape::new(&[batch, rows]), DType::I64, "the same as numbers")?, counted));
            // Chunks of several sequences are not contiguous.
            let parts = chunks.iter().map(|chunk| {
                let shape = Shape::new(&[batch, chunk.rows, classes]);
                if batch == 1 {
                    return Ok(logits.window(shape, chunk.first * classes).detach());
                }
                let part = cx.activation(shape, dtype, "logits of a chunk")?;
                cx.copy(&logits.strided(shape, of_logits, chunk.first * classes), &part)?;
                Ok(part)
            });
            let parts = parts.collect::<OpResult<Vec<_>>>()?;
            let targets = chunks.iter().map(|chunk| {
                let shape = Shape::new(&[batch, chunk.rows]);
                if batch == 1 {
                    return Ok(padded.window(shape, chunk.first + 1));
                }
                let part = cx.activation(shape, DType::I64, "next tokens of a chunk")?;
                cx.copy(&padded.strided(shape, [rows + 1, 1, 0, 0], chunk.first + 1), &part)?;
                Ok(part)
            });
            let targets = targets.collect::<OpResult<Vec<_>>>()?;
            drop(padded);
            let (mut sum, mut kept) = (None, Vec::new());
            for ((chunk, part), targets) in chunks.iter().zip(&parts).zip(&targets) {
                let (loss, saved) = cx.chunk_loss(part, targets, chunk.share)?;
                kept.extend(differentiates.then_some(saved));
                let next = cx.activation(Shape::new(&[]), DType::F32, "summed loss")?;
                match &sum {
                    Some(sum) => cx.add_numbers(sum, &loss, &next)?,
                    None => cx.launch(kernels::Elementwise::Cast { src: loss.operand(), dst: next.operand() })?,
                }
                drop(loss);
                sum = Some(next);
            }
            drop(targets);
            let mean = cx.activation(Shape::new(&[]), DType::F32, "mean loss")?;
            if let Some(sum) = &sum {
                cx.launch(kernels::Elementwise::Cast { src: sum.operand(), dst: mean.operand() })?;
            }
            drop((parts, sum));
            if !differentiates {
                return Ok(mean);
            }
            let shape = logits.shape();
            let source = cx.record("chunked_cross_entropyBackward", [Some(logits), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let mut of_mean = Some(cx.temporary(Shape::new(&[]), DType::F32, "gradient of the summed loss")?);
                drop(count);
                let mut gradients = Vec::new();
                for (number, (chunk, kept)) in chunks.iter().zip(kept).enumerate().rev() {
                    let divided = if number == 0 { of_mean.take() } else { of_mean.clone() };
                    let Some(divided) = divided else { continue };
                    cx.launch(kernels::Elementwise::Scale {
                        src: grad.operand(),
                        dst: divided.operand(),
                        factor: chunk.share,
                    })?;
                    gradients.push((*chunk, cx.chunk_gradient(kept, divided, chunk.share, dtype)?));
                }
                let dst = cx.temporary(shape, dtype, "logits gradient")?;
                for (chunk, gradient) in &gradients {
                    cx.copy(gradient, &dst.strided(gradient.shape(), of_logits, chunk.first * classes))?;
                }
                drop(gradients);
                Ok([Some(dst), None, None])
            });
            Ok(mean.with_source(source))
        })
    }

    /// The loss of a chunk, times its share of all positions.
    fn chunk_loss(&mut self, logits: &Tensor, targets: &Tensor, share: f64) -> OpResult<(Tensor, ChunkSaved)> {
        let cols = logits.shape().last();
        let wide = match logits.dtype() {
            DType::F16 | DType::Bf16 => self.activation(logits.shape(), DType::F32, "chunk in f32")?,
            _ => logits.clone(),
        };
        if wide.dtype() != logits.dtype() {
            self.launch(kernels::Elementwise::Cast { src: logits.operand(), dst: wide.operand() })?;
        }
        let log_probabilities = self.activation(wide.shape(), wide.dtype(), "log-probabilities")?;
        self.launch(kernels::Softmax::Log { src: wide.operand(), dst: log_probabilities.operand(), cols })?;
        let saved = (self.save(&log_probabilities)?, self.save(targets)?);
        let number = |cx: &Self, what| cx.activation(Shape::new(&[]), wide.dtype(), what);
        let loss = number(self, "loss of a chunk")?;
        let total_weight = number(self, "total weight")?;
        if share > 0.0 {
            self.launch(kernels::Loss::Nll {
                logp: log_probabilities.operand(),
                targets: targets.operand(),
                loss: loss.operand(),
                total_weight: total_weight.operand(),
                cols,
            })?;
            self.launch(kernels::Elementwise::Scale { src: loss.operand(), dst: loss.operand(), factor: share })?;
        } else {
            self.launch(kernels::Elementwise::Fill { dst: loss.operand(), value: 0.0 })?;
            self.launch(kernels::Elementwise::Fill { dst: total_weight.operand(), value: 0.0 })?;
        }
        let kept = ChunkSaved { log_probabilities: saved.0, targets: saved.1, total_weight: self.save(&total_weight)? };
        Ok((loss, kept))
    }

    /// The gradient of a chunk's logits in `dtype`; `grad` is that of its mean loss.
    fn chunk_gradient(&mut self, kept: ChunkSaved, grad: Tensor, share: f64, dtype: DType) -> OpResult<Tensor> {
        let log_probabilities = kept.log_probabilities.unpack(self)?;
        let (targets, total_weight) = (kept.targets.unpack(self)?, kept.total_weight.unpack(self)?);
        let (shape, wide, cols) =
            (log_probabilities.shape(), log_probabilities.dtype(), log_probabilities.shape().last());
        let of_log = self.temporary(shape, wide, "log-probabilities gradient")?;
        if share > 0.0 {
            self.launch(kernels::Loss::NllBackward {
                grad: grad.operand(),
                targets: targets.operand(),
                total_weight: total_weight.operand(),
                dst: of_log.operand(),
                cols,
            })?;
        } else {
            self.launch(kernels::Elementwise::Fill { dst: of_log.operand(), value: 0.0 })?;
        }
        drop((targets, kept.targets, total_weight, kept.total_weight, grad));
        let dst = self.temporary(shape, wide, "gradient of a chunk in f32")?;
        self.launch(kernels::Softmax::LogBackward {
            output: log_probabilities.operand(),
            grad: of_log.operand(),
            dst: dst.operand(),
            cols,
        })?;
        drop((of_log, log_probabilities, kept.log_probabilities));
        self.cast_gradient(&dst, dtype)
    }

    fn add_numbers(&self, a: &Tensor, b: &Tensor, sum: &Tensor) -> OpResult<()> {
        self.launch(kernels::Elementwise::Add { a: a.operand(), b: b.operand(), dst: sum.operand() })
    }
}
