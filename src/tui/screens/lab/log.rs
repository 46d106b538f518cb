//! The log, and the text that the model wrote.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::drawing::pane::{self, Frame, level_token, put, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{GeneratedText, Level, LogLine};
use crate::tui::words;

/// The width around a sentence.
const AROUND: u16 = 8;

/// How many rows a pane of this width needs for all lines, with its frame.
pub(crate) fn wanted_rows(log: &[LogLine], width: u16) -> u16 {
    let width = usize::from(width.saturating_sub(AROUND + 2));
    let rows = entries(log).iter().map(|entry| pane::wrap(&entry.text, width).len()).sum::<usize>();
    u16::try_from(rows + 2).unwrap_or(u16::MAX)
}

/// Lines that are shown as one.
struct LogEntry {
    step: u64,
    level: Level,
    text: String,
}

/// The lines, the oldest first. Consecutive lines of one step that differ only in their figures become one, with their number.
fn entries(log: &[LogLine]) -> Vec<LogEntry> {
    let words_of = |line: &LogLine| line.text.split(|symbol: char| symbol.is_ascii_digit()).next().map(str::to_owned);
    let alike = |a: &LogLine, b: &LogLine| (a.step, a.level, words_of(a)) == (b.step, b.level, words_of(b));
    let entry = |lines: &[LogLine]| {
        let last = lines.last()?;
        let mut text = words::logged(last).into_owned();
        if lines.len() > 1 {
            text.push_str(&format!(", the last of {}", lines.len()));
        }
        Some(LogEntry { step: last.step, level: last.level, text })
    };
    log.chunk_by(alike).filter_map(entry).collect()
}

/// Draws the last lines of the log, the newest at the bottom, each complete and with its step; if the newest is longer
/// than the pane, its beginning. Below them is the beginning of `sample`, for screens without room for a pane of its
/// own. Remarks about a file belong to no step.
pub(crate) fn render(
    log: &[LogLine],
    sample: Option<&GeneratedText>,
    undated: bool,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let mut inner =
        pane::frame(Frame::Box, vec![span(theme, Token::Title, "log")], theme.style(Token::Border), area, buf);
    if let Some(sample) = sample.filter(|_| inner.height >= 2) {
        inner.height -= 1;
        let text = sample.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let below = Rect { y: inner.y + inner.height, height: 1, width: inner.width.saturating_sub(1), ..inner };
        put(below, 0, vec![span(theme, Token::Dim, format!("{:>6} ", sample.step))], buf);
        put_at(below, 7, 0, vec![span(theme, Token::Dim, "it writes: "), span(theme, Token::Text, text)], buf);
    }
    let width = usize::from(inner.width.saturating_sub(AROUND));
    let mut lines = Vec::new();
    for entry in entries(log).iter().rev() {
        let mut wrapped = pane::wrap(&entry.text, width);
        let left = usize::from(inner.height).saturating_sub(lines.len());
        if wrapped.len() > left && !lines.is_empty() {
            break;
        }
        if wrapped.len() > left {
            let rest = wrapped.split_off(left.saturating_sub(1)).join(" ");
            wrapped.push(pane::cut(&rest, width));
        }
        for (index, text) in wrapped.into_iter().enumerate().rev() {
            let dated = index == 0 && !(undated && entry.level == Level::Warning);
            lines.push((dated.then_some(entry.step), level_token(entry.level), text));
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
pub(crate) fn render_sample(sample: Option<&GeneratedText>, theme: &Theme, area: Rect, buf: &mut Buffer) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::theme::{ColorTier, ThemeCatalog};
    use crate::model::Micros;

    fn drawn(log: &[LogLine], width: u16, height: u16) -> Vec<String> {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        render(log, None, false, &theme, area, &mut buf);
        let row = |y| (1..width - 1).map(|x| buf[(x, y)].symbol().to_owned()).collect::<String>();
        (1..height - 1).map(|y| row(y).trim().to_owned()).collect()
    }

    #[test]
    fn sentences_are_whole_or_begin_at_their_beginning() {
        let said = |text: &str| LogLine { time: Micros(0), step: 4, level: Level::Warning, text: text.into() };
        let first = said("recording began late: some blocks were there already");
        let log = [first.clone(), said("a short one")];
        let wanted = wanted_rows(&log, 40);
        let all = drawn(&log, 40, wanted);
        assert!(all[0].starts_with("4 recording began") && all.iter().all(|row| !row.is_empty()), "{all:?}");
        assert_eq!(drawn(&log, 40, wanted - 1).iter().filter(|row| !row.is_empty()).count(), 1, "no part of the older");
        let given_back =
            |mib: u64| LogLine { level: Level::Switch, ..said(&format!("empty_cache returned {mib}.00 MiB")) };
        let often = drawn(&[said("other"), given_back(512), given_back(3), given_back(20)], 60, 5);
        assert_eq!(often, ["4 other", "4 empty_cache returned 20 MiB, the last of 3", ""]);
        let [row] = &drawn(&[first], 40, 3)[..] else { panic!("one row") };
        assert!(row.starts_with("4 recording began late") && row.ends_with('…'), "{row}");
    }
}
