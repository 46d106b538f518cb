//! The training loop: PyTorch's reference loop, with the switches of a [`Config`](super::Config).
//!
//! A step runs the workload's [`Task`](super::Task): `supervised.rs` and `adversarial.rs` have the two tasks that train.

mod adversarial;
mod learner;
mod parts;
mod pipeline;
mod state;
mod step;
mod supervised;
mod timing;

pub use state::{LoopStyle, Trainer, TrainerOptions};
