//! Whether the process of a rank still exists.

use std::fs;

/// When a process was started, as the system counts it: number and start together are unique.
pub fn began(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, can contain anything.
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    // A process that has ended but was not waited for (a zombie) counts as gone.
    if matches!(state, "Z" | "X") {
        return None;
    }
    words.nth(18)?.parse().ok()
}

/// Whether the process that was started at `then` still exists; true if the system does not say.
pub fn is_there(pid: u32, then: u64) -> bool {
    then == 0 || began(pid) == Some(then)
}
