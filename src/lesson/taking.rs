//! How a course advances: by the state of the run, and by the learner's answers.

use std::sync::Arc;

use super::action::LessonAction;
use super::answer::{Answer, MeasuredAnswer, Unclear};
use super::attempt::SetOut;
use super::course::{Course, CourseStage};
use super::goal::shown;
use super::order::{CourseRequest, PendingRequest, RequestState};
use super::question::Form;
use super::step::LessonStep;
use super::told::QuestionText;
use crate::figures::{FigureInputs, Figures, Template};
use crate::model::{RunState, View};

impl Course {
    /// Gives the course the state of the run, and returns what is to be done with the run now. Call this again whenever
    /// the run has changed, until it returns nothing more and [`Course::stage`] waits for a person.
    pub fn observe(&mut self, known: &FigureInputs<'_>) -> Option<CourseRequest> {
        if !self.begun {
            if matches!(known.view.run, RunState::Starting) {
                return None;
            }
            self.begun = true;
            self.moments.now = Figures::of(known);
            for mark in ["start", "before"] {
                self.moments.mark(mark, self.moments.now.clone());
            }
            self.introduction = self.lesson.introduction.fill_what_is_known(&self.moments);
        }
        if !matches!(self.stage, CourseStage::Preparing | CourseStage::Trying) {
            return None;
        }
        if let Some(autopsy) = known.view.autopsy.as_ref().filter(|autopsy| self.failure != Some(autopsy.position)) {
            self.failure = Some(autopsy.position);
            self.moments.mark("oom", Figures::at_failure(autopsy));
        }
        loop {
            if let Some(waiting) = &self.waiting {
                match waiting.standing(known.view) {
                    RequestState::UnderWay => return None,
                    RequestState::Done => {}
                    RequestState::Failed(why) => self.untrue(why),
                }
                self.waiting = None;
                self.todo.pop_front();
            }
            let Some(action) = self.todo.front() else {
                self.moments.now = Figures::of(known);
                match self.stage {
                    CourseStage::Preparing => self.prepared(known.view),
                    _ => self.tried(known.view),
                }
                if self.stage == CourseStage::Explained && self.at < self.resumes {
                    self.enter(self.at + 1);
                }
                if matches!(self.stage, CourseStage::Preparing | CourseStage::Trying) {
                    continue;
                }
                return None;
            };
            if let LessonAction::Mark(name) = action {
                let name = Arc::clone(name);
                self.todo.pop_front();
                self.moments.mark(&name, Figures::of(known));
                continue;
            }
            let Some(order) = CourseRequest::of(action) else {
                self.todo.pop_front();
                continue;
            };
            self.spoilt &= !matches!(order, CourseRequest::Restart | CourseRequest::Run(_));
            self.waiting = Some(PendingRequest::new(order.clone(), known.view));
            return Some(order);
        }
    }

    /// Notes that the last request was refused, and why. The course no longer waits for it, and the lesson is not true
    /// here.
    pub fn refused(&mut self, why: &str) {
        if self.waiting.take().is_some() {
            let action = self.todo.pop_front().map_or_else(String::new, |action| format!("\"{action}\" was refused: "));
            self.untrue(format!("{action}{why}"));
        }
    }

    /// Goes on from the text that was shown.
    pub fn proceed(&mut self) {
        match self.stage {
            CourseStage::Introduction => self.enter(0),
            CourseStage::Explained if self.at + 1 < self.lesson.steps.len() => self.enter(self.at + 1),
            CourseStage::Explained => self.stage = CourseStage::Over,
            CourseStage::Preparing
            | CourseStage::Asking
            | CourseStage::Acting
            | CourseStage::Trying
            | CourseStage::Over => {}
        }
    }

    /// Answers the open question, or tries for the goal.
    pub fn answer(&mut self, answer: Answer) {
        if matches!(self.stage, CourseStage::Asking | CourseStage::Acting) {
            self.told[self.at].answer = Some(answer);
            self.try_it();
        }
    }

    fn enter(&mut self, step: usize) {
        self.at = step;
        self.stage = CourseStage::Preparing;
        self.todo = self.step().first.iter().cloned().collect();
        self.waiting = None;
    }

