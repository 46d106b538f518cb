//! Optimizers, with the blocks of PyTorch's foreach implementations (the default on a GPU).
//!
//! State is born in the first step, parameter by parameter. The arithmetic of a step is one fused kernel; the temporaries
//! that the foreach form takes are requested all the same.

mod adam;
mod sgd;

use std::ops::Range;

use crate::model::Category;
use crate::units::StreamId;

use super::config::{Config, Hyper, OptimizerKind};
use super::context::Context;
use super::error::OpResult;
use super::tensor::Tensor;

/// The state of the optimizer in force. Dropping it frees the state.
pub(crate) enum Optimizer {
    Sgd(sgd::Sgd),
    Adam(adam::Adam),
}

impl Optimizer {
    /// An optimizer without state.
    pub fn new(kind: OptimizerKind) -> Self {
        match kind {
            OptimizerKind::Sgd => Self::Sgd(sgd::Sgd::new(false)),
            OptimizerKind::Momentum => Self::Sgd(sgd::Sgd::new(true)),
            OptimizerKind::Adam => Self::Adam(adam::Adam::new(false)),
            OptimizerKind::AdamW => Self::Adam(adam::Adam::new(true)),
        }
    }

    /// Updates every one of `parameters` that has a gradient, in step number `step` of the training.
    pub fn step(&mut self, cx: &mut Context, config: &Config, parameters: Range<usize>, step: u64) -> OpResult<()> {
        let _ = step;
        let parameters = with_gradients(cx, parameters);
        match self {
            Self::Sgd(sgd) => cx.op("sgd", |cx| sgd.step(cx, &config.hyper, &parameters)),
            Self::Adam(adam) => cx.op("adam", |cx| adam.step(cx, &config.hyper, &parameters)),
        }
    }
}

/// A tensor of optimizer state for one parameter.
fn state(cx: &Context, parameter: usize, what: &str) -> OpResult<Tensor> {
    let leaf = &cx.leaves[parameter];
    let (like, name) = (&leaf.data, cx.memory().name(&format!("{}.{what}", leaf.name)));
    cx.memory().named_tensor(like.shape(), like.dtype(), Category::OptimizerState, name, StreamId::DEFAULT)
}

/// A parameter's position, its weights, its gradient.
type WithGradient = (usize, Tensor, Tensor);

/// Those of `parameters` that have gradients.
fn with_gradients(cx: &Context, parameters: Range<usize>) -> Vec<WithGradient> {
    let leaves = cx.leaves.iter().enumerate().take(parameters.end).skip(parameters.start);
    leaves.filter_map(|(i, leaf)| Some((i, leaf.data.clone(), leaf.gradient.clone()?))).collect()
}

const fn learning_rate(hyper: &Hyper, adam: bool) -> f64 {
    if adam { hyper.adam_lr } else { hyper.sgd_lr }
}
