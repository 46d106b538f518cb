//! Measures how long work on a stream takes, to choose between equivalent ways.

use super::driver::{DriverFailure, Event, Stream};
use super::refusal::Refusal;

/// The number of timed runs, of which the fastest counts.
const RUNS: usize = 3;
/// If the first run takes more than this many times the limit, there are no others.
const HOPELESS: f32 = 1.25;

/// Two events around the timed work.
pub(crate) struct Stopwatch {
    start: Event,
    end: Event,
}

impl Stopwatch {
    pub fn new() -> Result<Self, DriverFailure> {
        Ok(Self { start: Event::new(true)?, end: Event::new(true)? })
    }

    /// Milliseconds of the fastest of several runs of the work that `work` queues on `stream`, after one run that loads
    /// kernels. Work that is far from `limit` is not repeated.
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
