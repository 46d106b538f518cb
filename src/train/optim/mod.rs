//! Optimizers, with the blocks of PyTorch's three implementations of each.
//!
//! State is born in the first step, parameter by parameter. What a step asks for beside it depends on the form:
//! foreach runs one elementary operation over all parameters after the other, so its intermediate results have the size
//! of all parameters; the loop's have the size of one; the fused kernel has none. The arithmetic is one kernel in each
//! form; the temporaries are requested all the same.

mod adam;
mod schedule;
mod sgd;

use std::ops::Range;

use crate::device::{GradScaling, ParameterUpdate};
use crate::model::Category;
use crate::units::StreamId;

use super::config::{Config, OptimizerForm, OptimizerKind};
use super::context::Context;
use super::error::OpResult;
use super::tensor::Tensor;

/// An optimizer and its state. Dropping it frees the state.
pub(crate) struct Optimizer {
    rule: Rule,
    form: OptimizerForm,
}

enum Rule {
    Sgd(sgd::Sgd),
    Adam(adam::Adam),
}

/// What one step needs to know beside parameters and state.
#[derive(Clone, Copy)]
struct StepRule {
    form: OptimizerForm,
    lr: f64,
    weight_decay: f64,
    /// Only a fused kernel divides gradients by the scale of a gradient scaler itself.
    scaling: Option<GradScaling>,
}

impl Optimizer {
    /// An optimizer without state.
    pub const fn new(kind: OptimizerKind, form: OptimizerForm) -> Self {
        let rule = match kind {
            OptimizerKind::Sgd => Rule::Sgd(sgd::Sgd::new(false)),
            OptimizerKind::Momentum => Rule::Sgd(sgd::Sgd::new(true)),
            OptimizerKind::Adam => Rule::Adam(adam::Adam::new(false)),
            OptimizerKind::AdamW => Rule::Adam(adam::Adam::new(true)),
        };
        Self { rule, form }
    }

    /// True when its kernel unscales gradients and looks at the overflow flag itself, so that nobody waits for the flag.
    pub fn scales_itself(&self) -> bool {
        self.form == OptimizerForm::Fused
    }

    /// Updates every one of `parameters` that has a gradient, in step number `step` of the training.
    pub fn step(
        &mut self,
        cx: &mut Context,
        config: &Config,
        parameters: Range<usize>,
        step: u64,
        scaling: Option<GradScaling>,
    ) -> OpResult<()> {
        let parameters = with_gradients(cx, parameters);
        let rule = StepRule {
            form: self.form,
            lr: config.hyper.learning_rate(config.optimizer) * schedule::factor(config, step),
            weight_decay: config.hyper.decay(config.optimizer),
            scaling,
        };
        match &mut self.rule {
            Rule::Sgd(sgd) => cx.op("sgd", |cx| sgd.step(cx, config.hyper.momentum, rule, &parameters)),
            Rule::Adam(adam) => cx.op("adam", |cx| adam.step(cx, &config.hyper, rule, &parameters)),
        }
    }

    /// The last step found an overflow and changed nothing: it does not count.
    pub fn take_back(&mut self) {
        if let Rule::Adam(adam) = &mut self.rule {
            adam.take_back();
        }
    }
}

/// A parameter with its gradient.
struct Trained {
    /// Its position among the parameters.
    index: usize,
    data: Tensor,
    gradient: Tensor,
}

impl Trained {
    /// What a kernel needs, with the state that the optimizer has.
    fn update(&self, first: Option<&Tensor>, second: Option<&Tensor>) -> ParameterUpdate {
        ParameterUpdate {
            parameter: self.data.operand(),
            gradient: self.gradient.operand(),
            first: first.map(Tensor::operand),
            second: second.map(Tensor::operand),
        }
    }

    /// A tensor of optimizer state like the parameter.
    fn state(&self, cx: &Context, what: &str) -> OpResult<Tensor> {
        let name = cx.memory().name(&format!("{}.{what}", cx.leaves[self.index].name));
        let (shape, dtype) = (self.data.shape(), self.data.dtype());
        cx.memory().named_tensor(shape, dtype, Category::OptimizerState, name, StreamId::DEFAULT)
    }

    /// An intermediate result like the parameter.
    fn temporary(&self, cx: &Context, what: &'static str) -> OpResult<Tensor> {
        cx.temporary(self.data.shape(), self.data.dtype(), what)
    }
}

/// One intermediate result per parameter, as foreach makes them. Drop it where PyTorch forgets the list.
fn temporaries(cx: &Context, parameters: &[Trained], what: &'static str) -> OpResult<Vec<Tensor>> {
    parameters.iter().map(|parameter| parameter.temporary(cx, what)).collect()
}

/// Those of `parameters` that have gradients.
fn with_gradients(cx: &Context, parameters: Range<usize>) -> Vec<Trained> {
    let leaves = cx.leaves.iter().enumerate().take(parameters.end).skip(parameters.start);
    leaves
        .filter_map(|(index, leaf)| Some(Trained { index, data: leaf.data.clone(), gradient: leaf.gradient.clone()? }))
        .collect()
}
