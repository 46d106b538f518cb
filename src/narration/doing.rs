//! What a PyTorch program was doing at a request, according to a frame of its stack or to a scope that PyTorch recorded.

use vramlab_model::{ALL_GATHER, Phase, STAGE};
use vramlab_snapshot::{Frame, Snapshot, StackId};

/// The op that allocates buckets. It begins like the buckets' names ([`vramlab_model::DDP_BUCKET`]).
const DDP_BUCKETS: &str = "DDP buckets";

/// What the program was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramPhase {
    SetUp,
    Data,
    Forward,
    Backward,
    /// Running forward again, during backward.
    Recompute,
    Optimizer,
    /// Sending data to other ranks or receiving it.
    Exchange,
    /// Receiving data for a stage of a pipeline.
    Stage,
    /// Making DDP's buckets.
    Bucket,
    /// Making the blocks that an all-gather fills, which are then copied into parameters.
    AllGather,
    /// Making the blocks that an all-gather fills, which are the parameters themselves.
    GatherInPlace,
    /// Gathering a parameter.
    Gather,
    /// Reducing gradients to shards.
    Reduce,
    Unknown,
}

impl ProgramPhase {
    /// True if it happens in the middle of a program's other activities.
    pub const fn is_of_ranks(self) -> bool {
        matches!(
            self,
            Self::Exchange
                | Self::Stage
                | Self::Bucket
                | Self::AllGather
                | Self::GatherInPlace
                | Self::Gather
                | Self::Reduce
        )
    }

    /// The phase of a step that this belongs to; `None` if it could be any.
    pub const fn phase(self) -> Option<Phase> {
        match self {
            Self::Data => Some(Phase::Data),
            Self::Forward => Some(Phase::Forward),
            Self::Backward | Self::Recompute => Some(Phase::Backward),
            Self::Optimizer => Some(Phase::Optimizer),
            _ => None,
        }
    }

    /// The name of the op that allocates such a block in a run of ours, for ops that findings depend on.
    pub const fn op(self) -> Option<&'static str> {
        match self {
            Self::AllGather | Self::GatherInPlace => Some(ALL_GATHER),
            Self::Bucket => Some(DDP_BUCKETS),
            Self::Stage => Some(STAGE),
            _ => None,
        }
    }
}

/// What a stack shows: the innermost frame with a meaning, except for a forward that runs again.
pub(super) fn doing(snapshot: &Snapshot, stack: StackId) -> ProgramPhase {
    let said = |frame: Frame| said_by(snapshot.texts.get(frame.filename), snapshot.texts.get(frame.name));
    if snapshot.stacks.frames(stack).map(said).any(|doing| doing == ProgramPhase::Recompute) {
        return ProgramPhase::Recompute;
    }
    snapshot
        .stacks
        .frames(stack)
        .map(said)
        .find(|doing| *doing != ProgramPhase::Unknown)
        .unwrap_or(ProgramPhase::Unknown)
}

/// What a frame shows.
fn said_by(file: &str, function: &str) -> ProgramPhase {
    // The autograd engine, in stacks with frames of C++.
    if function.starts_with("torch::autograd::Engine::") {
        return ProgramPhase::Backward;
    }
    if function.starts_with("c10d::Reducer::initialize_buckets") {
        return ProgramPhase::Bucket;
    }
    if file == "phase" {
        // Exports of our own runs use these names too.
        return of_scope(function);
    }
    let lies_in = |parts: &[&str]| parts.iter().any(|part| file.contains(part));
    match function {
        "unpack_hook" | "recompute_fn" if lies_in(&["torch/utils/checkpoint.py"]) => return ProgramPhase::Recompute,
        "backward" if lies_in(&["torch/utils/checkpoint.py"]) => return ProgramPhase::Recompute,
        _ => {}
    }
    if let Some(doing) = said_of_ranks(file, function) {
        return doing;
    }
    if lies_in(&["torch/optim/", "torch/amp/grad_scaler.py", "/clip_grad.py", "/optimizers/", "bitsandbytes/optim"])
        && !file.ends_with("lr_scheduler.py")
    {
        return ProgramPhase::Optimizer;
    }
    match function {
        "backward" | "_engine_run_backward" => return ProgramPhase::Backward,
        "forward" => return ProgramPhase::Forward,
        "__init__"
        | "_apply"
        | "reset_parameters"
        | "_init_weights"
        | "init_weights"
        | "load_state_dict"
        | "from_pretrained"
        | "_load_from_state_dict" => return ProgramPhase::SetUp,
        "send_to_device" | "transfer_batch_to_device" | "move_data_to_device" | "collate_fn" => {
            return ProgramPhase::Data;
        }
        _ => {}
    }
    if lies_in(&["torch/autograd/"]) {
        ProgramPhase::Backward
    } else if lies_in(&["torch/nn/init.py"]) {
        ProgramPhase::SetUp
    } else if lies_in(&["torch/nn/functional.py"]) {
        ProgramPhase::Forward
    } else if lies_in(&["torch/utils/data/"]) {
        ProgramPhase::Data
    } else {
        ProgramPhase::Unknown
    }
}

