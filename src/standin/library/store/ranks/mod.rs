//! Ranks: a process's ends of NCCL communicators, and what it shares with the other processes of each.
//!
//! Nothing here waits: [`crate::ranks`] does.

mod all;
mod arithmetic;
mod calls;
mod communicator;
mod identity;
mod meeting;
mod members;
mod pieces;

pub use all::{Communicators, Point};
pub use arithmetic::{Arithmetic, width};
pub use calls::{Call, Contribution, Result};
pub use communicator::{AbsentRanks, Communicator};
pub use identity::Identity;
pub use meeting::{JoinError, MOST, Meeting};
pub use pieces::Pieces;
