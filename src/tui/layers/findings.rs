//! All findings in full, with their remedies.

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

/// The greatest width of the box.
const WIDTH: u16 = 104;
/// From this width on, findings that are short enough lie beside the curve they are about, in a box of this width.
const BESIDE: u16 = 100;
const CELLS: (u16, u16) = (49, 62);
/// Rows above and below it there: header and keys.
const ABOVE: u16 = 2;
const BELOW: u16 = 1;

/// True if the findings take most of `area`.
pub(super) fn fill(stage: &Stage<'_>, area: Rect) -> bool {
    let (outer, lines) = place(stage, area);
    outer.right() < area.right() && 2 * (lines.len() + 2) > usize::from(area.height)
}

/// The area of the box, and its lines.
fn place(stage: &Stage<'_>, area: Rect) -> (Rect, Vec<Line<'static>>) {
    let rows = |lines: &[Line<'_>]| u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    if area.width >= BESIDE {
        let width = (area.width / 3).clamp(CELLS.0, CELLS.1);
        let lines = lines(stage, width);
        let height = rows(&lines);
        if height.saturating_add(ABOVE + BELOW) <= area.height {
            return (Rect { x: area.right() - width, y: area.y + ABOVE, width, height }, lines);
        }
    }
    let width = area.width.min(WIDTH);
    let lines = lines(stage, width);
    let height = rows(&lines).min(area.height);
    (area.centered(Constraint::Length(width), Constraint::Length(height)), lines)
}

/// All findings in lines for a box of this width.
fn lines(stage: &Stage<'_>, width: u16) -> Vec<Line<'static>> {
    let theme = stage.theme;
    let room = usize::from(width.saturating_sub(6));
    let mut lines: Vec<Line<'static>> = Vec::new();
    if let Some(autopsy) = stage.picture.autopsy() {
        let told = autopsy::lines_with_table(stage, &autopsy, room).into_iter();
        lines.extend(told.map(|(token, line)| Line::from(span(theme, token, line))));
    }
    // The failure is explained above, in more detail.
    let told = stage.picture.autopsy().is_some();
    let again = |finding: &&Finding| told && matches!(finding.evidence, Evidence::OutOfMemory { .. });
    let mut remedies: Vec<String> = Vec::new();
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
        // A remedy for several findings is mentioned once.
        let done = words::remedies(stage, finding);
        let done = if remedies.contains(&done) { Vec::new() } else { pane::wrap(&done, room) };
        remedies.push(words::remedies(stage, finding));
        lines.extend(done.into_iter().map(|line| Line::from(span(theme, Token::Accent, line))));
        let none = words::no_remedy(stage, finding).map_or_else(Vec::new, |none| pane::wrap(none, room));
        lines.extend(none.into_iter().map(|line| Line::from(span(theme, Token::Dim, line))));
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

/// Draws the findings over `area` from line `first` on. Returns the number of lines, and how many are visible.
pub(super) fn render(stage: &Stage<'_>, first: usize, area: Rect, buf: &mut Buffer) -> (usize, usize) {
    let theme = stage.theme;
    let (outer, lines) = place(stage, area);
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
