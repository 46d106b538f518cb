//! A whole epoch of samples of several lengths on a simulated card: the figures of each step, in other batches and under other
//! settings of the allocator.
//!
//! What a step asks for follows from its batches alone, so the engine runs one step for each kind of batch that there is: most of them
//! with fewer layers, from which those of the whole model follow ([`whatif::StepLikeness`](crate::whatif::StepLikeness)). Then an
//! allocator is asked for the epoch: [`whatif::Repeater`](crate::whatif::Repeater).

mod error;
mod kind;
mod library;
mod quantiles;
mod simulate;
mod workers;

pub use error::EpochError;
pub use quantiles::Quantiles;
pub use simulate::{Epoch, EpochRequest, MOST_STEPS, simulate};
