//! The time of the devices: it stands still but for kernels, each of which takes as long as every other.
//!
//! Nothing is known of how long a program's kernels would run. A rule that is the same on every machine has programs that time
//! their kernels choose alike each time.

use crate::launches;

/// What a kernel takes, in milliseconds. Autotuners that run a kernel for a given time then run it a bearable number of times.
const KERNEL: f64 = 0.1;

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostInstant {
    /// Kernels that ran before.
    kernels: u64,
}

impl HostInstant {
    /// This one.
    pub fn now() -> Self {
        Self { kernels: launches::count() }
    }

    /// Milliseconds since `earlier`.
    pub fn since(self, earlier: Self) -> f32 {
        ((self.kernels as i64 - earlier.kernels as i64) as f64 * KERNEL) as f32
    }
}
