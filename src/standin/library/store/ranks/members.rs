//! Whether the process of a rank is still there.

use std::fs;

/// When a process began, as the system counts it: no two processes have the same number and begin.
pub fn began(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    // One that has ended and was not waited for yet (a zombie) counts as gone.
    if matches!(state, "Z" | "X") {
        return None;
    }
    words.nth(18)?.parse().ok()
}

/// Whether the process that began then is still there. Where the system does not say, it is.
pub fn is_there(pid: u32, then: u64) -> bool {
    then == 0 || began(pid) == Some(then)
}
