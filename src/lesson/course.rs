//! A lesson being taken: its current step, the pending actions, the question, what is shown, and the score.
//!
//! A plain state machine. It gets the state of the run ([`Course::observe`]) and returns what is to be done with the
//! run. It does not know who drives the run, nor on how many threads.

use std::collections::VecDeque;
use std::sync::Arc;

use super::action::LessonAction;
use super::answered::answered;
use super::attempt::SetOut;
use super::goal::Goal;
use super::order::PendingRequest;
use super::question::Form;
use super::score::Score;
use super::script::Lesson;
use super::step::LessonStep;
use super::told::StepText;
use crate::figures::Moments;
use crate::model::{LessonAnswer, LessonNote, LessonPart};
use crate::session::LabSpec;

/// A lesson being taken.
#[derive(Clone, Debug)]
pub struct Course {
    pub(super) lesson: Arc<Lesson>,
    /// Whether the lesson's statements must be true on this device.
    pub(super) counts: bool,
    pub(super) stage: CourseStage,
    pub(super) at: usize,
    pub(super) todo: VecDeque<LessonAction>,
    pub(super) waiting: Option<PendingRequest>,
    pub(super) moments: Moments,
    pub(super) begun: bool,
    pub(super) introduction: String,
    pub(super) told: Vec<StepText>,
    /// The workload that replaces the lesson's own on this device.
    pub(super) instead: Option<Arc<str>>,
    /// The step at which the learner left off last time; earlier steps are run again without questions.
    pub(super) resumes: usize,
    /// The score of those earlier steps.
    pub(super) earlier: Score,
    /// Whether the learner changed the run outside of the lesson: then answers about it don't count.
    pub(super) spoilt: bool,
    pub(super) set_out: SetOut,
    /// The failure whose figures have the mark `oom`.
    pub(super) failure: Option<u64>,
}

/// The stage that a course has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CourseStage {
    /// The introduction is shown; [`Course::proceed`] goes on.
    Introduction,
    /// The actions before the question are being carried out.
    Preparing,
    /// The course waits for [`Course::answer`].
    Asking,
    /// The learner sets switches to reach a goal, then starts a try.
    Acting,
    /// The actions after the answer are being carried out.
    Trying,
    /// The outcome is shown; [`Course::proceed`] goes on.
    Explained,
    /// The last step is over.
    Over,
}

impl Course {
    /// Starts a lesson. `counts` says whether the device is one on which its figures must be true
    /// ([`Lesson::holds_on`]).
    #[must_use]
    pub fn new(lesson: Arc<Lesson>, counts: bool) -> Self {
        let told = vec![StepText::default(); lesson.steps.len()];
        Self {
            lesson,
            counts,
            stage: CourseStage::Introduction,
            at: 0,
            todo: VecDeque::new(),
            waiting: None,
            moments: Moments::default(),
            begun: false,
            introduction: String::new(),
            told,
            instead: None,
            resumes: 0,
            earlier: Score::default(),
            spoilt: false,
            set_out: SetOut::default(),
            failure: None,
        }
    }

    /// Starts a lesson on a run as `spec` describes it.
    #[must_use]
    pub fn on(lesson: &Arc<Lesson>, spec: &LabSpec) -> Self {
        let workload = Some(spec.workload.name.as_str()).filter(|name| *name != lesson.front.workload());
        let instead = workload.map(Into::into);
        Self { instead, ..Self::new(Arc::clone(lesson), lesson.holds_on(&spec.device)) }
    }

    /// The same for a learner who has finished this many steps before, with this score.
    #[must_use]
    pub fn resuming(self, steps: usize, earlier: Score) -> Self {
        let resumes = if steps < self.lesson.steps.len() { steps } else { 0 };
        Self { resumes, earlier: if resumes > 0 { earlier } else { Score::default() }, ..self }
    }

