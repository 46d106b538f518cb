//! The requests that a front end can make of a source.

use std::path::PathBuf;
use std::sync::Arc;

use super::cursor::Move;
use super::studies::StudyRequest;
use vramlab_session::Command;
use vramlab_whatif::Conditions;

/// A request to a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A command to the running lab; other sources ignore it.
    Lab(Command),
    /// Move the cursor. The run goes on meanwhile.
    Move(Move),
    /// Start or stop moving the cursor by itself. At the end, it starts from the beginning.
    TogglePlay,
    /// Multiply the speed of the cursor by this factor.
    Faster(f64),
    /// Show the next device of several.
    NextDevice,
    /// Start or stop a recording.
    ToggleRecording,
    /// Pin the step before the one shown, to compare others with it; then the step shown; then nothing.
    Pin,
    /// Study a part of the run, and continue as the cursor moves; `None` stops.
    Study(Option<StudyRequest>),
    /// Read a file named in a stack; `None` stops.
    Read(Option<Arc<str>>),
    /// Put toggled recordings into this folder.
    RecordTo(PathBuf),
    /// Start a recording to this file.
    Record(PathBuf),
    /// Let another allocator follow the run from its start; `None` stops it.
    Ghost(Option<Arc<Conditions>>),
}
