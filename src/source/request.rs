//! What a source can be asked.

use std::path::PathBuf;
use std::sync::Arc;

use super::cursor::Move;
use super::studies::StudyRequest;
use vramlab_session::Command;
use vramlab_whatif::Conditions;

/// What a front end may ask of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Of the lab that runs; a source without one takes no notice.
    Lab(Command),
    /// Move the cursor. The run goes on meanwhile.
    Move(Move),
    /// Let the cursor go on by itself, or stop it. From the end it begins at the start.
    TogglePlay,
    /// Let it go so many times as fast as before.
    Faster(f64),
    /// Show the next device of several.
    NextDevice,
    /// Write what happens to a file, or end that.
    ToggleRecording,
    /// Pin the step before the one shown, to compare others with it; then that one itself; then nothing.
    Pin,
    /// Study a part of the run, and go on doing so as the cursor moves; `None`: nothing any more.
    Study(Option<StudyRequest>),
    /// Read a file that a stack names; `None`: none any more.
    Read(Option<Arc<str>>),
    /// Recordings that are toggled go to this folder.
    RecordTo(PathBuf),
    /// Write what happens to this file.
    Record(PathBuf),
    /// Let another allocator follow the run, from its start on; `None`: none any more.
    Ghost(Option<Arc<Conditions>>),
}
