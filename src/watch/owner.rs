//! The owner of a folder, encoded in the folder's name.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

/// A process, distinguished from all others since the boot: process numbers are reused, and containers have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pid: u32,
    /// When it started, in the system's ticks since the boot; 0 if the system does not tell.
    started: u64,
    /// The namespace of `pid`; 0 if the system does not tell.
    namespace: u64,
}

impl Owner {
    /// This process.
    pub fn this() -> Self {
        let pid = std::process::id();
        Self { pid, started: start_of(pid).unwrap_or(0), namespace: namespace().unwrap_or(0) }
    }

    /// True if it is known to have ended. For a process in another container, this is not known.
    pub fn is_gone(self) -> bool {
        self.started != 0 && namespace() == Some(self.namespace) && start_of(self.pid) != Some(self.started)
    }
}

/// When a process started, in ticks since the boot; `None` if it does not exist.
fn start_of(pid: u32) -> Option<u64> {
    /// The index of `starttime` among the fields after the name, in proc(5).
    const START: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(START)?.parse().ok()
}

/// The namespace of this process's number.
fn namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}-{:x}", self.pid, self.started, self.namespace)
    }
}

impl FromStr for Owner {
    type Err = std::num::ParseIntError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut parts = name.splitn(3, '-');
        let mut next = || parts.next().unwrap_or_default();
        Ok(Self {
            pid: next().parse()?,
            started: u64::from_str_radix(next(), 16)?,
            namespace: u64::from_str_radix(next(), 16)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_as_it_was_written() {
        let this = Owner::this();
        assert_eq!(this.to_string().parse(), Ok(this));
        for name in ["", "12", "12-", "12-5", "12-5-", "x-5-7", "12-5-7-9", "12--7"] {
            assert!(name.parse::<Owner>().is_err(), "{name}");
        }
    }

    #[test]
    fn only_an_owner_that_must_have_ended_is_gone() {
        let this = Owner::this();
        assert!(!this.is_gone());
        assert!(Owner { started: this.started + 1, ..this }.is_gone(), "another had the number before");
        assert!(
            !Owner { started: this.started + 1, namespace: this.namespace + 1, ..this }.is_gone(),
            "of a container"
        );
        assert!(!Owner { started: 0, ..this }.is_gone(), "nothing is known of it");
    }
}
