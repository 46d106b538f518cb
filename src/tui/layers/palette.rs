//! The palette: everything that can be done, found by a few letters. Enter does it.

use std::sync::Arc;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use ratatui::widgets::{Clear, Widget};
use unicode_width::UnicodeWidthStr;

use super::line::{self, leaves};
use super::pressed::LayerResponse;
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::tui::action::Action;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::palette::{Index, Offer};
use crate::tui::stage::Stage;
use crate::tui::words;

/// Longer queries find nothing.
const LONGEST: usize = 200;
/// The greatest width of the box.
const WIDTH: u16 = 160;
/// The widest names that still have their descriptions in one column.
const MOST_NAME: usize = 24;
/// The most rows of results, unless that is a small part of the screen.
const ROWS: u16 = 24;
/// How many rows the sentence about the selection has.
const ABOUT: u16 = 2;
/// How many entries a page has.
const PAGE: usize = 10;

/// The query and its results.
#[derive(Clone, Debug)]
pub(crate) struct Palette {
    index: Arc<Index>,
    text: String,
    found: Vec<Arc<Offer>>,
    chosen: usize,
}

impl Palette {
    /// Begins with everything.
    pub fn new(index: Index) -> Self {
        let found = index.find("");
        Self { index: Arc::new(index), text: String::new(), found, chosen: 0 }
    }

    pub fn press(&mut self, key: KeyEvent, keys: &Keymap, screen: usize) -> LayerResponse {
        use DialogAction::{Apply, Cancel, Clear, First, Last, Next, PageDown, PageUp, Part, Previous};
        if leaves(key) {
            return LayerResponse::Leave;
        }
        if line::write(&mut self.text, key, LONGEST) {
            self.look();
            return LayerResponse::Taken;
        }
        let last = self.found.len().saturating_sub(1);
        let to = match keys.dialog_action(key) {
            Some(Cancel) => return LayerResponse::Closed,
            Some(Apply) => {
                // Something that can't be done says why, below, and the palette stays.
                let offer = self.found.get(self.chosen).filter(|offer| offer.off.is_none());
                return offer.map_or(LayerResponse::Taken, |offer| LayerResponse::Pick(Box::new((**offer).clone())));
            }
            Some(Clear) => {
                self.text.clear();
                self.look();
                return LayerResponse::Taken;
            }
            Some(Previous) => self.chosen.checked_sub(1).unwrap_or(last),
            Some(Next | Part) => {
                if self.chosen >= last {
                    0
                } else {
                    self.chosen + 1
                }
            }
            Some(PageUp) => self.chosen.saturating_sub(PAGE),
            Some(PageDown) => self.chosen + PAGE,
            Some(First) => 0,
            Some(Last) => last,
            // The key that opened the palette closes it, unless it is text.
            _ if keys.binding_for(key, screen).is_some_and(|binding| binding.action == Action::Palette) => {
                return LayerResponse::Closed;
            }
            _ => return LayerResponse::Taken,
        };
        self.chosen = to.min(last);
        LayerResponse::Taken
    }

    /// Inserts text, without characters that don't belong in a line.
    pub fn insert(&mut self, text: &str) {
        text.chars().for_each(|symbol| line::push(&mut self.text, symbol, LONGEST));
        self.look();
    }

    fn look(&mut self) {
        self.found = self.index.find(&self.text);
        self.chosen = 0;
    }

