//! A lesson that somebody takes: which step it is at, what is to be done, asked and told, and what was scored.
//!
//! A plain state machine: it is shown the run as it is ([`Course::observe`]) and says what is to be done with it. Who drives the
//! run, and with how many threads, it does not know.

use std::collections::VecDeque;
use std::sync::Arc;

use super::action::Action;
use super::order::{Order, Standing, Waiting};
use super::question::{Answer, Form, Measured, Worth};
use super::score::Score;
use super::script::Lesson;
use super::step::Step;
use crate::figures::{Figures, Known, Moments, Template};
use crate::model::{LessonNote, LessonPart, RunState};

/// A lesson that somebody takes.
#[derive(Clone, Debug)]
pub struct Course {
    lesson: Arc<Lesson>,
    /// What the lesson says must hold here.
    counts: bool,
    stage: Stage,
    at: usize,
    todo: VecDeque<Action>,
    waiting: Option<Waiting>,
    moments: Moments,
    begun: bool,
    introduction: String,
    told: Vec<Told>,
}

/// How far a course is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The introduction is there to be read; [`Course::proceed`] goes on.
    Introduction,
    /// What comes before the question is being done.
    Preparing,
    /// Somebody has to answer: [`Course::answer`].
    Asking,
    /// What comes after it is being done.
    Trying,
    /// What came out is there to be read; [`Course::proceed`] goes on.
    Explained,
    /// The last step is over.
    Over,
}

/// What a step told and came to, as far as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// What was told first, in Markdown.
    pub prose: String,
    /// The question, where there is one.
    pub question: Option<Asked>,
    /// The answer.
    pub answer: Option<Answer>,
    /// What came out, where that is clear.
    pub measured: Option<Measured>,
    /// What the answer was worth; none where nothing was asked, or nothing is right here.
    pub worth: Option<Worth>,
    /// Why, in Markdown.
    pub why: Option<String>,
    /// What was told at the end, in Markdown.
    pub after: String,
    /// What the lesson says and the run does not show.
    pub untrue: Vec<String>,
}

/// A question with its figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The question.
    pub ask: String,
    /// What can be chosen; empty where a number is asked for.
    pub choices: Vec<String>,
    /// A help.
    pub hint: Option<String>,
}

impl Course {
    /// A lesson from its begin; `counts` where it runs where its figures hold ([`Lesson::holds_on`]).
    #[must_use]
    pub fn new(lesson: Arc<Lesson>, counts: bool) -> Self {
        let told = vec![Told::default(); lesson.steps.len()];
        Self {
            lesson,
            counts,
            stage: Stage::Introduction,
            at: 0,
            todo: VecDeque::new(),
            waiting: None,
            moments: Moments::default(),
            begun: false,
            introduction: String::new(),
            told,
        }
    }

    /// The lesson.
    #[must_use]
    pub const fn lesson(&self) -> &Arc<Lesson> {
        &self.lesson
    }

