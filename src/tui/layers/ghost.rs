//! Under what a ghost of the run works: some conditions to choose from, and a line to write others.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line::{self, leaves};
use super::low_box;
use super::pressed::Pressed;
use crate::allocator::{DeviceMemory, TorchVersion};
use crate::source::{Picture, Request};
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::pane::{self, put, span};
use crate::tui::stage::Stage;
use crate::tui::theme::Token;
use crate::tui::words;
use crate::units::{Bytes, MIB};
use crate::whatif::Conditions;

/// Longer lines are no conditions.
const LONGEST: usize = 400;
/// Widest the box gets.
const WIDTH: u16 = 78;
/// What can be written, where nothing is wrong with what is.
const HINT: &str = "PyTorch's syntax, and limit:6GiB, empty_cache_every:10; empty: no ghost";
/// Where the words begin behind a choice that is not longer.
const COLUMN: usize = 26;

/// The choices, the line, and what is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct GhostEditor {
    choices: Vec<(String, &'static str)>,
    chosen: Option<usize>,
    text: String,
    error: Option<String>,
    memory: Option<DeviceMemory>,
    /// The version of the run's allocator.
    torch: TorchVersion,
}

impl GhostEditor {
    /// Begins with the ghost that there is, else with the first choice.
    pub fn new(picture: &Picture) -> Self {
        let peak = picture.view.peak_reserved;
        let mib = |bytes: Bytes| (bytes.get() / MIB).max(1);
        let collecting = match picture.view.limit {
            Some(_) => "garbage_collection_threshold:0.8".to_owned(),
            None => format!("garbage_collection_threshold:0.8,limit:{}MiB", mib(peak)),
        };
        let mut choices = vec![
            ("expandable_segments:True".to_owned(), "segments grow page by page"),
            ("max_split_size_mb:128".to_owned(), "blocks from 128 MiB on stay whole"),
            (collecting, "gives unused segments back"),
            ("roundup_power2_divisions:4".to_owned(), "sizes in four steps to the double"),
            (format!("limit:{}MiB", mib(Bytes(peak.get() / 4 * 3))), "three quarters of the peak"),
        ];
        let (chosen, text) = match &picture.ghost {
            Some(ghost) => {
                choices.push((String::new(), "no ghost"));
                let text = ghost.conditions.text().to_owned();
                (choices.iter().position(|(choice, _)| *choice == text), text)
            }
            None => (Some(0), choices.first().map(|(choice, _)| choice.clone()).unwrap_or_default()),
        };
        Self { choices, chosen, text, error: None, memory: picture.memory, torch: picture.view.about.torch }
    }

    pub fn press(&mut self, key: KeyEvent, keys: &Keymap) -> Pressed {
        if leaves(key) {
            return Pressed::Leave;
        }
        let last = self.choices.len().saturating_sub(1);
        if line::write(&mut self.text, key, LONGEST) {
            self.written();
            return Pressed::Taken;
        }
        match keys.dialog_action(key) {
            Some(DialogAction::Cancel) => return Pressed::Closed,
            Some(DialogAction::Previous) => self.choose(self.chosen.map_or(last, |chosen| chosen.saturating_sub(1))),
            Some(DialogAction::Next | DialogAction::Part) => {
                self.choose(self.chosen.map_or(0, |chosen| (chosen + 1).min(last)))
            }
            Some(DialogAction::Clear) => {
                self.text.clear();
                self.written();
            }
            Some(DialogAction::Apply) => match self.request() {
                Ok(request) => return Pressed::Done(vec![request]),
                Err(error) => self.error = Some(error),
            },
            _ => {}
        }
        Pressed::Taken
    }

    /// Adds text from elsewhere, without what is no character of a line.
    pub fn insert(&mut self, text: &str) {
        text.chars().for_each(|symbol| line::push(&mut self.text, symbol, LONGEST));
        self.written();
    }

    fn written(&mut self) {
        self.error = None;
        self.chosen = self.choices.iter().position(|(choice, _)| *choice == self.text);
    }

    fn choose(&mut self, index: usize) {
        if let Some((choice, _)) = self.choices.get(index) {
            self.text.clone_from(choice);
            (self.chosen, self.error) = (Some(index), None);
        }
    }

