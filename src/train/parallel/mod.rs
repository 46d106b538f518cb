//! Training over several devices: what each way of sharing the work asks of one rank's allocator, and when.
//!
//! A rank is a [`Trainer`](super::Trainer) with an allocator of its own. What it asks for depends on its place among the
//! ranks alone, never on what the others do: ranks of simulated devices run one after the other.

mod communicator;
mod construction;
mod member;
mod partition;
mod reducer;

pub use member::{Member, Parallelism, UnevenSplit, World};

pub(super) use partition::share_of;

use super::context::Context;
use super::error::OpResult;
use reducer::Reducer;

/// Wraps a model that is made, with its batches: construction, and the hooks of the steps.
pub(super) fn wrap(cx: &mut Context, member: Member) -> OpResult<()> {
    match member.parallelism {
        Parallelism::Ddp | Parallelism::Zero1 => cx.hooks = Some(Box::new(Reducer::wrap(cx, member.world, false)?)),
        Parallelism::DdpView => cx.hooks = Some(Box::new(Reducer::wrap(cx, member.world, true)?)),
    }
    construction::barrier(cx)
}
