//! Adam and AdamW.

use std::collections::BTreeMap;

use crate::device::{AdamParameters, Kernel, ParameterUpdate};
use crate::train::config::Hyper;
use crate::train::context::Context;
use crate::train::error::OpResult;
use crate::train::tensor::Tensor;

use super::{WithGradient, learning_rate, state};

struct Moments {
    first: Tensor,
    second: Tensor,
    /// Updates so far; PyTorch keeps it in host memory.
    step: u64,
}

/// State of Adam: two moments per parameter.
pub(crate) struct Adam {
    decoupled: bool,
    moments: BTreeMap<usize, Moments>,
}

impl Adam {
    pub const fn new(decoupled: bool) -> Self {
        Self { decoupled, moments: BTreeMap::new() }
    }

    pub fn step(&mut self, cx: &Context, hyper: &Hyper, parameters: &[WithGradient]) -> OpResult<()> {
        for (index, _, _) in parameters {
            if self.moments.contains_key(index) {
                continue;
            }
            let first = state(cx, *index, "exp_avg")?;
            let second = state(cx, *index, "exp_avg_sq")?;
            for moment in [&first, &second] {
                cx.launch(&Kernel::Fill { dst: moment.operand(), value: 0.0 })?;
            }
            self.moments.insert(*index, Moments { first, second, step: 0 });
        }
        // Only AdamW decays here, and it decays the weight itself; Adam's decay would copy every gradient first.
        let weight_decay = if self.decoupled { hyper.weight_decay } else { 0.0 };
        let mut roots = Vec::with_capacity(parameters.len());
        for (_, parameter, _) in parameters {
            roots.push(cx.temporary(parameter.shape(), parameter.dtype(), "square root of exp_avg_sq")?);
        }
        let mut updates: BTreeMap<u64, Vec<ParameterUpdate>> = BTreeMap::new();
        for (index, parameter, gradient) in parameters {
            let Some(moments) = self.moments.get_mut(index) else { continue };
            moments.step += 1;
            updates.entry(moments.step).or_default().push(ParameterUpdate {
                parameter: parameter.operand(),
                gradient: gradient.operand(),
                first: Some(moments.first.operand()),
                second: Some(moments.second.operand()),
            });
        }
        for (step, updates) in &updates {
            let parameters = AdamParameters {
                lr: learning_rate(hyper, true),
                beta1: hyper.beta1,
                beta2: hyper.beta2,
                eps: hyper.eps,
                weight_decay,
                decoupled: self.decoupled,
                step: *step,
            };
            cx.launch(&Kernel::Adam { updates, parameters, skip_if: None })?;
        }
        while roots.pop().is_some() {}
        Ok(())
    }
}