    /// Draws it over the upper part of the screen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let (width, most) = (WIDTH.min(area.width), area.height.saturating_sub(area.height / 8));
        let height = (ROWS + ABOUT + 4).max(area.height * 3 / 4).min(most);
        let outer =
            Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 3, width, height };
        Clear.render(outer, buf);
        buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
        let title = vec![
            span(theme, Token::Title, "find"),
            span(theme, Token::Dim, if width < 100 { "" } else { " a command, switch, screen, step, word or block" }),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "does it", "closes")),
        ];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Accent), outer, buf);
        let shown = line::end_of(&self.text, usize::from(inner.width.saturating_sub(4)));
        put(
            inner,
            0,
            vec![span(theme, Token::Key, " › "), span(theme, Token::Strong, shown), span(theme, Token::Key, "▏")],
            buf,
        );
        let rows = inner.height.saturating_sub(ABOUT + 2);
        let list = Rect { y: inner.y + 1, height: rows.min(inner.height.saturating_sub(1)), ..inner };
        let seen = usize::from(list.height);
        let first = self.chosen.saturating_sub(seen / 2).min(self.found.len().saturating_sub(seen));
        let columns = Columns::of(self.found.iter().skip(first).take(seen));
        for (y, (index, offer)) in (0..list.height).zip(self.found.iter().enumerate().skip(first)) {
            columns.draw(theme, offer, index == self.chosen, (list, y), buf);
        }
        let below =
            Rect { y: inner.y + 1 + list.height, height: inner.height.saturating_sub(1 + list.height), ..inner };
        let room = usize::from(below.width.saturating_sub(2));
        let (token, text) = match self.found.get(self.chosen).map(|offer| &**offer) {
            None => (Token::Dim, "nothing matches"),
            Some(Offer { off: Some(why), .. }) => (Token::Warn, &**why),
            Some(offer) => (Token::Dim, &*offer.about),
        };
        let rule = "─".repeat(usize::from(below.width));
        put(below, 0, vec![span(theme, Token::Border, rule)], buf);
        for (y, line) in (1..below.height).zip(pane::wrap(text, room)) {
            put(below, y, vec![span(theme, token, format!(" {line}"))], buf);
        }
        if !self.found.is_empty() {
            let place = format!("{} of {}", self.chosen + 1, self.found.len());
            pane::remark(span(theme, Token::Dim, place), outer, buf);
        }
    }
}

/// The widths of the columns in a list of offers.
struct Columns {
    names: usize,
    of: usize,
    keys: usize,
}

impl Columns {
    /// As wide as the visible offers need.
    fn of<'a>(seen: impl Iterator<Item = &'a Arc<Offer>> + Clone) -> Self {
        let widest = |cells: fn(&Offer) -> usize| seen.clone().map(|offer| cells(offer)).max().unwrap_or(0);
        let names = widest(|offer| offer.name.width()).min(MOST_NAME);
        Self { names, of: widest(|offer| offer.of.width()), keys: widest(|offer| offer.key.width()) }
    }

    /// One offer: its name, what it is, and its key.
    fn draw(&self, theme: &Theme, offer: &Offer, chosen: bool, (list, y): (Rect, u16), buf: &mut Buffer) {
        let token = match (chosen, &offer.off) {
            (_, Some(_)) => Token::Dim,
            (true, None) => Token::Strong,
            (false, None) => Token::Text,
        };
        let mark = if chosen { "▸" } else { " " };
        let Self { names, of, keys } = *self;
        let right = vec![
            span(theme, Token::Dim, format!("{:>of$}", offer.of)),
            span(theme, if offer.off.is_some() { Token::Dim } else { Token::Key }, format!(" {:>keys$} ", offer.key)),
        ];
        let edge = put_right(list, y, right, buf);
        let room = usize::from(edge.saturating_sub(4));
        let name = pane::cut(&offer.name, room);
        let left = room.saturating_sub(name.width() + 2);
        let mut line: Vec<Span<'static>> = vec![span(theme, Token::Key, format!(" {mark} "))];
        let gap = " ".repeat(2 + names.saturating_sub(name.width()));
        let about = left.checked_sub(gap.len().saturating_sub(2)).filter(|room| *room >= 8);
        line.push(span(theme, token, name));
        if let Some(room) = about {
            line.push(span(theme, Token::Dim, format!("{gap}{}", pane::cut(offer.about_in(room), room))));
        }
        put(list, y, line, buf);
    }
}
