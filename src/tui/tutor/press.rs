//! What keys do to a lesson.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::{Heard, Tutor};
use crate::lesson::{Answer, Form, Stage};
use crate::source::Picture;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;

/// A longer answer is no number.
const LONGEST: usize = 24;

impl Tutor {
    /// Whether a key answers the open question, even if it does something else elsewhere.
    pub fn takes(&self, key: KeyEvent) -> bool {
        let Some(asked) = self.course.told().question.as_ref().filter(|_| self.course.stage() == Stage::Asking) else {
            return false;
        };
        let is_letter = letter_of(key).is_some_and(|place| place < asked.choices.len());
        is_letter || (asked.choices.is_empty() && matches!(key.code, KeyCode::Char(_)))
    }

    /// A key while no dialog is open; `lines` of the text there are, and so many are seen.
    pub fn press(&mut self, key: KeyEvent, keys: &Keymap, picture: &Picture, lines: (usize, usize)) -> Heard {
        let action = keys.dialog_action(key);
        if self.back.is_some() && action == Some(DialogAction::Apply) {
            if !self.read_on(lines) {
                (self.back, self.first) = (None, 0);
            }
            return Heard::Taken;
        }
        let form = match self.course.stage() {
            Stage::Asking | Stage::Acting => self.course.step().question.as_ref().map(|question| question.form.clone()),
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
            (_, Some(DialogAction::Apply)) if self.read_on(lines) => Heard::Taken,
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
                Stage::Over if self.next_title().is_some() => Heard::WentOn(self.begin_next()),
                Stage::Preparing | Stage::Asking | Stage::Acting | Stage::Trying | Stage::Over => Heard::Passed,
            },
            _ => Heard::Passed,
        }
    }

    /// Shows the lines that follow; false where all were seen.
    fn read_on(&mut self, lines: (usize, usize)) -> bool {
        let more = self.first + lines.1 < lines.0;
        if more {
            // One line stays, so that the thread is not lost.
            self.first = (self.first + lines.1.saturating_sub(1).max(1)).min(lines.0.saturating_sub(lines.1));
        }
        more
    }

    fn choose(&mut self, place: usize, lines: (usize, usize)) -> Heard {
        (self.chosen, self.wrong) = (Some(place), None);
        // The choices stand at the end: what is selected is in sight.
        self.first = lines.0.saturating_sub(lines.1);
        Heard::Taken
    }

    /// Writes a number: figures, then its unit; other keys are the lab's.
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
            Form::Goal(_) => Answer::Tried,
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
