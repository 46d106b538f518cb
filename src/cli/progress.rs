//! Progress for a user who waits at a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line on the terminal's error stream for work that takes more than a moment; it disappears on drop.
pub(super) struct ProgressLine {
    what: &'static str,
    done: u64,
    total: u64,
    /// When to write next; `None` if standard error is no terminal.
    next: Option<Instant>,
    written: bool,
}

/// Amount of work between two readings of the clock.
const LOOK: u64 = 1 << 14;

impl ProgressLine {
    /// Starts a line for `total` units of work.
    pub fn new(what: &'static str, total: u64) -> Self {
        let next = io::stderr().is_terminal().then(|| Instant::now() + Duration::from_millis(500));
        Self { what, done: 0, total, next, written: false }
    }

    /// Adds `amount` to the work done.
    pub fn advance(&mut self, amount: u64) {
        self.at(self.done + amount);
    }

    /// Sets the work done and the total.
    pub fn of(&mut self, done: u64, total: u64) {
        self.total = total;
        self.at(done);
    }

    /// Sets the work done and the total, for units that take long each.
    pub fn of_few(&mut self, done: u64, total: u64) {
        self.of(done * LOOK, total * LOOK);
    }

    /// Sets the work done.
    pub fn at(&mut self, done: u64) {
        let before = self.done / LOOK;
        self.done = done;
        if let Some(next) = self.next
            && self.done / LOOK != before
            && Instant::now() >= next
        {
            self.next = Some(Instant::now() + Duration::from_millis(100));
            self.written = true;
            let percent = self.done.saturating_mul(100) / self.total.max(1);
            // A failure to write progress is ignored.
            let _ = write!(io::stderr(), "\r{} {}%", self.what, percent.min(100));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.written {
            let _ = write!(io::stderr(), "\r{:20}\r", "");
        }
    }
}
