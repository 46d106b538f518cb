//! Allocated bytes at the boundaries of a step, as `torch.cuda.memory_allocated` reports them between its phases.

use super::event::Phase;
use vramlab_allocator::units::Bytes;

/// Allocated bytes before the first step, and after each phase of the last one.
///
/// If a step has a phase several times, its last end counts; for forward, the last one before weights change. A phase
/// that is missing from a whole step counts as ended where the phase before it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boundaries {
    before: Option<Bytes>,
    /// In the order of [`Phase::ALL`].
    after: [Option<Bytes>; Phase::ALL.len()],
    /// The phase that ended last, as long as nothing of its step followed: a failure may have cut it short.
    ended: Option<(Phase, Bytes)>,
    /// Which phases the current step has had.
    had: [bool; Phase::ALL.len()],
}

impl Boundaries {
    /// Allocated bytes before the first step; `None` if none has begun.
    #[must_use]
    pub const fn before_first_step(&self) -> Option<Bytes> {
        self.before
    }

    /// Allocated bytes after `phase` of the last step; `None` if no step got that far.
    #[must_use]
    pub const fn after(&self, phase: Phase) -> Option<Bytes> {
        self.after[phase as usize]
    }

    /// A step begins.
    pub(super) fn begin_step(&mut self, allocated: Bytes) {
        self.before.get_or_insert(allocated);
        self.ended = None;
        self.had = Default::default();
    }

    /// A phase begins: the one before it is whole.
    pub(super) fn begin_phase(&mut self) {
        let Some((phase, allocated)) = self.ended.take() else { return };
        let weights_changed = self.had[Phase::Optimizer as usize];
        if phase != Phase::Forward || !weights_changed {
            self.after[phase as usize] = Some(allocated);
        }
        self.had[phase as usize] = true;
    }

    /// A phase ends.
    pub(super) fn end_phase(&mut self, phase: Phase, allocated: Bytes) {
        self.ended = Some((phase, allocated));
    }

    /// A step is whole.
    pub(super) fn end_step(&mut self) {
        self.begin_phase();
        for phase in 1..self.after.len() {
            if !self.had[phase] {
                self.after[phase] = self.after[phase - 1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Phase::{Backward, Data, Forward, Optimizer, ZeroGrad};

    /// The boundaries after these phases, of a step that ended or was cut short.
    fn step(boundaries: &mut Boundaries, phases: &[(Phase, u64)], whole: bool) -> [Option<u64>; 5] {
        boundaries.begin_step(Bytes(phases.len() as u64));
        for &(phase, allocated) in phases {
            boundaries.begin_phase();
            boundaries.end_phase(phase, Bytes(allocated));
        }
        if whole {
            boundaries.end_step();
        }
        Phase::ALL.map(|phase| boundaries.after(phase).map(Bytes::get))
    }

    #[test]
    fn each_boundary_is_where_its_phase_ended_last() {
        let mut boundaries = Boundaries::default();
        assert_eq!(boundaries.before_first_step(), None);
        let micro_batches = [(Data, 1), (Forward, 9), (Backward, 5), (Data, 2), (Forward, 8), (Backward, 6)];
        let phases = [&micro_batches[..], &[(Optimizer, 7), (ZeroGrad, 3)]].concat();
        assert_eq!(step(&mut boundaries, &phases, true), [2, 8, 6, 7, 3].map(Some));
        step(&mut boundaries, &phases[..1], true);
        assert_eq!(boundaries.before_first_step(), Some(Bytes(8)), "of the first step, for good");
    }

    #[test]
    fn a_second_player_learns_after_the_forward_that_counts() {
        let player =
            |bytes: u64| [(Forward, bytes), (Backward, bytes + 1), (Optimizer, bytes + 2), (ZeroGrad, bytes + 3)];
        let phases = [&[(Data, 1)][..], &player(20), &player(40)].concat();
        assert_eq!(step(&mut Boundaries::default(), &phases, true), [1, 20, 41, 42, 43].map(Some));
    }

    #[test]
    fn a_step_without_a_phase_ends_it_with_the_one_before() {
        let mut boundaries = Boundaries::default();
        assert_eq!(step(&mut boundaries, &[(Forward, 9)], true), [None, Some(9), Some(9), Some(9), Some(9)]);
    }

    #[test]
    fn a_phase_that_was_cut_short_has_no_end() {
        let mut boundaries = Boundaries::default();
        let phases = [(Data, 1), (Forward, 9), (Backward, 0)];
        assert_eq!(step(&mut boundaries, &phases, false), [Some(1), Some(9), None, None, None]);
        let whole = [(Data, 1), (Forward, 9), (Backward, 5), (Optimizer, 6), (ZeroGrad, 2)];
        assert_eq!(step(&mut boundaries, &whole, true), [1, 9, 5, 6, 2].map(Some));
        assert_eq!(step(&mut boundaries, &phases, false), [1, 9, 5, 6, 2].map(Some), "the last ends that there were");
    }
}
