//! Keys in a lesson.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::{Tutor, TutorResponse};
use crate::lesson::{Answer, CourseStage, Form};
use crate::source::Picture;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;

/// A longer answer is not a number.
const LONGEST: usize = 24;

impl Tutor {
    /// True if a key answers the open question, even if it has another meaning elsewhere.
    pub fn takes(&self, key: KeyEvent) -> bool {
        let Some(asked) = self.course.told().question.as_ref().filter(|_| self.course.stage() == CourseStage::Asking)
        else {
            return false;
        };
        let is_letter = letter_of(key).is_some_and(|place| place < asked.choices.len());
        is_letter || (asked.choices.is_empty() && matches!(key.code, KeyCode::Char(_)))
    }

    /// Handles a key while no dialog is open. `lines` are the number of the text's lines, and how many are visible.
    pub fn press(&mut self, key: KeyEvent, keys: &Keymap, picture: &Picture, lines: (usize, usize)) -> TutorResponse {
        let action = keys.dialog_action(key);
        if self.back.is_some() && action == Some(DialogAction::Apply) {
            if !self.read_on(lines) {
                (self.back, self.first) = (None, 0);
            }
            return TutorResponse::Taken;
        }
        let form = match self.course.stage() {
            CourseStage::Asking | CourseStage::Acting => {
                self.course.step().question.as_ref().map(|question| question.form.clone())
            }
            _ => None,
        };
        if let Some(Form::Number { .. }) = form
            && self.write(key)
        {
            self.wrong = None;
            return TutorResponse::Taken;
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
                TutorResponse::Taken
            }
            (_, Some(DialogAction::Apply)) if self.read_on(lines) => TutorResponse::Taken,
            (Some(form), Some(DialogAction::Apply)) => self.answer(&form, picture),
            (None, Some(DialogAction::Apply)) => match self.course.stage() {
                // A text that is not there yet can't have been read.
                CourseStage::Introduction if !self.course.has_begun() => TutorResponse::Taken,
                CourseStage::Introduction | CourseStage::Explained => {
                    self.course.proceed();
                    let mut requests = self.settle(picture);
                    requests.extend(self.go_on(picture));
                    TutorResponse::WentOn(requests)
                }
                CourseStage::Over if self.next_title().is_some() => TutorResponse::WentOn(self.begin_next()),
                CourseStage::Preparing
                | CourseStage::Asking
                | CourseStage::Acting
                | CourseStage::Trying
                | CourseStage::Over => TutorResponse::Passed,
            },
            _ => TutorResponse::Passed,
        }
    }

    /// Shows the next lines. Returns false if all were visible.
    fn read_on(&mut self, lines: (usize, usize)) -> bool {
        let more = self.first + lines.1 < lines.0;
        if more {
            // One line stays, for continuity.
            self.first = (self.first + lines.1.saturating_sub(1).max(1)).min(lines.0.saturating_sub(lines.1));
        }
        more
    }

    fn choose(&mut self, place: usize, lines: (usize, usize)) -> TutorResponse {
        (self.chosen, self.wrong) = (Some(place), None);
        // The choices are at the end, so that the selection is visible.
        self.first = lines.0.saturating_sub(lines.1);
        TutorResponse::Taken
    }

    /// Writes a number, then its unit. Other keys are for the lab.
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

    fn answer(&mut self, form: &Form, picture: &Picture) -> TutorResponse {
        let answer = match form {
            Form::Choices(_) => match self.chosen {
                Some(place) => Answer::Choice(place),
                None => {
                    self.wrong = Some("Choose first: ↑ ↓, or a letter.".to_owned());
                    return TutorResponse::Taken;
                }
            },
            Form::Goal(_) => Answer::Tried,
            Form::Number { .. } => match form.read(&self.written) {
                Ok(answer) => answer,
                Err(why) => {
                    self.wrong = Some(why);
                    return TutorResponse::Taken;
                }
            },
        };
        self.course.answer(answer);
        TutorResponse::WentOn(self.go_on(picture))
    }
}

/// The index of the choice that a key's letter names.
fn letter_of(key: KeyEvent) -> Option<usize> {
    match key.code {
        KeyCode::Char(letter) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            u8::try_from(letter.to_ascii_lowercase()).ok()?.checked_sub(b'a').map(usize::from)
        }
        _ => None,
    }
}
