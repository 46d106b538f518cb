//! A running lab: commands in, pictures out.

mod command;

pub use command::{Choice, Command, LabState, RunState, StepSize, Switch, SwitchState};
