//! Muon (`torch.optim.Muon`) for the matrices of hidden layers, AdamW for all other parameters: two optimizers that step one
//! after the other.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::config::Hyper;
use crate::context::Context;
use crate::error::OpResult;
use crate::tensor::Tensor;
use vramlab_device::kernels;

use super::adam::Adam;
use super::rule::{ParameterGradient, StepRule};
use super::state::State;

/// Muon's default; SGD has another.
const MOMENTUM: f64 = 0.95;

/// Names of embedding tables and heads, whose matrices belong to no hidden layer.
const OUTER: [&str; 9] =
    ["embed_tokens", "embed_in", "embed_positions", "token_embeddings", "wte", "wpe", "lm_head", "embed_out", "head"];

/// State of Muon, a buffer per matrix, and of the AdamW beside it.
pub(super) struct Muon {
    buffers: BTreeMap<usize, State>,
    others: Adam,
}

impl Muon {
    pub const fn new() -> Self {
        Self { buffers: BTreeMap::new(), others: Adam::new(true) }
    }

    /// Begins another step of the training.
    pub fn begin(&mut self) {
        self.others.begin();
    }

    /// Buffers and moments, by parameter.
    pub fn states(&mut self) -> impl Iterator<Item = (usize, &mut State)> {
        let moments = self.others.states().flat_map(|(index, moments)| moments.map(|moment| (index, moment)));
        self.buffers.iter_mut().map(|(index, buffer)| (*index, buffer)).chain(moments)
    }

    pub fn step(
        &mut self,
        cx: &mut Context,
        hyper: &Hyper,
        rule: StepRule,
        parameters: &[ParameterGradient],
    ) -> OpResult<()> {
        let (hidden, others): (Vec<ParameterGradient>, Vec<ParameterGradient>) = parameters
            .iter()
            .cloned()
            .partition(|parameter| is_hidden(&cx.leaves[parameter.index].name, &parameter.data));
        if !hidden.is_empty() {
            cx.op("muon", |cx| self.update(cx, rule, &hidden))?;
        }
        if !others.is_empty() {
            cx.op("adam", |cx| self.others.step(cx, hyper, rule, &others))?;
        }
        Ok(())
    }

    /// Undoes the count of the last step, which changed nothing.
    pub fn take_back(&mut self) {
        self.others.take_back();
    }

    fn update(&mut self, cx: &Context, rule: StepRule, parameters: &[ParameterGradient]) -> OpResult<()> {
        for parameter in parameters {
            if let Entry::Vacant(place) = self.buffers.entry(parameter.index) {
                let buffer = place.insert(parameter.state(cx, "momentum_buffer")?);
                if let Some(zeros) = buffer.tensor() {
                    cx.launch(kernels::Elementwise::Fill { dst: zeros.operand(), value: 0.0 })?;
                }
            }
        }
        // A variable of PyTorch's loop: it lives until the next parameter's replaces it.
        let mut last = None;
        for parameter in parameters {
            let Some(buffer) = self.buffers.get(&parameter.index).and_then(State::tensor) else { continue };
            let update = parameter.temporary(cx, "update")?;
            drop(last.take());
            cx.launch(kernels::Muon::Nesterov {
                buffer: buffer.operand(),
                gradient: parameter.gradient.operand(),
                update: update.operand(),
                momentum: MOMENTUM,
            })?;
            let orthogonal = cx.orthogonalised(&update)?;
            drop(update);
            cx.launch(kernels::Muon::Step {
                parameter: parameter.data.operand(),
                update: orthogonal.strided_matrix(),
                cols: parameter.data.shape().last(),
                keep: 1.0 - rule.lr * rule.weight_decay,
                step: rule.lr * stretch(&parameter.data),
            })?;
            last = Some(orthogonal);
        }
        Ok(())
    }
}

/// The factor on the learning rate of a matrix (`adjust_lr_fn` at its default).
#[expect(clippy::cast_precision_loss, reason = "the sides of a matrix")]
fn stretch(matrix: &Tensor) -> f64 {
    let (rows, cols) = (matrix.shape().rows() as f64, matrix.shape().last() as f64);
    (rows / cols).max(1.0).sqrt()
}

/// Whether a parameter is a matrix of a hidden layer: no table, no head, no bias.
pub(super) fn is_hidden(name: &str, data: &Tensor) -> bool {
    let module = name.strip_suffix(".weight").map(|module| module.rsplit('.').next().unwrap_or(module));
    data.shape().dims().len() == 2 && !name.ends_with("bias") && !module.is_some_and(|module| OUTER.contains(&module))
}
