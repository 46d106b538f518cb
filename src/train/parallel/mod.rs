//! Training over several devices: what each way of sharing the work asks of one rank's allocator, and when.
//!
//! A rank is a [`Trainer`](super::Trainer) with an allocator of its own. What it asks for depends on its place among the
//! ranks alone, never on what the others do: ranks of simulated devices run one after the other.

mod construction;
mod partition;
mod pipeline;
mod reducer;
mod sharded;
mod tensor;

pub(super) use partition::share_of;
pub(super) use pipeline::{Action, Stage};

use super::context::Context;
use super::error::{OpResult, TrainError};
use super::member::{Member, Parallelism};
use reducer::Reducer;
use sharded::Sharded;
use vramlab_device::DType;

/// Wraps a model that is made, with its batches: construction, and the hooks of the steps.
///
/// `lower` is the type of mixed precision, where there is one. Of a pipeline, the stage.
pub(super) fn wrap(cx: &mut Context, member: Member, lower: Option<DType>) -> OpResult<Option<Stage>> {
    let needs_blocks = match member.parallelism {
        Parallelism::Ddp | Parallelism::DdpView | Parallelism::Zero1 => false,
        Parallelism::Zero2 | Parallelism::Fsdp => cx.units.is_empty(),
        Parallelism::Tensor => cx.splits.is_empty(),
        Parallelism::Pipeline(_) => false,
    };
    if needs_blocks {
        let text =
            format!("{} shares transformer blocks, and this model has none that it knows; use ddp", member.parallelism);
        return Err(TrainError::Workload(text).into());
    }
    let mut stage = None;
    match member.parallelism {
        Parallelism::Pipeline(schedule) => stage = Some(Stage::keep(cx, member.world, schedule)?),
        Parallelism::Ddp | Parallelism::Zero1 => cx.hooks = Some(Box::new(Reducer::wrap(cx, member.world, false)?)),
        Parallelism::DdpView => cx.hooks = Some(Box::new(Reducer::wrap(cx, member.world, true)?)),
        Parallelism::Zero2 => cx.hooks = Some(Box::new(Sharded::wrap(cx, member.world, lower, false)?)),
        Parallelism::Tensor => tensor::split(cx)?,
        Parallelism::Fsdp => cx.hooks = Some(Box::new(Sharded::wrap(cx, member.world, lower, true)?)),
    }
    construction::barrier(cx)?;
    Ok(stage)
}
