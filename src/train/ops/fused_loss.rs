//! A loss of next tokens that is fused with the head, so that not all logits exist at once.

use crate::config::LossHead;
use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_allocator::units::Address;
use vramlab_device::{DType, Operand, kernels};

use super::causal::NextLabels;

/// The head, its input, and its targets.
struct Head<'a> {
    hidden: &'a Tensor,
    weight: &'a Tensor,
    padded: &'a Tensor,
    /// The next label of each position.
    targets: &'a Tensor,
    next: NextLabels<'a>,
    cap: Option<f64>,
    differentiates: bool,
}

/// The loss, and the gradients of the hidden values and of the head's weight.
type FusedLossResult = (Tensor, Tensor, Option<Tensor>);

/// A run of positions of all sequences, some of which count.
#[derive(Clone, Copy)]
struct LossChunk {
    first: usize,
    rows: usize,
    /// The chunk's share of all positions that count.
    share: f64,
}

impl LossChunk {
    /// The chunk's elements of a list of all positions.
    fn of(self, list: &Tensor) -> Operand {
        list.window(Shape::new(&[self.rows]), self.first).operand()
    }
}

impl Head<'_> {
    fn trains(&self) -> bool {
        self.differentiates && self.weight.requires_grad()
    }

    /// Positions per chunk: few enough that the logits have about as many elements as the input, rounded up to a power of two.
    fn chunk(&self) -> usize {
        let (all, width, classes) =
            (self.hidden.shape().rows(), self.hidden.shape().last(), self.weight.shape().rows());
        all.div_ceil(classes.div_ceil(width)).next_power_of_two().min(all).max(1)
    }

    /// All chunks.
    fn parts(&self) -> Vec<LossChunk> {
        let (all, rows, size) = (self.hidden.shape().rows(), self.next.labels.shape().last(), self.chunk());
        let learned_in = |first: usize, until: usize| {
            (first..until).filter(|at| self.next.learned(at / rows, at % rows, at % rows + 1) > 0).count()
        };
        let total = learned_in(0, all).max(1);
        #[expect(clippy::cast_precision_loss, reason = "positions of a batch")]
        let part = |first: usize| {
            let rows = size.min(all - first);
            LossChunk { first, rows, share: learned_in(first, first + rows) as f64 / total as f64 }
        };
        (0..all).step_by(size).map(part).collect()
    }

    fn input(&self, part: LossChunk) -> Tensor {
        let width = self.hidden.shape().last();
        self.hidden.window(Shape::new(&[part.rows, width]), part.first * width)
    }
}

/// Numbers on the device for the chunks, in the memory of PyTorch tensors whose values are only known to the host here.
struct Numbers {
    /// The first of the padded labels, which is no position's next label.
    chunk: Address,
    sum: Address,
}

impl Numbers {
    /// Keeps the sum in the first bytes of `sum`.
    fn new(cx: &Context, head: &Head<'_>, sum: &Tensor) -> OpResult<Self> {
        let numbers = Self { chunk: head.padded.address(), sum: sum.address() };
        cx.launch(kernels::Elementwise::Fill { dst: numbers.sum(), value: 0.0 })?;
        Ok(numbers)
    }

    const fn at(address: Address) -> Operand {
        Operand { address, dtype: DType::F32, len: 1 }
    }

    /// The loss of a chunk; afterwards its share, the initial gradient.
    const fn loss(&self) -> Operand {
        Self::at(self.chunk)
    }

    /// Number of a chunk's positions that count.
    const fn count(&self) -> Operand {
        Self::at(Address(self.chunk.0 + 4))
    }

    /// Sum of the chunks' losses so far.
    const fn sum(&self) -> Operand {
        Self::at(self.sum)
    }

    /// The loss of all chunks.
    fn total(&self, cx: &Context) -> OpResult<Tensor> {
        let loss = cx.activation(Shape::new(&[]), DType::F32, "loss")?;
        cx.launch(kernels::Elementwise::Cast { src: self.sum(), dst: loss.operand() })?;
        Ok(loss)
    }
}

