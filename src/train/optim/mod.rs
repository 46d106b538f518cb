//! Optimizers, with the blocks that PyTorch's three implementations of each take.
//!
//! State is created in the first step, parameter by parameter. Which temporaries a step requests depends on the form:
//! foreach runs one elementary operation after the other over all parameters, so its temporaries have the size of all
//! parameters; the loop's have the size of one; the fused kernel has none. The arithmetic is one kernel in each form;
//! the temporaries are requested all the same.
//!
//! [`Offload::Optimizer`](super::config::Offload::Optimizer) keeps the state in host memory and brings it to the device a few
//! parameters at a time, so that it adds little to any peak; [`Offload::Parameters`](super::config::Offload::Parameters) does the
//! same with the parameters themselves. PyTorch has nothing built in for that; bitsandbytes' paged optimizers do it through
//! unified memory.

mod adam;
mod bitsandbytes;
mod clip;
mod muon;
mod rule;
mod schedule;
mod sgd;
mod state;

use self::rule::{ParameterGradient, StepRule, with_gradients};
use self::state::State;
use vramlab_device::GradScaling;

pub(crate) use clip::clip_gradients;

use super::config::{Config, OptimizerForm, OptimizerKind};
use super::context::Context;
use super::error::{OpResult, TrainError};
use super::parallel::steps_whole;
use super::tape::Leaf;
use vramlab_model::Parallelism;

/// Why this optimizer can't be used, or not by ranks that share the work in this way.
pub(crate) fn refusal(config: &Config, parallelism: Option<Parallelism>) -> Option<TrainError> {
    let kind = config.optimizer;
    if kind == OptimizerKind::Muon && config.amp.scales() {
        return Some(TrainError::TwoOptimizers);
    }
    let parallelism = parallelism?;
    let what = match kind.of_bitsandbytes() {
        Some(kept) if kept.paged && !steps_whole(parallelism) => "state in unified memory is",
        None if kind == OptimizerKind::Muon && !steps_whole(parallelism) => "matrices that Muon makes orthogonal are",
        _ => return None,
    };
    let text = format!("{what} not shared among ranks by {parallelism}; use --opt adamw, or ddp");
    Some(TrainError::Workload(text))
}

/// The parameters of each optimizer that a program creates for this kind.
pub(crate) fn sets(kind: OptimizerKind, leaves: &[Leaf]) -> Vec<Vec<usize>> {
    if kind != OptimizerKind::Muon {
        return vec![(0..leaves.len()).collect()];
    }
    let (hidden, others) =
        (0..leaves.len()).partition(|&index| muon::is_hidden(&leaves[index].name, &leaves[index].data));
    vec![hidden, others]
}

/// An optimizer and its state. Dropping it frees the state.
pub(crate) struct Optimizer {
    rule: Rule,
    form: OptimizerForm,
}

enum Rule {
    Sgd(sgd::Sgd),
    Adam(adam::Adam),
    Muon(Box<muon::Muon>),
    Bitsandbytes(Box<bitsandbytes::Bitsandbytes>),
}

impl Optimizer {
    /// An optimizer without state.
    pub fn new(kind: OptimizerKind, form: OptimizerForm) -> Self {
        let rule = match kind {
            OptimizerKind::Sgd => Rule::Sgd(sgd::Sgd::new(false)),
            OptimizerKind::Momentum => Rule::Sgd(sgd::Sgd::new(true)),
            OptimizerKind::Adam => Rule::Adam(adam::Adam::new(false)),
            OptimizerKind::AdamW => Rule::Adam(adam::Adam::new(true)),
            OptimizerKind::Muon => Rule::Muon(Box::new(muon::Muon::new())),
            of_bitsandbytes => Rule::Bitsandbytes(Box::new(bitsandbytes::Bitsandbytes::new(of_bitsandbytes))),
        };
        Self { rule, form }
    }

    /// Whether its kernel unscales gradients and reads the overflow flag itself, so that the host need not wait for the flag.
    pub fn scales_itself(&self) -> bool {
        self.form == OptimizerForm::Fused && !matches!(self.rule, Rule::Bitsandbytes(_) | Rule::Muon(_))
    }

