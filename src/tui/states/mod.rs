//! What each screen remembers between frames, and how its own keys and clicks change that: a file for each screen.

mod lab;

use crate::source::{Move, Picture};

pub use lab::{LabAction, LabState};

/// What a key or a click of one screen asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenAction {
    /// Of the Lab.
    Lab(LabAction),
}

/// What screens remember.
#[derive(Clone, Debug, Default)]
pub struct ScreenStates {
    /// The Lab.
    pub lab: LabState,
}

/// What a screen's own action may look at.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The source at its cursor.
    pub picture: &'a Picture,
    /// Columns of the history in the last frame.
    pub history_columns: usize,
}

impl ScreenStates {
    /// Does what is asked of one screen; says where the cursor is to go, if anywhere.
    pub fn act(&mut self, action: ScreenAction, seen: Seen<'_>) -> Option<Move> {
        match action {
            ScreenAction::Lab(action) => self.lab.act(action, seen.picture, seen.history_columns),
        }
    }
}
