//! The figures of an allocator under other conditions.

use serde::Serialize;

use vramlab_allocator::units::Bytes;

/// Figures of an allocator at one event: predicted, not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Bytes held from the driver.
    pub reserved: Bytes,
    /// Bytes of blocks handed out.
    pub allocated: Bytes,
    /// Highest reserved so far.
    pub peak_reserved: Bytes,
    /// Highest allocated so far.
    pub peak_allocated: Bytes,
    /// Free bytes that `empty_cache` could not return.
    pub stranded: Bytes,
    /// Segments, and of expandable ranges runs of mapped pages.
    pub segments: u64,
    /// Calls that took memory from the driver.
    pub segments_allocated: u64,
    /// Calls that gave memory back to it.
    pub segments_freed: u64,
    /// Requests that gave all cached memory back and tried once more.
    pub retries: u64,
    /// Requests that failed.
    pub ooms: u64,
    /// Requests that failed in the run and would have been served.
    pub served: u64,
}

/// The figures of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepPeaks {
    /// Most that was allocated.
    pub allocated: Bytes,
    /// Most that was reserved.
    pub reserved: Bytes,
}
