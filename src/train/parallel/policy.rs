//! What `fully_shard` is told of a model: `mp_policy`, `reshard_after_forward` and `offload_policy`.

use crate::config::Offload;
use vramlab_device::DType;

/// Where shards are between their uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residence {
    /// On the device.
    Device,
    /// In host memory, where the optimizer steps them (`CPUOffloadPolicy`).
    Host {
        /// `pin_memory`: copies run beside the computation.
        pinned: bool,
    },
}

impl Residence {
    /// That of `offload`, in pinned memory or not.
    pub const fn of(offload: Offload, pinned: bool) -> Self {
        if offload.parks_parameters() { Self::Host { pinned } } else { Self::Device }
    }
}

/// How a model is sharded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// The type of gathered parameters, and of gradients before they are reduced in f32; each has its own where there is none.
    pub lower: Option<DType>,
    /// Parameters are sharded again when their unit's forward has returned.
    pub reshards: bool,
    pub residence: Residence,
}
