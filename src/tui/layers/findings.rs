//! All findings, whole: what is the case, and what can be done.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Clear, Widget};

use crate::drawing::pane::{self, Frame, level_token, span};
use crate::drawing::theme::Token;
use crate::model::{Evidence, Finding, Level};
use crate::tui::action::Action;
use crate::tui::autopsy;
use crate::tui::stage::Stage;
use crate::tui::words;

/// Widest the box gets.
const WIDTH: u16 = 104;

/// Whether they take most of `area`.
pub(super) fn fill(stage: &Stage<'_>, area: Rect) -> bool {
    2 * (lines(stage, area.width.min(WIDTH)).len() + 2) > usize::from(area.height)
}

/// All of them in lines, for a box of so many cells.
fn lines(stage: &Stage<'_>, width: u16) -> Vec<Line<'static>> {
    let theme = stage.theme;
    let room = usize::from(width.saturating_sub(6));
    let mut lines: Vec<Line<'static>> = Vec::new();
    if let Some(autopsy) = stage.picture.autopsy() {
        let told = autopsy::lines_with_table(stage, &autopsy, room).into_iter();
        lines.extend(told.map(|(token, line)| Line::from(span(theme, token, line))));
    }
    // A failure is told above, with more.
    let told = stage.picture.autopsy().is_some();
    let again = |finding: &&Finding| told && matches!(finding.evidence, Evidence::OutOfMemory { .. });
    for finding in stage.findings().iter().filter(|finding| !again(finding)) {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        let token = match finding.level {
            Level::Info | Level::Switch => Token::Text,
            loud => level_token(loud),
        };
        let said = pane::wrap(&finding.to_string(), room);
        lines.extend(said.into_iter().map(|line| Line::from(span(theme, token, line))));
        let done = pane::wrap(&words::remedies(stage, finding), room);
        lines.extend(done.into_iter().map(|line| Line::from(span(theme, Token::Accent, line))));
    }
    for remark in stage.remarks() {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        let said = pane::wrap(&format!("{}.", remark.text), room);
        lines.extend(said.into_iter().map(|line| Line::from(span(theme, Token::Warn, line))));
    }
    if lines.is_empty() {
        lines.push(Line::from(span(theme, Token::Dim, "no findings")));
    }
    lines
}

/// Draws the findings over `area` from line `first` on; returns their lines in all, and how many are seen.
pub(super) fn render(stage: &Stage<'_>, first: usize, area: Rect, buf: &mut Buffer) -> (usize, usize) {
    let theme = stage.theme;
    let width = area.width.min(WIDTH);
    let lines = lines(stage, width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let outer = area.centered(Constraint::Length(width), Constraint::Length(height));
    Clear.render(outer, buf);
    buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
    let title = vec![
        span(theme, Token::Title, "why"),
        span(theme, Token::Dim, words::how_to_read(stage.keys, Action::ToggleFindings)),
    ];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Accent), outer, buf);
    let seen = usize::from(inner.height);
    let first = first.min(lines.len().saturating_sub(seen));
    for (y, line) in (inner.top()..inner.bottom()).zip(lines.iter().skip(first)) {
        buf.set_line(inner.x + 1.min(inner.width), y, line, inner.width.saturating_sub(2));
    }
    (lines.len(), seen)
}
