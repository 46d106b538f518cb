//! A running lab: commands in, pictures out.

mod command;
mod handle;

pub use command::{Choice, Command, LabState, RunState, StepSize, Switch, SwitchState};
pub use handle::LabHandle;
