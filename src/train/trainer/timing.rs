//! When the phases of a step began and ended.

use crate::memory::{HeldMark, Memory};
use vramlab_model::{Micros, Phase};

/// The phases of the current step: the device tells their times when the step is over.
#[derive(Default)]
pub(super) struct Timing {
    pub phases: Vec<(Phase, HeldMark, HeldMark)>,
    pub open: Option<(Phase, HeldMark)>,
}

impl Timing {
    /// The time of each phase, all its parts together.
    pub fn times(&self, memory: &Memory) -> [Micros; 5] {
        let mut times = [Micros::default(); 5];
        for &(phase, begun, ended) in &self.phases {
            times[phase as usize].0 += memory.between(begun, ended).0;
        }
        times
    }
}
