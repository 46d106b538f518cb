//! A lesson being taken: its step, what is to be done, asked and shown, and the score.
//!
//! A plain state machine: it is shown the run as it is ([`Course::observe`]) and says what is to be done with it. Who drives the
//! run, and with how many threads, it does not know.

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
    /// What the lesson says must hold here.
    pub(super) counts: bool,
    pub(super) stage: CourseStage,
    pub(super) at: usize,
    pub(super) todo: VecDeque<LessonAction>,
    pub(super) waiting: Option<PendingRequest>,
    pub(super) moments: Moments,
    pub(super) begun: bool,
    pub(super) introduction: String,
    pub(super) told: Vec<StepText>,
    /// The workload that stands for the lesson's own here.
    pub(super) instead: Option<Arc<str>>,
    /// Where the learner left it the last time: earlier steps are run again without questions.
    pub(super) resumes: usize,
    /// What those steps were worth.
    pub(super) earlier: Score,
    /// The learner acted on the run outside of the lesson: no answer about it counts.
    pub(super) spoilt: bool,
    pub(super) set_out: SetOut,
    /// The failure whose figures are marked.
    pub(super) failure: Option<u64>,
}

/// How far a course is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CourseStage {
    /// The introduction is there to be read; [`Course::proceed`] goes on.
    Introduction,
    /// What comes before the question is being done.
    Preparing,
    /// An answer is due: [`Course::answer`].
    Asking,
    /// The learner sets switches to reach a goal, then tries.
    Acting,
    /// What comes after it is being done.
    Trying,
    /// What came out is there to be read; [`Course::proceed`] goes on.
    Explained,
    /// The last step is over.
    Over,
}

impl Course {
    /// A lesson from its begin; `counts` where it runs where its figures hold ([`Lesson::holds_on`]).
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

    /// A lesson from its begin, on a run as `spec` says.
    #[must_use]
    pub fn on(lesson: &Arc<Lesson>, spec: &LabSpec) -> Self {
        let workload = Some(spec.workload.name.as_str()).filter(|name| *name != lesson.front.workload());
        let instead = workload.map(Into::into);
        Self { instead, ..Self::new(Arc::clone(lesson), lesson.holds_on(&spec.device)) }
    }

    /// The same for a learner who has done so many steps before, with these points.
    #[must_use]
    pub fn resuming(self, steps: usize, earlier: Score) -> Self {
        let resumes = if steps < self.lesson.steps.len() { steps } else { 0 };
        Self { resumes, earlier: if resumes > 0 { earlier } else { Score::default() }, ..self }
    }

    /// How many steps were read before; 0 where it began at its begin.
    #[must_use]
    pub const fn resumes(&self) -> usize {
        self.resumes
    }

    /// The learner has acted on the run outside of the lesson.
    pub const fn spoil(&mut self) {
        self.spoilt = true;
    }

    /// Whether the learner has, since the run began.
    #[must_use]
    pub const fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    /// The goal that is to be reached in this step, where there is one.
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

    /// How far it is.
    #[must_use]
    pub const fn stage(&self) -> CourseStage {
        self.stage
    }

    /// Whether the run was seen: before that there is no introduction.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether what the lesson says must hold here.
    #[must_use]
    pub const fn counts(&self) -> bool {
        self.counts
    }

    /// What a learner should know who takes it on another device.
    #[must_use]
    pub fn elsewhere(&self) -> String {
        let (device, workload) = (self.lesson.front.device(), self.lesson.front.workload());
        let runs = self.instead.as_ref().map_or_else(String::new, |runs| {
            format!(" {workload} would take minutes for each step; {runs} runs in its place.")
        });
        format!("The figures of this lesson hold on {device}; here they may differ.{runs}")
    }

    /// The place of the step, counted from 0.
    #[must_use]
    pub const fn place(&self) -> usize {
        self.at
    }

    /// The step.
    #[must_use]
    pub fn step(&self) -> &LessonStep {
        &self.lesson.steps[self.at]
    }

    /// What the step has shown so far, and its outcome.
    #[must_use]
    pub fn told(&self) -> &StepText {
        &self.told[self.at]
    }

    /// The same of every step.
    #[must_use]
    pub fn all_told(&self) -> &[StepText] {
        &self.told
    }

    /// What is shown before the first step, in Markdown; empty before the run was seen.
    #[must_use]
    pub fn introduction(&self) -> &str {
        &self.introduction
    }

    /// The figures of now, and of the moments marked so far.
    #[must_use]
    pub const fn moments(&self) -> &Moments {
        &self.moments
    }

    /// The actions that are still to be done before something is shown or asked, the one under way first.
    pub fn under_way(&self) -> impl Iterator<Item = &LessonAction> {
        self.todo.iter()
    }

    /// Points so far.
    #[must_use]
    pub fn score(&self) -> Score {
        self.told.iter().filter_map(|told| told.worth).fold(self.earlier, |score, worth| score.with(worth))
    }

    /// Where it is, for those who follow it from elsewhere.
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