/// What a frame of multi-rank code shows.
fn said_of_ranks(file: &str, function: &str) -> Option<ProgramPhase> {
    if let Some((_, file)) = file.rsplit_once("deepspeed/runtime/zero/") {
        return said_by_deepspeed(file, function);
    }
    let (_, file) = file.rsplit_once("torch/")?;
    if let Some(file) = file.strip_prefix("distributed/fsdp/") {
        return said_by_fsdp(file, function);
    }
    match (file, function) {
        ("nn/parallel/distributed.py", "_pre_forward" | "_ddp_init_helper") => Some(ProgramPhase::Bucket),
        ("distributed/pipelining/stage.py", "_make_tensor_from_meta") => Some(ProgramPhase::Stage),
        ("nn/parallel/distributed.py", "_sync_buffers")
        | ("distributed/pipelining/stage.py", "_get_init_p2p_neighbors_ops") => Some(ProgramPhase::Exchange),
        // The caller shows what it is for.
        ("distributed/utils.py", "_alloc_storage") => None,
        ("distributed/distributed_c10d.py" | "distributed/utils.py", _) => Some(ProgramPhase::Exchange),
        _ => None,
    }
}

/// What a frame of FSDP shows: `fully_shard`, or the older wrapper.
fn said_by_fsdp(file: &str, function: &str) -> Option<ProgramPhase> {
    match (file, function) {
        ("_fully_shard/_fsdp_param.py", "alloc_storage" | "init_all_gather_outputs") => Some(ProgramPhase::Gather),
        ("_fully_shard/_fsdp_collectives.py", "foreach_reduce") => Some(ProgramPhase::Reduce),
        ("_fully_shard/_fsdp_collectives.py", "foreach_all_gather") => Some(ProgramPhase::AllGather),
        ("_fully_shard/_fsdp_collectives.py", "foreach_all_gather_copy_out" | "_get_param_all_gather_inputs") => {
            Some(ProgramPhase::Exchange)
        }
        ("_flat_param.py", "_alloc_padded_unsharded_flat_param") => Some(ProgramPhase::GatherInPlace),
        ("_flat_param.py", "_use_low_precision_shard") => Some(ProgramPhase::Exchange),
        ("_runtime_utils.py", "_reduce_grad" | "_get_reduce_scatter_tensors" | "_cast_grad_to_param_dtype") => {
            Some(ProgramPhase::Reduce)
        }
        _ => None,
    }
}

/// What a frame of DeepSpeed's ZeRO shows.
fn said_by_deepspeed(file: &str, function: &str) -> Option<ProgramPhase> {
    match (file, function) {
        // Parameters are parts of the block that it fills.
        (
            "partition_parameters.py",
            "_all_gather_dtype"
            | "_all_gather_sequential"
            | "_all_gather_coalesced"
            | "_allgather_param"
            | "_allgather_params"
            | "_allgather_params_coalesced",
        ) => Some(ProgramPhase::GatherInPlace),
        (
            "stage3.py",
            "__avg_scatter_grads" | "__avg_scatter_contiguous_grads" | "__reduce_and_partition_ipg_grads",
        ) => Some(ProgramPhase::Reduce),
        ("stage_1_and_2.py", "reduce_gradients" | "setup_buckets" | "average_tensor" | "allreduce_bucket") => {
            Some(ProgramPhase::Exchange)
        }
        _ => None,
    }
}

