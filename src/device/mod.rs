//! Devices: where tensors live and kernels run.
//!
//! A [`Device`] executes [`Kernel`]s and copies, and provides the memory that the caching allocator divides into blocks
//! ([`Device::segments`]). It never decides what is allocated: ops do that through the allocator, so that every device
//! has the same memory curve. Devices run in stream order: a kernel sees the results of all kernels launched before it
//! on its stream.

mod attention;
mod collective;
mod contract;
mod dropout;
mod error;
mod float8;
mod host;
mod mapping;
mod nf4;
mod operand;
mod pinned;
pub mod process;
mod profile;
mod rotary;
mod sensors;
mod shape;
mod span;
mod work;
mod wrapper;

pub mod cpu;
pub mod cuda;
pub mod kernels;
pub mod selftest;
pub mod sim;

pub use attention::{AttentionShape, Earlier, FusedAttention};
pub use collective::{Abort, Collective, GroupId, SharedAbort};
pub use contract::{CopyPath, Device, DeviceEvent, DeviceInfo, HostWork, MatrixPrecision, ProgramStart, StreamMark};
pub use dropout::DropoutMask;
pub use error::DeviceError;
pub use float8::{from_e4m3, from_e5m2, to_e4m3, to_e5m2};
pub use host::{Charge, HostAccount, HostMemoryRefused, HostVec, spare_addresses};
pub use kernels::{
    AdamParameters, ByteMoment, GradScaling, KeptMoment, KeptMoments, Kernel, LionParameters, Magnitudes, NORM_RUN,
    ParameterUpdate, ResidualGradient, ScaleGroups, UpdatePasses,
};
pub use mapping::Plain;
pub use nf4::{BYTES_RUN, NF4, NF4_RUN, dynamic_map};
pub use operand::{DType, HeadView, MatrixView, Operand};
pub use pinned::{HostBuffer, PinnedMemory};
pub use profile::{KernelTime, KernelTimes, ProfiledDevice};
pub use rotary::{RotaryPass, RotaryShape};
pub use sensors::{SensorReader, Sensors};
pub use shape::{ChannelShape, ConvShape, ImageLayout, PoolShape};
pub use span::Span;
pub use work::{OpClass, Work};
pub use wrapper::Wrapper;
