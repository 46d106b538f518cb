//! How a run ends that can't go on, and what is in force after a step that failed.

use std::sync::Arc;

use super::{BuildError, GroupError, Setup};
use vramlab_train::{TrainError, Trainer};

/// A run that can't go on.
pub(super) struct RunFailure {
    pub why: Arc<str>,
    /// Its device is gone.
    pub lost: bool,
    /// Kept while it is shown: dropping it would free its memory in the picture.
    pub kept: Vec<Trainer>,
}

impl RunFailure {
    /// What there is of a run that `error` ended.
    pub fn new(error: &BuildError, kept: Vec<Trainer>) -> Self {
        Self { why: error.to_string().into(), lost: error.lost(), kept }
    }

    /// The same of several ranks.
    pub fn of_ranks(error: &GroupError) -> Self {
        Self { why: error.to_string().into(), lost: error.lost(), kept: Vec::new() }
    }
}

/// What should be in force after a step that failed under `setup`: what the last whole step had. What bounds memory stays
/// where it ran out: a limit is set to see what fits in it.
pub(super) fn back(error: &TrainError, setup: &Setup, proven: Setup) -> Setup {
    match error {
        TrainError::OutOfMemory { .. } => Setup { config: proven.config, ..setup.clone() },
        _ => proven,
    }
}
