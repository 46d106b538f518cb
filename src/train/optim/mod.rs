//! Optimizers, with the blocks of PyTorch's three implementations of each.
//!
//! State is born in the first step, parameter by parameter. What a step asks for beside it depends on the form:
//! foreach runs one elementary operation over all parameters after the other, so its intermediate results have the size
//! of all parameters; the loop's have the size of one; the fused kernel has none. The arithmetic is one kernel in each
//! form; the temporaries are requested all the same.
//!
//! [`Offload::Optimizer`] keeps the state in host memory and brings it to the device a few parameters at a time, so that
//! it weighs on no peak. PyTorch has nothing built in for that; bitsandbytes' paged optimizers do it by unified memory.

mod adam;
mod schedule;
mod sgd;
mod state;

use std::ops::Range;

use self::state::State;
use crate::device::{GradScaling, ParameterUpdate};

use super::config::{Config, Offload, OptimizerForm, OptimizerKind};
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
        self.begin();
        let rule = StepRule {
            form: self.form,
            lr: config.hyper.learning_rate(config.optimizer) * schedule::factor(config, step),
            weight_decay: config.hyper.decay(config.optimizer),
            scaling,
        };
        let parks = config.offload == Offload::Optimizer;
        let parts =
            if parks { state::chunks(&parameters, |parameter| parameter.data.bytes()) } else { vec![&parameters[..]] };
        for part in parts {
            self.fetch(cx, part)?;
            match &mut self.rule {
                Rule::Sgd(sgd) => cx.op("sgd", |cx| sgd.step(cx, config.hyper.momentum, rule, part))?,
                Rule::Adam(adam) => cx.op("adam", |cx| adam.step(cx, &config.hyper, rule, part))?,
            }
            if parks {
                self.park(cx, part, config.pinned)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self) {
        if let Rule::Adam(adam) = &mut self.rule {
            adam.begin();
        }
    }

    /// Brings the state of parameters to the device, as far as it is parked.
    fn fetch(&mut self, cx: &mut Context, parameters: &[Trained]) -> OpResult<()> {
        if self.states(parameters).iter().all(|state| state.tensor().is_some()) {
            return Ok(());
        }
        cx.op("fetch state", |cx| self.states(parameters).into_iter().try_for_each(|state| state.fetch(cx.memory())))
    }

    /// Sends the state of parameters to host memory.
    fn park(&mut self, cx: &mut Context, parameters: &[Trained], pinned: bool) -> OpResult<()> {
        let states = self.states(parameters);
        cx.op("park state", |cx| states.into_iter().try_for_each(|state| state.park(cx.memory(), pinned)))?;
        cx.memory().tell_host();
        Ok(())
    }

    /// The state tensors of parameters, of those that have been born.
    fn states(&mut self, parameters: &[Trained]) -> Vec<&mut State> {
        match &mut self.rule {
            Rule::Sgd(sgd) => {
                sgd.states().filter(|(index, _)| has(parameters, *index)).map(|(_, state)| state).collect()
            }
            Rule::Adam(adam) => {
                adam.states().filter(|(index, _)| has(parameters, *index)).flat_map(|(_, states)| states).collect()
            }
        }
    }

    /// The last step found an overflow and changed nothing: it does not count.
    pub fn take_back(&mut self) {
        if let Rule::Adam(adam) = &mut self.rule {
            adam.take_back();
        }
    }
}

/// Whether the parameter at `index` is among `parameters`, which are in order.
fn has(parameters: &[Trained], index: usize) -> bool {
    parameters.binary_search_by_key(&index, |parameter| parameter.index).is_ok()
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
    fn update(&self, first: Option<&State>, second: Option<&State>) -> ParameterUpdate {
        let operand = |state: Option<&State>| state.and_then(State::tensor).map(Tensor::operand);
        ParameterUpdate {
            parameter: self.data.operand(),
            gradient: self.gradient.operand(),
            first: operand(first),
            second: operand(second),
        }
    }

    /// A tensor of optimizer state like the parameter.
    fn state(&self, cx: &Context, what: &str) -> OpResult<State> {
        let name = cx.memory().name(&format!("{}.{what}", cx.leaves[self.index].name));
        State::new(cx.memory(), &self.data, name)
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
