//! Which ranks do the same: one of them is computed for all of them.

use std::collections::BTreeMap;

use vramlab_model::{Parallelism, PipelineSchedule};

use crate::context::Context;
use crate::member::{Member, World};

use super::partition::Shares;
use super::server::SERVER;
use crate::schedule::{Action, order};
use crate::workload::Model;

/// For every rank of a world, the lowest rank that makes the same requests in the same order, with any of the optimizers. For
/// each kind of optimizer, `kinds` has the parameter sets of the optimizers that it creates.
pub(crate) fn alike(cx: &Context, member: Member, model: &dyn Model, kinds: &[Vec<Vec<usize>>]) -> Vec<usize> {
    let mut first_of = BTreeMap::new();
    let sizes: Vec<usize> = cx.leaves.iter().map(|leaf| leaf.data.numel()).collect();
    let ranks = (0..member.world.size()).filter_map(|rank| World::new(member.world.size(), rank));
    ranks
        .map(|world| {
            *first_of.entry(key(cx, model, (&sizes, kinds), Member { world, ..member })).or_insert(world.rank())
        })
        .collect()
}

/// Everything that decides the requests of a rank.
fn key(cx: &Context, model: &dyn Model, (sizes, kinds): (&[usize], &[Vec<Vec<usize>>]), member: Member) -> Vec<usize> {
    let Member { parallelism, world } = member;
    match parallelism {
        // All ranks have equal parts of the batch, or of every layer.
        Parallelism::Ddp | Parallelism::DdpView | Parallelism::Tensor => Vec::new(),
        Parallelism::Server => vec![usize::from(world.rank() == SERVER)],
        Parallelism::Zero1 => {
            let own = kinds.iter().flat_map(|sets| Shares::of(member, sizes, sets).own.unwrap_or_default());
            own.flat_map(|own| [sizes[own], cx.leaves[own].data.shape().last()]).collect()
        }
        Parallelism::Zero2 | Parallelism::Fsdp => cx.leaves.iter().map(|leaf| world.chunk(leaf.shard_rows())).collect(),
        Parallelism::Pipeline(schedule) => {
            let ends = [usize::from(world.rank() == 0), usize::from(world.rank() + 1 == world.size())];
            let each = cx.units.len() / world.size();
            let blocks = (each * world.rank()..each * (world.rank() + 1)).flat_map(|unit| {
                let parameters = cx.units[unit].iter().map(|&parameter| sizes[parameter]);
                std::iter::once(model.unit_kind(unit)).chain(parameters)
            });
            ends.into_iter().chain([ahead(schedule, world)]).chain(blocks).collect()
        }
    }
}

/// Forwards of a stage before its first backward, if there are as many micro-batches as stages.
fn ahead(schedule: PipelineSchedule, world: World) -> usize {
    order(schedule, world, world.size()).iter().take_while(|action| matches!(action, Action::Forward(_))).count()
}
