//! The arguments of `fully_shard`: `mp_policy`, `reshard_after_forward` and `offload_policy`.

use crate::config::Offload;
use vramlab_device::DType;

/// Where shards are between their uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residence {
    /// On the device.
    Device,
    /// In host memory, where the optimizer updates them (`CPUOffloadPolicy`).
    Host {
        /// `pin_memory`: copies overlap with the computation.
        pinned: bool,
    },
}

impl Residence {
    /// Where shards are under `offload`, in pinned memory or not.
    pub const fn of(offload: Offload, pinned: bool) -> Self {
        if offload.parks_parameters() { Self::Host { pinned } } else { Self::Device }
    }
}

/// How a model is sharded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// The type of gathered parameters, and of gradients before they are reduced in f32; with `None` they keep their own.
    pub lower: Option<DType>,
    /// Parameters are sharded again once their unit's forward has returned.
    pub reshards: bool,
    pub residence: Residence,
}