    /// Lets it follow, or none, if the line can be that.
    fn request(&self) -> Result<Request, String> {
        let text = self.text.trim();
        if text.is_empty() {
            return Ok(Request::Ghost(None));
        }
        let conditions = Conditions::parse_for(self.torch, text, self.memory).map_err(|error| error.to_string())?;
        Ok(Request::Ghost(Some(conditions.into())))
    }

    /// Draws it in a box over the lower part of the screen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let width = area.width.min(WIDTH);
        let room = usize::from(width.saturating_sub(4));
        let below = pane::wrap(self.error.as_deref().unwrap_or(HINT), room);
        let choices = u16::try_from(self.choices.len()).unwrap_or(u16::MAX);
        let height = u16::try_from(below.len()).unwrap_or(1).saturating_add(choices).saturating_add(4).min(area.height);
        let title = vec![
            span(theme, Token::Title, "ghost"),
            span(theme, Token::Dim, " · another allocator beside the run"),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "lets it follow", "not")),
        ];
        let inner = low_box::draw(theme, title, (width, height), area, buf);
        // Where there is no room for all, the line matters most.
        let rows = inner.height.saturating_sub(2).min(choices);
        for (y, (index, (choice, words))) in (0..rows).zip(self.choices.iter().enumerate()) {
            let chosen = self.chosen == Some(index);
            let mark = if chosen { "▸" } else { " " };
            let token = if chosen { Token::Strong } else { Token::Text };
            let mut line =
                vec![span(theme, Token::Key, format!(" {mark} ")), span(theme, token, format!("{choice:<COLUMN$}"))];
            if choice.len().max(COLUMN) + words.chars().count() + 6 <= usize::from(inner.width) {
                line.push(span(theme, Token::Dim, format!("  {words}")));
            }
            pane::put_cut(inner, y, line, buf);
        }
        let shown = line::end_of(&self.text, room.saturating_sub(3));
        let line =
            vec![span(theme, Token::Key, " › "), span(theme, Token::Strong, shown), span(theme, Token::Key, "▏")];
        put(inner, rows + 1, line, buf);
        let token = if self.error.is_some() { Token::Danger } else { Token::Dim };
        for (y, line) in (rows + 2..inner.height).zip(below) {
            put(inner, y, vec![span(theme, token, format!(" {line}"))], buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers};

    use super::*;
    use crate::tui::keymap;

    fn press(editor: &mut GhostEditor, code: KeyCode) -> Pressed {
        editor.press(KeyEvent::new(code, KeyModifiers::NONE), keymap::standard())
    }

    fn asked(pressed: Pressed) -> Option<Request> {
        match pressed {
            Pressed::Done(mut requests) => requests.pop(),
            _ => None,
        }
    }

    #[test]
    fn a_choice_can_be_taken_as_it_is_or_written_on() {
        let mut editor = GhostEditor::new(&Picture::default());
        let taken = asked(press(&mut editor.clone(), KeyCode::Enter));
        let expandable = Conditions::parse("expandable_segments:True", None).unwrap();
        assert_eq!(taken, Some(Request::Ghost(Some(expandable.into()))));
        press(&mut editor, KeyCode::Down);
        editor.insert(",limit:2GiB");
        let Some(Request::Ghost(Some(conditions))) = asked(press(&mut editor, KeyCode::Enter)) else { panic!() };
        assert_eq!(conditions.text(), "max_split_size_mb:128,limit:2GiB");
        assert_eq!(conditions.limit, Some(Bytes::gib(2)));
    }

    #[test]
    fn what_is_no_setting_is_told_and_an_empty_line_asks_for_none() {
        let mut editor = GhostEditor::new(&Picture::default());
        editor.insert("x");
        assert!(asked(press(&mut editor, KeyCode::Enter)).is_none());
        assert!(editor.error.is_some());
        editor.press(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL), keymap::standard());
        assert_eq!(editor.error, None);
        assert_eq!(asked(press(&mut editor, KeyCode::Enter)), Some(Request::Ghost(None)));
    }
}
