//! The line of what blocks are looked for: what it says holds while it is being written.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget};

use super::pressed::Pressed;
use crate::given::is_safe;
use crate::tui::pane::{self, Frame, put, span};
use crate::tui::theme::{Theme, Token};

/// Bytes that nobody looks for any more.
const LONGEST: usize = 80;
/// Widest the box gets.
const WIDTH: u16 = 72;

/// The words.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    text: String,
}

impl Filter {
    /// Begins with what is looked for already.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned() }
    }

    pub fn press(&mut self, key: KeyEvent) -> Pressed {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => return Pressed::Filter { text: "".into(), done: true },
            KeyCode::Enter => return Pressed::Filter { text: self.text.trim().into(), done: true },
            KeyCode::Char('c') if control => return Pressed::Leave,
            KeyCode::Char('u') if control => self.text.clear(),
            KeyCode::Char(symbol) if !control => self.push(symbol),
            KeyCode::Backspace => drop(self.text.pop()),
            _ => return Pressed::Taken,
        }
        self.written()
    }

    /// Adds text from elsewhere, without what is no character of a line.
    pub fn insert(&mut self, text: &str) -> Pressed {
        text.chars().for_each(|symbol| self.push(symbol));
        self.written()
    }

    fn push(&mut self, symbol: char) {
        if is_safe(symbol) && self.text.len() < LONGEST {
            self.text.push(symbol);
        }
    }

    fn written(&self) -> Pressed {
        Pressed::Filter { text: self.text.trim().into(), done: false }
    }

    /// Draws the line in a box over the lower edge of the screen.
    pub fn render(&self, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let (width, height) = (area.width.min(WIDTH), area.height.min(4));
        let y = area.y + (area.height - height).saturating_sub(1);
        let outer = Rect { x: area.x + (area.width - width) / 2, y, width, height };
        Clear.render(outer, buf);
        buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
        let title =
            vec![span(theme, Token::Title, "filter"), span(theme, Token::Dim, " · Enter keeps it, Esc takes it away")];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Accent), outer, buf);
        let room = usize::from(inner.width.saturating_sub(4));
        // The end of a long line is what is being written.
        let skipped = self.text.chars().count().saturating_sub(room);
        let shown: String = self.text.chars().skip(skipped).collect();
        put(
            inner,
            0,
            vec![span(theme, Token::Key, " /"), span(theme, Token::Text, shown), span(theme, Token::Key, "▏")],
            buf,
        );
        put(inner, 1, vec![span(theme, Token::Dim, " words of a block's name, op or category: qkv activation")], buf);
    }
}
