//! The state of a finished step. News about a flip compares the step before with the step after.

use super::steps::StepPeaks;
use super::{Micros, Phase, StepReport};
use vramlab_allocator::units::Bytes;

/// The state of a finished step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footing {
    /// Live bytes by category when most was allocated, in the order of [`super::Category::ALL`].
    pub by_category: [Bytes; 9],
    /// The most that was reserved.
    pub reserved: Bytes,
    /// Cached bytes that the step never used.
    pub spare: Bytes,
    /// The most bytes that waited for another stream at once.
    pub pending: Bytes,
    /// The limit of reserved memory at its end.
    pub limit: Option<Bytes>,
    /// Allocated bytes at its end.
    pub allocated: Bytes,
    /// By how many bytes its end exceeds that of the step before, and for how many steps in a row it has risen.
    pub rise: (Bytes, usize),
    /// How long it took.
    pub total: Micros,
    /// Time of its backward pass.
    pub backward: Micros,
    /// Time of copies between host and device, overlapped or not.
    pub copy: Micros,
}

impl Footing {
    pub(super) fn of(report: &StepReport, peaks: &StepPeaks, allocated: Bytes, before: Option<&Self>) -> Self {
        let left = before.map_or(allocated, |before| before.allocated);
        let rise = allocated.saturating_sub(left);
        let rising = before.map_or(0, |before| before.rise.1);
        Self {
            by_category: peaks.by_category,
            reserved: peaks.reserved,
            spare: peaks.spare,
            pending: peaks.pending,
            limit: None,
            allocated,
            rise: (rise, if rise > Bytes::ZERO { rising + 1 } else { 0 }),
            total: report.total,
            backward: report.phases[Phase::Backward as usize],
            copy: report.copy,
        }
    }

    /// A part of the step's time as a share of all of it.
    pub(super) fn share(&self, part: Micros) -> f64 {
        if self.total.0 == 0 { 0.0 } else { part.0 as f64 / self.total.0 as f64 }
    }
}
