//! A line with values to choose from. The first character typed replaces an offered value; an edited value stays.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line;
use crate::drawing::pane::{self, put, span};
use crate::drawing::theme::{Theme, Token};
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;

/// The column of the descriptions, for values that are not longer.
const COLUMN: usize = 26;

/// The values, the chosen one, and the line.
#[derive(Clone, Debug)]
pub(super) struct Offers {
    values: Vec<(String, String)>,
    chosen: Option<usize>,
    text: String,
    /// True if the line is an offered value, so that typing begins a new one.
    fresh: bool,
    longest: usize,
}

/// The result of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EditResult {
    /// The line has changed.
    Changed,
    /// The key is for the dialog.
    Not,
}

impl Offers {
    /// These values with short descriptions, and a line that begins as `text` and has at most `longest` bytes.
    pub fn new(values: Vec<(String, String)>, text: String, longest: usize) -> Self {
        let chosen = values.iter().position(|(value, _)| *value == text);
        Self { values, chosen, text, fresh: true, longest }
    }

    /// The line.
    pub fn text(&self) -> &str {
        self.text.trim()
    }

    pub fn press(&mut self, key: KeyEvent, keys: &Keymap) -> EditResult {
        let mut line = self.text.clone();
        // Backspace edits an offered value; a character replaces it.
        if self.fresh && matches!(key.code, KeyCode::Char(_)) {
            line.clear();
        }
        if line::write(&mut line, key, self.longest) {
            self.text = line;
            self.written();
            return EditResult::Changed;
        }
        let last = self.values.len().saturating_sub(1);
        match (keys.dialog_action(key), key.code) {
            (Some(DialogAction::Previous), _) => {
                self.choose(self.chosen.map_or(last, |chosen| chosen.saturating_sub(1)));
            }
            (Some(DialogAction::Next | DialogAction::Part), _) => {
                self.choose(self.chosen.map_or(0, |chosen| (chosen + 1).min(last)));
            }
            (Some(DialogAction::Clear), _) => {
                self.text.clear();
                self.written();
            }
            // As in a shell: from here on the offered value can be edited.
            (_, KeyCode::Right | KeyCode::End) => self.fresh = false,
            _ => return EditResult::Not,
        }
        EditResult::Changed
    }

    /// Inserts text, without characters that don't belong in a line.
    pub fn insert(&mut self, text: &str) {
        if self.fresh {
            self.text.clear();
        }
        text.chars().for_each(|symbol| line::push(&mut self.text, symbol, self.longest));
        self.written();
    }

    fn written(&mut self) {
        self.fresh = false;
        self.chosen = self.values.iter().position(|(value, _)| *value == self.text);
    }

    fn choose(&mut self, index: usize) {
        if let Some((value, _)) = self.values.get(index) {
            self.text.clone_from(value);
            (self.chosen, self.fresh) = (Some(index), true);
        }
    }

    /// How many rows it needs.
    pub fn wanted_rows(&self) -> u16 {
        u16::try_from(self.values.len()).unwrap_or(u16::MAX).saturating_add(1)
    }

    /// Draws the values and below them the line, in at most `most` rows. Returns how many it used.
    pub fn render(&self, theme: &Theme, area: Rect, most: u16, buf: &mut Buffer) -> u16 {
        // If there is no room for all, the line is most important.
        let values = u16::try_from(self.values.len()).unwrap_or(u16::MAX);
        let rows = most.saturating_sub(1).min(values);
        let first = self.chosen.unwrap_or(0).saturating_sub(usize::from(rows.saturating_sub(1)));
        for (y, (index, (value, words))) in (0..rows).zip(self.values.iter().enumerate().skip(first)) {
            let chosen = self.chosen == Some(index);
            let mark = if chosen { "▸" } else { " " };
            let token = if chosen { Token::Strong } else { Token::Text };
            let value = if value.is_empty() { "none" } else { value };
            let mut line =
                vec![span(theme, Token::Key, format!(" {mark} ")), span(theme, token, format!("{value:<COLUMN$}"))];
            if value.len().max(COLUMN) + words.chars().count() + 6 <= usize::from(area.width) {
                line.push(span(theme, Token::Dim, format!("  {words}")));
            }
            pane::put(area, y, line, buf);
        }
        let shown = line::end_of(&self.text, usize::from(area.width.saturating_sub(5)));
        let line = vec![
            span(theme, Token::Key, " › "),
            span(theme, if self.fresh { Token::Dim } else { Token::Strong }, shown),
            span(theme, Token::Key, "▏"),
        ];
        put(area, rows, line, buf);
        rows + 1
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyModifiers;

    use super::*;
    use crate::tui::keymap;

    fn press(offers: &mut Offers, code: KeyCode) -> String {
        offers.press(KeyEvent::new(code, KeyModifiers::NONE), keymap::standard());
        offers.text().to_owned()
    }

    #[test]
    fn typing_replaces_what_is_offered_and_edits_what_is_written() {
        let values = ["7.5GiB", "12GiB", ""].map(|value| (value.to_owned(), String::new()));
        let mut offers = Offers::new(values.into(), "7.5GiB".to_owned(), 40);
        assert_eq!(press(&mut offers, KeyCode::Char('8')), "8");
        assert_eq!(press(&mut offers, KeyCode::Char('G')), "8G");
        assert_eq!((press(&mut offers, KeyCode::Down), offers.chosen), ("7.5GiB".to_owned(), Some(0)));
        assert_eq!(press(&mut offers, KeyCode::Down), "12GiB");
        assert_eq!(press(&mut offers, KeyCode::Backspace), "12Gi", "what is edited is no offer any more");
        assert_eq!(press(&mut offers, KeyCode::Char('B')), "12GiB");
        assert_eq!(offers.chosen, Some(1));
        press(&mut offers, KeyCode::Up);
        press(&mut offers, KeyCode::End);
        assert_eq!(press(&mut offers, KeyCode::Char('0')), "7.5GiB0");
        press(&mut offers, KeyCode::Up);
        offers.insert("4GiB\n");
        assert_eq!(offers.text(), "4GiB");
        offers.press(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL), keymap::standard());
        assert_eq!((offers.text(), offers.chosen), ("", Some(2)), "nothing is a value too");
    }
}