    fn prepared(&mut self, view: &View) {
        self.moments.mark("before", self.moments.now.clone());
        let step = self.lesson.steps[self.at].clone();
        self.told[self.at].prose = self.filled(&step.prose);
        match &step.question {
            None => self.try_it(),
            Some(question) => {
                let asked = QuestionText {
                    ask: self.filled(&question.ask),
                    choices: match &question.form {
                        Form::Choices(choices) => choices.iter().map(|choice| self.filled(&choice.text)).collect(),
                        Form::Number { .. } | Form::Goal(_) => Vec::new(),
                    },
                    hint: step.hint.as_ref().map(|hint| self.filled(hint)),
                };
                self.told[self.at].question = Some(asked);
                self.stage = if self.goal().is_some() { CourseStage::Acting } else { CourseStage::Asking };
                self.set_out = SetOut { settings: Arc::clone(&view.settings), failures: view.traffic.ooms };
                if self.at < self.resumes {
                    self.answer(Answer::Passed);
                }
            }
        }
    }

    fn try_it(&mut self) {
        self.stage = CourseStage::Trying;
        let shows = matches!(self.told[self.at].answer, Some(Answer::Passed | Answer::Solution));
        let shown = self.goal().filter(|_| shows).map(|goal| self.set_out.solution(goal)).unwrap_or_default();
        self.todo = shown.into_iter().chain(self.step().then.iter().cloned()).collect();
    }

    fn tried(&mut self, view: &View) {
        let lesson = Arc::clone(&self.lesson);
        let step = &lesson.steps[self.at];
        let measured = step.question.as_ref().map(|question| match &question.form {
            Form::Goal(goal) => goal.measure(&self.moments, view.traffic.ooms > self.set_out.failures),
            form => form.measure(&self.moments),
        });
        if self.tried_for(measured.as_ref(), view) {
            return;
        }
        for check in &step.checks {
            match check.holds(&self.moments) {
                Ok(true) => {}
                Ok(false) => self.untrue(format!("{check} does not hold: {}", shown(check, &self.moments))),
                Err(unanswered) => self.untrue(format!("{check} can't be checked: {unanswered}")),
            }
        }
        match (measured, &step.question) {
            (Some(Ok(measured)), Some(question)) => {
                let counts = !self.spoilt && self.at >= self.resumes;
                let told = &mut self.told[self.at];
                told.measured = Some(measured);
                told.worth = told.answer.filter(|_| counts).map(|answer| question.form.worth(answer, measured));
            }
            (Some(Err(unclear)), _) => self.untrue(unclear.to_string()),
            _ => {}
        }
        let reply = self.reply(step).map(|reply| self.filled(reply));
        let why = step.why.as_ref().map(|why| self.filled(why));
        let after = self.filled(&step.after);
        let told = &mut self.told[self.at];
        (told.reply, told.why, told.after) = (reply, why, after);
        self.stage = CourseStage::Explained;
    }

    /// Notes a try for a goal. Returns true if another try follows, by the learner or with the lesson's own solution.
    fn tried_for(&mut self, measured: Option<&Result<MeasuredAnswer, Unclear>>, view: &View) -> bool {
        let (Some(measured), Some(goal)) = (measured, self.goal()) else { return false };
        let tries = goal.tries as usize;
        if self.told[self.at].answer != Some(Answer::Tried) {
            return false;
        }
        let tried = self.set_out.told(&view.settings, measured);
        self.set_out.failures = view.traffic.ooms;
        let told = &mut self.told[self.at];
        told.tries.push(tried);
        match measured {
            Ok(_) => return false,
            Err(_) if told.tries.len() < tries => (told.answer, self.stage) = (None, CourseStage::Acting),
            Err(_) => {
                told.answer = Some(Answer::Passed);
                self.try_it();
            }
        }
        true
    }

    /// The reply to a wrong answer.
    fn reply<'a>(&self, step: &'a LessonStep) -> Option<&'a Template> {
        let told = &self.told[self.at];
        let (Form::Choices(choices), Answer::Choice(chosen)) = (&step.question.as_ref()?.form, told.answer?) else {
            return None;
        };
        let is_wrong = told.measured.is_some_and(|measured| measured != MeasuredAnswer::Choice(chosen));
        choices.get(chosen)?.reply.as_ref().filter(|_| is_wrong)
    }

    /// A text with its figures filled in. If a figure is unknown, the lesson is not true here.
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
