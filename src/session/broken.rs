//! The end of a run that can't go on, and what is in force after a failed step.

use std::sync::Arc;

use super::{BuildError, GroupError, Setup};
use vramlab_train::{TrainError, Trainer};

/// A run that can't go on.
pub(super) struct RunFailure {
    pub why: Arc<str>,
    /// True if its device is gone.
    pub lost: bool,
    /// Kept while the run is shown: dropping a trainer would free its memory in the picture.
    pub kept: Vec<Trainer>,
}

impl RunFailure {
    /// The failure of a run that `error` ended.
    pub fn new(error: &BuildError, kept: Vec<Trainer>) -> Self {
        Self { why: error.to_string().into(), lost: error.lost(), kept }
    }

    /// The failure of several ranks.
    pub fn of_ranks(error: &GroupError) -> Self {
        Self { why: error.to_string().into(), lost: error.lost(), kept: Vec::new() }
    }
}

/// The setup after a step that failed under `setup`: that of the last whole step, but the bounds of memory stay as they
/// were in the failed step, because a limit is set to see what fits in it.
pub(super) fn back(error: &TrainError, setup: &Setup, proven: Setup) -> Setup {
    match error {
        TrainError::OutOfMemory { .. } => Setup { config: proven.config, ..setup.clone() },
        _ => proven,
    }
}
