//! Host memory whose size depends on a model or a batch: how much may be allocated, and who holds it.

mod account;
mod heap;
mod machine;
mod vec;

pub use account::{Charge, HostAccount, HostMemoryRefused};
pub use heap::spare_addresses;
pub use vec::HostVec;
