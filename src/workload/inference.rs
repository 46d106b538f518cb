//! Inference: a model's forward pass without training, in the usual ways.

mod generate;

use std::rc::Rc;

use vramlab_allocator::units::Bytes;
use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{
    Batch, BatchSource, CacheKind, Config, Context, Layouts, Model, OpResult, Outcome, Routine, Task, Tensor,
    TrainError, Workload,
};

/// How a forward pass is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InferenceMode {
    /// `model.eval()` under `torch.no_grad()`.
    NoGrad,
    /// `model.eval()` under `torch.inference_mode()`: the same memory.
    InferenceMode,
    /// `model.eval()` alone: the whole graph is built and lives as long as the output.
    Eval,
    /// A model in training mode, without backward: the graph is built, and batch norm uses the batch's statistics.
    Train,
    /// A language model writes token after token, under `torch.no_grad()`.
    Generate(Generation),
}

impl InferenceMode {
    /// The mode's word.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoGrad => "no_grad",
            Self::InferenceMode => "inference_mode",
            Self::Eval => "eval",
            Self::Train => "train",
            Self::Generate(_) => "generate",
        }
    }
}

/// How a language model writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Tokens that it writes after a prompt; prompt and text fill the model's sequence.
    pub new_tokens: usize,
    /// Keys and values are kept in tensors of the sequence's length, made once, instead of growing ones.
    pub preallocated: bool,
}

/// How many models there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Models {
    /// One.
    #[default]
    One,
    /// Two, on the device together.
    Together,
    /// Two; the second shares the first one's parameters.
    Shared,
    /// Two, each made when needed and dropped afterwards.
    InTurn,
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InferencePlan {
    /// How.
    pub mode: InferenceMode,
    /// Parameters and inputs are fp16 (`model.half()`).
    pub half: bool,
    /// How many models.
    pub models: Models,
}

/// The inference of another workload's model, on the first of its reference batches.
pub struct Inference {
    trained: Rc<dyn Workload>,
    plan: InferencePlan,
}

impl Inference {
    /// Runs the model of `trained` as `plan` says.
    #[must_use]
    pub fn new(trained: Box<dyn Workload>, plan: InferencePlan) -> Self {
        Self { trained: trained.into(), plan }
    }
}

impl Workload for Inference {
    fn name(&self) -> &str {
        self.trained.name()
    }

    fn build(&self, cx: &mut Context) -> OpResult<Task> {
        let mut passes = Passes { trained: Rc::clone(&self.trained), plan: self.plan, models: Vec::new(), input: None };
        let resident = match self.plan.models {
            Models::One | Models::Shared => 1,
            Models::Together => 2,
            Models::InTurn => 0,
        };
        for _ in 0..resident {
            passes.models.push(model(&*self.trained, cx)?);
        }
        if self.plan.models == Models::Shared {
            // A second module with the first one's parameters refers to the same tensors.
            let second = passes.models.first().map(Rc::clone);
            passes.models.extend(second);
        }
        Ok(Task::Routine(Box::new(passes)))
    }

    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>> {
        self.trained.resident_batches(cx, samples)
    }

    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, step: u64) -> OpResult<Batch> {
        self.trained.fresh_batch(cx, batch, samples, step)
    }

    fn batch_layouts(&self, samples: usize) -> Layouts {
        self.trained.batch_layouts(samples)
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        self.trained.batch_source()
    }

    fn items_per_sample(&self) -> usize {
        match self.plan.mode {
            InferenceMode::Generate(generation) => generation.new_tokens,
            _ => self.trained.items_per_sample(),
        }
    }
}

fn model(workload: &dyn Workload, cx: &mut Context) -> OpResult<Rc<dyn Model>> {
    match workload.build(cx)? {
        Task::Supervised(model) => Ok(model),
        Task::Adversarial(_) | Task::Routine(_) => {
            let text = format!("{} has no single model to run; choose a supervised workload", workload.name());
            Err(TrainError::Workload(text).into())
        }
    }
}

/// Forward passes over one input.
struct Passes {
    trained: Rc<dyn Workload>,
    plan: InferencePlan,
    /// The models that stay on the device.
    models: Vec<Rc<dyn Model>>,
    input: Option<Tensor>,
}

impl Passes {
    /// Makes the input, then converts everything to fp16, as a program that loads before it calls `half()`.
    fn make_input(&mut self, cx: &mut Context, samples: usize) -> OpResult<Tensor> {
        self.input = None;
        let Batch { input, target, .. } = self.trained.fresh_batch(cx, 0, samples, 0)?;
        drop(target);
        let mut input = match self.plan.mode {
            InferenceMode::Generate(generation) => generation.prompt(cx, &input)?,
            _ => input,
        };
        if self.plan.half {
            cx.convert_model(DType::F16)?;
            if input.dtype() == DType::F32 {
                input = cx.cast(&input, DType::F16, "batch input")?;
                cx.memory().relabel(&input, Category::Input, cx.memory().name("batch input"));
            }
        }
        self.input = Some(input.clone());
        Ok(input)
    }

    fn run(&self, cx: &mut Context, config: &Config, model: &dyn Model, input: &Tensor) -> OpResult<Tensor> {
        let forward =
            |cx: &mut Context| cx.autocast(config.amp.dtype(), |cx| model.forward(cx, input, config.checkpointing));
        match self.plan.mode {
            InferenceMode::NoGrad | InferenceMode::InferenceMode => cx.no_grad(|cx| cx.evaluating(forward)),
            InferenceMode::Eval => cx.evaluating(forward),
            InferenceMode::Train => forward(cx),
            InferenceMode::Generate(generation) => cx.evaluating(|cx| generation.run(cx, config, model, input)),
        }
    }

    fn all(&self, cx: &mut Context, config: &Config, input: &Tensor) -> OpResult<Outcome> {
        let mut outputs = Vec::new();
        for model in &self.models {
            outputs.push(self.run(cx, config, &**model, input)?);
        }
        if self.plan.models == Models::InTurn {
            for _ in 0..2 {
                // The last output is freed with the model that follows it.
                outputs.clear();
                cx.drop_graph();
                cx.drop_model();
                let model = model(&*self.trained, cx)?;
                if self.plan.half {
                    cx.convert_model(DType::F16)?;
                }
                outputs.push(self.run(cx, config, &*model, input)?);
            }
        }
        Ok(Outcome {
            allocated: Some(cx.memory().allocated()),
            output: Some(Bytes(outputs.iter().map(|output| output.bytes().get()).sum())),
            ..Outcome::default()
        })
    }
}

impl Routine for Passes {
    fn prepare(&mut self, cx: &mut Context, config: &Config) -> OpResult<()> {
        self.make_input(cx, config.batch).map(drop)
    }

    fn step(&mut self, cx: &mut Context, config: &Config, _: u64) -> OpResult<Outcome> {
        let input = match &self.input {
            Some(input) => input.clone(),
            None => self.make_input(cx, config.batch)?,
        };
        let outcome = self.all(cx, config, &input)?;
        cx.drop_graph();
        if self.plan.models == Models::InTurn {
            cx.drop_model();
        }
        Ok(outcome)
    }

    fn reset(&mut self) {
        self.input = None;
    }
}

impl Generation {
    const fn cache(self, positions: usize) -> CacheKind {
        if self.preallocated { CacheKind::Preallocated { positions } } else { CacheKind::Growing }
    }
}
