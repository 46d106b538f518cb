//! The kernels of the processor device against naive references, finite differences and each other.

mod copies;
mod determinism;
mod forward;
mod gradients;
mod harness;
mod optimizers;
