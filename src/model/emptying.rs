//! An `empty_cache` whose segments are still going back: what it returned is known once something else happens.

use super::effect::Effects;
use super::history::History;
use super::log::{LineId, Log};
use super::view::Level;
use vramlab_allocator::units::Bytes;

/// What went back so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emptying {
    released: Bytes,
    frees: u64,
    /// The line of the log that tells of it.
    line: LineId,
}

impl Emptying {
    /// Nothing went back yet.
    pub const fn begin(line: LineId) -> Self {
        Self { released: Bytes::ZERO, frees: 0, line }
    }

    /// One more call of the driver gave back so many bytes.
    pub fn returned(&mut self, bytes: Bytes) {
        self.released += bytes;
        self.frees += 1;
    }

    /// Puts it where people look for it.
    pub fn tell(&self, effects: &mut Effects, log: &mut Log, history: &mut History) {
        effects.released(self.released, self.frees);
        log.amend(self.line, Level::Switch, &format!("empty_cache returned {}", self.released));
        history.amend_released(self.released);
    }
}
