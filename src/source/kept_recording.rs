//! The recording of a timeline: whatever is in it, and what comes, goes to a recorder by whole frames.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::picture::RecordingState;
use super::recorder::Recorder;
use vramlab_recording::{RecordingError, Timeline, prelude};

/// How old what happened may be before a recording has it.
pub(super) const WRITE: Duration = Duration::from_millis(100);

/// A recording under way.
#[derive(Debug)]
pub(super) struct KeptRecording {
    recorder: Recorder,
    /// Events handed to it.
    until: u64,
    last: Instant,
}

impl KeptRecording {
    /// Begins one: of the whole run, or as far back as it is kept, from the state that it had then.
    ///
    /// # Errors
    /// The file can't be made.
    pub fn begin(timeline: &mut Timeline, path: &Path) -> Result<Self, RecordingError> {
        let mut recorder = Recorder::create(path)?;
        let first = timeline.first();
        if first > 0 {
            let began = timeline.at(first).map(|mut ranks| prelude(&mut ranks));
            began.unwrap_or_default().iter().for_each(|event| recorder.push(event));
            recorder.close_frame();
        }
        // What happened before is a frame of its own: the next are of a moment each.
        timeline.close_frame();
        Ok(Self { recorder, until: first, last: Instant::now() })
    }

    /// What happened may have waited long enough.
    pub fn is_due(&self) -> bool {
        self.last.elapsed() >= WRITE
    }

    /// Hands new frames to the recorder.
    pub fn write(&mut self, timeline: &mut Timeline) {
        self.last = Instant::now();
        timeline.close_frame();
        for frame in timeline.frames(self.until) {
            self.recorder.frame(frame);
            self.until = frame.end();
        }
    }

    /// Why nothing more can be written.
    pub fn failure(&self) -> Option<RecordingError> {
        self.recorder.failure()
    }

    pub fn state(&self) -> RecordingState {
        self.recorder.state()
    }

    /// Ends it.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn finish(self) -> Result<RecordingState, RecordingError> {
        self.recorder.finish()
    }
}
