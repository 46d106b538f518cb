//! How long work of a stream takes, to choose between ways to do the same.

use super::driver::{DriverFailure, Event, Stream};
use super::refusal::Refusal;

/// Runs that are timed; the fastest counts.
const RUNS: usize = 3;
/// How much slower than the limit the first run must be for no other to follow.
const HOPELESS: f32 = 1.25;

/// Two events around what is timed.
pub(crate) struct Stopwatch {
    start: Event,
    end: Event,
}

impl Stopwatch {
    pub fn new() -> Result<Self, DriverFailure> {
        Ok(Self { start: Event::new(true)?, end: Event::new(true)? })
    }

    /// Milliseconds of the fastest of several runs of what `work` queues on `stream`, after one that loads kernels.
    /// Nothing is repeated that is far from `limit`.
    pub fn best(
        &self,
        stream: Stream,
        limit: f32,
        mut work: impl FnMut() -> Result<(), Refusal>,
    ) -> Result<f32, Refusal> {
        work()?;
        let mut best = f32::INFINITY;
        for _ in 0..RUNS {
            self.start.record(stream)?;
            work()?;
            self.end.record(stream)?;
            self.end.synchronize()?;
            best = best.min(self.end.since(&self.start)?);
            if best > HOPELESS * limit {
                break;
            }
        }
        Ok(best)
    }
}
