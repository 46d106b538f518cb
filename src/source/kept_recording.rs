//! The recording of a timeline: all its events, old and new, go to a recorder in whole frames.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::picture::RecordingState;
use super::recorder::Recorder;
use vramlab_recording::{RecordingError, Timeline, prelude};

/// The oldest event that a recording may lack.
pub(super) const WRITE: Duration = Duration::from_millis(100);

/// A recording in progress.
#[derive(Debug)]
pub(super) struct KeptRecording {
    recorder: Recorder,
    /// The number of events handed to it.
    until: u64,
    last: Instant,
}

impl KeptRecording {
    /// Begins a recording: of the whole run, or of the part that is kept, with the state at its beginning.
    ///
    /// # Errors
    /// If the file can't be created.
    pub fn begin(timeline: &mut Timeline, path: &Path) -> Result<Self, RecordingError> {
        let mut recorder = Recorder::create(path)?;
        let first = timeline.first();
        if first > 0 {
            let began = timeline.at(first).map(|mut ranks| prelude(&mut ranks));
            began.unwrap_or_default().iter().for_each(|event| recorder.push(event));
            recorder.close_frame();
        }
        // Earlier events get their own frame. Later frames cover a moment each.
        timeline.close_frame();
        Ok(Self { recorder, until: first, last: Instant::now() })
    }

    /// True if events may have waited long enough.
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

    /// Why the recording can't continue.
    pub fn failure(&self) -> Option<RecordingError> {
        self.recorder.failure()
    }

    pub fn state(&self) -> RecordingState {
        self.recorder.state()
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn finish(self) -> Result<RecordingState, RecordingError> {
        self.recorder.finish()
    }
}