impl Context {
    /// The head and its loss as one op: the mean cross-entropy of `hidden` (batch, rows, width) times `weight` (classes, width)
    /// transposed against the next labels. As in Liger's `fused_linear_cross_entropy`, forward computes the gradients too, chunk
    /// by chunk of positions: at a time there are as many logits as `hidden` has elements, and their gradient overwrites them.
    /// With a `cap`, the tanh of a chunk takes as much once more, which Liger's kernel computes on the fly.
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
        let loss = self.op("fused_linear_cross_entropy", |cx| {
            let differentiates = cx.differentiates(&[hidden, weight]);
            let (padded, targets) = (&padded, &targets);
            let head = Head { hidden, weight, padded, targets, next, cap, differentiates };
            let old = cx.loss_head() == LossHead::FusedF32;
            let (loss, to_hidden, to_weight) = if old { cx.fused_in_f32(&head)? } else { cx.fused_in_place(&head)? };
            if !differentiates {
                return Ok(loss);
            }
            let saved = (cx.save(&to_hidden)?, to_weight.as_ref().map(|gradient| cx.save(gradient)).transpose()?);
            drop((to_hidden, to_weight));
            let inputs = [Some(hidden), Some(weight), None];
            let source = cx.record("fused_linear_cross_entropyBackward", inputs, move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                // PyTorch first asks whether the loss's gradient is 1: `torch.ne`, later `torch.equal`.
                let number = |dtype, what| cx.temporary(Shape::new(&[]), dtype, what);
                let asked = (number(DType::F32, "one")?, number(DType::U8, "whether it is")?);
                drop((asked, (!old).then(|| number(DType::U8, "whether all are")).transpose()?));
                let scaled = |cx: &mut Self, saved: SavedVariable| {
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

    /// As Liger from version 0.8 on: all chunks use the same memory.
    fn fused_in_place(&mut self, head: &Head<'_>) -> OpResult<FusedLossResult> {
        let Head { hidden, weight, cap, .. } = *head;
        let (all, classes, dtype) = (hidden.shape().rows(), weight.shape().rows(), hidden.dtype());
        let to_hidden = self.zeros_like(hidden, "input gradient")?;
        let to_weight = head.trains().then(|| self.zeros_like(weight, "weight gradient")).transpose()?;
        let of_rows = self.temporary(Shape::new(&[all]), DType::F32, "loss of every position")?;
        let mask = self.temporary(Shape::new(&[all.max(4)]), DType::U8, "positions with a next token")?;
        let numbers = Numbers::new(self, head, &mask)?;
        let count = self.temporary(Shape::new(&[]), DType::I64, "number of them")?;
        drop((self.temporary(Shape::new(&[all]), DType::I64, "the same as numbers")?, count));
        let size = head.chunk();
        let of_chunk = |what| self.temporary(Shape::new(&[size, classes]), dtype, what);
        let logits = of_chunk("logits of a chunk")?;
        let tanh = cap.map(|_| of_chunk("tanh of a chunk")).transpose()?;
        for part in head.parts().into_iter().filter(|part| part.share > 0.0) {
            let chunk = logits.window(Shape::new(&[part.rows, classes]), 0);
            let input = head.input(part);
            self.head_product([part.rows, classes, hidden.shape().last()], &input, weight, &chunk)?;
            let tanh = tanh.as_ref().map(|tanh| tanh.window(chunk.shape(), 0));
            self.cap_logits(cap, &chunk, tanh.as_ref())?;
            self.chunk_cross_entropy(head, part, &numbers, (&chunk, &of_rows))?;
            if head.differentiates {
                self.chunk_logits_gradient(head, part, &numbers, (&chunk, &of_rows))?;
                self.cap_gradient(&chunk, tanh.as_ref())?;
                let to_input = to_hidden.window(input.shape(), part.first * hidden.shape().last());
                self.head_gradients(&chunk, (&input, weight), (&to_input, to_weight.as_ref()))?;
            }
        }
        drop((logits, tanh));
        let loss = numbers.total(self)?;
        drop((mask, of_rows));
        Ok((loss, to_hidden, to_weight))
    }

    /// As Liger up to version 0.4: a chunk in 16 bits exists beside the gradient of the chunk before, and is cast to f32; its
    /// gradient is cast back, and multiplied by the chunk's share.
    fn fused_in_f32(&mut self, head: &Head<'_>) -> OpResult<FusedLossResult> {
        let Head { hidden, weight, cap, .. } = *head;
        let (all, classes, width, dtype) =
            (hidden.shape().rows(), weight.shape().rows(), hidden.shape().last(), hidden.dtype());
        let to_weight = head.trains().then(|| self.zeros_like(weight, "weight gradient")).transpose()?;
        let to_hidden = self.zeros_like(hidden, "input gradient")?;
        let of_rows = self.temporary(Shape::new(&[all]), DType::F32, "loss of every position")?;
        let mask = self.temporary(Shape::new(&[all]), DType::U8, "positions with a next token")?;
        let total = self.temporary(Shape::new(&[]), DType::I64, "number of them")?;
        let numbers = Numbers::new(self, head, &total)?;
        drop((self.temporary(Shape::new(&[all]), DType::I64, "the same as numbers")?, mask));
        let (mut logits, mut gradient, mut share) = (None, None, None);
        for part in head.parts() {
            let shape = Shape::new(&[part.rows, classes]);
            let input = head.input(part);
            let made = self.temporary(shape, dtype, "logits of a chunk")?;
            self.head_product([part.rows, classes, width], &input, weight, &made)?;
            drop(logits.replace(made.clone()));
            let list = |dtype, what| self.temporary(Shape::new(&[part.rows]), dtype, what);
            let number = |dtype, what| self.temporary(Shape::new(&[]), dtype, what);
            let (mask, count) = (list(DType::U8, "those of the chunk")?, number(DType::I64, "number of those")?);
            drop((list(DType::I64, "those as numbers")?, mask, count));
            let wide = match dtype {
                DType::F32 => made,
                _ => {
                    let wide = self.temporary(shape, DType::F32, "chunk in f32")?;
                    self.launch(kernels::Elementwise::Cast { src: made.operand(), dst: wide.operand() })?;
                    drop((made, logits.take()));
                    wide
                }
            };
            let tanh = cap.map(|_| self.temporary(shape, DType::F32, "tanh of a chunk")).transpose()?;
            self.cap_logits(cap, &wide, tanh.as_ref())?;
            if part.share == 0.0 {
                self.launch(kernels::Elementwise::Fill { dst: wide.operand(), value: 0.0 })?;
            } else {
                self.chunk_cross_entropy(head, part, &numbers, (&wide, &of_rows))?;
            }
            if head.differentiates && part.share > 0.0 {
                self.chunk_logits_gradient(head, part, &numbers, (&wide, &of_rows))?;
                self.cap_gradient(&wide, tanh.as_ref())?;
            }
            drop(tanh);
            let lower = self.cast_gradient(&wide, dtype)?;
            drop(wide);
            logits = Some(lower.clone());
            // `count / total if total > 0`, on the device.
            drop(number(DType::U8, "there are some")?);
            let inverse = number(DType::F32, "1 / number of all")?;
            share = Some(number(DType::F32, "share of the chunk")?);
            drop(inverse);
            drop(list(DType::F32, "losses times the share")?);
            let scaled = self.temporary(shape, dtype, "gradient of a chunk")?;
            self.launch(kernels::Elementwise::Cast { src: lower.operand(), dst: scaled.operand() })?;
            drop(gradient.replace(scaled.clone()));
            let to_input = self.temporary(input.shape(), dtype, "input gradient of a chunk")?;
            if head.differentiates {
                self.head_gradients(&scaled, (&input, weight), (&to_input, to_weight.as_ref()))?;
                self.copy(&to_input, &to_hidden.window(input.shape(), part.first * width))?;
            }
        }
        let loss = numbers.total(self)?;
        drop((logits, gradient, share, total, of_rows));
        Ok((loss, to_hidden, to_weight))
    }

    fn zeros_like(&self, tensor: &Tensor, what: &'static str) -> OpResult<Tensor> {
        let zeros = self.activation(tensor.shape(), tensor.dtype(), what)?;
        self.launch(kernels::Elementwise::Fill { dst: zeros.operand(), value: 0.0 })?;
        Ok(zeros)
    }

    /// Bounds `logits` by the cap, through their `tanh`.
    fn cap_logits(&self, cap: Option<f64>, logits: &Tensor, tanh: Option<&Tensor>) -> OpResult<()> {
        let (Some(cap), Some(tanh)) = (cap, tanh.map(Tensor::operand)) else { return Ok(()) };
        self.launch(kernels::Elementwise::Scale { src: logits.operand(), dst: tanh, factor: 1.0 / cap })?;
        self.launch(kernels::Elementwise::Tanh { src: tanh, dst: tanh })?;
        self.launch(kernels::Elementwise::Scale { src: tanh, dst: logits.operand(), factor: cap })
    }

    /// Takes their gradient back through the cap, in place.
    fn cap_gradient(&self, gradient: &Tensor, tanh: Option<&Tensor>) -> OpResult<()> {
        let (Some(output), grad) = (tanh.map(Tensor::operand), gradient.operand()) else { return Ok(()) };
        self.launch(kernels::Elementwise::TanhBackward { output, grad, dst: grad })
    }

    /// Adds the loss of a chunk to the sum; writes the logarithms of its rows' sums to its part of `of_rows`.
    fn chunk_cross_entropy(
        &self,
        head: &Head<'_>,
        part: LossChunk,
        numbers: &Numbers,
        (logits, of_rows): (&Tensor, &Tensor),
    ) -> OpResult<()> {
        let cols = logits.shape().last();
        self.launch(kernels::Loss::CrossEntropy {
            logits: logits.operand(),
            targets: part.of(head.targets),
            loss: numbers.loss(),
            total_weight: numbers.count(),
            logsumexp: part.of(of_rows),
            cols,
            stride: cols,
        })?;
        let (loss, sum) = (numbers.loss(), numbers.sum());
        self.launch(kernels::Elementwise::Scale { src: loss, dst: loss, factor: part.share })?;
        self.launch(kernels::Elementwise::Add { a: sum, b: loss, dst: sum })
    }

    /// Overwrites a chunk's logits with their gradient.
    fn chunk_logits_gradient(
        &self,
        head: &Head<'_>,
        part: LossChunk,
        numbers: &Numbers,
        (logits, of_rows): (&Tensor, &Tensor),
    ) -> OpResult<()> {
        let cols = logits.shape().last();
        self.launch(kernels::Elementwise::Fill { dst: numbers.loss(), value: part.share })?;
        self.launch(kernels::Loss::CrossEntropyBackward {
            grad: numbers.loss(),
            logits: logits.operand(),
            targets: part.of(head.targets),
            total_weight: numbers.count(),
            logsumexp: part.of(of_rows),
            cols,
            stride: cols,
        })
    }

    /// `input` (m, k) times `weight` (n, k) transposed.
    fn head_product(&mut self, [m, n, k]: [usize; 3], input: &Tensor, weight: &Tensor, to: &Tensor) -> OpResult<()> {
        let memory = self.memory().clone();
        self.workspaces.gemm(&memory)?;
        let (a, b, c) = (input.matrix(), weight.transposed(), to.matrix());
        self.launch(kernels::Gemm { m, n, k, batch: 1, a, b, c, bias: None, alpha: 1.0, beta: 0.0 })
    }

    /// Gradients of the product with the head: of its input, and of the weight, which is summed over chunks.
    fn head_gradients(
        &self,
        grad: &Tensor,
        (input, weight): (&Tensor, &Tensor),
        (to_input, to_weight): (&Tensor, Option<&Tensor>),
    ) -> OpResult<()> {
        let (m, n, k) = (input.shape().rows(), weight.shape().rows(), input.shape().last());
        let (bias, alpha, batch): (Option<Operand>, _, _) = (None, 1.0, 1);
        let (a, b, c) = (grad.matrix(), weight.matrix(), to_input.matrix());
        self.launch(kernels::Gemm { m, n: k, k: n, batch, a, b, c, bias, alpha, beta: 0.0 })?;
        let Some(to_weight) = to_weight else { return Ok(()) };
        let (a, b, c) = (grad.transposed(), input.matrix(), to_weight.matrix());
        self.launch(kernels::Gemm { m: n, n: k, k: m, batch, a, b, c, bias, alpha, beta: 1.0 })
    }
}
