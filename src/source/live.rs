//! A lab that runs here.

use std::io;

use super::handle::Source;
use super::keeper::Inbox;
use super::picture::Kind;
use vramlab_session::{LabSpec, Session};

/// Starts a lab and keeps its timeline.
///
/// # Errors
/// When the system gives no thread.
pub fn live(spec: LabSpec) -> io::Result<Source> {
    let session = vramlab_session::start(spec)?;
    let engine = session.engine();
    let Session { commands, feed, .. } = session;
    // What the device has is told by the run itself, which another may follow.
    Source::keep(Kind::Live, None, Inbox::Feed(feed), Some((commands, engine)))
}
