//! The training loop: PyTorch's reference loop, with the switches of a [`Config`](super::Config).
//!
//! What a step does is the workload's [`Task`](super::Task): `supervised.rs` and `adversarial.rs` have the two that train.

mod adversarial;
mod learner;
mod parts;
mod pipeline;
mod state;
mod step;
mod supervised;
mod timing;

pub use state::{LoopStyle, Trainer, TrainerOptions};
