//! vramlab: an interactive lab for GPU training memory, in a terminal.
//!
//! See `ARCHITECTURE.md` for the rooms and who may know whom.

#[cfg(not(target_os = "linux"))]
compile_error!("vramlab runs on Linux only: it maps memory, reads /proc and waits for signals as Linux has them");

pub mod cli;
pub mod epoch;
pub mod estimate;
pub mod export;
pub mod figures;
pub mod fit;
pub mod folklore;
pub mod guide;
pub mod lesson;
pub mod standin;
pub mod tui;

// These are crates of their own; inside this crate they are rooms like all others.
pub use vramlab_allocator as allocator;
pub use vramlab_allocator::units;
pub use vramlab_device as device;
pub use vramlab_drawing as drawing;
pub use vramlab_model as model;
pub use vramlab_narration as narration;
pub use vramlab_recording as recording;
pub use vramlab_session as session;
pub use vramlab_snapshot as snapshot;
pub use vramlab_source as source;
pub use vramlab_train as train;
pub use vramlab_user_input as user_input;
pub use vramlab_watch as watch;
pub use vramlab_whatif as whatif;
pub use vramlab_workload as workload;

/// Streams of events for unit tests.
#[cfg(test)]
#[path = "../tests/common/synthetic.rs"]
pub(crate) mod synthetic;
