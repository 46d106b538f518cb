//! The tree as areas: a row for each level, the width for the bytes, the root at the top.

use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::staying::{leaking, leaks};
use crate::drawing::figures;
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Category, KeptLine, Node};
use crate::tui::action::Action;
use crate::tui::stage::{Stage, Targets};
use crate::tui::states::{ScreenAction, StackTree, StacksAction};
use crate::tui::when;
use crate::units::Bytes;

/// From this width on an area has a word, and from the second one on a cut word.
const WORD: u16 = 4;
const LEGIBLE: u16 = 9;

/// How many levels the tree has from the zoomed node down, in a chart of this width. A level without room for words
/// does not count, and neither do deeper ones.
pub(super) fn levels(looked: &StackTree, width: u16) -> u16 {
    let whole = looked.flame.get(looked.zoom).map_or(0, |zoom| zoom.bytes.get()).max(1);
    let is_wide = |bytes: u64| u128::from(bytes) * u128::from(width) >= u128::from(whole) * u128::from(WORD);
    fn below(looked: &StackTree, index: usize, most: u16, is_wide: &dyn Fn(u64) -> bool) -> u16 {
        let node = looked.flame.get(index).filter(|node| most > 0 && is_wide(node.bytes.get()));
        let children = node.map_or(&[][..], |node| &node.children);
        1 + children.iter().map(|child| below(looked, *child, most - 1, is_wide)).max().unwrap_or(0)
    }
    below(looked, looked.zoom, 40, &is_wide)
}

/// Draws the pane. Each level has `rows` rows, the second for figures.
pub(super) fn render(
    stage: &Stage<'_>,
    looked: &StackTree,
    kind: Frame,
    rows: u16,
    area: Rect,
    buf: &mut Buffer,
    targets: &mut Targets,
) {
    let theme = stage.theme;
    let state = &stage.states.stacks;
    let flame = &looked.flame;
    let mut words = vec![
        (Token::Text, format!("by {}", state.shape.label(flame.stacks))),
        (Token::Strong, figures::bytes(flame.root().bytes)),
        (Token::Text, when::words(stage.picture)),
    ];
    if !state.search.is_empty() {
        words[1].1 = format!("{} of {}", words[1].1, figures::bytes(flame.total));
        words.insert(0, (Token::Accent, format!("/{}", state.search)));
    }
    if !flame.stacks {
        words.push((Token::Dim, "no stacks recorded".to_owned()));
    }
    if let Some(guessed) = legend::guessed(stage.view()) {
        words.push((Token::Warn, guessed.to_owned()));
    }
    let room = usize::from(area.width).saturating_sub(6);
    let own = [(StacksAction::Shape, "by"), (StacksAction::Peak, "peak"), (StacksAction::Into, "into")];
    let keys =
        own.map(|(action, word)| (stage.keys.key_of(Action::Own(ScreenAction::Stacks(action))).to_owned(), word));
    let title = pane::with_keys(pane::title("stacks", words, room, theme), keys, room, theme);
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf).intersection(buf.area);
    if inner.is_empty() {
        return;
    }
    let mut plot = Plot { stage, looked, leaking: leaking(stage), inner, rows: rows.max(1), buf, targets };
    plot.branch(looked.zoom, 0, u64::from(inner.width), 0);
}

struct Plot<'a, 'b> {
    stage: &'a Stage<'a>,
    looked: &'a StackTree,
    leaking: Vec<KeptLine>,
    inner: Rect,
    /// The rows of a level.
    rows: u16,
    buf: &'b mut Buffer,
    targets: &'b mut Targets,
}

impl Plot<'_, '_> {
    /// The area of a level between two columns; `None` if there is no room.
    fn place(&self, level: u16, from: u16, to: u16) -> Option<Rect> {
        let y = level.checked_mul(self.rows).filter(|y| *y < self.inner.height)?;
        let height = self.rows.min(self.inner.height - y);
        Some(Rect { x: self.inner.x + from, y: self.inner.y + y, width: to.saturating_sub(from), height })
    }

