//! The figures of an allocator under other conditions.

use serde::Serialize;

use vramlab_allocator::units::Bytes;

/// Figures of an allocator at one event, predicted and not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Bytes held from the driver.
    pub reserved: Bytes,
    /// Bytes of allocated blocks.
    pub allocated: Bytes,
    /// Highest reserved so far.
    pub peak_reserved: Bytes,
    /// Highest allocated so far.
    pub peak_allocated: Bytes,
    /// Free bytes that `empty_cache` could not return.
    pub stranded: Bytes,
    /// The number of segments, where each run of mapped pages in an expandable range counts as one.
    pub segments: u64,
    /// Calls that took memory from the driver.
    pub segments_allocated: u64,
    /// Calls that returned memory to the driver.
    pub segments_freed: u64,
    /// Requests that gave all cached memory back and tried once more.
    pub retries: u64,
    /// Requests that failed.
    pub ooms: u64,
    /// Requests that failed in the run but would have been served here.
    pub served: u64,
}

/// The peaks of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepPeaks {
    /// Most that was allocated.
    pub allocated: Bytes,
    /// Most that was reserved.
    pub reserved: Bytes,
}
