//! Inputs of the update rules of all optimizers.

use crate::config::{Hyper, OptimizerForm};
use crate::context::Context;
use crate::error::OpResult;
use crate::tensor::Tensor;
use vramlab_device::{AdamParameters, DType, GradScaling, LionParameters, ParameterUpdate};

use super::state::State;

/// Inputs of a step besides parameters and state.
#[derive(Clone, Copy)]
pub(super) struct StepRule {
    pub form: OptimizerForm,
    pub lr: f64,
    pub weight_decay: f64,
    /// The scale of a gradient scaler, only for a fused kernel: it divides the gradients itself.
    pub scaling: Option<GradScaling>,
}

impl StepRule {
    /// The numbers for a kernel of Adam in update number `step` of a parameter.
    pub const fn of_adam(&self, hyper: &Hyper, decoupled: bool, step: u64) -> AdamParameters {
        let &Hyper { beta1, beta2, eps, .. } = hyper;
        AdamParameters { lr: self.lr, beta1, beta2, eps, weight_decay: self.weight_decay, decoupled, step }
    }

    /// The numbers for a kernel of Lion; the decay of its moment is bitsandbytes' own.
    pub const fn of_lion(&self, hyper: &Hyper) -> LionParameters {
        LionParameters { lr: self.lr, beta1: hyper.beta1, beta2: 0.99, weight_decay: self.weight_decay }
    }
}

/// A parameter with its gradient.
#[derive(Clone)]
pub(super) struct ParameterGradient {
    /// Its position among the parameters.
    pub index: usize,
    pub data: Tensor,
    pub gradient: Tensor,
}

/// The parameters of each type, as PyTorch's foreach and fused forms group them: the type that comes up last goes first.
pub(super) fn by_type(parameters: &[ParameterGradient]) -> Vec<Vec<ParameterGradient>> {
    let mut groups: Vec<Vec<ParameterGradient>> = Vec::new();
    for parameter in parameters {
        let dtype = parameter.data.dtype();
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| first.data.dtype() == dtype)) {
            Some(group) => group.push(parameter.clone()),
            None => groups.push(vec![parameter.clone()]),
        }
    }
    groups.reverse();
    groups
}

impl ParameterGradient {
    /// The tensors for a kernel, with the state that the optimizer has.
    pub fn update(&self, first: Option<&State>, second: Option<&State>) -> ParameterUpdate {
        let operand = |state: Option<&State>| state.and_then(State::tensor).map(Tensor::operand);
        ParameterUpdate {
            parameter: self.data.operand(),
            gradient: self.gradient.operand(),
            first: operand(first),
            second: operand(second),
        }
    }

    /// A tensor of optimizer state with the parameter's shape and type.
    pub fn state(&self, cx: &Context, what: &str) -> OpResult<State> {
        self.state_in(cx, self.data.dtype(), what)
    }

    /// A tensor of optimizer state with the parameter's shape and a type of its own.
    pub fn state_in(&self, cx: &Context, dtype: DType, what: &str) -> OpResult<State> {
        let name = cx.memory().name(&self.named(cx, what));
        State::new(cx.memory(), &self.data, dtype, name)
    }

    /// The name of something that belongs to the parameter: `blocks.0.fc.weight.exp_avg`.
    pub fn named(&self, cx: &Context, what: &str) -> String {
        format!("{}.{what}", cx.leaves[self.index].name)
    }

    /// A temporary like the parameter; for a parameter that is stepped on the host it takes no device memory.
    pub fn temporary(&self, cx: &Context, what: &'static str) -> OpResult<Tensor> {
        if self.data.is_on_host() {
            return Ok(cx.memory().meta(self.data.shape(), self.data.dtype()));
        }
        cx.temporary(self.data.shape(), self.data.dtype(), what)
    }
}

/// One temporary per parameter, as foreach makes them. Drop it where PyTorch drops the list.
pub(super) fn temporaries(cx: &Context, parameters: &[ParameterGradient], what: &'static str) -> OpResult<Vec<Tensor>> {
    parameters.iter().map(|parameter| parameter.temporary(cx, what)).collect()
}

/// The parameters that have gradients.
pub(super) fn with_gradients(cx: &Context, parameters: &[usize]) -> Vec<ParameterGradient> {
    let leaves = parameters.iter().map(|&index| (index, &cx.leaves[index]));
    leaves
        .filter_map(|(index, leaf)| {
            let (data, gradient) = leaf.trained();
            // A rank may hold no row of a small parameter.
            let gradient = gradient.filter(|_| data.numel() > 0)?.clone();
            Some(ParameterGradient { index, data: data.clone(), gradient })
        })
        .collect()
}
