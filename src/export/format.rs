//! The export formats.

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A memory snapshot of PyTorch.
    Pytorch,
    /// A trace for Perfetto.
    Perfetto,
    /// One row per event.
    Csv,
    /// The state at a moment.
    Json,
    /// Live stacks at a moment.
    Folded,
}

impl Format {
    /// All of them, in the order in which help lists them.
    pub const ALL: [Self; 5] = [Self::Pytorch, Self::Perfetto, Self::Csv, Self::Json, Self::Folded];

    /// Its word on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Perfetto => "perfetto",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Folded => "folded",
        }
    }

    /// A short description.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Pytorch => "a memory snapshot: for pytorch.org/memory_viz, torch/cuda/_memory_viz.py, vramlab replay",
            Self::Perfetto => "a trace: counters, steps, phases and ops, for ui.perfetto.dev",
            Self::Csv => "one row an event: for spreadsheets and data frames",
            Self::Json => "the state at a moment: accounts, blocks, findings, steps, effects, a failed request",
            Self::Folded => "live bytes by stack at a moment: for speedscope.app and flamegraph programs",
        }
    }

    /// True if it is not text, so that a terminal can't show it.
    #[must_use]
    pub const fn is_binary(self) -> bool {
        matches!(self, Self::Pytorch | Self::Perfetto)
    }
}
