//! A lab that runs in this process.

use std::io;

use super::arrival::Inbox;
use super::handle::Source;
use super::picture::SourceKind;
use vramlab_session::{LabSpec, RankProcesses, Session};

/// Starts a lab and keeps its timeline.
///
/// # Errors
/// If the system can't start a thread.
pub fn live(spec: LabSpec) -> io::Result<Source> {
    live_among(spec, None)
}

/// Like [`live`], where the other ranks may be processes of their own.
///
/// # Errors
/// If the system can't start a thread.
pub fn live_among(spec: LabSpec, processes: Option<RankProcesses>) -> io::Result<Source> {
    let session = vramlab_session::start_among(spec, processes)?;
    let engine = session.engine();
    let Session { commands, feed, .. } = session;
    // The run itself reports the device's memory, because another run may follow.
    Source::keep(SourceKind::Live, None, Inbox::Feed(feed), Some((commands, engine)))
}
