//! A whole epoch of samples of several lengths on a simulated card: the figures of each step, for several batchings and
//! allocator settings.
//!
//! The requests of a step follow from its batches alone. So the engine runs one step for each kind of batch: most of
//! them with fewer layers, from which the whole model's steps are derived
//! ([`whatif::StepLikeness`](crate::whatif::StepLikeness)). Then an allocator gets the requests of the whole epoch:
//! [`whatif::Repeater`](crate::whatif::Repeater).

mod error;
mod kind;
mod library;
mod quantiles;
mod simulate;
mod workers;

pub use error::EpochError;
pub use quantiles::Quantiles;
pub use simulate::{Epoch, EpochRequest, MOST_STEPS, simulate};
