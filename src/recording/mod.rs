//! What happened, kept: events encoded into frames, frames in files, and the state of a run at any of its events.
//!
//! A [`Timeline`] is fed by a live lab (event by event), by a recording (frame by frame) or by a snapshot, and can be
//! asked for the whole state at any event that it keeps. A [`Writer`] stores its frames, a [`Reader`] gives them back.

mod codec;
mod error;
mod excerpt;
mod file;
mod frame;
mod prelude;
mod reader;
mod timeline;
mod writer;

pub use codec::{CodecError, Decoder, Encoder, LARGEST_EVENT};
pub use error::RecordingError;
pub use excerpt::Excerpt;
pub use file::VERSION;
pub use frame::{Frame, FrameBuilder, FrameEvents};
pub use prelude::prelude;
pub use reader::{Next, Reader, Summary, summary};
pub use timeline::{Bounds, Direction, Timeline};
pub use writer::Writer;
