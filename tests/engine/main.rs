#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that can't be set up fails"
)]

#[path = "../common/made.rs"]
mod made;
#[path = "../model/mod.rs"]
mod model;
#[path = "../common/patience.rs"]
mod patience;
#[path = "../common/thoroughness.rs"]
mod thoroughness;
#[path = "../common/training.rs"]
mod training;

mod alignment;
mod allocator_properties;
mod combinations;
mod cs336;
mod decoder_optimizers;
mod epoch;
mod families;
mod fit;
mod float8;
mod folklore;
mod fused;
mod fused_ranks;
mod gradients;
mod host_memory;
mod inference;
mod kernels;
mod live_ranks;
mod llama;
mod loading;
mod losses;
mod own_models;
mod padding;
mod parity;
mod placement;
mod programs;
mod ranks;
mod ranks_learn;
mod selftest;
mod session;
mod simulation;
mod switches;
