//! What a front end may ask of a running lab, and what it is told.

use std::sync::Arc;

use serde::Serialize;

use crate::model::View;

/// A switch that a person can flip while the lab trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Switch {
    /// Automatic mixed precision: off, fp16, bf16.
    Amp,
    /// Activation checkpointing: off, on.
    Checkpointing,
    /// Micro-batches per step: 1, 2, 4, 8.
    Accumulation,
    /// Page-locked batches, copied beside the computation: off, on.
    Pinned,
    /// sgd, momentum, adam, adamw.
    Optimizer,
    /// set_to_none, zeroed.
    ZeroGrad,
}

/// The position of a value in its switch's list of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Choice(pub usize);

/// A switch as a screen shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchState {
    /// Which.
    pub switch: Switch,
    /// The key that flips it.
    pub key: char,
    /// `AMP`, `checkpointing`.
    pub label: &'static str,
    /// Its values, `off` first where there is one.
    pub values: &'static [&'static str],
    /// The value in force.
    pub current: Choice,
    /// The value asked for that takes effect at the next step.
    pub pending: Option<Choice>,
    /// One sentence: what flipping it does to memory.
    pub teaches: &'static str,
}

/// How far `.` `,` and `n` go.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give cached segments back, at the next safe point between ops.
    EmptyCache,
    /// Flip a switch to its next value.
    Next(Switch),
    /// Set a switch.
    Set(Switch, Choice),
    /// Stop at the next safe point.
    Pause,
    /// Go on.
    Resume,
    /// Go on for a bit, then stop again.
    Advance(StepSize),
    /// End the run.
    Quit,
}

/// What the lab is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Making the model.
    #[default]
    Starting,
    /// Training.
    Running,
    /// Stopped at a safe point by a person.
    Paused,
    /// Stopped because a request failed; a switch and space go on.
    OutOfMemory,
    /// All steps asked for are done.
    Finished,
    /// Can't go on, and why.
    Failed(String),
}

/// Everything a front end needs for one frame.
#[derive(Clone, Debug, Default)]
pub struct LabState {
    /// The picture.
    pub view: Arc<View>,
    /// What the lab is doing.
    pub run: RunState,
    /// The switches in the order of the panel.
    pub switches: Vec<SwitchState>,
    /// `gpt-char`.
    pub workload: String,
    /// `435k parameters · B16 T64 · adamw`.
    pub detail: String,
    /// `cpu · AMD EPYC, 2 cores`.
    pub device: String,
    /// Times are a model's, and there are no losses.
    pub simulated: bool,
    /// `tok/s` or `samples/s`.
    pub items: &'static str,
}
