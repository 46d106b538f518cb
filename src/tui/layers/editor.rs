//! A line that a person writes: a memory limit, allocator settings.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line::{self, leaves};
use super::low_box;
use super::pressed::Pressed;
use crate::model::Settings;
use crate::session::{Command, Setup, Switch};
use crate::source::Request;
use crate::train::Config;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::pane::{self, put, span};
use crate::tui::stage::Stage;
use crate::tui::theme::Token;
use crate::tui::words;

/// Longer lines are no settings.
const LONGEST: usize = 400;
/// Widest the box gets.
const WIDTH: u16 = 90;

/// The line and what is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct Editor {
    switch: Switch,
    text: String,
    error: Option<String>,
}

impl Editor {
    /// Begins with the value in force, where that was written too; a limit begins empty.
    pub fn new(switch: Switch, settings: &Settings) -> Self {
        let value = settings.get(switch.word()).map_or("", |setting| &*setting.value);
        let text = if switch.word() == "alloc-conf" && value != "default" { value.to_owned() } else { String::new() };
        Self { switch, text, error: None }
    }

    pub fn press(&mut self, key: KeyEvent, keys: &Keymap) -> Pressed {
        if leaves(key) {
            return Pressed::Leave;
        }
        if line::write(&mut self.text, key, LONGEST) {
            self.error = None;
            return Pressed::Taken;
        }
        match keys.dialog_action(key) {
            Some(DialogAction::Cancel) => return Pressed::Closed,
            Some(DialogAction::Clear) => (self.text, self.error) = (String::new(), None),
            Some(DialogAction::Apply) => match self.command() {
                Ok(command) => return Pressed::Done(vec![Request::Lab(command)]),
                Err(error) => self.error = Some(error),
            },
            _ => {}
        }
        Pressed::Taken
    }

    /// Adds text from elsewhere, without what is no character of a line.
    pub fn insert(&mut self, text: &str) {
        text.chars().for_each(|symbol| line::push(&mut self.text, symbol, LONGEST));
        self.error = None;
    }

    /// Sets the switch, if it can be that.
    fn command(&self) -> Result<Command, String> {
        let text = self.text.trim();
        // Whether a value is one does not depend on the others.
        self.switch.set(&mut Setup::new(Config::new(1)), text)?;
        Ok(Command::Set(self.switch, text.into()))
    }

    /// Draws the line in a box over the lower part of the screen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let width = area.width.min(WIDTH);
        let (title, hint) = (self.switch.label(), self.switch.hint());
        let below = self.error.as_deref().unwrap_or(hint);
        let room = usize::from(width.saturating_sub(4));
        let lines = pane::wrap(below, room);
        let height = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX).min(area.height);
        let title = vec![
            span(theme, Token::Title, title),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "from the next step on", "leaves it")),
        ];
        let inner = low_box::draw(theme, title, (width, height), area, buf);
        let shown = line::end_of(&self.text, room.saturating_sub(1));
        put(inner, 0, vec![span(theme, Token::Text, format!(" {shown}")), span(theme, Token::Key, "▏")], buf);
        let token = if self.error.is_some() { Token::Danger } else { Token::Dim };
        for (y, line) in (1..inner.height).zip(lines) {
            put(inner, y, vec![span(theme, token, format!(" {line}"))], buf);
        }
    }
}
