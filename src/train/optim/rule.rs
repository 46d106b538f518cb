//! What the update rules of all optimizers work on.

use crate::config::{Hyper, OptimizerForm};
use crate::context::Context;
use crate::error::OpResult;
use crate::tensor::Tensor;
use vramlab_device::{AdamParameters, DType, GradScaling, LionParameters, ParameterUpdate};

use super::state::State;

/// What one step needs to know beside parameters and state.
#[derive(Clone, Copy)]
pub(super) struct StepRule {
    pub form: OptimizerForm,
    pub lr: f64,
    pub weight_decay: f64,
    /// Only a fused kernel divides gradients by the scale of a gradient scaler itself.
    pub scaling: Option<GradScaling>,
}

impl StepRule {
    /// What a kernel of Adam needs to know in a parameter's update of this number.
    pub const fn of_adam(&self, hyper: &Hyper, decoupled: bool, step: u64) -> AdamParameters {
        let &Hyper { beta1, beta2, eps, .. } = hyper;
        AdamParameters { lr: self.lr, beta1, beta2, eps, weight_decay: self.weight_decay, decoupled, step }
    }

    /// What a kernel of Lion needs to know; its decay of the moment is the library's own.
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

impl ParameterGradient {
    /// What a kernel needs, with the state that the optimizer has.
    pub fn update(&self, first: Option<&State>, second: Option<&State>) -> ParameterUpdate {
        let operand = |state: Option<&State>| state.and_then(State::tensor).map(Tensor::operand);
        ParameterUpdate {
            parameter: self.data.operand(),
            gradient: self.gradient.operand(),
            first: operand(first),
            second: operand(second),
        }
    }

    /// A tensor of optimizer state like the parameter.
    pub fn state(&self, cx: &Context, what: &str) -> OpResult<State> {
        self.state_in(cx, self.data.dtype(), what)
    }

    /// The same in a type of its own.
    pub fn state_in(&self, cx: &Context, dtype: DType, what: &str) -> OpResult<State> {
        let name = cx.memory().name(&self.named(cx, what));
        State::new(cx.memory(), &self.data, dtype, name)
    }

    /// What belongs to it: `blocks.0.fc.weight.exp_avg`.
    pub fn named(&self, cx: &Context, what: &str) -> String {
        format!("{}.{what}", cx.leaves[self.index].name)
    }

    /// An intermediate result like the parameter; of one that is stepped on the host, none of the device's.
    pub fn temporary(&self, cx: &Context, what: &'static str) -> OpResult<Tensor> {
        if self.data.is_on_host() {
            return Ok(cx.memory().meta(self.data.shape(), self.data.dtype()));
        }
        cx.temporary(self.data.shape(), self.data.dtype(), what)
    }
}

/// One intermediate result per parameter, as foreach makes them. Drop it where PyTorch forgets the list.
pub(super) fn temporaries(cx: &Context, parameters: &[ParameterGradient], what: &'static str) -> OpResult<Vec<Tensor>> {
    parameters.iter().map(|parameter| parameter.temporary(cx, what)).collect()
}

/// Those of `parameters` that have gradients.
pub(super) fn with_gradients(cx: &Context, parameters: &[usize]) -> Vec<ParameterGradient> {
    let leaves = parameters.iter().map(|&index| (index, &cx.leaves[index]));
    leaves
        .filter_map(|(index, leaf)| {
            let (data, gradient) = leaf.trained();
            // A rank may have no row of a small parameter.
            let gradient = gradient.filter(|_| data.numel() > 0)?.clone();
            Some(ParameterGradient { index, data: data.clone(), gradient })
        })
        .collect()
}
