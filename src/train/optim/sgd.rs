//! SGD, plain or with momentum.

use std::collections::BTreeMap;

use crate::config::OptimizerForm;
use crate::context::Context;
use crate::error::OpResult;
use vramlab_device::kernels;

use super::rule::{ParameterGradient, StepRule, by_type, temporaries};
use super::state::State;

/// State of SGD: with momentum, one buffer per parameter.
pub(super) struct Sgd {
    momentum: bool,
    buffers: BTreeMap<usize, State>,
}

impl Sgd {
    pub const fn new(momentum: bool) -> Self {
        Self { momentum, buffers: BTreeMap::new() }
    }

    /// The buffers, by parameter.
    pub fn states(&mut self) -> impl Iterator<Item = (usize, &mut State)> {
        self.buffers.iter_mut().map(|(index, buffer)| (*index, buffer))
    }

    pub fn step(
        &mut self,
        cx: &Context,
        momentum: f64,
        rule: StepRule,
        parameters: &[ParameterGradient],
    ) -> OpResult<()> {
        let momentum = if self.momentum { momentum } else { 0.0 };
        let decays = rule.weight_decay != 0.0;
        match rule.form {
            OptimizerForm::Foreach => {
                for parameters in by_type(parameters) {
                    let decayed =
                        if decays { Some(temporaries(cx, &parameters, "gradient with weight decay")?) } else { None };
                    self.update(cx, momentum, rule, &parameters)?;
                    drop(decayed);
                }
                Ok(())
            }
            OptimizerForm::Fused => {
                by_type(parameters).iter().try_for_each(|parameters| self.update(cx, momentum, rule, parameters))
            }
            OptimizerForm::Loop => parameters.iter().try_for_each(|parameter| {
                let decayed = if decays { Some(parameter.temporary(cx, "gradient with weight decay")?) } else { None };
                self.update(cx, momentum, rule, std::slice::from_ref(parameter))?;
                drop(decayed);
                Ok(())
            }),
        }
    }

    /// One kernel for parameters that are updated for the first time, whose buffer is a copy of the first gradient, and
    /// one for the others.
    fn update(
        &mut self,
        cx: &Context,
        momentum: f64,
        rule: StepRule,
        parameters: &[ParameterGradient],
    ) -> OpResult<()> {
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for parameter in parameters {
            if !self.momentum {
                later.push(parameter.update(None, None));
            } else if let Some(buffer) = self.buffers.get(&parameter.index) {
                later.push(parameter.update(Some(buffer), None));
            } else {
                let buffer = parameter.state(cx, "momentum_buffer")?;
                first.push(parameter.update(Some(&buffer), None));
                self.buffers.insert(parameter.index, buffer);
            }
        }
        for (updates, first_step) in [(&first, true), (&later, false)] {
            if updates.is_empty() {
                continue;
            }
            cx.launch(kernels::Optimizer::Sgd {
                updates,
                lr: rule.lr,
                momentum,
                weight_decay: rule.weight_decay,
                first_step,
                scaling: rule.scaling,
                passes: rule.form.passes(),
            })?;
        }
        Ok(())
    }
}
