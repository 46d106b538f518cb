//! Training over several devices: which requests each way of sharing the work makes of one rank's allocator, and when.
//!
//! A rank is a [`Trainer`](super::Trainer) with an allocator of its own. Its requests depend only on its place among the
//! ranks, never on what the others do: ranks of simulated devices run one after the other.

mod alike;
mod construction;
mod fused_copy;
mod partition;
mod pipeline;
mod policy;
mod reducer;
mod rows;
mod server;
mod sharded;
mod tensor;

pub(super) use alike::alike;
pub(super) use partition::Shares;
pub(super) use pipeline::PipelineStage;

use super::config::{Config, Float8Recipe, Offload, OnOom, OptimizerForm, OptimizerKind};
use super::context::Context;
use super::error::{OpResult, TrainError};
use super::member::Member;
use super::schedule::micro_batches;
use super::workload::Model;
use policy::{Policy, Residence};
use reducer::Reducer;
use server::Server;
use sharded::ShardedModel;
use vramlab_model::Parallelism;

/// Whether a rank runs an optimizer at all.
pub(super) const fn updates(member: Member) -> bool {
    !matches!(member.parallelism, Parallelism::Server) || member.world.rank() == server::SERVER
}

/// Whether a rank's optimizer steps whole parameters with whole gradients: then any optimizer of a single card will do.
pub(super) const fn steps_whole(parallelism: Parallelism) -> bool {
    keeps_whole(parallelism) || matches!(parallelism, Parallelism::Zero1 | Parallelism::Server)
}

/// Whether a program unscales gradients before the optimizer's step, in every form: `ShardedGradScaler` reduces the overflow flag
/// only there, and a `ZeroRedundancyOptimizer` does not pass on that its optimizer's kernel unscales.
pub(super) const fn unscales_first(parallelism: Parallelism) -> bool {
    matches!(parallelism, Parallelism::Zero1 | Parallelism::Tensor | Parallelism::Pipeline(_))
}

/// Whether a rank keeps whole parameters from step to step, without taking values from other ranks.
const fn keeps_whole(parallelism: Parallelism) -> bool {
    matches!(parallelism, Parallelism::Ddp | Parallelism::DdpView | Parallelism::Pipeline(_))
}

/// The batch of all ranks must be a multiple of this: each rank gets an equal part, in whole micro-batches.
#[must_use]
pub const fn batch_unit(parallelism: Parallelism, ranks: usize, accumulation: usize) -> usize {
    let accumulation = if accumulation == 0 { 1 } else { accumulation };
    match parallelism {
        Parallelism::Pipeline(_) => micro_batches(accumulation),
        Parallelism::Tensor => accumulation,
        Parallelism::Ddp
        | Parallelism::DdpView
        | Parallelism::Zero1
        | Parallelism::Zero2
        | Parallelism::Fsdp
        | Parallelism::Server => ranks * accumulation,
    }
}

/// Why a rank can't train with this configuration, if it can't.
pub(super) fn refusal(member: Member, config: &Config) -> Option<String> {
    let Member { parallelism, world } = member;
    let pipeline = matches!(parallelism, Parallelism::Pipeline(_));
    let alone = |what: &str| Some(format!("{what} is for one device; leave it out with --parallel"));
    if world.size() < 2 {
        return Some(format!(
            "{parallelism} shares the work of a step among ranks; give at least two, such as sim:h200x2"
        ));
    }
    let splits_batch =
        matches!(parallelism, Parallelism::Ddp | Parallelism::DdpView) || parallelism.shards_parameters();
    if config.float8 != Float8Recipe::Off && !splits_batch {
        return Some(format!(
            "layers in 8 bits are not recorded with {parallelism}; leave --fp8 out, or use ddp or fsdp"
        ));
    }
    if config.offload == Offload::ParametersAndActivations {
        return alone("--offload parameters+activations");
    }
    let parks = keeps_whole(parallelism) || parallelism.shards_parameters();
    if config.offload == Offload::Parameters && !parks {
        return Some(format!(
            "hooks that fetch a layer's parameters find none of their own under {parallelism}, which passes parameters on, or parts of \
             them; use --offload optimizer, or ddp or fsdp"
        ));
    }
    if config.checkpointing.is_reentrant() {
        return Some("--ckpt reentrant is for one device; use --ckpt on with --parallel".into());
    }
    if config.tiled_mlp {
        // The gradients of an MLP's weights are complete after its last tile; the hooks of ranks would take them after the first.
        return alone("--tiled-mlp");
    }
    if config.on_oom != OnOom::Stop {
        let text = "a rank that leaves its step by an exception leaves the others waiting for what it would exchange, and no `except` of \
                    theirs is reached; leave --on-oom out with --parallel";
        return Some(text.into());
    }
    if parallelism == Parallelism::Tensor && config.loss_head.is_fused() {
        return Some("a fused loss has the whole head, of which each rank of tp has a part; leave --loss out".into());
    }
    if pipeline && config.use_cache {
        return alone("--use-cache");
    }
    let in_bytes = matches!(config.optimizer, OptimizerKind::AdamW8bit | OptimizerKind::Lion8bit);
    if in_bytes && !steps_whole(parallelism) {
        return Some(format!("moments in 8 bits are not shared among ranks by {parallelism}; use --opt adamw, or ddp"));
    }
    if config.amp.scales() && parallelism == Parallelism::Server {
        let text = "a gradient scaler looks at whole gradients on every rank, and ps has them on rank 0 alone; use --amp bf16, or ddp";
        return Some(text.into());
    }
    if config.hyper.clip.is_some() && parallelism == Parallelism::Tensor {
        let text = "clip_grad_norm_ takes no whole gradients beside DTensors (tp_plan), and of layers that are split by hand each rank's \
                    norm is another, so that whole parameters would part; leave --clip out, or use ddp or fsdp";
        return Some(text.into());
    }
    let micro_batches = micro_batches(config.accumulation);
    if pipeline && !config.batch.is_multiple_of(micro_batches) {
        let batch = config.batch.next_multiple_of(micro_batches);
        return Some(format!(
            "a batch of {} can't be cut into {micro_batches} micro-batches; give --batch {batch} or another multiple",
            config.batch
        ));
    }
    None
}

