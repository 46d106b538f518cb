//! A model whose weights come from a checkpoint, in the ways in which programs load one.

use std::cell::RefCell;
use std::str::FromStr;

use vramlab_train::{
    Batch, BatchSource, Context, Layouts, Model, OpResult, StateDict, Task, Tensor, TrainError, Workload,
};

/// How a checkpoint is loaded into an existing model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointLoad {
    /// `torch.load(file, map_location="cuda")`: the file's tensors are on the device beside the model's until they are
    /// copied; then they are freed.
    Device,
    /// The same in a program that keeps the loaded dict in a variable.
    Kept,
    /// `torch.load(file, map_location="cpu")`: the file's tensors lie in host memory.
    Host,
}

impl CheckpointLoad {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Device, Self::Kept, Self::Host];

    /// The way's word.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Kept => "kept",
            Self::Host => "host",
        }
    }
}

impl FromStr for CheckpointLoad {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || format!("a checkpoint is loaded by way of device, kept or host, not '{text}'");
        Self::ALL.into_iter().find(|way| way.label() == text).ok_or_else(known)
    }
}

/// Another workload whose model loads a checkpoint before anything else. The file was saved from the same model by
/// another process, which has ended.
pub struct CheckpointWorkload {
    inner: Box<dyn Workload>,
    loading: CheckpointLoad,
    /// Tensors that a variable of the program still holds.
    held: RefCell<Vec<Tensor>>,
}

impl CheckpointWorkload {
    /// `inner`, from a checkpoint.
    #[must_use]
    pub fn new(inner: Box<dyn Workload>, loading: CheckpointLoad) -> Self {
        Self { inner, loading, held: RefCell::default() }
    }

    fn file(&self, cx: &mut Context) -> OpResult<StateDict> {
        let task = self.inner.build(cx)?;
        let file = cx.save_state()?;
        drop(task);
        cx.drop_model();
        cx.memory().release_cached();
        Ok(file)
    }
}

impl Workload for CheckpointWorkload {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn build(&self, cx: &mut Context) -> OpResult<Task> {
        self.held.take();
        let file = self.file(cx)?;
        let task = self.inner.build(cx)?;
        match self.loading {
            CheckpointLoad::Host => cx.load_state_from_host(&file)?,
            CheckpointLoad::Device | CheckpointLoad::Kept => {
                let state = cx.load_on_device(&file)?;
                cx.load_state(&state)?;
                if self.loading == CheckpointLoad::Kept {
                    self.held.replace(state);
                }
            }
        }
        Ok(task)
    }

    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>> {
        self.inner.resident_batches(cx, samples)
    }

    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, step: u64) -> OpResult<Batch> {
        self.inner.fresh_batch(cx, batch, samples, step)
    }

    fn batch_layouts(&self, samples: usize) -> Layouts {
        self.inner.batch_layouts(samples)
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        self.inner.batch_source()
    }

    fn items_per_sample(&self) -> usize {
        self.inner.items_per_sample()
    }

    fn least_micro_batch(&self) -> usize {
        self.inner.least_micro_batch()
    }

    fn takes_attention_mask(&self) -> bool {
        self.inner.takes_attention_mask()
    }

    fn takes_float8(&self) -> bool {
        self.inner.takes_float8()
    }

    fn writes_every(&self) -> Option<u64> {
        self.inner.writes_every()
    }

    fn write(&self, cx: &mut Context, model: &dyn Model, step: u64) -> OpResult<Option<String>> {
        self.inner.write(cx, model, step)
    }
}
