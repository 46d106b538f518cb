//! What devices exchange among themselves, where they can.

use std::fmt;
use std::sync::Arc;

use super::operand::Operand;

/// One of a device's groups of ranks ([`super::Device::join_group`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(pub usize);

/// An exchange among the ranks of a group. Every rank asks for the same ones in the same order, for as many elements of the
/// same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank gets all ranks' parts, one behind the other. Its own lies at its place already.
    AllGather(Operand),
    /// Every rank gets its part, averaged over what all ranks give.
    ReduceScatter {
        /// Parts for all ranks, one behind the other.
        given: Operand,
        /// This rank's average.
        own: Operand,
    },
    /// Sums a tensor over all ranks, in place.
    AllReduce(Operand),
    /// Sums a tensor over all ranks on rank `to`, in place; what the others have stays.
    Reduce {
        /// What each rank gives.
        tensor: Operand,
        /// Who gets the sum.
        to: usize,
    },
    /// All ranks get what rank `from` has.
    Broadcast {
        /// What is sent, and on the other ranks overwritten.
        tensor: Operand,
        /// Who has it.
        from: usize,
    },
    /// Sends to one rank, which receives it.
    Send {
        /// What is sent.
        tensor: Operand,
        /// To whom.
        to: usize,
    },
    /// Receives what one rank sends.
    Receive {
        /// What is overwritten.
        tensor: Operand,
        /// From whom.
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

/// Ends a rank's part in a group from any thread, at once: what is under way on its device stops, and later exchanges are
/// refused. Ending it twice is ending it once.
pub trait Abort: fmt::Debug + Send + Sync {
    /// See the trait.
    fn abort(&self);
}

/// A rank's part in a group, as it is shared with other threads.
pub type SharedAbort = Arc<dyn Abort>;
