//! The calls of ranks to each other.

use super::arithmetic::Arithmetic;
use super::pieces::Pieces;

/// A call of NCCL; ranks tell each other which one they have entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Call {
    AllGather = 1,
    AllReduce,
    AllToAll,
    Broadcast,
    Gather,
    Reduce,
    ReduceScatter,
    Scatter,
    Send,
    Recv,
    Split,
}

impl Call {
    const ALL: [Self; 11] = [
        Self::AllGather,
        Self::AllReduce,
        Self::AllToAll,
        Self::Broadcast,
        Self::Gather,
        Self::Reduce,
        Self::ReduceScatter,
        Self::Scatter,
        Self::Send,
        Self::Recv,
        Self::Split,
    ];

    /// The call with a number that another rank wrote.
    pub fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|call| *call as u64 == number)
    }

    /// The name of NCCL's function.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllGather => "ncclAllGather",
            Self::AllReduce => "ncclAllReduce",
            Self::AllToAll => "ncclAlltoAll",
            Self::Broadcast => "ncclBroadcast",
            Self::Gather => "ncclGather",
            Self::Reduce => "ncclReduce",
            Self::ReduceScatter => "ncclReduceScatter",
            Self::Scatter => "ncclScatter",
            Self::Send => "ncclSend",
            Self::Recv => "ncclRecv",
            Self::Split => "ncclCommSplit",
        }
    }
}

/// What a rank contributes to a collective.
#[derive(Debug)]
pub enum Contribution {
    /// Nothing that the others need.
    Nothing,
    /// The known part of its bytes.
    Known(Pieces),
}

/// What a rank gets from a collective, given the contributions of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    /// Nothing.
    Nothing,
    /// The contributions of all, `size` bytes each, one after the other.
    Gathered { size: u64 },
    /// `size` bytes of one rank's contribution, from `offset` on.
    Of { rank: usize, offset: u64, size: u64 },
    /// `size` bytes from `offset` on of all contributions, reduced.
    Reduced { offset: u64, size: u64, arithmetic: Arithmetic },
    /// From each rank, the `size` bytes that are meant for this rank.
    Exchanged { size: u64 },
}

impl Result {
    /// The known part of the result. `given` returns the known part of a rank's contribution.
    pub fn of(self, me: usize, ranks: usize, given: impl Fn(usize) -> Pieces) -> Pieces {
        let each = |part: &dyn Fn(usize) -> (u64, Pieces)| {
            Pieces((0..ranks).map(part).flat_map(|(at, pieces)| pieces.moved(at).0).collect())
        };
        match self {
            Self::Nothing => Pieces::default(),
            Self::Gathered { size } => each(&|rank| (rank as u64 * size, given(rank).part(0, size))),
            Self::Of { rank, offset, size } => given(rank).part(offset, size),
            Self::Reduced { offset, size, arithmetic } => {
                let parts: Vec<_> = (0..ranks).map(|rank| given(rank).part(offset, size)).collect();
                arithmetic.of(&parts)
            }
            Self::Exchanged { size } => each(&|rank| (rank as u64 * size, given(rank).part(me as u64 * size, size))),
        }
    }
}
