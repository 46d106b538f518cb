//! A program that is watched, before it says anything.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::state::App;
use crate::model::RunState;
use crate::tui::waiting::{self, AwaitedProgram};

impl App {
    /// The same of which this is known while it waits for a program.
    #[must_use]
    pub fn with_awaited(self, awaited: AwaitedProgram) -> Self {
        Self { awaited: Arc::new(awaited), ..self }
    }

    /// What is known of the program that it waits for, and for how long it has; `None` where it does not wait.
    pub(crate) fn awaited(&self) -> Option<(&AwaitedProgram, Duration)> {
        waiting::is_shown(&self.latest).then_some((&*self.awaited, self.now))
    }

    /// Where that program prints to, and its process, as far as that is known: both are followed while it is waited for.
    pub(crate) fn followed(&self) -> (Option<PathBuf>, Option<u32>) {
        (self.awaited.output.clone(), self.awaited.pid)
    }

    /// It has printed these lines last.
    pub(super) fn printed(&mut self, lines: Vec<String>) {
        Arc::make_mut(&mut self.awaited).printed = lines;
        self.dirty |= self.awaited().is_some();
    }

    /// Whether it has loaded PyTorch.
    pub(super) fn loaded(&mut self, loaded: Option<bool>) {
        Arc::make_mut(&mut self.awaited).torch = loaded;
        self.dirty |= self.awaited().is_some();
    }

    /// Whether a program that has not said anything may still do so.
    pub(super) fn waits_on(&self) -> bool {
        self.latest.run != RunState::Finished && self.awaited().is_some()
    }
}
