//! The log, and the text that the model writes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::model::{Generated, LogLine};
use crate::tui::pane::{self, Frame, level_token, put, put_at, span};
use crate::tui::theme::{Theme, Token};
use crate::tui::words;

/// Draws the last lines of the log, the newest at the bottom, each with its step. Below them goes the beginning of
/// `sample`, for screens without room for a pane of its own.
pub(crate) fn render(log: &[LogLine], sample: Option<&Generated>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut inner =
        pane::frame(Frame::Box, vec![span(theme, Token::Title, "log")], theme.style(Token::Border), area, buf);
    if let Some(sample) = sample.filter(|_| inner.height >= 2) {
        inner.height -= 1;
        let text = sample.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let below = Rect { y: inner.y + inner.height, height: 1, width: inner.width.saturating_sub(1), ..inner };
        put(below, 0, vec![span(theme, Token::Dim, format!("{:>6} ", sample.step))], buf);
        put_at(below, 7, 0, vec![span(theme, Token::Dim, "writes "), span(theme, Token::Text, text)], buf);
    }
    let width = usize::from(inner.width.saturating_sub(8));
    let mut lines = Vec::new();
    for entry in log.iter().rev() {
        let wrapped = pane::wrap(&words::logged(entry), width);
        for (index, text) in wrapped.into_iter().enumerate().rev() {
            lines.push(((index == 0).then_some(entry.step), level_token(entry.level), text));
        }
        if lines.len() >= usize::from(inner.height) {
            break;
        }
    }
    lines.truncate(usize::from(inner.height));
    for (y, (step, token, text)) in lines.into_iter().rev().enumerate() {
        let Ok(y) = u16::try_from(y) else { break };
        if let Some(step) = step {
            put(inner, y, vec![span(theme, Token::Dim, format!("{step:>6} "))], buf);
        }
        put_at(Rect { width: inner.width.saturating_sub(1), ..inner }, 7, y, vec![span(theme, token, text)], buf);
    }
}

/// Draws the end of the last text that the model wrote.
pub(crate) fn render_sample(sample: Option<&Generated>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut title = vec![span(theme, Token::Title, "the model writes")];
    if let Some(sample) = sample {
        title.push(span(theme, Token::Dim, format!(" · step {}", sample.step)));
    }
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let Some(sample) = sample else {
        pane::put_at(inner, 1, 0, vec![span(theme, Token::Dim, "nothing yet")], buf);
        return;
    };
    let text: String = sample.text.replace('\t', "    ");
    for (y, line) in (0..inner.height).zip(pane::wrap(&text, usize::from(inner.width.saturating_sub(2)))) {
        put_at(inner, 1, y, vec![span(theme, Token::Text, line)], buf);
    }
}
