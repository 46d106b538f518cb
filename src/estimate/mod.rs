//! A model's memory from its sizes: formulas, each with its letters, for the parts of a step's memory.
//!
//! The formulas describe PyTorch's eager training on one GPU. They omit effects of block sizes: rounding, remainders
//! that are not split off, and scratch of reductions.

mod formula;
mod model;

pub use formula::{Estimate, MemoryTerm, TermEstimate, TrainingSetup};
pub use model::{Model, ModelKind, SizeError, Weights};
