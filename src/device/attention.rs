//! The shape of attention, and whose kernels compute it.

use super::dropout::DropoutMask;

/// Whose fused attention kernel PyTorch would launch. They compute the same; only a simulated card's times tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedAttention {
    /// cuDNN's.
    CuDnn,
    /// Flash attention's.
    Flash,
    /// The memory-efficient one.
    Efficient,
}

/// The shape of one attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of queries that share one of keys and values; 1 where each has its own.
    pub group: usize,
    /// Positions.
    pub rows: usize,
    /// Elements of one head.
    pub head_size: usize,
    /// Position i sees only positions up to i.
    pub causal: bool,
    /// Of those, it sees so many, itself included, where attention has a window; only causal attention has one.
    pub window: Option<usize>,
    /// PyTorch's kernel reads a mask of numbers for it, and so skips no position.
    pub masked: bool,
    /// Factor on q·k, usually 1/√head_size.
    pub scale: f32,
    /// Weights of (batch, heads, rows, positions) that are left out.
    pub dropout: Option<DropoutMask>,
}

impl AttentionShape {
    /// That of keys and values, which have fewer heads where queries share them.
    #[must_use]
    pub const fn of_keys(self) -> Self {
        // No group is as one of one head.
        let group = if self.group == 0 { 1 } else { self.group };
        Self { heads: self.heads / group, group: 1, ..self }
    }

    /// The first position that position `row` sees.
    #[must_use]
    pub const fn first_seen(self, row: usize) -> usize {
        match self.window {
            Some(window) if self.causal => (row + 1).saturating_sub(window),
            _ => 0,
        }
    }
}
