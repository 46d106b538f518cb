//! Sources of pictures: a live lab, a recording, or a PyTorch snapshot, behind one handle that says what each can do.
//!
//! A thread keeps the [`Timeline`](vramlab_recording::Timeline) of everything that happened with one cursor in it, and
//! publishes the [`Picture`] at the cursor at most thirty times per second. Screens know nothing else.

mod arrival;
mod asked;
mod compared;
mod counted;
mod cursor;
mod diagnoses;
mod examined;
mod file;
mod ghost;
mod ghost_start;
mod ghosts;
mod handle;
mod keeper;
mod kept_recording;
mod listings;
mod live;
mod marks;
mod opened;
mod opening;
mod pending_history;
mod picture;
mod pins;
mod rank_figures;
mod rank_files;
mod reading;
mod recorder;
mod request;
mod snapshot;
mod studies;
mod watch;
mod whole;

pub use asked::{AskedError, RunHints, asked, facts};
pub use compared::{Comparable, CompareError, compared, of_printed};
pub use cursor::{Landmark, Move, MoveUnit};
pub use diagnoses::UntoldLimit;
pub use examined::{Curve, DeviceExamination, Fullest, MomentHoldings, examined};
pub use file::recording;
pub use ghost::Ghost;
pub use handle::Source;
pub use listings::Listing;
pub use live::{live, live_among};
pub use opened::{FileError, open, side_by_side};
pub use picture::{
    Ability, Cursor, Extent, MarkedMoment, Moment, Picture, PinnedStep, RecordingState, ShownDevice, SourceKind,
};
pub use rank_figures::{RankFigures, RankState};
pub use reading::{FileProgress, ReadingStage};
pub use recorder::{Recorder, free_name};
pub use request::Request;
pub use snapshot::{OpenError, snapshot};
pub use studies::{StudyRequest, Window};
pub use watch::{MeetingPoint, has_loaded_torch, watched};
pub use whole::{LoadProgress, Whole, WholeError};

/// Streams of events for unit tests.
#[cfg(test)]
#[path = "../../tests/common/synthetic.rs"]
mod synthetic;
