//! What the trainer asks of a workload: a model, and batches for it.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use vramlab_allocator::units::Bytes;
use vramlab_device::DType;

use super::config::{Checkpointing, Config};
use super::context::Context;
use super::error::{OpResult, TrainError};
use super::shape::Shape;
use super::tensor::Tensor;

/// Makes batches; lives on the loader thread.
pub trait BatchSource: Send {
    /// Fills the next batch of this layout: the bytes of input and target, row-major, little-endian.
    ///
    /// # Errors
    /// A sentence: why there is no further batch.
    fn fill(&mut self, layout: &BatchLayout, input: &mut [u8], target: &mut [u8]) -> Result<(), String>;

    /// Skips the next `batches` batches of this layout: they belong to other ranks.
    fn skip(&mut self, batches: u64, layout: &BatchLayout);
}

/// The tensors of one batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchLayout {
    /// Shape and type of the input.
    pub input: (Shape, DType),
    /// Shape and type of the target.
    pub target: (Shape, DType),
    /// Tokens of each sample, if some are shorter than the rows: the rest of a row is padding.
    pub lengths: Option<Arc<[u32]>>,
    /// The input comes with a mask that marks padding: see [`Batch::mask`].
    pub masked: bool,
}

impl BatchLayout {
    /// Tensors of these shapes and types, without padding.
    #[must_use]
    pub const fn new(input: (Shape, DType), target: (Shape, DType)) -> Self {
        Self { input, target, lengths: None, masked: false }
    }

    /// Bytes of the input.
    #[must_use]
    pub fn input_bytes(&self) -> usize {
        usize::try_from(self.input.1.bytes(self.input.0.numel()).get()).unwrap_or(usize::MAX)
    }

    /// Bytes of the target.
    #[must_use]
    pub fn target_bytes(&self) -> usize {
        usize::try_from(self.target.1.bytes(self.target.0.numel()).get()).unwrap_or(usize::MAX)
    }

    /// Shape and type of the mask, where there is one.
    #[must_use]
    pub fn mask(&self) -> Option<(Shape, DType)> {
        self.masked.then_some((self.input.0, DType::I64))
    }

    /// Bytes of the mask.
    #[must_use]
    pub fn mask_bytes(&self) -> usize {
        self.mask().map_or(0, |(shape, dtype)| usize::try_from(dtype.bytes(shape.numel()).get()).unwrap_or(usize::MAX))
    }

    /// Bytes of all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.input_bytes().saturating_add(self.target_bytes()).saturating_add(self.mask_bytes())
    }

    /// Writes the mask: 1 where a sample has a token, else 0.
    pub(crate) fn fill_mask(&self, mask: &mut [u8]) {
        let rows = self.input.0.last();
        for (sample, row) in mask.chunks_exact_mut((8 * rows).max(8)).enumerate() {
            let length = self.lengths.as_ref().and_then(|lengths| lengths.get(sample)).map_or(rows, |&n| n as usize);
            for (position, element) in row.as_chunks_mut().0.iter_mut().enumerate() {
                *element = i64::from(position < length).to_le_bytes();
            }
        }
    }
}

/// The layouts of streamed batches by number, from the first on. Copies share the function that makes them.
#[derive(Clone)]
pub enum Layouts {
    /// All are alike.
    Alike(BatchLayout),
    /// Each has its own.
    Each(Rc<dyn Fn(u64) -> BatchLayout>),
}

impl Layouts {
    /// The layout of batch number `number`.
    #[must_use]
    pub fn of(&self, number: u64) -> BatchLayout {
        match self {
            Self::Alike(layout) => layout.clone(),
            Self::Each(layout) => layout(number),
        }
    }
}

/// Equal only if both are known to be the same.
impl PartialEq for Layouts {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Alike(one), Self::Alike(other)) => one == other,
            (Self::Each(one), Self::Each(other)) => Rc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// One micro-batch on the device.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The model's input.
    pub input: Tensor,
    /// The target of its output: i64, one class per row of logits.
    pub target: Tensor,
    /// `attention_mask`, as tokenizers and collators of transformers make it, if the program passes it on: 1 for each token of
    /// the input, 0 for padding; i64, in the shape of the input.
    pub mask: Option<Tensor>,
    /// Tokens of each sample, if some are shorter than the rows: the rest of a row is padding, whose targets don't count.
    pub lengths: Option<Arc<[u32]>>,
}

