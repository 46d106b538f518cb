//! SGD, plain or with momentum.

use std::collections::BTreeMap;

use crate::device::{Kernel, ParameterUpdate};
use crate::train::config::Hyper;
use crate::train::context::Context;
use crate::train::error::OpResult;
use crate::train::tensor::Tensor;

use super::{WithGradient, learning_rate, state};

/// State of SGD: with momentum, one buffer per parameter.
pub(crate) struct Sgd {
    momentum: bool,
    buffers: BTreeMap<usize, Tensor>,
}

impl Sgd {
    pub const fn new(momentum: bool) -> Self {
        Self { momentum, buffers: BTreeMap::new() }
    }

    pub fn step(&mut self, cx: &Context, hyper: &Hyper, parameters: &[WithGradient]) -> OpResult<()> {
        let mut first = Vec::new();
        let mut later = Vec::new();
        for (index, parameter, gradient) in parameters {
            let mut update = ParameterUpdate {
                parameter: parameter.operand(),
                gradient: gradient.operand(),
                first: None,
                second: None,
            };
            if !self.momentum {
                later.push(update);
                continue;
            }
            // The first buffer is a copy of the first gradient.
            if let Some(buffer) = self.buffers.get(index) {
                update.first = Some(buffer.operand());
                later.push(update);
            } else {
                let buffer = state(cx, *index, "momentum_buffer")?;
                update.first = Some(buffer.operand());
                self.buffers.insert(*index, buffer);
                first.push(update);
            }
        }
        for (updates, first_step) in [(&first, true), (&later, false)] {
            if updates.is_empty() {
                continue;
            }
            cx.launch(&Kernel::Sgd {
                updates,
                lr: learning_rate(hyper, false),
                momentum: if self.momentum { hyper.momentum } else { 0.0 },
                weight_decay: 0.0,
                first_step,
                skip_if: None,
            })?;
        }
        Ok(())
    }
}
