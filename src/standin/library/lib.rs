//! The stand-in GPU: a library that is loaded before a program's own libraries and answers its CUDA calls.
//!
//! Device memory is addresses with nothing behind them, kernels do nothing, and every size, limit and name is the
//! card's. So a program's allocator makes the same decisions as on the card. `build.rs` builds this crate with std
//! alone and embeds it; entry points that are not written here by hand are generated from the table in `entries/`.
//!
//! A C interface passes pointers that only its caller can vouch for. Only [`foreign`] reads and writes through them.

#![deny(unsafe_op_in_unsafe_fn)]
#![allow(non_snake_case, reason = "entry points are called what NVIDIA's libraries call them")]

mod units {
    /// One MiB in bytes.
    pub const MIB: u64 = 1 << 20;
    /// One GiB in bytes.
    pub const GIB: u64 = 1 << 30;
}

#[macro_use]
mod entry;
#[macro_use]
mod real_dnn;
mod answers;
mod attributes;
mod audit;
mod blas;
mod blas_lt;
mod capture;
mod card;
mod clock;
mod codes;
mod context;
mod copies;
mod costs;
mod dnn;
mod driver;
mod events;
mod foreign;
mod graphs;
mod kernels;
mod launches;
mod memory;
mod names;
mod nccl;
mod nvml;
mod occupancy;
mod peeks;
mod pinned;
#[allow(dead_code, reason = "the trainer's own use of it needs more")]
mod placement;
mod plans;
mod pool;
mod products;
mod properties;
mod ranks;
mod real;
mod report;
mod rnn;
mod runtime;
mod store;
mod streams;
mod stubs;
mod system;
mod virtual_memory;
mod watchdog;
