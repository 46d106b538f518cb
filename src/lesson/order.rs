//! What a course requests from the lab's driver, and when a request is complete.

use std::sync::Arc;

use super::action::LessonAction;
use crate::model::{LogLine, MarkKind, RunState, View};
use crate::session::{Command, Switch};

/// What a course requests from the lab's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CourseRequest {
    /// Train this many steps, then stop between two of them.
    Steps(u64),
    /// Set a switch.
    Set(Switch, Arc<str>),
    /// Give cached segments back.
    EmptyCache,
    /// Reset the peaks.
    ResetPeaks,
    /// Pause the lab.
    Pause,
    /// Resume the lab.
    Resume,
    /// Begin the run again, from a clean state.
    Restart,
    /// Begin another of the lesson's runs, from a clean state.
    Run(Arc<str>),
}

impl CourseRequest {
    /// The single lab command that carries out the request. `None` if the driver has more to do: to stop after some
    /// steps, or to begin again.
    #[must_use]
    pub fn command(&self) -> Option<Command> {
        match self {
            Self::Set(switch, value) => Some(Command::Set(*switch, Arc::clone(value))),
            Self::EmptyCache => Some(Command::EmptyCache),
            Self::ResetPeaks => Some(Command::ResetPeaks),
            Self::Pause => Some(Command::Pause),
            Self::Resume => Some(Command::Resume),
            Self::Steps(_) | Self::Restart | Self::Run(_) => None,
        }
    }

    /// The request for an action; a mark needs none.
    pub(super) fn of(action: &LessonAction) -> Option<Self> {
        Some(match action {
            LessonAction::Steps(steps) => Self::Steps(*steps),
            LessonAction::Set(switch, value) => Self::Set(*switch, Arc::clone(value)),
            LessonAction::EmptyCache => Self::EmptyCache,
            LessonAction::ResetPeaks => Self::ResetPeaks,
            LessonAction::Pause => Self::Pause,
            LessonAction::Resume => Self::Resume,
            LessonAction::Restart => Self::Restart,
            LessonAction::Run(name) => Self::Run(Arc::clone(name)),
            LessonAction::Mark(_) => return None,
        })
    }
}

/// The beginning of the lab's message that refuses a value.
const REFUSED: &str = "refused: ";

/// A request that was made and is not complete yet.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    order: CourseRequest,
    /// The run's finished steps when the request was made.
    steps: u64,
    position: u64,
    ooms: u64,
    setting: Option<Arc<str>>,
    /// The last log line that was seen.
    told: Option<LogLine>,
}

/// The state of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    UnderWay,
    Done,
    /// It failed, for this reason.
    Failed(String),
}

impl PendingRequest {
    /// If a switch is not in force after this many steps, it was refused.
    const PATIENCE: u64 = 3;

    pub fn new(order: CourseRequest, view: &View) -> Self {
        let setting = match &order {
            CourseRequest::Set(switch, _) => view.settings.get(switch.word()).map(|setting| Arc::clone(&setting.value)),
            _ => None,
        };
        let (steps, position, ooms) = (view.steps.finished, view.position, view.traffic.ooms);
        Self { order, steps, position, ooms, setting, told: view.log.last().cloned() }
    }

    /// The state of the request; `view` is the run's state.
    pub fn standing(&self, view: &View) -> RequestState {
        let done = |done: bool| if done { RequestState::Done } else { RequestState::UnderWay };
        match &self.order {
            CourseRequest::Steps(_) | CourseRequest::Set(..) if self.is_over(view) => match &view.run {
                RunState::StepFailed(why) | RunState::Lost(why) | RunState::Failed(why) => {
                    RequestState::Failed(format!("the run stopped: {why}"))
                }
                _ => RequestState::Done,
            },
            // Between the phases of a step nothing is at rest.
            CourseRequest::Steps(steps) => done(view.steps.finished >= self.steps + steps && view.phase.is_none()),
            CourseRequest::Set(switch, value) => self.flipped(view, *switch, value),
            CourseRequest::EmptyCache => {
                let last = view.history.marks().rev().find(|mark| matches!(mark.kind, MarkKind::EmptyCache { .. }));
                done(last.is_some_and(|mark| mark.position >= self.position))
            }
            CourseRequest::ResetPeaks => done(view.since_reset.is_some_and(|since| since.position >= self.position)),
            CourseRequest::Pause => done(!matches!(view.run, RunState::Running | RunState::Starting)),
            CourseRequest::Resume => RequestState::Done,
            CourseRequest::Restart | CourseRequest::Run(_) => {
                let begun = self.steps == 0 || view.steps.finished < self.steps;
                done(begun && !matches!(view.run, RunState::Starting))
            }
        }
    }

    /// Whether the run has stopped by itself since the request was made.
    fn is_over(&self, view: &View) -> bool {
        match view.run {
            RunState::OutOfMemory => view.traffic.ooms > self.ooms,
            RunState::StepFailed(_) => view.position > self.position,
            RunState::Lost(_) | RunState::Failed(_) | RunState::Finished => true,
            RunState::Starting | RunState::Running | RunState::Paused => false,
        }
    }

    fn flipped(&self, view: &View, switch: Switch, value: &str) -> RequestState {
        let Some(setting) = view.settings.get(switch.word()) else {
            return RequestState::Failed(format!("this run has no switch {}", switch.word()));
        };
        let in_force = setting.wanted.is_none() && setting.value.as_ref() == wording(switch, value);
        let asked_for = setting.wanted.as_deref() == Some(&wording(switch, value));
        let refused =
            view.log.last().filter(|line| self.told.as_ref() != Some(*line) && line.text.starts_with(REFUSED));
        if let Some(line) = refused {
            return RequestState::Failed(line.text.to_string());
        }
        match view.run {
            _ if in_force => RequestState::Done,
            // In a paused lab the switch takes effect with the next step.
            RunState::Paused | RunState::OutOfMemory if asked_for => RequestState::Done,
            _ if view.steps.finished >= self.steps + Self::PATIENCE
                && self.setting.as_ref() == Some(&setting.value) =>
            {
                RequestState::Failed(format!("{} can't be {value} here", switch.label()))
            }
            _ => RequestState::UnderWay,
        }
    }
}

/// A value in the wording that the lab shows once it is in force.
fn wording(switch: Switch, value: &str) -> String {
    let mut setup = crate::session::Setup::new(crate::train::Config::new(1));
    match switch.set(&mut setup, value) {
        Ok(()) => switch.value(&setup).into_owned(),
        Err(_) => value.to_owned(),
    }
}
