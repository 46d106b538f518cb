//! What a front end may ask of a running lab, and what it is told.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use super::MemoryLimit;
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
    /// foreach, fused, loop.
    Form,
    /// Samples per step.
    Batch,
    /// Off, saved tensors, the same overlapped, optimizer state.
    Offload,
    /// Auto, math, efficient, flash, cudnn.
    Attention,
    /// Off, convolutions, on.
    Tf32,
    /// Constant, cosine.
    Schedule,
    /// Ops that replace chains of eager ones: off, on.
    Fuse,
    /// Off, losses, graph.
    Retain,
    /// The most that may be reserved.
    Limit,
    /// Allocator settings.
    Settings,
}

/// Where a switch stands in the panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchGroup {
    /// What is kept, where and for how long.
    Memory,
    /// How it trains.
    Training,
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
    /// Where it stands in the panel.
    pub group: SwitchGroup,
    /// The key that flips it.
    pub key: char,
    /// `AMP`, `checkpoint`.
    pub label: &'static str,
    /// Its values, `off` first where there is one; empty where they are not a list.
    pub values: &'static [&'static str],
    /// The value in force.
    pub current: Cow<'static, str>,
    /// The value asked for that takes effect at the next step.
    pub pending: Option<Cow<'static, str>>,
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
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Give cached segments back, at the next safe point between ops.
    EmptyCache,
    /// Flip a switch to its next value.
    Next(Switch),
    /// Flip a switch to the value before.
    Previous(Switch),
    /// Set a switch.
    Set(Switch, Choice),
    /// Bound what may be reserved; `None`: all that the device has.
    Limit(Option<MemoryLimit>),
    /// Apply allocator settings in PyTorch's syntax.
    Settings(Arc<str>),
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
    /// Stopped because a step failed, and why; space goes on with the switches of the last whole step.
    StepFailed(String),
    /// All steps asked for are done.
    Finished,
    /// The device is gone, and what it said last; the processor can take over.
    Lost(String),
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
