//! Host memory whose size follows from a model or a batch: how much of it may be taken, and who holds it.

mod account;
mod machine;
mod vec;

pub use account::{Charge, HostAccount, HostMemoryRefused};
pub use vec::HostVec;
