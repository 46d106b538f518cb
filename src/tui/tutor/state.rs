//! Who leads through a lesson: what is shown of it, what keys do to it, and what it asks of the lab.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{KeepCourse, Lecture};
use crate::figures::Known;
use crate::lesson::{Answer, Course, Form, Look, Order, Runs, Stage};
use crate::model::{LessonNote, RunState};
use crate::session::{Anew, Command, LabSpec, StepSize};
use crate::source::{Move, Picture, Request};
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;

/// A longer answer is no number.
const LONGEST: usize = 24;
/// A course that asks for more at once asks for ever.
const MOST_ORDERS: usize = 64;

/// Leads somebody through a lesson.
#[derive(Clone, Debug)]
pub(crate) struct Tutor {
    course: Course,
    runs: Runs,
    learner: Arc<str>,
    keep: KeepCourse,
    /// The run under way.
    spec: Arc<LabSpec>,
    /// Another run was asked for, behind so many events.
    awaited: Option<u64>,
    /// Somebody let the lab run on, and it was asked to stop behind its step.
    settling: bool,
    /// The choice that is selected: none at first, so that nobody who reads on answers by that.
    pub chosen: Option<usize>,
    /// The number that is being written.
    pub written: String,
    /// What is wrong with it.
    pub wrong: Option<String>,
    /// The first line of the text that is shown.
    pub first: usize,
    /// The pane is small.
    pub folded: bool,
    /// Since the run began somebody else than the lesson has done something to the lab.
    pub meddled: bool,
    told: Option<LessonNote>,
    shown: (Stage, usize),
}

/// What a key came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    /// It is for the lab.
    Passed,
    /// Something is shown otherwise.
    Taken,
    /// The course went on.
    WentOn(Vec<Request>),
}

impl Tutor {
    /// Before the first step of a lesson.
    pub fn new(lecture: &Lecture) -> Self {
        let Lecture { lesson, runs, learner, keep } = lecture.clone();
        Self {
            course: Course::new(Arc::clone(&lesson), lesson.holds_on(&runs.first().device)),
            spec: Arc::new(runs.first().clone()),
            runs,
            learner,
            keep,
            awaited: None,
            settling: false,
            chosen: None,
            written: String::new(),
            wrong: None,
            first: 0,
            folded: false,
            meddled: false,
            told: None,
            shown: (Stage::Introduction, 0),
        }
    }

    /// The course.
    pub const fn course(&self) -> &Course {
        &self.course
    }

    /// The screen that shows the step best.
    pub fn look(&self) -> Option<Look> {
        match self.course.stage() {
            Stage::Trying | Stage::Explained => self.course.step().look,
            _ => None,
        }
    }

    /// Shows the course the run, and says what is to be done with it. What lies behind the cursor is no news.
    pub fn see(&mut self, picture: &Picture) -> Vec<Request> {
        self.settling &= picture.run == RunState::Running;
        if !picture.is_now() || self.settling || !self.is_begun(picture) {
            return Vec::new();
        }
        let mut requests = Vec::new();
        let device_memory = self.spec.device.memory().or(picture.memory).map(|memory| memory.total);
        for _ in 0..MOST_ORDERS {
            let known = Known { view: &picture.view, statistics: None, device_memory };
            let Some(order) = self.course.observe(&known) else { break };
            requests.extend(self.obey(order, picture));
            if self.awaited.is_some() {
                break;
            }
        }
        requests.extend(self.note());
        requests
    }

    /// Whether the run that was asked for is there, and rests before its first step.
    fn is_begun(&mut self, picture: &Picture) -> bool {
        let Some(position) = self.awaited else { return true };
        let view = &picture.view;
        let there = view.position > position && view.steps.finished == 0 && view.run == RunState::Paused;
        if there {
            self.awaited = None;
        }
        there
    }

    fn obey(&mut self, order: Order, picture: &Picture) -> Vec<Request> {
        let lab = |command| vec![Request::Lab(command)];
        match order {
            Order::Steps(steps) => lab(Command::Train(steps)),
            Order::Restart => self.begin(picture),
            Order::Run(name) => match self.runs.named(&name) {
                Some(spec) => {
                    self.spec = Arc::new(spec.clone());
                    self.begin(picture)
                }
                None => {
                    self.course.refused("the lesson has no such run");
                    Vec::new()
                }
            },
            order => order.command().map_or_else(Vec::new, lab),
        }
    }

    /// Begins the run anew; it rests before its first step.
    fn begin(&mut self, picture: &Picture) -> Vec<Request> {
        self.awaited = Some(picture.extent.end);
        (self.meddled, self.settling) = (false, false);
        [Command::Begin(Anew(Arc::clone(&self.spec))), Command::Train(0)].map(Request::Lab).into()
    }

    /// Begins the lesson anew, on a run as it was at the start.
    pub fn begin_anew(&mut self, picture: &Picture) -> Vec<Request> {
        let lesson = Arc::clone(self.course.lesson());
        self.spec = Arc::new(self.runs.first().clone());
        self.course = Course::new(Arc::clone(&lesson), lesson.holds_on(&self.spec.device));
        let mut requests = vec![Request::Move(Move::Now)];
        requests.extend(self.begin(picture));
        requests.extend(self.note());
        requests
    }

    /// Tells the stream where the course is, where that is news, and keeps it.
    fn note(&mut self) -> Option<Request> {
        let shown = (self.course.stage(), self.course.place());
        if self.shown != shown {
            self.shown = shown;
            (self.chosen, self.first) = (None, 0);
            (self.written, self.wrong) = (String::new(), None);
        }
        let note = self.course.note(&self.learner);
        if self.told.as_ref() == Some(&note) {
            return None;
        }
        self.told = Some(note.clone());
        Some(Request::Lab(Command::Lesson(Arc::new(note))))
    }

