//! Keeps what happened: events encoded into frames, frames in files, and the state of a run at any of its events.
//!
//! A live lab (event by event), a recording (frame by frame) or a snapshot feeds a [`Timeline`], which returns the
//! whole state at any event that it keeps. A [`Writer`] stores its frames, and a [`Reader`] reads them back.

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
