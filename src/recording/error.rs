//! Errors of recordings.

use std::io;

use thiserror::Error;

use super::file::VERSION;

/// Why a recording can't be read or written.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file is not a recording.
    #[error("this is no recording of vramlab; give a file that vramlab recorded")]
    NoRecording,
    /// A later version of vramlab wrote it.
    #[error("this recording has format {0}, and the newest known here is {VERSION}; open it with a newer vramlab")]
    Newer(u16),
    /// An earlier version of vramlab wrote it.
    #[error("this recording has format {0}, which is no longer read; record the run again, or use the vramlab of then")]
    Older(u16),
    /// The bytes from this event on are not what was written.
    #[error("the recording is damaged behind its event {0}; what lies before can be used, record the rest again")]
    Damaged(u64),
    /// The system refuses to read.
    #[error("the recording can't be read ({0}); check the file and its disk")]
    Unreadable(io::Error),
    /// The system refuses to write.
    #[error("the recording can't be written ({0}); make room, or record to another place")]
    Unwritable(io::Error),
}