    /// Keeps how far somebody is; a sentence where that can't be.
    pub fn keep(&self) -> Option<String> {
        match self.course.stage() {
            Stage::Explained | Stage::Over => (self.keep)(&self.course),
            _ => None,
        }
    }

    /// A key while no dialog is open; `lines` of the text there are, and so many are seen.
    pub fn press(&mut self, key: KeyEvent, keys: &Keymap, picture: &Picture, lines: (usize, usize)) -> Heard {
        let action = keys.dialog_action(key);
        let form = match self.course.stage() {
            Stage::Asking => self.course.step().question.as_ref().map(|question| question.form.clone()),
            _ => None,
        };
        if let Some(Form::Number { .. }) = form
            && self.write(key)
        {
            self.wrong = None;
            return Heard::Taken;
        }
        let choices = self.course.told().question.as_ref().map_or(0, |asked| asked.choices.len());
        match (form, action) {
            (Some(Form::Choices(_)), Some(DialogAction::Next)) => {
                let next = self.chosen.map_or(0, |chosen| chosen + 1);
                self.choose(next.min(choices.saturating_sub(1)), lines)
            }
            (Some(Form::Choices(_)), Some(DialogAction::Previous)) => {
                let last = choices.saturating_sub(1);
                self.choose(self.chosen.map_or(last, |chosen| chosen.saturating_sub(1)), lines)
            }
            (Some(Form::Choices(_)), _) if letter_of(key).is_some_and(|place| place < choices) => {
                self.choose(letter_of(key).unwrap_or_default(), lines)
            }
            (Some(Form::Number { .. }), Some(DialogAction::Clear)) => {
                self.written.clear();
                Heard::Taken
            }
            (_, Some(DialogAction::Apply)) if self.first + lines.1 < lines.0 => {
                // One line stays, so that nobody loses the thread.
                self.first = (self.first + lines.1.saturating_sub(1).max(1)).min(lines.0.saturating_sub(lines.1));
                Heard::Taken
            }
            (Some(form), Some(DialogAction::Apply)) => self.answer(&form, picture),
            (None, Some(DialogAction::Apply)) => match self.course.stage() {
                // What is not there yet can't have been read.
                Stage::Introduction if !self.course.has_begun() => Heard::Taken,
                Stage::Introduction | Stage::Explained => {
                    self.course.proceed();
                    let mut requests = self.settle(picture);
                    requests.extend(self.go_on(picture));
                    Heard::WentOn(requests)
                }
                Stage::Preparing | Stage::Asking | Stage::Trying | Stage::Over => Heard::Passed,
            },
            _ => Heard::Passed,
        }
    }

    fn choose(&mut self, place: usize, lines: (usize, usize)) -> Heard {
        (self.chosen, self.wrong) = (Some(place), None);
        // The choices stand at the end: what is selected is in sight.
        self.first = lines.0.saturating_sub(lines.1);
        Heard::Taken
    }

    /// What is asked next is asked of a lab that rests between two steps.
    fn settle(&mut self, picture: &Picture) -> Vec<Request> {
        self.settling = picture.run == RunState::Running;
        let stop = self.settling.then_some(Request::Lab(Command::Advance(StepSize::Step)));
        stop.into_iter().collect()
    }

    /// Has what is asked measured without an answer.
    pub fn pass(&mut self, picture: &Picture) -> Vec<Request> {
        self.course.answer(Answer::Passed);
        self.go_on(picture)
    }

    /// Writes a number: figures, and behind them its unit; other keys are the lab's.
    fn write(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return false;
        }
        match key.code {
            KeyCode::Char(symbol) => {
                let is_number = symbol.is_ascii_digit() || matches!(symbol, '.' | ',' | '-');
                let is_unit = !self.written.is_empty() && (symbol.is_ascii_alphabetic() || matches!(symbol, ' ' | '%'));
                let is_taken = is_number || is_unit;
                if is_taken && self.written.len() < LONGEST {
                    self.written.push(symbol);
                }
                is_taken
            }
            KeyCode::Backspace => {
                self.written.pop();
                true
            }
            _ => false,
        }
    }

    fn answer(&mut self, form: &Form, picture: &Picture) -> Heard {
        let answer = match form {
            Form::Choices(_) => match self.chosen {
                Some(place) => Answer::Choice(place),
                None => {
                    self.wrong = Some("Choose first: ↑ ↓, or a letter.".to_owned());
                    return Heard::Taken;
                }
            },
            Form::Number { .. } => match form.read(&self.written) {
                Ok(answer) => answer,
                Err(why) => {
                    self.wrong = Some(why);
                    return Heard::Taken;
                }
            },
        };
        self.course.answer(answer);
        Heard::WentOn(self.go_on(picture))
    }

    /// What follows happens now, wherever somebody was looking.
    fn go_on(&mut self, picture: &Picture) -> Vec<Request> {
        let mut requests = if picture.is_now() { Vec::new() } else { vec![Request::Move(Move::Now)] };
        requests.extend(self.see(picture));
        requests.extend(self.note());
        requests
    }
}

/// The place of the choice that a key's letter names, counted from 0.
fn letter_of(key: KeyEvent) -> Option<usize> {
    match key.code {
        KeyCode::Char(letter) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            u8::try_from(letter.to_ascii_lowercase()).ok()?.checked_sub(b'a').map(usize::from)
        }
        _ => None,
    }
}