    /// Draws a node between two columns, and its children below it.
    fn branch(&mut self, index: usize, from: u64, to: u64, level: u16) {
        let looked = self.looked;
        let Some(node) = looked.flame.get(index).filter(|_| to > from) else { return };
        let width = self.inner.width;
        let column = |at: u64| u16::try_from(at).unwrap_or(u16::MAX).min(width);
        let Some(area) = self.place(level, column(from), column(to)) else { return };
        self.area(node, index, index == looked.selected, area);
        let whole = u128::from(node.bytes.get().max(1));
        let edge = |bytes: u64| from + (u128::from(to - from) * u128::from(bytes) / whole) as u64;
        let mut sum = 0;
        let mut edges = vec![edge(0)];
        for child in &node.children {
            sum += looked.flame.get(*child).map_or(0, |child| child.bytes.get());
            edges.push(edge(sum));
        }
        let is_narrow = |at: &usize| {
            let child = node.children[*at];
            let is_selected = child == looked.selected || looked.leads_to_selected(child);
            column(edges[at + 1]) - column(edges[*at]) < WORD && !is_selected
        };
        let mut first = 0;
        while first < node.children.len() {
            // Adjacent slivers become one area that has room for a text.
            let narrow = (first..node.children.len()).take_while(is_narrow).count();
            let sum = looked.flame.sum(index, first..first + narrow).filter(|_| narrow > 1);
            let last = first + narrow.max(1);
            match sum.zip(self.place(level + 1, column(edges[first]), column(edges[last]))) {
                Some((sum, area)) => {
                    let label = format!("{} parts", sum.others);
                    let label = if label.len() < usize::from(area.width) { label.into() } else { Arc::default() };
                    if !area.is_empty() {
                        self.area(&Node { label, ..sum }, index, false, area);
                    }
                }
                None => self.branch(node.children[first], edges[first], edges[first + 1], level + 1),
            }
            first = last;
        }
    }

    /// Draws an area. A click selects its node.
    fn area(&mut self, shown: &Node, index: usize, selected: bool, area: Rect) {
        let stays = leaks(shown, &self.leaking).is_some();
        bar(self.stage.theme, (shown, stays), self.looked.flame.total, selected, area, self.buf);
        if let Ok(place) = u32::try_from(index) {
            self.targets.push((area, Action::Own(ScreenAction::Stacks(StacksAction::Pick(place)))));
        }
    }
}

/// Draws one area: an edge at its left, and as much of its label as fits, marked if its memory stays; its bytes and
/// their share below, if there is a row for them.
fn bar(theme: &Theme, (node, stays): (&Node, bool), total: Bytes, selected: bool, area: Rect, buf: &mut Buffer) {
    let category = node.category();
    let style = if selected { marked(theme) } else { filled(theme, category, node.parent.is_none()) };
    let label = match (theme.is_colorless(), node.parent) {
        (true, Some(_)) => format!("{} {}", legend::category_letter(category), node.label),
        _ => node.label.to_string(),
    };
    let mark = if stays && area.width > WORD { "▲" } else { "" };
    let room = usize::from(area.width.saturating_sub(1)) - mark.width();
    let label = match line_of(&label) {
        // In a narrow area a frame's line number says more than a letter of its file.
        Some(line) if label.width() > room && area.width < LEGIBLE => line.to_owned(),
        _ => label,
    };
    let is_whole = label.width() <= room;
    let label = pane::cut_name(&label, room);
    let fill = if theme.is_colorless() && !selected { "·" } else { " " };
    for position in area.positions() {
        buf[position].set_symbol(if position.x == area.x { "▏" } else { fill }).set_style(style);
    }
    if selected {
        buf[(area.x, area.y)].set_symbol("▶");
    }
    // A label cut to a single letter is of no use.
    if area.width >= WORD && (is_whole || area.width >= LEGIBLE) {
        buf.set_stringn(area.x + 1, area.y, format!("{label}{mark}"), usize::from(area.width - 1), style);
    }
    let share = figures::percent(node.bytes.get(), total.get());
    let figures = [format!("{} · {share}", figures::bytes(node.bytes)), figures::bytes(node.bytes)];
    let room = usize::from(area.width.saturating_sub(2));
    if let Some(figures) = figures.into_iter().find(|figures| area.height > 1 && figures.chars().count() <= room) {
        buf.set_string(area.x + 1, area.y + 1, figures, style);
    }
}

/// `:96` of `main.py:96 step`.
fn line_of(label: &str) -> Option<&str> {
    let place = label.split_once(' ').map_or(label, |(place, _)| place);
    let (_, line) = place.rsplit_once(':').filter(|(_, line)| line.bytes().all(|byte| byte.is_ascii_digit()))?;
    place.get(place.len() - line.len() - 1..)
}

/// The style of the selection, which also works without colours.
fn marked(theme: &Theme) -> Style {
    theme.style(Token::Dim).add_modifier(Modifier::REVERSED | Modifier::BOLD)
}

/// The style for text on a category's colour.
fn filled(theme: &Theme, category: Category, root: bool) -> Style {
    if theme.is_colorless() || root {
        return theme.style(Token::Text);
    }
    let token = Token::from(category);
    let readable = [Token::Surface, Token::Strong, Token::Text].into_iter().filter_map(|text| {
        let contrast = theme.contrast(text, token)?;
        Some((contrast, text))
    });
    match readable.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, text)) => Style::new().bg(theme.color(token)).fg(theme.color(text)),
        // The look of the terminal's own colours is unknown; text is readable on the terminal's background.
        None => Style::new().fg(theme.color(token)).add_modifier(Modifier::REVERSED),
    }
}
