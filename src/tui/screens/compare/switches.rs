//! The selected configuration's switches, and its figures beside those of the others.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::differences::differing;
use super::notes::notes;
use super::{ComparisonFrame, bars, flips};
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::Token;
use crate::tui::words;

/// The column of values.
const VALUES: u16 = 18;

/// Draws the switches of the selected configuration and of the baseline.
pub(super) fn render(compared: &ComparisonFrame<'_>, area: Rect, buf: &mut Buffer) {
    let theme = compared.stage.theme;
    let (all, selected, baseline) = (&compared.all, compared.selected, compared.baseline);
    let title = vec![
        span(theme, Token::Title, "switches"),
        span(theme, Token::Dim, format!(" of {} against {}", selected + 1, baseline + 1)),
    ];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let value = |place: usize, word: &str| {
        let setting = all[place].settings.get(word);
        setting.map_or_else(String::new, |setting| words::value(&setting.value).into_owned())
    };
    let mut y = 0;
    for setting in differing(all) {
        let (before, now) = (value(baseline, &setting.switch), value(selected, &setting.switch));
        let changed = before != now;
        let label = pane::cut(words::label(&setting.switch), 17);
        let cells = u16::try_from(label.width()).unwrap_or(u16::MAX);
        put(inner, y, vec![span(theme, Token::Text, label)], buf);
        // A file need not contain a switch's value.
        let (token, text) = match (changed, before.is_empty(), now.is_empty()) {
            (true, false, false) => (Token::Accent, format!("{before} → {now}")),
            (true, true, _) => (Token::Accent, now),
            (true, false, true) => (Token::Accent, "not told".to_owned()),
            (false, ..) => (Token::Dim, now),
        };
        // A long value begins right behind its label.
        let long = u16::try_from(text.width()).unwrap_or(u16::MAX);
        let x = inner.width.saturating_sub(long).clamp(cells + 2, VALUES.max(cells + 2));
        let room = usize::from(inner.width.saturating_sub(x));
        put_at(inner, x, y, vec![span(theme, token, pane::cut(&text, room))], buf);
        y += 1;
    }
    if y == 0 {
        put(inner, y, vec![span(theme, Token::Dim, "all as at the start")], buf);
        y += 1;
    }
    let notes = notes(compared);
    let lines: Vec<String> = notes.iter().flat_map(|note| pane::wrap(note, usize::from(inner.width))).collect();
    let kept = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(1);
    let room = inner.height.saturating_sub(y + 1).saturating_sub(kept);
    let taken = bars::render(compared, Rect { y: inner.y + y + 1, height: room, ..inner }, buf);
    // If the bars end at their last row, a blank row is needed before the words.
    y += 1 + taken + u16::from(taken == room && room > 0);
    for line in lines {
        put(inner, y, vec![span(theme, Token::Dim, line)], buf);
        y += 1;
    }
}

/// How many rows the band of a single configuration takes, with its frame; `None` if phases are unknown, because its
/// figures are in the table.
pub(super) fn band_rows(compared: &ComparisonFrame<'_>) -> Option<u16> {
    Some(bars::rows_of_one(compared)? + 2)
}

/// Draws the figures of a single configuration.
pub(super) fn render_band(compared: &ComparisonFrame<'_>, area: Rect, buf: &mut Buffer) {
    let theme = compared.stage.theme;
    let title = if flips::wanted(compared).is_some() { "flips and phases" } else { "figures" };
    let title = vec![span(theme, Token::Title, title)];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    bars::render_one(compared, inner, buf);
}
