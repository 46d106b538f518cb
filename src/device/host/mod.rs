//! Host memory whose size depends on a model or a batch: how much may be allocated, and who holds it.

mod account;
mod machine;
mod vec;

pub use account::{Charge, HostAccount, HostMemoryRefused};
pub use vec::HostVec;
