//! Memory of a model by its sizes: formulas, each with its letters, for what a step holds.
//!
//! The formulas are those of PyTorch's eager training on one GPU. They leave out what depends on sizes of blocks: rounding,
//! rests that are not split off, scratch of reductions.

mod formula;
mod model;

pub use formula::{Estimate, MemoryTerm, TermEstimate, TrainingSetup};
pub use model::{Model, ModelKind, SizeError, Weights};