/// What the name of a scope shows.
pub(super) fn of_scope(name: &str) -> ProgramPhase {
    let name = name.to_lowercase();
    let has = |word: &str| name.contains(word);
    if has("zero_grad") {
        ProgramPhase::Unknown
    } else if has("optimizer") {
        ProgramPhase::Optimizer
    } else if has("backward") {
        ProgramPhase::Backward
    } else if has("forward") {
        ProgramPhase::Forward
    } else if has("dataloader") || name == "data" {
        ProgramPhase::Data
    } else {
        ProgramPhase::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_tell_what_the_program_was_doing() {
        for (file, function, doing) in [
            ("/v/site-packages/torch/optim/adam.py", "_init_group", ProgramPhase::Optimizer),
            ("/v/site-packages/torch/optim/lr_scheduler.py", "step", ProgramPhase::Unknown),
            ("/v/site-packages/torch/nn/utils/clip_grad.py", "_clip_grads_with_norm_", ProgramPhase::Optimizer),
            ("/v/site-packages/torch/nn/modules/linear.py", "__init__", ProgramPhase::SetUp),
            ("/v/site-packages/torch/nn/modules/linear.py", "forward", ProgramPhase::Forward),
            ("/v/site-packages/torch/autograd/graph.py", "_engine_run_backward", ProgramPhase::Backward),
            ("/v/site-packages/torch/utils/checkpoint.py", "recompute_fn", ProgramPhase::Recompute),
            ("/v/site-packages/torch/utils/checkpoint.py", "checkpoint", ProgramPhase::Unknown),
            ("/job/train.py", "main", ProgramPhase::Unknown),
            ("/v/torch/nn/parallel/distributed.py", "_pre_forward", ProgramPhase::Bucket),
            ("/v/torch/nn/parallel/distributed.py", "_sync_buffers", ProgramPhase::Exchange),
            (
                "/torch/csrc/distributed/c10d/reducer.cpp",
                "c10d::Reducer::initialize_buckets(std::vector<…>)",
                ProgramPhase::Bucket,
            ),
            (
                "/v/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
                "foreach_all_gather",
                ProgramPhase::AllGather,
            ),
            ("/v/torch/distributed/utils.py", "_alloc_storage", ProgramPhase::Unknown),
            (
                "/v/torch/distributed/fsdp/_flat_param.py",
                "_alloc_padded_unsharded_flat_param",
                ProgramPhase::GatherInPlace,
            ),
            ("/v/deepspeed/runtime/zero/partition_parameters.py", "_all_gather_coalesced", ProgramPhase::GatherInPlace),
            ("/v/deepspeed/runtime/zero/stage_1_and_2.py", "setup_buckets", ProgramPhase::Exchange),
            ("/v/torch/nn/parallel/distributed.py", "forward", ProgramPhase::Forward),
            ("/v/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_reduce", ProgramPhase::Reduce),
            ("/v/torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "alloc_storage", ProgramPhase::Gather),
            ("/v/torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "_init_sharded_param", ProgramPhase::Unknown),
            ("/v/torch/distributed/distributed_c10d.py", "barrier", ProgramPhase::Exchange),
            ("/v/torch/distributed/pipelining/stage.py", "_make_tensor_from_meta", ProgramPhase::Stage),
            (
                "??",
                "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
                ProgramPhase::Backward,
            ),
            (
                "VariableType_0.cpp",
                "torch::autograd::VariableType::(anonymous namespace)::addmm(c10::DispatchKeySet)",
                ProgramPhase::Unknown,
            ),
        ] {
            assert_eq!(said_by(file, function), doing, "{file} {function}");
        }
        assert_eq!(of_scope("Optimizer.step#AdamW.step"), ProgramPhase::Optimizer);
        assert_eq!(of_scope("Optimizer.zero_grad#AdamW.zero_grad"), ProgramPhase::Unknown);
    }
}