/// Why a model that is loaded in parts (`tp_plan`) can't train with this configuration, if it can't: PyTorch's kernels for many
/// tensors at once refuse `DTensor`s together with tensors.
pub(super) fn refusal_in_parts(cx: &Context, config: &Config) -> Option<String> {
    if !cx.in_parts || !config.amp.scales() {
        return None;
    }
    let text = "GradScaler fails with tp_plan: _amp_foreach_non_finite_check_and_unscale_ takes no mixed torch.Tensor and DTensor; use \
                --amp bf16, or ddp or fsdp";
    Some(text.into())
}

/// The form of a rank's optimizer. PyTorch's kernels for many parameters at once refuse parts of parameters together with whole
/// ones, so transformers' `Trainer` steps them one by one (`foreach=False`).
pub(super) const fn form(cx: &Context, wanted: OptimizerForm) -> OptimizerForm {
    if cx.in_parts { OptimizerForm::Loop } else { wanted }
}

/// Why ranks that train can't change from `present` to `wanted`, if they can't: a model's wrapper stays as it is.
pub(super) fn fixed(member: Member, present: &Config, wanted: &Config) -> Option<String> {
    let way = member.parallelism;
    if !way.shards_parameters() {
        return None;
    }
    let residence = |config: &Config| Residence::of(config.offload, config.pinned);
    if present.amp.dtype() != wanted.amp.dtype() {
        return Some(format!(
            "{way} gathers parameters in the type that it was given at the start; start again with --amp"
        ));
    }
    (residence(present) != residence(wanted))
        .then(|| format!("{way} has its shards where it was told at the start; start again with --offload, or --pin"))
}

/// Wraps a model and its batches for a rank: requests of the construction, and the hooks of the steps.
///
/// Returns the stage if the ranks form a pipeline.
pub(super) fn wrap(
    cx: &mut Context,
    member: Member,
    config: &Config,
    model: &dyn Model,
) -> OpResult<Option<PipelineStage>> {
    let lower = config.amp.dtype();
    let needs_blocks = match member.parallelism {
        Parallelism::Ddp | Parallelism::DdpView | Parallelism::Zero1 | Parallelism::Server => false,
        Parallelism::Zero2 | Parallelism::Fsdp => cx.units.is_empty(),
        Parallelism::Tensor => cx.splits.is_empty() && !cx.in_parts,
        Parallelism::Pipeline(_) => false,
    };
    if needs_blocks {
        let text =
            format!("{} shares transformer blocks, and this model has none that it knows; use ddp", member.parallelism);
        return Err(TrainError::Workload(text).into());
    }
    let shards = member.parallelism.shards_parameters();
    let pipeline = matches!(member.parallelism, Parallelism::Pipeline(_));
    let whole = matches!(member.parallelism, Parallelism::Ddp | Parallelism::DdpView | Parallelism::Server);
    let mixes = shards || pipeline || whole;
    if !mixes && cx.leaves.iter().any(|leaf| leaf.frozen) {
        let text = format!("adapters beside frozen parameters are not simulated with {}; use ddp", member.parallelism);
        return Err(TrainError::Workload(text).into());
    }
    if let Some(what) = cx.needs_whole.filter(|_| shards) {
        let text = format!("{what} with {} is not there; use ddp", member.parallelism);
        return Err(TrainError::Workload(text).into());
    }
    if let Some(packed_in) = cx.leaves.iter().find_map(|leaf| leaf.packed_in).filter(|_| shards)
        && lower.is_some_and(|lower| lower != packed_in)
    {
        let text = format!(
            "{} would cast the bytes of weights in 4 bits; give --weights bf16 with --amp bf16, or leave --amp out",
            member.parallelism
        );
        return Err(TrainError::Workload(text).into());
    }
    if pipeline && !cx.units.is_empty() && model.cut().is_none() {
        let text = "this model can't be cut into the stages of a pipeline here; use ddp or fsdp";
        return Err(TrainError::Workload(text.into()).into());
    }
    if cx.memory().holds_bytes() && cx.seat.is_none() {
        return Err(TrainError::Workload("ranks that compute need a place to meet".into()).into());
    }
    let mut stage = None;
    match member.parallelism {
        Parallelism::Pipeline(schedule) => stage = Some(PipelineStage::keep(cx, member.world, schedule, model)?),
        Parallelism::Ddp | Parallelism::DdpView | Parallelism::Zero1 => {
            cx.hooks = Some(Box::new(Reducer::wrap(cx, member)?));
        }
        Parallelism::Tensor => tensor::split(cx)?,
        Parallelism::Fsdp | Parallelism::Zero2 => {
            let reshards = member.parallelism == Parallelism::Fsdp;
            let residence = Residence::of(config.offload, config.pinned);
            cx.hooks = Some(Box::new(ShardedModel::wrap(cx, member.world, Policy { lower, reshards, residence })?));
        }
        Parallelism::Server => cx.hooks = Some(Box::new(Server::wrap(cx, member.world)?)),
    }
    construction::barrier(cx)?;
    if let Some(stage) = &stage {
        stage.collect(cx);
    }
    Ok(stage)
}
