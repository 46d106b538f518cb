//! Requests to the source: to go on, to stop, to move the cursor.

use crate::model::RunState;
use crate::recording::Direction;
use crate::session::{Command, StepSize};
use crate::source::{Move, MoveUnit, Picture, Request};
use crate::tui::action::Action;

/// The requests for an action that only the source can perform; empty for other actions.
pub(super) fn of(action: Action, picture: &Picture) -> Vec<Request> {
    let one = match action {
        Action::TogglePause => return toggle_pause(picture),
        Action::Advance(size) => advance(size, picture),
        Action::EmptyCache => Request::Lab(Command::EmptyCache),
        Action::ResetPeaks => Request::Lab(Command::ResetPeaks),
        Action::UseProcessor => Request::Lab(Command::UseProcessor),
        Action::NextWay => Request::Lab(Command::NextWay),
        Action::Cursor(unit, direction) => Request::Move(Move::By(unit, direction)),
        Action::Jump(landmark, direction) => Request::Move(Move::Jump(landmark, direction)),
        Action::CursorStart => Request::Move(Move::Start),
        // The end of a run that is over. From there `Esc` leads back to its mark.
        Action::CursorNow if !picture.is_live() && !picture.extent.grows => Request::Move(Move::To(u64::MAX)),
        Action::CursorNow => Request::Move(Move::Now),
        Action::Faster(power) => Request::Faster(f64::from(power).exp2()),
        Action::Pin => Request::Pin,
        Action::NextDevice => Request::NextDevice,
        Action::Record => Request::ToggleRecording,
        _ => return Vec::new(),
    };
    vec![one]
}

/// For what has already happened, moves the cursor; a live lab trains on.
fn advance(size: StepSize, picture: &Picture) -> Request {
    if picture.is_live() && picture.is_now() {
        return Request::Lab(Command::Advance(size));
    }
    let unit = match size {
        StepSize::Op => MoveUnit::Op,
        StepSize::Phase => MoveUnit::Phase,
        StepSize::Step => MoveUnit::Step,
    };
    Request::Move(Move::By(unit, Direction::Forward))
}

fn toggle_pause(picture: &Picture) -> Vec<Request> {
    let lab = Request::Lab;
    match (&picture.run, picture.is_live(), picture.is_now()) {
        (_, false, _) | (RunState::Running, true, false) => vec![Request::TogglePlay],
        // After memory ran out the screen may be about to look back, although no picture says so yet.
        (RunState::OutOfMemory, true, _) | (_, true, false) => vec![Request::Move(Move::Now), lab(Command::Resume)],
        (RunState::Running, true, true) => vec![lab(Command::Pause)],
        (_, true, true) => vec![lab(Command::Resume)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Cursor, SourceKind};

    fn asked(action: Action, kind: SourceKind, run: RunState, cursor: Cursor) -> Vec<Request> {
        of(action, &Picture { kind, run, cursor, ..Picture::default() })
    }

    #[test]
    fn pause_holds_a_lab_and_plays_what_has_happened() {
        let pause = |kind, run, cursor| asked(Action::TogglePause, kind, run, cursor);
        let (now, back) = (Cursor::Now, Cursor::At(7));
        assert_eq!(pause(SourceKind::Live, RunState::Running, now), [Request::Lab(Command::Pause)]);
        assert_eq!(pause(SourceKind::Live, RunState::Paused, now), [Request::Lab(Command::Resume)]);
        assert_eq!(pause(SourceKind::Live, RunState::Running, back), [Request::TogglePlay]);
        let now_and_on = [Request::Move(Move::Now), Request::Lab(Command::Resume)];
        assert_eq!(pause(SourceKind::Live, RunState::Paused, back), now_and_on);
        assert_eq!(
            pause(SourceKind::Live, RunState::OutOfMemory, now),
            now_and_on,
            "the screen may be about to look back"
        );
        assert_eq!(pause(SourceKind::Recording("run".into()), RunState::Paused, now), [Request::TogglePlay]);
    }

    #[test]
    fn a_step_further_is_the_labs_now_and_the_cursors_before() {
        let step = |kind, cursor| asked(Action::Advance(StepSize::Step), kind, RunState::Paused, cursor);
        let cursor = [Request::Move(Move::By(MoveUnit::Step, Direction::Forward))];
        assert_eq!(step(SourceKind::Live, Cursor::Now), [Request::Lab(Command::Advance(StepSize::Step))]);
        assert_eq!(step(SourceKind::Live, Cursor::At(3)), cursor);
        assert_eq!(step(SourceKind::Recording("run".into()), Cursor::Now), cursor);
    }
}