    /// How far it is.
    #[must_use]
    pub const fn stage(&self) -> Stage {
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

    /// The place of the step, counted from 0.
    #[must_use]
    pub const fn place(&self) -> usize {
        self.at
    }

    /// The step.
    #[must_use]
    pub fn step(&self) -> &Step {
        &self.lesson.steps[self.at]
    }

    /// What the step told and came to, as far as it is.
    #[must_use]
    pub fn told(&self) -> &Told {
        &self.told[self.at]
    }

    /// The same of every step.
    #[must_use]
    pub fn all_told(&self) -> &[Told] {
        &self.told
    }

    /// What is told before the first step, in Markdown; empty before the run was seen.
    #[must_use]
    pub fn introduction(&self) -> &str {
        &self.introduction
    }

    /// The figures of now, and of the moments marked so far.
    #[must_use]
    pub const fn moments(&self) -> &Moments {
        &self.moments
    }

    /// The actions that are still to be done before something is told or asked, the one under way first.
    pub fn under_way(&self) -> impl Iterator<Item = &Action> {
        self.todo.iter()
    }

    /// Points so far.
    #[must_use]
    pub fn score(&self) -> Score {
        self.told.iter().filter_map(|told| told.worth).fold(Score::default(), |score, worth| score.with(worth))
    }

    /// Where it is, for whoever follows it from elsewhere.
    #[must_use]
    pub fn note(&self, learner: &str) -> LessonNote {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let score = self.score();
        LessonNote {
            learner: learner.into(),
            lesson: self.lesson.name.as_str().into(),
            title: self.lesson.front.title.as_str().into(),
            step: if self.stage == Stage::Introduction { 0 } else { count(self.at + 1) },
            steps: count(self.lesson.steps.len()),
            doing: match self.stage {
                Stage::Asking => LessonPart::Asked,
                Stage::Over => LessonPart::Over,
                _ => LessonPart::Reading,
            },
            halves: score.halves,
            answered: score.of,
            questions: count(self.lesson.questions()),
        }
    }

    /// Shows the run as it is, and says what is to be done with it now: to be called again whenever it has changed, until it says
    /// nothing more and [`Course::stage`] wants a person.
    pub fn observe(&mut self, known: &Known<'_>) -> Option<Order> {
        if !self.begun {
            if matches!(known.view.run, RunState::Starting) {
                return None;
            }
            self.begun = true;
            self.moments.now = Figures::of(known);
            for mark in super::action::OWN_MARKS {
                self.moments.mark(mark, self.moments.now.clone());
            }
            self.introduction = self.lesson.introduction.fill_what_is_known(&self.moments);
        }
        if !matches!(self.stage, Stage::Preparing | Stage::Trying) {
            return None;
        }
        loop {
            if let Some(waiting) = &self.waiting {
                match waiting.standing(known.view) {
                    Standing::UnderWay => return None,
                    Standing::Done => {}
                    Standing::Failed(why) => self.untrue(why),
                }
                self.waiting = None;
                self.todo.pop_front();
            }
            let Some(action) = self.todo.front() else {
                self.moments.now = Figures::of(known);
                match self.stage {
                    Stage::Preparing => self.prepared(),
                    _ => self.tried(),
                }
                if self.stage == Stage::Trying {
                    continue;
                }
                return None;
            };
            if let Action::Mark(name) = action {
                let name = Arc::clone(name);
                self.todo.pop_front();
                self.moments.mark(&name, Figures::of(known));
                continue;
            }
            let Some(order) = Order::of(action) else {
                self.todo.pop_front();
                continue;
            };
            self.waiting = Some(Waiting::new(order.clone(), known.view));
            return Some(order);
        }
    }

    /// The order given last was refused, and why: it is not waited for, and the lesson is not true here.
    pub fn refused(&mut self, why: &str) {
        if self.waiting.take().is_some() {
            let action = self.todo.pop_front().map_or_else(String::new, |action| format!("\"{action}\" was refused: "));
            self.untrue(format!("{action}{why}"));
        }
    }

    /// Goes on from what was there to be read.
    pub fn proceed(&mut self) {
        match self.stage {
            Stage::Introduction => self.enter(0),
            Stage::Explained if self.at + 1 < self.lesson.steps.len() => self.enter(self.at + 1),
            Stage::Explained => self.stage = Stage::Over,
            Stage::Preparing | Stage::Asking | Stage::Trying | Stage::Over => {}
        }
    }

    /// Answers the question that is open.
    pub fn answer(&mut self, answer: Answer) {
        if self.stage == Stage::Asking {
            self.told[self.at].answer = Some(answer);
            self.try_it();
        }
    }

    fn enter(&mut self, step: usize) {
        self.at = step;
        self.stage = Stage::Preparing;
        self.todo = self.step().first.iter().cloned().collect();
        self.waiting = None;
    }

    fn prepared(&mut self) {
        self.moments.mark("before", self.moments.now.clone());
        let step = self.lesson.steps[self.at].clone();
        self.told[self.at].prose = self.filled(&step.prose);
        match &step.question {
            None => self.try_it(),
            Some(question) => {
                let asked = Asked {
                    ask: self.filled(&question.ask),
                    choices: match &question.form {
                        Form::Choices(choices) => choices.iter().map(|choice| self.filled(&choice.text)).collect(),
                        Form::Number { .. } => Vec::new(),
                    },
                    hint: step.hint.as_ref().map(|hint| self.filled(hint)),
                };
                self.told[self.at].question = Some(asked);
                self.stage = Stage::Asking;
            }
        }
    }

    fn try_it(&mut self) {
        self.stage = Stage::Trying;
        self.todo = self.step().then.iter().cloned().collect();
    }

    fn tried(&mut self) {
        let step = self.lesson.steps[self.at].clone();
        for check in &step.checks {
            match check.holds(&self.moments) {
                Ok(true) => {}
                Ok(false) => {
                    let shown = check.figures().into_iter().filter_map(|(mark, figure)| {
                        let amount = self.moments.at(mark)?.get(figure)?;
                        let mark = mark.map_or_else(String::new, |mark| format!("{mark}."));
                        Some(format!("{mark}{} is {amount}", figure.name()))
                    });
                    let mut shown: Vec<String> = shown.collect();
                    shown.dedup();
                    self.untrue(format!("{check} does not hold: {}", shown.join(", ")));
                }
                Err(unanswered) => self.untrue(format!("{check} can't be checked: {unanswered}")),
            }
        }
        if let Some(question) = &step.question {
            match question.form.measure(&self.moments) {
                Ok(measured) => {
                    let told = &mut self.told[self.at];
                    told.measured = Some(measured);
                    told.worth = told.answer.map(|answer| question.form.worth(answer, measured));
                }
                Err(unclear) => self.untrue(unclear.to_string()),
            }
        }
        let why = step.why.as_ref().map(|why| self.filled(why));
        let after = self.filled(&step.after);
        let told = &mut self.told[self.at];
        (told.why, told.after) = (why, after);
        self.stage = Stage::Explained;
    }

    /// A text with its figures; one that is not known makes the lesson untrue here.
    fn filled(&mut self, template: &Template) -> String {
        template.fill(&self.moments).unwrap_or_else(|unanswered| {
            self.untrue(format!("a text has no figure: {unanswered}"));
            template.fill_what_is_known(&self.moments)
        })
    }

    fn untrue(&mut self, what: String) {
        self.told[self.at].untrue.push(what);
    }
}
