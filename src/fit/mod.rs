//! What fits: the largest batch under a limit, and the cheapest combination of switches for a batch.
//!
//! Every probe is a run of its own from a clean state ([`session::Headless`](crate::session::Headless)): what the
//! allocator kept from one run would decide whether the next one fits.

mod control;
mod error;
mod foresight;
mod largest;
mod pareto;
mod probe;
mod ranks;
mod search;
mod ways;

pub use control::{Control, SearchNews};
pub use error::FitError;
pub use foresight::{SearchForecast, foresee};
pub use largest::{Largest, largest_batch};
pub use pareto::{Candidate, CandidateCost, Pareto, candidates, front, pareto, worthwhile};
pub use probe::{Probe, ProbeFigures, ProbeOutcome, Retries, STEPS, Terms, probe};
pub use ranks::{GroupEdge, GroupProbe, GroupSearch};
pub use search::largest;
pub use ways::{CandidateFit, other_ways};
