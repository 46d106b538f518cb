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

/// What a linear layer does with its part, where a model is loaded in parts (`tp_plan` of transformers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorRole {
    /// It makes some outputs, which go on as they are (`colwise`).
    Columns,
    /// It makes some outputs, and all ranks get all of them (`colwise_gather_output`).
    Gathered,
    /// It has some inputs: what it makes is summed over the ranks (`rowwise`).
    Rows,
    /// The same, of inputs that all ranks have whole (`rowwise_split_input`).
    RowsOfWhole,
}

/// When PyTorch first asks what a copy of a part would look like: its `FakeTensor` has an element on the device made, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// It has not.
    #[default]
    Unasked,
    /// It does with the next cast that goes backward.
    Next,
    /// It has.
    Asked,
}
