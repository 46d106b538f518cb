//! What a lesson holds back for a while: keys that would disturb it, and figures that would reveal an answer.

use crate::lesson::{Course, CourseStage};
use crate::model::RunState;
use crate::source::Picture;
use crate::tui::action::Action;
use crate::tui::keys::Keymap;

/// What a lesson holds back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    /// Nothing: there is no lesson, it is over, or the learner took the lab over.
    #[default]
    Nothing,
    /// Remedies: a goal must be reached by switches, and the learner should find out by which.
    Goal,
    /// The lab, which the lesson controls. The program's advice could be the answer to a later question.
    Lab,
    /// A question is open. The program's measurements are hidden too, because they could be the answer.
    Question,
    /// A question is open that the lab's figures would answer: all of them are hidden.
    Answer,
}

impl Hold {
    /// What `course` holds back.
    pub fn of(course: &Course) -> Self {
        match course.stage() {
            CourseStage::Asking if course.step().asks_what_is_measured() => Self::Answer,
            CourseStage::Asking => Self::Question,
            CourseStage::Acting => Self::Goal,
            CourseStage::Introduction | CourseStage::Preparing | CourseStage::Trying | CourseStage::Explained => {
                Self::Lab
            }
            CourseStage::Over => Self::Nothing,
        }
    }

    /// True if a question is open.
    pub fn asks(self) -> bool {
        self >= Self::Question
    }

    /// True if the program's advice is shown: findings, and remedies that were tried.
    pub fn advises(self) -> bool {
        self == Self::Nothing
    }

    /// True if `action` may be performed on the lab in `picture`.
    pub fn permits(self, action: Action, picture: &Picture) -> bool {
        match action {
            Action::Ghost | Action::ToggleFindings => self.advises(),
            Action::Copy => self != Self::Answer,
            Action::Flip(..) | Action::Edit(_) => self <= Self::Goal,
            action => self == Self::Nothing || !acts_on_lab(action, picture),
        }
    }

    /// A sentence about what is held back.
    pub fn why(self, keys: &Keymap) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Goal => "not for this goal: the lesson says which switches you may set".to_owned(),
            Self::Lab => match keys.key_of(Action::TakeLab) {
                "" => "the lesson runs the lab".to_owned(),
                key => format!("the lesson runs the lab; {key} hands it to you between two questions"),
            },
            Self::Question | Self::Answer => match keys.key_of(Action::PassQuestion) {
                "" => "a question is open: answer it first".to_owned(),
                key => format!("a question is open: answer it first, or {key} passes it"),
            },
        }
    }
}

/// True if an action would change what is trained, or make it go on. Looking back does neither.
pub(crate) fn acts_on_lab(action: Action, picture: &Picture) -> bool {
    match action {
        Action::Flip(..)
        | Action::Edit(_)
        | Action::EmptyCache
        | Action::ResetPeaks
        | Action::Remedy
        | Action::NextWay => true,
        Action::Advance(_) => picture.is_live() && picture.is_now(),
        Action::TogglePause => picture.is_live() && (picture.is_now() || picture.run != RunState::Running),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{StepSize, Switch};
    use crate::source::{Cursor, Landmark};
    use crate::tui::keymap;

    fn live(cursor: Cursor, run: RunState) -> Picture {
        Picture { cursor, run, ..Picture::default() }
    }

    #[test]
    fn while_a_question_is_open_nothing_is_done_to_the_lab_and_everything_can_be_looked_at() {
        let paused = live(Cursor::Now, RunState::Paused);
        for switch in Switch::all() {
            assert!(!Hold::Question.permits(Action::of_switch(switch), &paused), "{}", switch.word());
        }
        let off = [
            Action::EmptyCache,
            Action::ResetPeaks,
            Action::TogglePause,
            Action::Advance(StepSize::Op),
            Action::Remedy,
            Action::Ghost,
            Action::ToggleFindings,
        ];
        for action in off {
            assert!(!Hold::Question.permits(action, &paused) && Hold::Nothing.permits(action, &paused), "{action:?}");
        }
        let look = [
            Action::Screen(2),
            Action::CursorStart,
            Action::Jump(Landmark::Peak, crate::recording::Direction::Backward),
            Action::ToggleHelp,
            Action::Copy,
            Action::LessonAnew,
            Action::Quit,
        ];
        assert!(look.into_iter().all(|action| Hold::Question.permits(action, &paused)));
        assert!(!Hold::Answer.permits(Action::Copy, &paused), "what is copied has figures");
    }

    #[test]
    fn a_step_in_what_has_happened_is_no_step_of_the_lab() {
        let back = live(Cursor::At(7), RunState::Running);
        assert!(Hold::Question.permits(Action::Advance(StepSize::Step), &back));
        assert!(Hold::Question.permits(Action::TogglePause, &back), "it plays what has happened");
        let rests = live(Cursor::At(7), RunState::Paused);
        assert!(!Hold::Question.permits(Action::TogglePause, &rests), "it would go on");
    }

    #[test]
    fn what_is_kept_back_is_told_with_the_key_that_passes() {
        let keys = keymap::standard();
        assert!(Hold::Question.why(keys).ends_with("Ctrl-N passes it"), "{}", Hold::Question.why(keys));
        assert!(Hold::Lab.why(keys).contains("* hands it to you"));
        assert!(!Hold::Lab.advises() && !Hold::Goal.advises() && Hold::Nothing.advises());
    }
}
