//! The claims of articles and forums, each with the runs that test it and the conditions of its verdicts.
//!
//! The claims are data (`lab/folklore.toml`, and the user's own, which take precedence). A [`Claim`] names its *sides*:
//! runs from a clean state, or small programs of requests to the allocator. [`Bench`] runs them on a device. The
//! results are figures by the sides' names, and conditions over these figures decide the [`Verdict`]. No verdict is
//! stored: it is always measured. Claims that vramlab can't run are in a list of their own, as [`NotHere`].

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
