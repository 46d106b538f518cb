//! Safe output: no escape sequence in a file, a snapshot or an argument reaches the terminal.

use std::fmt::Display;
use std::io::{self, StdoutLock, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::user_input::{SafeWriter, safe};

/// Standard output for text.
pub(super) fn stdout() -> SafeWriter<StdoutLock<'static>> {
    SafeWriter::new(io::stdout().lock())
}

/// Prints a message on standard error. If standard error is closed, the message is lost: that is no reason to fail.
/// `eprintln` would panic, and the panic message would go to standard error too.
pub(super) fn complain(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", safe(&text.to_string()));
}

/// Whether standard error has a reader.
pub(super) fn is_heard() -> bool {
    let stderr = io::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    // Without a timeout, the answer comes at once.
    let answered = poll(&mut polled, Some(&Timespec::default())).is_ok();
    answered && !polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

/// Reports something that was left out.
pub(super) fn warn(what: impl Display) {
    complain(format_args!("warning: {what}"));
}
