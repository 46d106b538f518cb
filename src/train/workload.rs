//! What the trainer asks of a workload: a model, and batches for it.

use std::rc::Rc;

use crate::device::DType;

use super::context::Context;
use super::error::{OpResult, TrainError};
use super::tensor::{Shape, Tensor};

/// Makes batches; lives on the loader thread.
pub trait BatchSource: Send {
    /// Fills the next batch: the bytes of both tensors, row-major, little-endian.
    ///
    /// # Errors
    /// A sentence: why there is no further batch.
    fn fill(&mut self, input: &mut [u8], target: &mut [u8]) -> Result<(), String>;
}

/// The tensors of one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchLayout {
    /// Shape and type of the input.
    pub input: (Shape, DType),
    /// Shape and type of the target.
    pub target: (Shape, DType),
}

impl BatchLayout {
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

    /// Bytes of both.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.input_bytes() + self.target_bytes()
    }
}

/// One micro-batch on the device.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What the model gets.
    pub input: Tensor,
    /// What its output is compared with: i64, one class per row of logits.
    pub target: Tensor,
}

/// A model that is trained.
pub trait Model {
    /// Logits (…, classes) for an input.
    ///
    /// # Errors
    /// What its ops return.
    fn forward(&self, cx: &mut Context, input: &Tensor, checkpointing: bool) -> OpResult<Tensor>;
}

/// A model, its weights and its data.
pub trait Workload {
    /// `gpt-mini`.
    fn name(&self) -> &str;

    /// Makes the parameters, in order, and gives them their first values.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    fn build(&self, cx: &mut Context) -> OpResult<Rc<dyn Model>>;

    /// The four batches of `samples` each that stay on the device.
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>>;

    /// The tensors of a streamed batch of `samples`.
    fn batch_layout(&self, samples: usize) -> BatchLayout;

    /// What makes streamed batches, on the loader thread.
    ///
    /// # Errors
    /// [`TrainError::Data`].
    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError>;

    /// Tokens (language models) or 1 (others) in one sample.
    fn items_per_sample(&self) -> usize;

    /// After every so many steps the model writes a piece of text.
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