impl Batch {
    /// A batch without padding and without a mask.
    #[must_use]
    pub const fn new(input: Tensor, target: Tensor) -> Self {
        Self { input, target, mask: None, lengths: None }
    }

    /// Equal parts of the batch, as views of its tensors.
    #[must_use]
    pub fn cut(&self, parts: usize) -> Vec<Self> {
        let samples = |tensor: &Tensor| tensor.shape().dims().first().copied().unwrap_or(1) / parts.max(1);
        let view = |tensor: &Tensor, part: usize| {
            let shape = tensor.shape().with_first(samples(tensor));
            tensor.window(shape, part * shape.numel())
        };
        let row = self.input.shape().dims().get(1).copied().unwrap_or_default();
        let of = |part: usize| {
            let first = part * samples(&self.input);
            let lengths = self.lengths.as_ref().and_then(|all| all.get(first..first + samples(&self.input)));
            let lengths = lengths.filter(|lengths| lengths.iter().any(|length| (*length as usize) < row));
            Self {
                input: view(&self.input, part),
                target: view(&self.target, part),
                mask: self.mask.as_ref().map(|mask| view(mask, part)),
                lengths: lengths.map(Arc::from),
            }
        };
        (0..parts).map(of).collect()
    }

    /// All of its tensors, in the order in which a program makes them.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        [&self.input].into_iter().chain(&self.mask).chain([&self.target])
    }
}

/// A model that is trained.
pub trait Model {
    /// Logits (…, classes) for an input.
    ///
    /// # Errors
    /// What its ops return.
    fn forward(&self, cx: &mut Context, input: &Tensor, checkpointing: Checkpointing) -> OpResult<Tensor>;

    /// The output of a pipeline stage for a micro-batch. The input of the first stage are tokens, of the others the output of the
    /// stage before; all get the batch's mask. Checkpointed blocks are counted from the first block of the stage.
    ///
    /// # Errors
    /// [`TrainError::Workload`] for a model that can't be cut, and what its ops return.
    fn stage_forward(
        &self,
        _cx: &mut Context,
        _batch: &Batch,
        _part: &StagePart,
        _checkpointing: Checkpointing,
    ) -> OpResult<Tensor> {
        Err(TrainError::Workload("this model can't be cut into the stages of a pipeline; use ddp".into()).into())
    }

    /// How the model is cut into pipeline stages, if it can be.
    fn cut(&self) -> Option<Cut> {
        None
    }

    /// The kind of a unit: units of one kind make the same requests if their parameters have the same sizes.
    fn unit_kind(&self, _unit: usize) -> usize {
        0
    }

    /// Keeps this part for a stage: drops what the model has besides parameters and the part does not need.
    fn keep_part(&self, _cx: &mut Context, _part: &StagePart) {}

    /// Shape and type of the data between stages for these tokens; `None` for models of other inputs.
    fn stage_input(&self, _tokens: &Tensor) -> Option<(Shape, DType)> {
        None
    }

    /// The loss of the last stage's output, given the targets of its micro-batch.
    ///
    /// # Errors
    /// What its ops return.
    fn stage_loss(&self, cx: &mut Context, output: &Tensor, batch: &Batch) -> OpResult<Tensor> {
        cx.cross_entropy(output, &batch.target)
    }

    /// Logits for an input, and their loss against the target: cross-entropy, unless a model has its own.
    ///
    /// # Errors
    /// What its ops return.
    fn learn(&self, cx: &mut Context, batch: &Batch, checkpointing: Checkpointing) -> OpResult<(Tensor, Tensor)> {
        let logits = self.forward(cx, &batch.input, checkpointing)?;
        let [logits, scores] = cx.leave_model(logits)?;
        let loss = cx.cross_entropy(&scores, &batch.target)?;
        Ok((logits, loss))
    }
}

/// How a program makes stages of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// With modules of its own: blocks before the modules around them, and for the last stage a head whose weight is a clone of
    /// the table.
    Rebuilt,
    /// With the model itself, without the modules of other stages. A head that shares the table's weight keeps it.
    Reduced {
        /// The head has the table's weight.
        tied: bool,
    },
}

