//! Adam and AdamW.

use std::collections::BTreeMap;

use crate::config::{Hyper, OptimizerForm};
use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_allocator::units::StreamId;
use vramlab_device::{DType, ParameterUpdate, kernels};
use vramlab_model::Category;

use super::rule::{ParameterGradient, StepRule, by_type, temporaries};
use super::state::State;

struct Moments {
    first: State,
    second: State,
    /// Updates so far. Kernels get the count from here; PyTorch keeps it in host memory too, except in the fused form.
    step: u64,
    /// The fused form's count on the device, one f32.
    _counter: Option<Tensor>,
}

/// State of Adam: two moments per parameter.
pub(super) struct Adam {
    decoupled: bool,
    moments: BTreeMap<usize, Moments>,
    /// Parameters that the last step updated.
    updated: Vec<usize>,
}

impl Adam {
    pub const fn new(decoupled: bool) -> Self {
        Self { decoupled, moments: BTreeMap::new(), updated: Vec::new() }
    }

    /// Begins another step of the training.
    pub fn begin(&mut self) {
        self.updated.clear();
    }

    /// The moments, by parameter.
    pub fn states(&mut self) -> impl Iterator<Item = (usize, [&mut State; 2])> {
        self.moments.iter_mut().map(|(index, moments)| (*index, [&mut moments.first, &mut moments.second]))
    }

    pub fn step(
        &mut self,
        cx: &Context,
        hyper: &Hyper,
        rule: StepRule,
        parameters: &[ParameterGradient],
    ) -> OpResult<()> {
        for parameter in parameters {
            self.bear(cx, rule.form, parameter)?;
        }
        // AdamW decays the weight in place; Adam adds its decay to the gradient, which must stay unchanged, so it copies the gradient.
        let copies = !self.decoupled && rule.weight_decay != 0.0;
        match rule.form {
            OptimizerForm::Foreach => {
                // A variable of PyTorch's loop over types: it lives until the next type's replaces it.
                let mut roots = None;
                for parameters in by_type(parameters) {
                    if copies {
                        drop(temporaries(cx, &parameters, "gradient with weight decay")?);
                    }
                    let own = temporaries(cx, &parameters, "square root of exp_avg_sq")?;
                    drop(roots.replace(own));
                    self.update(cx, hyper, rule, &parameters)?;
                }
                Ok(())
            }
            OptimizerForm::Fused => {
                by_type(parameters).iter().try_for_each(|parameters| self.update(cx, hyper, rule, parameters))
            }
            OptimizerForm::Loop => {
                // A variable of PyTorch's loop: it lives until the next parameter's replaces it.
                let mut denominator = None;
                for parameter in parameters {
                    let decayed =
                        if copies { Some(parameter.temporary(cx, "gradient with weight decay")?) } else { None };
                    let root = parameter.temporary(cx, "square root of exp_avg_sq")?;
                    let quotient = parameter.temporary(cx, "denominator")?;
                    drop(root);
                    drop(denominator.replace(quotient));
                    self.update(cx, hyper, rule, std::slice::from_ref(parameter))?;
                    drop(decayed);
                }
                Ok(())
            }
        }
    }

    /// Undoes the count of the last step, which changed nothing.
    pub fn take_back(&mut self) {
        for index in self.updated.drain(..) {
            if let Some(moments) = self.moments.get_mut(&index) {
                moments.step -= 1;
            }
        }
    }

    /// Creates the state of a parameter that is updated for the first time.
    fn bear(&mut self, cx: &Context, form: OptimizerForm, parameter: &ParameterGradient) -> OpResult<()> {
        if self.moments.contains_key(&parameter.index) {
            return Ok(());
        }
        let counts = form == OptimizerForm::Fused && !parameter.data.is_on_host();
        let counter = if counts { Some(counter(cx, parameter)?) } else { None };
        let first = parameter.state(cx, "exp_avg")?;
        let second = parameter.state(cx, "exp_avg_sq")?;
        for zeros in counter.iter().chain(first.tensor()).chain(second.tensor()) {
            cx.launch(kernels::Elementwise::Fill { dst: zeros.operand(), value: 0.0 })?;
        }
        self.moments.insert(parameter.index, Moments { first, second, step: 0, _counter: counter });
        Ok(())
    }

    /// One kernel for all parameters that have been updated equally often.
    fn update(
        &mut self,
        cx: &Context,
        hyper: &Hyper,
        rule: StepRule,
        parameters: &[ParameterGradient],
    ) -> OpResult<()> {
        let mut updates: BTreeMap<u64, Vec<ParameterUpdate>> = BTreeMap::new();
        for parameter in parameters {
            let Some(moments) = self.moments.get_mut(&parameter.index) else { continue };
            moments.step += 1;
            self.updated.push(parameter.index);
            let update = parameter.update(Some(&moments.first), Some(&moments.second));
            updates.entry(moments.step).or_default().push(update);
        }
        for (step, updates) in &updates {
            let parameters = rule.of_adam(hyper, self.decoupled, *step);
            cx.launch(kernels::Optimizer::Adam {
                updates,
                parameters,
                scaling: rule.scaling,
                passes: rule.form.passes(),
            })?;
        }
        Ok(())
    }
}

fn counter(cx: &Context, parameter: &ParameterGradient) -> OpResult<Tensor> {
    let name = cx.memory().name(&format!("{}.step", cx.leaves[parameter.index].name));
    let scalar = Shape::new(&[]);
    cx.memory().named_tensor(scalar, DType::F32, Category::OptimizerState, name, StreamId::DEFAULT)
}
