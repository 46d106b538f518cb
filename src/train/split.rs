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
    /// The part is not contiguous, so it is copied before it is cloned.
    pub(crate) const fn copies(self) -> bool {
        matches!(self, Self::Heads | Self::Inputs)
    }
}

/// What a linear layer does with its part, in a model that is loaded in parts (`tp_plan` of transformers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorRole {
    /// It computes some of the outputs, which stay on the rank (`colwise`).
    Columns,
    /// It computes some of the outputs, and all ranks get all of them (`colwise_gather_output`).
    Gathered,
    /// It has some of the inputs: its outputs are summed over the ranks (`rowwise`).
    Rows,
    /// As `Rows`, but all ranks have the whole inputs (`rowwise_split_input`).
    RowsOfWhole,
}

/// When PyTorch first asks what a copy of a part would look like: its `FakeTensor` then allocates one element on the device, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// PyTorch has not asked yet.
    #[default]
    Unasked,
    /// PyTorch asks when the next cast runs backward.
    Next,
    /// PyTorch has asked.
    Asked,
}
