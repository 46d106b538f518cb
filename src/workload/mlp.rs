//! A multilayer perceptron: hidden layers of Linear and ReLU, then a head.

use std::rc::Rc;

use crate::device::DType;
use crate::model::NameId;
use crate::train::{
    Batch, BatchLayout, BatchSource, Context, Model, OpResult, Segment, Shape, Task, Tensor, TrainError, Workload,
    checkpoint,
};

use super::hash::{self, Cycle, Init, Parameters};

/// Sizes of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlpSizes {
    /// Elements of a sample.
    pub inputs: usize,
    /// Width of the hidden layers.
    pub width: usize,
    /// Linear layers, the head included.
    pub depth: usize,
    /// Classes.
    pub classes: usize,
}

/// The MLP workload.
#[derive(Clone, Debug)]
pub struct Mlp {
    name: String,
    sizes: MlpSizes,
}

impl Mlp {
    /// A workload of these sizes.
    ///
    /// # Errors
    /// [`TrainError::Workload`] for sizes of which no model can be made.
    pub fn new(name: &str, sizes: MlpSizes) -> Result<Self, TrainError> {
        if [sizes.inputs, sizes.width, sizes.depth, sizes.classes].contains(&0) {
            return Err(TrainError::Workload("a size of 0 makes no model; give sizes of at least 1".into()));
        }
        Ok(Self { name: name.into(), sizes })
    }

    /// Its sizes.
    #[must_use]
    pub const fn sizes(&self) -> MlpSizes {
        self.sizes
    }
}

struct Linear {
    scope: NameId,
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    fn make(cx: &mut Context, all: &mut Parameters, name: &str, inputs: usize, outputs: usize) -> OpResult<Self> {
        #[expect(clippy::cast_precision_loss, reason = "layer sizes are small")]
        let bound = (3.0 / inputs as f64).sqrt();
        Ok(Self {
            scope: cx.memory().name(name),
            weight: all.make(cx, &format!("{name}.weight"), &[outputs, inputs], Init::Uniform(bound))?,
            bias: all.make(cx, &format!("{name}.bias"), &[outputs], Init::Zero)?,
        })
    }

    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        cx.within(self.scope, |cx| cx.linear(input, &self.weight, Some(&self.bias)))
    }
}

/// Linear, then ReLU.
struct Hidden {
    linear: Linear,
    relu: NameId,
}

impl Segment for Hidden {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        // The linear's output lives until the ReLU has returned: the loop of `nn.Sequential` rebinds its variable then.
        let output = self.linear.forward(cx, input)?;
        cx.within(self.relu, |cx| cx.relu(&output))
    }
}

struct Network {
    hidden: Vec<Rc<dyn Segment>>,
    head: Linear,
}

impl Model for Network {
    fn forward(&self, cx: &mut Context, input: &Tensor, checkpointing: bool) -> OpResult<Tensor> {
        let mut x = input.clone();
        for layer in &self.hidden {
            x = if checkpointing { checkpoint(cx, layer, &x)? } else { layer.forward(cx, &x)? };
        }
        self.head.forward(cx, &x)
    }
}

impl Workload for Mlp {
    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, cx: &mut Context) -> OpResult<Task> {
        let mut all = Parameters::new();
        let mut inputs = self.sizes.inputs;
        let mut hidden = Vec::new();
        for i in 0..self.sizes.depth - 1 {
            let linear = Linear::make(cx, &mut all, &format!("hidden.{i}.0"), inputs, self.sizes.width)?;
            hidden.push(hash::segment(Hidden { linear, relu: cx.memory().name(&format!("hidden.{i}.1")) }));
            inputs = self.sizes.width;
        }
        let head = Linear::make(cx, &mut all, "head", inputs, self.sizes.classes)?;
        all.initialise(cx)?;
        Ok(Task::Supervised(Rc::new(Network { hidden, head })))
    }

    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>> {
        hash::four(|b| self.fresh_batch(cx, b, samples, 0))
    }

    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, _: u64) -> OpResult<Batch> {
        hash::labelled(cx, batch, &[samples, self.sizes.inputs], self.sizes.classes)
    }

    fn batch_layout(&self, samples: usize) -> BatchLayout {
        BatchLayout {
            input: (Shape::new(&[samples, self.sizes.inputs]), DType::F32),
            target: (Shape::new(&[samples]), DType::I64),
        }
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        Ok(Box::new(Cycle::labelled(self.sizes.inputs, self.sizes.classes)))
    }

    fn items_per_sample(&self) -> usize {
        1
    }
}
