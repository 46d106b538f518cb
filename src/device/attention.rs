//! The shape of attention, and whose kernels compute it.

use super::dropout::DropoutMask;

/// Whose fused attention kernel PyTorch would launch. All compute the same result; only a simulated card's times
/// differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedAttention {
    /// cuDNN's kernel.
    CuDnn,
    /// Flash attention's kernel.
    Flash,
    /// The memory-efficient kernel.
    Efficient,
}

/// Which of the positions before it a position of causal attention sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Earlier {
    /// All.
    #[default]
    All,
    /// With itself this many at most: a sliding window.
    Window(usize),
    /// Those of its own chunk; chunks of this many positions begin at the first position (Llama 4).
    Chunk(usize),
}

impl Earlier {
    /// The first position that position `row` sees.
    #[must_use]
    pub const fn first_seen(self, row: usize) -> usize {
        match self {
            Self::All | Self::Chunk(0) => 0,
            Self::Window(window) => (row + 1).saturating_sub(window),
            Self::Chunk(chunk) => row - row % chunk,
        }
    }

    /// Positions of a window or a chunk.
    #[must_use]
    pub const fn most(self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Window(most) | Self::Chunk(most) => Some(most),
        }
    }
}

/// The shape of one attention call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Number of sequences.
    pub batch: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of query heads that share one head of keys and values; 1 if each has its own.
    pub group: usize,
    /// Number of positions.
    pub rows: usize,
    /// Elements of one head of queries and keys.
    pub head_size: usize,
    /// Elements of one head of values and of the result: as many, unless the model has other values (DeepSeek).
    pub value_size: usize,
    /// Position i sees only positions up to i.
    pub causal: bool,
    /// Which of those positions it sees.
    pub earlier: Earlier,
    /// True if PyTorch's kernel reads a numeric mask and therefore skips no position.
    pub masked: bool,
    /// Factor on q·k, usually 1/√head_size.
    pub scale: f32,
    /// The dropped weights, among those of (batch, heads, rows, positions).
    pub dropout: Option<DropoutMask>,
}

impl AttentionShape {
    /// The shape of keys, which have fewer heads if query heads share them.
    #[must_use]
    pub const fn of_keys(self) -> Self {
        // A group of 0 counts as a group of one head.
        let group = if self.group == 0 { 1 } else { self.group };
        Self { heads: self.heads / group, group: 1, ..self }
    }

    /// The shape of values, which have as many heads as keys.
    #[must_use]
    pub const fn of_values(self) -> Self {
        Self { head_size: self.value_size, ..self.of_keys() }
    }

    /// The shape of the result.
    #[must_use]
    pub const fn of_result(self) -> Self {
        Self { head_size: self.value_size, ..self }
    }

    /// The larger of both sizes of a head.
    #[must_use]
    pub const fn widest(&self) -> usize {
        if self.value_size > self.head_size { self.value_size } else { self.head_size }
    }

    /// The first position that position `row` sees.
    #[must_use]
    pub const fn first_seen(self, row: usize) -> usize {
        if self.causal { self.earlier.first_seen(row) } else { 0 }
    }
}
