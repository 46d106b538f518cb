//! The commands to a running lab.

use std::sync::Arc;

use super::{FlipDirection, LabSpec, Switch};
use vramlab_model::{LessonNote, Remedy};

/// How far a paused lab goes on before it stops again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepSize {
    /// To the end of the next op.
    Op,
    /// To the end of the phase.
    Phase,
    /// To the end of the step.
    Step,
}

/// A run to begin. Two are equal if they are the same value in memory.
#[derive(Clone, Debug)]
pub struct NewRun(pub Arc<LabSpec>);

impl PartialEq for NewRun {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for NewRun {}

/// A command from a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Release cached segments, at the next safe point between ops.
    EmptyCache,
    /// Reset the peaks of `torch.cuda.memory_stats()`, at the next safe point between ops.
    ResetPeaks,
    /// Flip a switch to its next value, or back.
    Flip(Switch, FlipDirection),
    /// Set a switch to the value with this name. Other names are refused with a message.
    Set(Switch, Arc<str>),
    /// Pause at the next safe point.
    Pause,
    /// Go on.
    Resume,
    /// Go on for a bit, then pause again.
    Advance(StepSize),
    /// Train this many steps at the usual pace, then pause after the last.
    Train(u64),
    /// Begin another run, or the same again: with a new model and the switches as at the start. If [`LabSpec::rests`]
    /// says so, it pauses before its first step.
    Begin(NewRun),
    /// Begin the run again with the next possible way of parallelism: with a new model and the switches as they are wanted now.
    NextWay,
    /// After the device was lost: start the same run on the processor.
    UseProcessor,
    /// Report the run's position in a lesson.
    Lesson(Arc<LessonNote>),
    /// End the run.
    Quit,
}

impl Command {
    /// The command that applies a remedy; `None` if that takes a person, who chooses a limit or changes a program.
    #[must_use]
    pub fn of_remedy(remedy: &Remedy) -> Option<Self> {
        match remedy {
            Remedy::Flip { switch, value } => Some(Self::Set(Switch::named(switch)?, value.as_ref().into())),
            Remedy::SmallerBatch { batch: 0 } => Some(Self::Flip(Switch::named("batch")?, FlipDirection::Previous)),
            Remedy::SmallerBatch { batch } => Some(Self::Set(Switch::named("batch")?, batch.to_string().into())),
            Remedy::EmptyCache => Some(Self::EmptyCache),
            Remedy::HigherLimit
            | Remedy::KeepNumbers
            | Remedy::Detach
            | Remedy::LetGo
            | Remedy::BreakCycles
            | Remedy::ChooseGpu => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_the_command_that_its_key_gives() {
        let named = |word| Switch::named(word).unwrap();
        let set = |word, value: &str| Some(Command::Set(named(word), value.into()));
        for (remedy, command) in [
            (Remedy::flip("ckpt", "on"), set("ckpt", "on")),
            (Remedy::EXPANDABLE, set("alloc-conf", "expandable_segments:True")),
            (Remedy::SmallerBatch { batch: 8 }, set("batch", "8")),
            (Remedy::SmallerBatch { batch: 0 }, Some(Command::Flip(named("batch"), FlipDirection::Previous))),
            (Remedy::EmptyCache, Some(Command::EmptyCache)),
            (Remedy::HigherLimit, None),
            (Remedy::flip("warp", "9"), None),
        ] {
            assert_eq!(Command::of_remedy(&remedy), command, "{remedy:?}");
        }
    }
}
