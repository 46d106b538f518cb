//! The choice of tests.

/// How much is tested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Small cases, which take seconds.
    Small,
    /// All of them.
    #[default]
    Full,
}

/// What to test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The extent of the tests.
    pub extent: Extent,
    /// Prefixes of kernels' names to test; empty for all kernels.
    pub only: Vec<String>,
}
