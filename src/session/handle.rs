//! The two ends that a front end holds.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use tokio::sync::watch;

use super::{Command, LabState};

/// A running lab, as a front end holds it. Dropping it ends the run.
#[derive(Debug)]
pub struct LabHandle {
    /// Commands to the engine; a send fails only when the engine has ended.
    pub commands: Sender<Command>,
    /// The last published picture.
    pub state: watch::Receiver<Arc<LabState>>,
}
