//! Exchanges of data between devices, for devices that support them.

use std::fmt;
use std::sync::Arc;

use super::operand::Operand;

/// A group of ranks that a device has joined ([`super::Device::join_group`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(pub usize);

/// An exchange among the ranks of a group. All ranks must request the same exchanges in the same order, with the same
/// number of elements of the same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank gets all ranks' parts, one after another. Its own part is already in place.
    AllGather(Operand),
    /// Every rank gets its part, averaged over the contributions of all ranks.
    ReduceScatter {
        /// Parts for all ranks, one after another.
        given: Operand,
        /// This rank's average.
        own: Operand,
    },
    /// Sums a tensor over all ranks, in place.
    AllReduce(Operand),
    /// Sums a tensor over all ranks on rank `to`, in place; the other ranks' tensors stay unchanged.
    Reduce {
        /// Each rank's contribution.
        tensor: Operand,
        /// The rank that gets the sum.
        to: usize,
    },
    /// Copies rank `from`'s tensor to all ranks.
    Broadcast {
        /// The tensor that is sent, and overwritten on the other ranks.
        tensor: Operand,
        /// The sending rank.
        from: usize,
    },
    /// Sends to one rank, which receives it.
    Send {
        /// The tensor to send.
        tensor: Operand,
        /// The receiving rank.
        to: usize,
    },
    /// Receives a tensor from one rank.
    Receive {
        /// The tensor that is overwritten.
        tensor: Operand,
        /// The sending rank.
        from: usize,
    },
}

impl Collective {
    /// Its name in sentences.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AllGather(_) => "all-gather",
            Self::ReduceScatter { .. } => "reduce-scatter",
            Self::AllReduce(_) => "all-reduce",
            Self::Reduce { .. } => "reduce",
            Self::Broadcast { .. } => "broadcast",
            Self::Send { .. } => "send",
            Self::Receive { .. } => "receive",
        }
    }
}

/// Ends a rank's membership in a group immediately, from any thread: exchanges in progress on its device stop, and
/// later ones are refused. Ending it twice has no further effect.
pub trait Abort: fmt::Debug + Send + Sync {
    /// See the trait.
    fn abort(&self);
}

/// The handle that ends a rank's membership, shared with other threads.
pub type SharedAbort = Arc<dyn Abort>;
