//! What a running lab can be asked.

use std::sync::Arc;

use super::{Switch, Way};

/// How far a paused lab goes on before it stops again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepSize {
    /// To the end of the next op.
    Op,
    /// To the end of the phase.
    Phase,
    /// To the end of the step.
    Step,
}

/// What a front end may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give cached segments back, at the next safe point between ops.
    EmptyCache,
    /// Flip a switch to its next value, or back.
    Flip(Switch, Way),
    /// Set a switch to what a text names. What it can't be is refused, and told.
    Set(Switch, Arc<str>),
    /// Stop at the next safe point.
    Pause,
    /// Go on.
    Resume,
    /// Go on for a bit, then stop again.
    Advance(StepSize),
    /// After the device was lost: start the same anew on the processor.
    UseProcessor,
    /// End the run.
    Quit,
}
