//! What is tested.

/// How much is tested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Small cases: seconds.
    Small,
    /// All of them.
    #[default]
    Full,
}

/// What to test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How much.
    pub extent: Extent,
    /// Kernels whose names begin so; all where there are none.
    pub only: Vec<String>,
}
