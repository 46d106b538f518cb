//! Losses of next tokens that never have all logits in f32: chunk by chunk, or fused with the head that makes them.

use crate::context::{Context, Saved};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, Operand, kernels};

use super::causal::NextLabels;

/// Chunks of [`Context::chunked_loss`], as torchtune has them by default.
const CHUNKS: usize = 8;

/// A run of positions of every sequence.
#[derive(Clone, Copy)]
struct Chunk {
    first: usize,
    rows: usize,
    /// Its part of all positions that have a next one; none where it is the last position alone.
    share: f64,
}

/// What a chunk saves.
struct ChunkSaved {
    log_probabilities: Saved,
    targets: Saved,
    total_weight: Saved,
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
    /// The mean cross-entropy of `logits` (batch, rows, classes) against the next labels, of eighths of all positions in turn, as
    /// torchtune's `CEWithChunkedOutputLoss`: only a chunk's logits are in f32, log-probabilities of all chunks are kept.
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
            // Chunks of several sequences do not lie together.
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

    /// The head and its loss as one op: the mean cross-entropy of `hidden` (batch, rows, width) times `weight` (classes, width)
    /// transposed against the next labels. As Liger's `fused_linear_cross_entropy` (0.8): forward makes the gradients too, chunk by
    /// chunk of positions, so that as many logits are there at once as `hidden` has elements, and in place their gradient. Where they are
    /// kept within a `cap`, the tanh of a chunk takes as much once more, which Liger's kernel computes on its way.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn fused_linear_loss(
        &mut self,
        hidden: &Tensor,
        weight: &Tensor,
        next: NextLabels<'_>,
        cap: Option<f64>,
    ) -> OpResult<Tensor> {
        let weight = &self.cast_to_lower(weight, "weight copy")?;
        let hidden = &self.cast_to_lower(hidden, "input copy")?;
        let (padded, targets) = self.next_labels(next.labels)?;
        let rows = next.labels.shape().last();
        let loss = self.op("fused_linear_cross_entropy", |cx| {
            let (all, width, classes) = (hidden.shape().rows(), hidden.shape().last(), weight.shape().rows());
            let differentiates = cx.differentiates(&[hidden, weight]);
            let dtype = hidden.dtype();
            let to_hidden = cx.activation(hidden.shape(), dtype, "input gradient")?;
            let trains = differentiates && weight.requires_grad();
            let to_weight =
                trains.then(|| cx.activation(weight.shape(), weight.dtype(), "weight gradient")).transpose()?;
            for zeros in std::iter::once(&to_hidden).chain(&to_weight) {
                cx.launch(kernels::Elementwise::Fill { dst: zeros.operand(), value: 0.0 })?;
            }
            let of_rows = cx.temporary(Shape::new(&[all]), DType::F32, "loss of every position")?;
            let mask = cx.temporary(Shape::new(&[all]), DType::U8, "positions with a next token")?;
            drop(cx.temporary(Shape::new(&[]), DType::I64, "number of them")?);
            // As many rows as keep the logits to the elements of the input, to the next power of two.
            let size = all.div_ceil(classes.div_ceil(width)).next_power_of_two().min(all).max(1);
            let of_chunk = |what| cx.temporary(Shape::new(&[size, classes]), dtype, what);
            let logits = of_chunk("logits of a chunk")?;
            let within = cap.map(|cap| OpResult::Ok((cap, of_chunk("tanh of a chunk")?))).transpose()?;
            // Loss and count of a chunk, its share, the sum so far.
            let numbers = cx.temporary(Shape::new(&[4]), DType::F32, "numbers of a chunk")?;
            let number = |at: usize| numbers.window(Shape::new(&[]), at).operand();
            cx.launch(kernels::Elementwise::Fill { dst: numbers.operand(), value: 0.0 })?;
            let learned_in = |first: usize, until: usize| {
                (first..until).filter(|at| next.learned(at / rows, at % rows, at % rows + 1) > 0).count()
            };
            #[expect(clippy::cast_precision_loss, reason = "positions of a batch")]
            let total = learned_in(0, all).max(1) as f64;
            for first in (0..all).step_by(size) {
                let count = size.min(all - first);
                let learned = learned_in(first, first + count);
                if learned == 0 {
                    continue;
                }
                #[expect(clippy::cast_precision_loss, reason = "positions of a batch")]
                let share = learned as f64 / total;
                let input = hidden.window(Shape::new(&[count, width]), first * width);
                let chunk = logits.window(Shape::new(&[count, classes]), 0);
                cx.head_product([count, classes, width], &input, weight, &chunk)?;
                let within = within.as_ref().map(|(cap, tanh)| (*cap, tanh.window(chunk.shape(), 0).operand()));
                if let Some((cap, tanh)) = within {
                    cx.launch(kernels::Elementwise::Scale { src: chunk.operand(), dst: tanh, factor: 1.0 / cap })?;
                    cx.launch(kernels::Elementwise::Tanh { src: tanh, dst: tanh })?;
                    cx.launch(kernels::Elementwise::Scale { src: tanh, dst: chunk.operand(), factor: cap })?;
                }
                let sums = of_rows.window(Shape::new(&[count]), first).operand();
                let targets = targets.window(Shape::new(&[count]), first).operand();
                let (stride, cols) = (classes, classes);
                cx.launch(kernels::Loss::CrossEntropy {
                    logits: chunk.operand(),
                    targets,
                    loss: number(0),
                    total_weight: number(1),
                    logsumexp: sums,
                    cols,
                    stride,
                })?;
                cx.launch(kernels::Elementwise::Scale { src: number(0), dst: number(0), factor: share })?;
                cx.launch(kernels::Elementwise::Add { a: number(3), b: number(0), dst: number(3) })?;
                if !differentiates {
                    continue;
                }
                cx.launch(kernels::Elementwise::Fill { dst: number(2), value: share })?;
                cx.launch(kernels::Loss::CrossEntropyBackward {
                    grad: number(2),
                    logits: chunk.operand(),
                    targets,
                    total_weight: number(1),
                    logsumexp: sums,
                    cols,
                    stride,
                })?;
                if let Some((_, tanh)) = within {
                    let grad = chunk.operand();
                    cx.launch(kernels::Elementwise::TanhBackward { output: tanh, grad, dst: grad })?;
                }
                let part = to_hidden.window(Shape::new(&[count, width]), first * width);
                cx.head_gradients([count, classes, width], &chunk, (&input, weight), (&part, to_weight.as_ref()))?;
            }
            let loss = cx.activation(Shape::new(&[]), DType::F32, "loss")?;
            cx.launch(kernels::Elementwise::Cast { src: number(3), dst: loss.operand() })?;
            drop((numbers, logits, within, mask, of_rows));
            if !differentiates {
                return Ok(loss);
            }
            let saved = (cx.save(&to_hidden)?, to_weight.as_ref().map(|gradient| cx.save(gradient)).transpose()?);
            drop((to_hidden, to_weight));
            let inputs = [Some(hidden), Some(weight), None];
            let source = cx.record("fused_linear_cross_entropyBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let scaled = |cx: &mut Self, saved: Saved| {
                    let gradient = saved.unpack(cx)?;
                    drop(saved);
                    let at = gradient.operand();
                    cx.launch(kernels::Elementwise::Mul { a: at, b: grad.operand(), dst: at })?;
                    OpResult::Ok(gradient)
                };
                let to_hidden = scaled(cx, saved.0)?;
                let to_weight = saved.1.map(|saved| scaled(cx, saved)).transpose()?;
                Ok([Some(to_hidden), to_weight, None])
            });
            Ok(loss.with_source(source))
        });
        drop((padded, targets));
        loss
    }

    /// `input` (m, k) times `weight` (n, k) transposed.
    fn head_product(&mut self, [m, n, k]: [usize; 3], input: &Tensor, weight: &Tensor, to: &Tensor) -> OpResult<()> {
        let memory = self.memory().clone();
        self.workspaces.gemm(&memory)?;
        let (a, b, c) = (input.matrix(), weight.transposed(), to.matrix());
        self.launch(kernels::Gemm { m, n, k, batch: 1, a, b, c, bias: None, alpha: 1.0, beta: 0.0 })
    }

    /// Gradients of a product with the head: of its input, and summed over chunks of the weight.
    fn head_gradients(
        &self,
        [m, n, k]: [usize; 3],
        grad: &Tensor,
        (input, weight): (&Tensor, &Tensor),
        (to_input, to_weight): (&Tensor, Option<&Tensor>),
    ) -> OpResult<()> {
        let (bias, alpha, batch): (Option<Operand>, _, _) = (None, 1.0, 1);
        let (a, b, c) = (grad.matrix(), weight.matrix(), to_input.matrix());
        self.launch(kernels::Gemm { m, n: k, k: n, batch, a, b, c, bias, alpha, beta: 0.0 })?;
        let Some(to_weight) = to_weight else { return Ok(()) };
        let (a, b, c) = (grad.transposed(), input.matrix(), to_weight.matrix());
        self.launch(kernels::Gemm { m: n, n: k, k: m, batch, a, b, c, bias, alpha, beta: 1.0 })
    }
}
