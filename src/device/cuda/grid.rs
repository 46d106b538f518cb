//! How many threads run a kernel.

/// Thread blocks, threads of each, and dynamic shared memory of each in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub blocks: [u32; 3],
    pub threads: u32,
    pub shared: u32,
}

impl Grid {
    /// A row of `blocks` blocks.
    pub const fn row(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads, shared: 0 }
    }

    /// The same with dynamic shared memory: over 48 KiB are permitted where the device has them.
    pub const fn with_shared(self, shared: u32) -> Self {
        Self { shared, ..self }
    }
}
