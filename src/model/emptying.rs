//! An `empty_cache` in progress. The bytes that it released are known once another event follows.

use super::effect::Effects;
use super::history::History;
use super::log::{LineId, Log};
use super::view::Level;
use vramlab_allocator::units::Bytes;

/// What has been released so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emptying {
    released: Bytes,
    frees: u64,
    /// The log line about it.
    line: LineId,
}

impl Emptying {
    /// The start: nothing has been released.
    pub const fn begin(line: LineId) -> Self {
        Self { released: Bytes::ZERO, frees: 0, line }
    }

    /// Notes another call that released `bytes` to the driver.
    pub fn returned(&mut self, bytes: Bytes) {
        self.released += bytes;
        self.frees += 1;
    }

    /// Writes the result into the effects, the log and the history.
    pub fn tell(&self, effects: &mut Effects, log: &mut Log, history: &mut History) {
        effects.released(self.released, self.frees);
        log.amend(self.line, Level::Switch, &format!("empty_cache returned {}", self.released));
        history.amend_released(self.released);
    }
}
