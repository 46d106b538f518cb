//! The learners of a step: one model, or two against each other.

use std::ops::Range;

use crate::config::Config;
use crate::optim::Optimizer;
use crate::workload::Task;

/// An optimizer and its parameters.
pub(super) struct Learner {
    pub optimizer: Optimizer,
    pub parameters: Range<usize>,
    /// The parameters that it updates on this rank, in its order.
    pub updated: Vec<usize>,
}

/// The optimizers of a task, without state.
pub(super) fn learners(task: &Task, parameters: usize, config: &Config) -> Vec<Learner> {
    let learner = |parameters: Range<usize>| Learner {
        optimizer: Optimizer::new(config.optimizer, config.form),
        updated: parameters.clone().collect(),
        parameters,
    };
    match task {
        Task::Supervised(_) => vec![learner(0..parameters)],
        Task::Adversarial(adversaries) => {
            vec![learner(0..adversaries.generator_parameters), learner(adversaries.generator_parameters..parameters)]
        }
        Task::Routine(_) => Vec::new(),
    }
}
