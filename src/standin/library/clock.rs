//! The time that events of the devices measure: it advances only with kernels, and all kernels take the same time.
//!
//! It is unknown how long a program's kernels would run. A rule that is the same on every machine makes programs that
//! measure their kernels choose the same ones every time.

use crate::launches;

/// The time of a kernel in milliseconds. It is long enough that autotuners, which run a kernel for a given time, run it
/// an acceptable number of times.
const KERNEL: f64 = 0.1;

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostInstant {
    /// Number of kernels that ran before.
    kernels: u64,
}

impl HostInstant {
    /// The current moment.
    pub fn now() -> Self {
        Self { kernels: launches::count() }
    }

    /// Milliseconds since `earlier`.
    pub fn since(self, earlier: Self) -> f32 {
        ((self.kernels as i64 - earlier.kernels as i64) as f64 * KERNEL) as f32
    }
}