    /// Number of steps that were finished in an earlier session; 0 if the course started at its first step.
    #[must_use]
    pub const fn resumes(&self) -> usize {
        self.resumes
    }

    /// Notes that the learner changed the run outside of the lesson.
    pub const fn spoil(&mut self) {
        self.spoilt = true;
    }

    /// Whether the learner has changed the run outside of the lesson since the run began.
    #[must_use]
    pub const fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    /// The goal of this step, if it has one.
    #[must_use]
    pub fn goal(&self) -> Option<&Goal> {
        match &self.step().question.as_ref()?.form {
            Form::Goal(goal) => Some(goal),
            Form::Choices(_) | Form::Number { .. } => None,
        }
    }

    /// The lesson.
    #[must_use]
    pub const fn lesson(&self) -> &Arc<Lesson> {
        &self.lesson
    }

    /// The stage.
    #[must_use]
    pub const fn stage(&self) -> CourseStage {
        self.stage
    }

    /// Whether the course has seen the run; before that there is no introduction.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether the lesson's statements must be true on this device.
    #[must_use]
    pub const fn counts(&self) -> bool {
        self.counts
    }

    /// A note for a learner who takes the lesson on another device.
    #[must_use]
    pub fn elsewhere(&self) -> String {
        let (device, workload) = (self.lesson.front.device(), self.lesson.front.workload());
        let runs = self.instead.as_ref().map_or_else(String::new, |runs| {
            format!(" {workload} would take minutes for each step; {runs} runs in its place.")
        });
        format!("The figures of this lesson hold on {device}; here they may differ.{runs}")
    }

    /// The index of the current step, counted from 0.
    #[must_use]
    pub const fn place(&self) -> usize {
        self.at
    }

    /// The current step.
    #[must_use]
    pub fn step(&self) -> &LessonStep {
        &self.lesson.steps[self.at]
    }

    /// What the current step has shown so far, and its outcome.
    #[must_use]
    pub fn told(&self) -> &StepText {
        &self.told[self.at]
    }

    /// The same for every step so far.
    #[must_use]
    pub fn all_told(&self) -> &[StepText] {
        &self.told
    }

    /// The introduction, in Markdown; empty before the course has seen the run.
    #[must_use]
    pub fn introduction(&self) -> &str {
        &self.introduction
    }

    /// The current figures, and those of all marks so far.
    #[must_use]
    pub const fn moments(&self) -> &Moments {
        &self.moments
    }

    /// The actions that remain before something is shown or asked; the current one comes first.
    pub fn under_way(&self) -> impl Iterator<Item = &LessonAction> {
        self.todo.iter()
    }

    /// The score so far.
    #[must_use]
    pub fn score(&self) -> Score {
        self.told.iter().filter_map(|told| told.worth).fold(self.earlier, |score, worth| score.with(worth))
    }

    /// The place in the lesson, for those who follow the recording.
    #[must_use]
    pub fn note(&self, learner: &str) -> LessonNote {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let score = self.score();
        LessonNote {
            learner: learner.into(),
            lesson: self.lesson.name.as_str().into(),
            title: self.lesson.front.title.as_str().into(),
            step: if self.stage == CourseStage::Introduction { 0 } else { count(self.at + 1) },
            steps: count(self.lesson.steps.len()),
            doing: match self.stage {
                CourseStage::Asking => LessonPart::Asked,
                CourseStage::Acting => LessonPart::Acting,
                CourseStage::Over => LessonPart::Over,
                _ => LessonPart::Reading,
            },
            halves: score.halves,
            answered: score.of,
            questions: count(self.lesson.questions()),
            answers: self.answers().collect(),
            seconds: 0,
        }
    }

    fn answers(&self) -> impl Iterator<Item = LessonAnswer> {
        let steps = (1..).zip(self.lesson.steps.iter().zip(&self.told)).skip(self.resumes);
        steps.filter_map(|(step, (script, told))| answered(told, step, &script.title, &script.question.as_ref()?.form))
    }
}
