//! A line that a person writes: a memory limit, allocator settings.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget};

use super::lab::pane::{self, Frame, put, span};
use super::theme::{Theme, Token};
use crate::given::is_safe;
use crate::session::{self, Command, LabState, Switch};

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The most that may be reserved.
    Limit,
    /// Allocator settings.
    Settings,
}

/// Longer lines are no settings.
const LONGEST: usize = 400;
/// Widest the box gets.
const WIDTH: u16 = 90;

/// The line and what is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct Editor {
    purpose: Purpose,
    text: String,
    error: Option<String>,
}

/// What a key came to.
pub(crate) enum Outcome {
    Open,
    Closed,
    Done(Command),
    /// Ctrl-C: leave the program.
    Leave,
}

impl Editor {
    /// Begins with the settings in force; a limit begins empty.
    pub fn new(purpose: Purpose, lab: &LabState) -> Self {
        let settings = lab.switches.iter().find(|state| state.switch == Switch::Settings);
        let text = match (purpose, settings) {
            (Purpose::Settings, Some(state)) if state.current != "default" => state.current.to_string(),
            _ => String::new(),
        };
        Self { purpose, text, error: None }
    }

    pub fn press(&mut self, key: KeyEvent) -> Outcome {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => return Outcome::Closed,
            KeyCode::Char('c') if control => return Outcome::Leave,
            KeyCode::Char('u') if control => self.text.clear(),
            KeyCode::Char(symbol) if !control => self.push(symbol),
            KeyCode::Backspace => drop(self.text.pop()),
            KeyCode::Enter => match self.command() {
                Ok(command) => return Outcome::Done(command),
                Err(error) => self.error = Some(error),
            },
            _ => return Outcome::Open,
        }
        if key.code != KeyCode::Enter {
            self.error = None;
        }
        Outcome::Open
    }

    /// Adds text from elsewhere, without what is no character of a line.
    pub fn insert(&mut self, text: &str) {
        text.chars().for_each(|symbol| self.push(symbol));
        self.error = None;
    }

    fn push(&mut self, symbol: char) {
        if is_safe(symbol) && self.text.len() < LONGEST {
            self.text.push(symbol);
        }
    }

    fn command(&self) -> Result<Command, String> {
        let text = self.text.trim();
        match self.purpose {
            Purpose::Limit if matches!(text, "" | "none" | "off") => Ok(Command::Limit(None)),
            Purpose::Limit => text.parse().map(|limit| Command::Limit(Some(limit))),
            Purpose::Settings => {
                session::check_settings(text)?;
                Ok(Command::Settings(text.into()))
            }
        }
    }

    const fn words(&self) -> (&'static str, &'static str) {
        match self.purpose {
            Purpose::Limit => ("memory limit", "bytes or a share of the device: 8GiB, 512MiB, 50%; empty: no limit"),
            Purpose::Settings => {
                ("allocator settings", "as PYTORCH_ALLOC_CONF: expandable_segments:True,max_split_size_mb:128")
            }
        }
    }

    /// Draws the line in a box over the lower part of the screen.
    pub fn render(&self, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let width = area.width.min(WIDTH);
        let (title, hint) = self.words();
        let below = self.error.as_deref().unwrap_or(hint);
        let room = usize::from(width.saturating_sub(4));
        let lines = pane::wrap(below, room);
        let height = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX).min(area.height);
        let outer = Rect {
            x: area.x + (area.width - width) / 2,
            y: area.y + (area.height - height).saturating_sub(1),
            width,
            height,
        };
        Clear.render(outer, buf);
        buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
        let title = vec![
            span(theme, Token::Title, title),
            span(theme, Token::Dim, " · Enter applies it at the next step, Esc leaves it"),
        ];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Accent), outer, buf);
        // The end of a long line is what is being written.
        let skipped = self.text.chars().count().saturating_sub(room.saturating_sub(1));
        let shown: String = self.text.chars().skip(skipped).collect();
        put(inner, 0, vec![span(theme, Token::Text, format!(" {shown}")), span(theme, Token::Key, "▏")], buf);
        let token = if self.error.is_some() { Token::Danger } else { Token::Dim };
        for (y, line) in (1..inner.height).zip(lines) {
            put(inner, y, vec![span(theme, token, format!(" {line}"))], buf);
        }
    }
}
