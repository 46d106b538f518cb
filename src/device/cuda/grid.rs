//! The number of threads that run a kernel.

/// The number of thread blocks, the threads per block, and the dynamic shared memory per block in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub blocks: [u32; 3],
    pub threads: u32,
    pub shared: u32,
}

impl Grid {
    /// A one-dimensional grid of `blocks` blocks.
    pub const fn row(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads, shared: 0 }
    }

    /// The same grid with dynamic shared memory. More than 48 KiB is permitted if the device supports it.
    pub const fn with_shared(self, shared: u32) -> Self {
        Self { shared, ..self }
    }
}