/// The part of a model that one stage of a pipeline has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePart {
    /// Its units: see [`Context::unit`].
    pub units: Range<usize>,
    /// It has the modules before the units.
    pub first: bool,
    /// It has the modules after the units.
    pub last: bool,
}

/// Two models that are trained against each other; each has its own parameters.
pub struct Adversaries {
    /// Makes samples from noise: the target of a batch.
    pub generator: Rc<dyn Model>,
    /// Tells generated samples from real ones: one logit per sample.
    pub discriminator: Rc<dyn Model>,
    /// How many parameters the generator has; they were made first.
    pub generator_parameters: usize,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The loss; `None` if the device computes none.
    pub loss: Option<f32>,
    /// An overflow kept the optimizer from running.
    pub skipped: bool,
    /// Bytes allocated when the work is done and its result alive, for steps that don't train.
    pub allocated: Option<Bytes>,
    /// Bytes of that result.
    pub output: Option<Bytes>,
}

/// A step that does not train: inference, or bare allocations.
pub trait Routine {
    /// Makes its inputs, which it keeps between steps, before the first step under this configuration.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    fn prepare(&mut self, cx: &mut Context, config: &Config) -> OpResult<()> {
        let _ = (cx, config);
        Ok(())
    }

    /// Runs step number `step`.
    ///
    /// # Errors
    /// What its ops return. What it keeps between steps stays unchanged.
    fn step(&mut self, cx: &mut Context, config: &Config, step: u64) -> OpResult<Outcome>;

    /// Drops everything that it keeps between steps: after a failed step, and when the configuration changes.
    fn reset(&mut self);
}

/// What a workload does in a step.
pub enum Task {
    /// Forward, cross-entropy, backward, optimizer.
    Supervised(Rc<dyn Model>),
    /// Discriminator and generator in turns, with an optimizer each.
    Adversarial(Adversaries),
    /// A step of the workload's own.
    Routine(Box<dyn Routine>),
}

/// A model, its weights and its data.
pub trait Workload {
    /// Its name: `gpt-mini`.
    fn name(&self) -> &str;

    /// Makes the parameters, in order, and gives them their first values.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    fn build(&self, cx: &mut Context) -> OpResult<Task>;

    /// The four batches of `samples` each that stay on the device.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>>;

    /// Batch number `batch` (of four) of `samples`, made on the device for step number `step`.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, step: u64) -> OpResult<Batch>;

    /// The layouts of streamed batches of `samples`.
    fn batch_layouts(&self, samples: usize) -> Layouts;

    /// The source of streamed batches, for the loader thread.
    ///
    /// # Errors
    /// [`TrainError::Data`].
    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError>;

    /// Tokens (language models) or 1 (others) in one sample.
    fn items_per_sample(&self) -> usize;

    /// The fewest samples of a micro-batch: batch norm has no variance of one value per channel.
    fn least_micro_batch(&self) -> usize {
        1
    }

    /// Whether programs can pass a mask of padding with its batches ([`Config::attention_mask`]).
    fn takes_attention_mask(&self) -> bool {
        false
    }

    /// Whether its linear layers can be converted to 8-bit products ([`Config::float8`]).
    fn takes_float8(&self) -> bool {
        false
    }

    /// The number of steps after which the model writes a piece of text.
    fn writes_every(&self) -> Option<u64> {
        None
    }

    /// A piece of text, made by forward passes without gradients; `None` for models that don't write.
    ///
    /// # Errors
    /// What its ops return.
    fn write(&self, cx: &mut Context, model: &dyn Model, step: u64) -> OpResult<Option<String>> {
        let _ = (cx, model, step);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_one_for_every_token() {
        let tokens = (Shape::new(&[2, 3]), DType::I64);
        let mask = |lengths: Option<Arc<[u32]>>| {
            let layout = BatchLayout { lengths, masked: true, ..BatchLayout::new(tokens, tokens) };
            let mut bytes = vec![0xFF; layout.mask_bytes()];
            layout.fill_mask(&mut bytes);
            bytes.as_chunks().0.iter().map(|number| i64::from_le_bytes(*number)).collect::<Vec<_>>()
        };
        assert_eq!(mask(None), [1; 6]);
        assert_eq!(mask(Some([3, 1].into())), [1, 1, 1, 1, 0, 0]);
        assert_eq!(BatchLayout::new(tokens, tokens).bytes(), 96, "without a mask");
    }
}