    /// Updates each of `parameters` that has a gradient, in step number `step` of the training.
    pub fn step(
        &mut self,
        cx: &mut Context,
        config: &Config,
        parameters: &[usize],
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
        // Parameters on the host are stepped there, and their state is never parked.
        let on_host = parameters.iter().any(|parameter| parameter.data.is_on_host());
        let parks = config.offload.parks_state() && !on_host;
        let returns = config.offload.parks_parameters() && !on_host;
        let parts =
            if parks { state::chunks(&parameters, |parameter| parameter.data.bytes()) } else { vec![&parameters[..]] };
        for part in parts {
            let indices: Vec<usize> = part.iter().map(|parameter| parameter.index).collect();
            cx.bring_parameters(&indices)?;
            self.fetch(cx, part)?;
            match &mut self.rule {
                Rule::Sgd(sgd) => cx.op("sgd", |cx| sgd.step(cx, config.hyper.momentum, rule, part))?,
                Rule::Adam(adam) => cx.op("adam", |cx| adam.step(cx, &config.hyper, rule, part))?,
                Rule::Muon(muon) => muon.step(cx, &config.hyper, rule, part)?,
                Rule::Bitsandbytes(optimizer) => {
                    cx.op(optimizer.name(), |cx| optimizer.step(cx, &config.hyper, rule, part))?
                }
            }
            if parks {
                self.park(cx, part, config.pinned)?;
            }
            if returns {
                cx.return_parameters(&indices, config.pinned)?;
            }
        }
        if on_host {
            cx.memory().tell_host();
        }
        Ok(())
    }

    fn begin(&mut self) {
        match &mut self.rule {
            Rule::Adam(adam) => adam.begin(),
            Rule::Muon(muon) => muon.begin(),
            Rule::Bitsandbytes(optimizer) => optimizer.begin(),
            Rule::Sgd(_) => {}
        }
    }

    /// Brings the parked state of these parameters to the device.
    fn fetch(&mut self, cx: &mut Context, parameters: &[ParameterGradient]) -> OpResult<()> {
        if self.states(parameters).iter().all(|state| state.tensor().is_some()) {
            return Ok(());
        }
        cx.op("fetch state", |cx| self.states(parameters).into_iter().try_for_each(|state| state.fetch(cx.memory())))
    }

    /// Sends the state of parameters to host memory.
    fn park(&mut self, cx: &mut Context, parameters: &[ParameterGradient], pinned: bool) -> OpResult<()> {
        let states = self.states(parameters);
        cx.op("park state", |cx| states.into_iter().try_for_each(|state| state.park(cx.memory(), pinned)))?;
        cx.memory().tell_host();
        Ok(())
    }

    /// The existing state tensors of these parameters, in order.
    fn states(&mut self, parameters: &[ParameterGradient]) -> Vec<&mut State> {
        let place = |index: usize| parameters.iter().position(|parameter| parameter.index == index);
        let mut states: Vec<(usize, &mut State)> = match &mut self.rule {
            Rule::Sgd(sgd) => sgd.states().filter_map(|(index, state)| Some((place(index)?, state))).collect(),
            Rule::Adam(adam) => {
                let each = adam.states().filter_map(|(index, states)| Some((place(index)?, states)));
                each.flat_map(|(place, states)| states.map(|state| (place, state))).collect()
            }
            Rule::Muon(muon) => muon.states().filter_map(|(index, state)| Some((place(index)?, state))).collect(),
            Rule::Bitsandbytes(optimizer) => {
                let each = optimizer.states().filter_map(|(index, states)| Some((place(index)?, states)));
                each.flat_map(|(place, states)| states.into_iter().map(move |state| (place, state))).collect()
            }
        };
        states.sort_by_key(|(place, _)| *place);
        states.into_iter().map(|(_, state)| state).collect()
    }

    /// Undoes the count of the last step, which found an overflow and changed nothing.
    pub fn take_back(&mut self) {
        match &mut self.rule {
            Rule::Adam(adam) => adam.take_back(),
            Rule::Muon(muon) => muon.take_back(),
            Rule::Bitsandbytes(optimizer) => optimizer.take_back(),
            Rule::Sgd(_) => {}
        }
    }
}
