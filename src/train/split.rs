//! How a layer is split over ranks.

/// Which part of a pair of parameters a rank keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorSplit {
    /// Some heads of a packed projection's weight and bias.
    Heads,
    /// Some outputs of a layer's weight and bias: a column-parallel layer.
    Outputs,
    /// Some inputs of two layers' weights: row-parallel layers.
    Inputs,
}

impl TensorSplit {
    /// The part does not lie in one piece, so that it is copied before it is cloned.
    pub(crate) const fn copies(self) -> bool {
        matches!(self, Self::Heads | Self::Inputs)
    }
}
