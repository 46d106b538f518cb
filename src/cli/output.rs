//! Text on its way out: no escape sequence in a file, a snapshot or an argument reaches the terminal.

use std::fmt::Display;
use std::io::{self, StdoutLock, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::user_input::{SafeWriter, safe};

/// Standard output, for text.
pub(super) fn stdout() -> SafeWriter<StdoutLock<'static>> {
    SafeWriter::new(io::stdout().lock())
}

/// Says something on standard error. Where that is gone, the message is lost: that is no reason to fail, and a
/// panic, which is what `eprintln` has for it, would be told there too.
pub(super) fn complain(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", safe(&text.to_string()));
}

/// Whether standard error has a reader.
pub(super) fn is_heard() -> bool {
    let stderr = io::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    // With nothing to wait for, the answer comes at once.
    let answered = poll(&mut polled, Some(&Timespec::default())).is_ok();
    answered && !polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

/// Names something that was left out.
pub(super) fn warn(what: impl Display) {
    complain(format_args!("warning: {what}"));
}
