//! The list of themes. The chosen theme is used at once.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use ratatui::widgets::{Clear, Widget};

use super::line::leaves;
use super::pressed::LayerResponse;
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::{Theme, ThemeCatalog, Token};
use crate::model::Category;
use crate::tui::action::Action;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::stage::Stage;
use crate::tui::words;

/// The width of the box.
const WIDTH: u16 = 38;
/// The width of a name.
const NAME: usize = 18;
/// How many themes a page has.
const PAGE: usize = 8;
/// How many lines explain errors of a theme.
const TOLD: u16 = 4;

/// One theme of the list.
#[derive(Clone, Debug)]
struct ThemeChoice {
    name: String,
    /// The theme, or why it can't be loaded.
    look: Result<Theme, String>,
    /// Warnings about its files.
    warnings: Vec<String>,
}

/// The list, and the theme in use when it was opened.
#[derive(Clone, Debug)]
pub(crate) struct ThemeList {
    choices: Vec<ThemeChoice>,
    chosen: usize,
    before: Theme,
}

impl ThemeList {
    /// Begins at the theme in use.
    pub fn new(catalog: &ThemeCatalog, worn: &Theme) -> Self {
        let choice = |name: &str| match catalog.load(name, worn.tier()) {
            Ok((theme, warnings)) => ThemeChoice { name: name.to_owned(), look: Ok(theme), warnings },
            Err(error) => ThemeChoice { name: name.to_owned(), look: Err(error.to_string()), warnings: Vec::new() },
        };
        let choices: Vec<ThemeChoice> = catalog.names().map(choice).collect();
        let chosen = choices.iter().position(|choice| choice.name == worn.name()).unwrap_or(0);
        Self { choices, chosen, before: worn.clone() }
    }

    pub fn press(&mut self, key: KeyEvent, keys: &Keymap, screen: usize) -> LayerResponse {
        use DialogAction::{Apply, Cancel, First, Last, Next, PageDown, PageUp, Previous};
        if leaves(key) {
            return LayerResponse::Leave;
        }
        let last = self.choices.len().saturating_sub(1);
        let to = match keys.dialog_action(key) {
            Some(Cancel) => {
                return LayerResponse::Wear { theme: Box::new(self.before.clone()), done: true, keep: false };
            }
            Some(Apply) => return self.wear(true),
            Some(Previous) => self.chosen.saturating_sub(1),
            Some(Next) => self.chosen + 1,
            Some(PageUp) => self.chosen.saturating_sub(PAGE),
            Some(PageDown) => self.chosen + PAGE,
            Some(First) => 0,
            Some(Last) => last,
            // The key that opened the list moves on through it, in a cycle.
            _ if keys.binding_for(key, screen).is_none_or(|binding| binding.action != Action::ChooseTheme) => {
                return LayerResponse::Taken;
            }
            _ if self.chosen == last => 0,
            _ => self.chosen + 1,
        };
        self.chosen = to.min(last);
        self.wear(false)
    }

    fn wear(&self, done: bool) -> LayerResponse {
        match self.choices.get(self.chosen).map(|choice| &choice.look) {
            Some(Ok(theme)) => LayerResponse::Wear { theme: Box::new(theme.clone()), done, keep: done },
            _ => LayerResponse::Taken,
        }
    }

    /// Draws the list at the right, so that most of the screen shows the chosen theme.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let width = WIDTH.min(area.width);
        let told = self.told(usize::from(width.saturating_sub(4)));
        let told_rows = u16::try_from(told.len()).unwrap_or(TOLD).min(TOLD);
        let rows = u16::try_from(self.choices.len()).unwrap_or(u16::MAX);
        let most = area.height.saturating_sub(1);
        let height = rows.saturating_add(told_rows).saturating_add(2).min(most);
        let outer = Rect { x: area.right() - width, y: area.y + (most - height).min(2), width, height };
        Clear.render(outer, buf);
        buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
        let title = vec![
            span(theme, Token::Title, "theme"),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "keeps", "cancels")),
        ];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Accent), outer, buf);
        let list = Rect { height: inner.height.saturating_sub(told_rows), ..inner };
        let first = self.chosen.saturating_sub(usize::from(list.height / 2));
        let first = first.min(self.choices.len().saturating_sub(usize::from(list.height)));
        for (y, (index, choice)) in (0..list.height).zip(self.choices.iter().enumerate().skip(first)) {
            self.line(theme, choice, index == self.chosen, list, y, buf);
        }
        let below = Rect { y: inner.y + list.height, height: told_rows, ..inner };
        for (y, line) in (0..told_rows).zip(told) {
            put(below, y, vec![span(theme, Token::Warn, format!(" {line}"))], buf);
        }
    }

    fn line(&self, theme: &Theme, choice: &ThemeChoice, chosen: bool, area: Rect, y: u16, buf: &mut Buffer) {
        let mark = if chosen { "▸" } else { " " };
        let token = match (&choice.look, chosen) {
            (Err(_), _) => Token::Danger,
            (Ok(_), true) => Token::Strong,
            (Ok(_), false) => Token::Text,
        };
        let name: String = choice.name.chars().take(NAME).collect();
        put(area, y, vec![span(theme, Token::Key, format!("{mark} ")), span(theme, token, name)], buf);
        if let Ok(look) = &choice.look {
            let surface = look.style(Token::Surface);
            let mut swatch = vec![Span::styled(" ", surface)];
            swatch.extend(Category::ALL.map(|category| {
                let ink = legend::ink(category, look);
                Span::styled(ink.fill, look.style(ink.token).patch(surface))
            }));
            swatch.push(Span::styled(" ", surface));
            put_at(area, NAME as u16 + 3, y, swatch, buf);
        }
    }

    /// Remarks about the chosen theme, in lines of this width.
    fn told(&self, width: usize) -> Vec<String> {
        let Some(choice) = self.choices.get(self.chosen) else { return Vec::new() };
        let text = match &choice.look {
            Ok(_) => choice.warnings.join("; "),
            Err(why) => why.clone(),
        };
        pane::wrap(&text, width)
    }
}
