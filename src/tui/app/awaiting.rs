//! Waiting for a watched program that has not said anything yet.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::state::App;
use crate::model::RunState;
use crate::tui::waiting::{self, AwaitedProgram};

impl App {
    /// Adds what is known of the program that the app waits for.
    #[must_use]
    pub fn with_awaited(self, awaited: AwaitedProgram) -> Self {
        Self { awaited: Arc::new(awaited), ..self }
    }

    /// What is known of the awaited program, and how long it has been awaited; `None` if the app does not wait.
    pub(crate) fn awaited(&self) -> Option<(&AwaitedProgram, Duration)> {
        waiting::is_shown(&self.latest).then_some((&*self.awaited, self.now))
    }

    /// The awaited program's output file and process, if known. Both are followed meanwhile.
    pub(crate) fn followed(&self) -> (Option<PathBuf>, Option<u32>) {
        (self.awaited.output.clone(), self.awaited.pid)
    }

    /// Takes in the last lines that the program printed.
    pub(super) fn printed(&mut self, lines: Vec<String>) {
        Arc::make_mut(&mut self.awaited).printed = lines;
        self.dirty |= self.awaited().is_some();
    }

    /// Takes in whether the program has loaded PyTorch.
    pub(super) fn loaded(&mut self, loaded: Option<bool>) {
        Arc::make_mut(&mut self.awaited).torch = loaded;
        self.dirty |= self.awaited().is_some();
    }

    /// True if a program that has not said anything may still do so.
    pub(super) fn waits_on(&self) -> bool {
        self.latest.run != RunState::Finished && self.awaited().is_some()
    }
}
