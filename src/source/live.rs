//! A lab that runs here.

use std::io;

use super::arrival::Inbox;
use super::handle::Source;
use super::picture::SourceKind;
use vramlab_session::{LabSpec, RankProcesses, Session};

/// Starts a lab and keeps its timeline.
///
/// # Errors
/// When the system gives no thread.
pub fn live(spec: LabSpec) -> io::Result<Source> {
    live_among(spec, None)
}

/// The same where the other ranks may be processes of their own.
///
/// # Errors
/// When the system gives no thread.
pub fn live_among(spec: LabSpec, processes: Option<RankProcesses>) -> io::Result<Source> {
    let session = vramlab_session::start_among(spec, processes)?;
    let engine = session.engine();
    let Session { commands, feed, .. } = session;
    // What the device has is told by the run itself, which another may follow.
    Source::keep(SourceKind::Live, None, Inbox::Feed(feed), Some((commands, engine)))
}
