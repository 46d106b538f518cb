//! What articles and forums claim, each with the runs that decide it and the conditions of a verdict.
//!
//! The claims are data (`lab/folklore.toml`, and over it the user's own). A [`Claim`] names its *sides*: runs from a clean
//! state, or small programs of requests to the allocator. [`Bench`] runs them on a device; the results are figures by
//! the sides' names, and conditions over them decide the [`Verdict`]. Nothing here is remembered: a verdict is measured. What vramlab can't run is [`NotHere`], a list of its own.

mod bench;
mod claim;
mod collection;
mod formula;
mod judge;
mod program;
mod read;
mod reduce;
mod steps;
mod unfit;

pub use bench::{Bench, BenchOutcome, BenchProgress};
pub use claim::{Claim, ClaimMetric, Need, NotHere, Ruling, Side, Verdict, Work};
pub use collection::{Folklore, FolkloreError, USERS_FILE};
pub use judge::Judgement;
pub use program::ProgramLine;
pub use reduce::Reduction;
pub use steps::{ClaimAction, DataWord, InferenceWord, ModelsWord, Training};
pub use unfit::Unfit;
