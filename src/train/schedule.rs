//! The order in which the stages of a pipeline work on their micro-batches.

use super::member::World;
use vramlab_model::PipelineSchedule;

/// Micro-batches of a step, unless accumulation sets another number.
const MICRO_BATCHES: usize = 4;

/// The number of micro-batches of a step.
pub(crate) const fn micro_batches(accumulation: usize) -> usize {
    if accumulation > 1 { accumulation } else { MICRO_BATCHES }
}

/// What a stage does next with a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Forward(usize),
    Backward(usize),
}

/// The order of work of one rank over `micro_batches`.
pub(crate) fn order(schedule: PipelineSchedule, world: World, micro_batches: usize) -> Vec<Action> {
    let warmup = match schedule {
        PipelineSchedule::GPipe => micro_batches,
        PipelineSchedule::OneForwardOneBackward => micro_batches.min(world.size() - world.rank()),
    };
    let mut actions: Vec<Action> = (0..warmup).map(Action::Forward).collect();
    for backward in 0..micro_batches {
        actions.push(Action::Backward(backward));
        if warmup + backward < micro_batches {
            actions.push(Action::Forward(warmup + backward));
        }
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(schedule: PipelineSchedule, rank: usize, size: usize) -> String {
        let actions = order(schedule, World::new(size, rank).unwrap(), 4);
        let words = actions.iter().map(|action| match action {
            Action::Forward(number) => format!("F{number}"),
            Action::Backward(number) => format!("B{number}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Read from recordings of two ranks.
    #[test]
    fn orders_are_pytorchs() {
        assert_eq!(actions(PipelineSchedule::GPipe, 0, 2), "F0 F1 F2 F3 B0 B1 B2 B3");
        assert_eq!(actions(PipelineSchedule::OneForwardOneBackward, 0, 2), "F0 F1 B0 F2 B1 F3 B2 B3");
        assert_eq!(actions(PipelineSchedule::OneForwardOneBackward, 1, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
    }
}
