//! Text on its way out: whatever files, snapshots and arguments hold, no escape sequence reaches the terminal.

use std::fmt::Display;
use std::io::{self, StdoutLock};

use crate::given::{SafeWriter, safe};

/// Standard output, for text.
pub(super) fn stdout() -> SafeWriter<StdoutLock<'static>> {
    SafeWriter::new(io::stdout().lock())
}

/// Says something on standard error.
pub(super) fn complain(text: impl Display) {
    eprintln!("{}", safe(&text.to_string()));
}

/// Names something that was left out.
pub(super) fn warn(what: impl Display) {
    complain(format_args!("warning: {what}"));
}
