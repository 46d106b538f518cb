//! The frame of a pane and the few ways in which panes put text down.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::model::Level;
use crate::tui::theme::{Theme, Token};

/// How a pane is set off from its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A line around it.
    Box,
    /// A line above it: where rows and columns are scarce.
    Rule,
}

/// `text` in the style of `token`.
pub(crate) fn span(theme: &Theme, token: Token, text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), theme.style(token))
}

/// Draws the frame of a pane with its title; returns what is left inside.
pub(crate) fn frame(kind: Frame, title: Vec<Span<'static>>, border: Style, area: Rect, buf: &mut Buffer) -> Rect {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return area;
    }
    let (left, right, top) = (area.left(), area.right() - 1, area.top());
    for x in left..=right {
        buf[(x, top)].set_symbol("─").set_style(border);
    }
    let inner = match kind {
        Frame::Rule => Rect { y: top + 1, height: area.height - 1, ..area },
        Frame::Box if area.height < 2 || area.width < 2 => Rect { height: 0, ..area },
        Frame::Box => {
            let bottom = area.bottom() - 1;
            for x in left..=right {
                buf[(x, bottom)].set_symbol("─").set_style(border);
            }
            for y in top..=bottom {
                buf[(left, y)].set_symbol("│").set_style(border);
                buf[(right, y)].set_symbol("│").set_style(border);
            }
            for (x, y, corner) in [(left, top, "╭"), (right, top, "╮"), (left, bottom, "╰"), (right, bottom, "╯")]
            {
                buf[(x, y)].set_symbol(corner);
            }
            Rect { x: left + 1, y: top + 1, width: area.width - 2, height: area.height - 2 }
        }
    };
    let mut line = Line::from(title);
    line.spans.insert(0, Span::raw(" "));
    line.spans.push(Span::raw(" "));
    let start = if kind == Frame::Box { left.saturating_add(2) } else { left.saturating_add(1) };
    buf.set_line(start, top, &line, right.saturating_sub(start));
    inner
}

/// The token in which something of this level is written.
pub(crate) const fn level_token(level: Level) -> Token {
    match level {
        Level::Info => Token::Text,
        Level::Switch => Token::Accent,
        Level::Warning => Token::Warn,
        Level::Danger => Token::Danger,
    }
}

/// Puts spans down from the left edge of row `y` (counted inside `area`); returns the column behind them.
pub(crate) fn put(area: Rect, y: u16, spans: Vec<Span<'static>>, buf: &mut Buffer) -> u16 {
    put_at(area, 0, y, spans, buf)
}

/// Puts spans down from column `x` of row `y`, both counted inside `area`; returns the column behind them.
pub(crate) fn put_at(area: Rect, x: u16, y: u16, spans: Vec<Span<'static>>, buf: &mut Buffer) -> u16 {
    let area = area.intersection(buf.area);
    if y >= area.height || x >= area.width {
        return x;
    }
    let end = buf.set_line(area.x + x, area.y + y, &Line::from(spans), area.width - x).0;
    end - area.x
}

/// Puts spans down from the left edge of row `y`; what does not fit ends in `…`.
pub(crate) fn put_cut(area: Rect, y: u16, spans: Vec<Span<'static>>, buf: &mut Buffer) {
    let clipped = area.intersection(buf.area);
    let width: usize = spans.iter().map(Span::width).sum();
    put(area, y, spans, buf);
    if width > usize::from(clipped.width) && y < clipped.height && clipped.width > 0 {
        buf[(clipped.right() - 1, clipped.y + y)].set_symbol("…");
    }
}

/// Draws a line from top to bottom of column `x`, over whatever is there: areas stay visible behind it.
pub(crate) fn rule(plot: Rect, x: u16, style: Style, buf: &mut Buffer) {
    for y in plot.top()..plot.bottom() {
        let cell = &mut buf[(plot.x + x, y)];
        let behind = match cell.symbol() {
            _ if cell.modifier.contains(Modifier::REVERSED) => cell.fg,
            " " | "┄" | "╌" | "─" | "·" | "▁" | "▂" | "▃" | "▔" | "▏" => cell.bg,
            _ => cell.fg,
        };
        cell.modifier.remove(Modifier::REVERSED);
        cell.set_symbol("│").set_style(style).set_bg(behind);
    }
}

/// A title with as many words behind it as `room` cells hold, the most telling first.
pub(crate) fn title(
    title: &'static str,
    words: impl IntoIterator<Item = (Token, String)>,
    room: usize,
    theme: &Theme,
) -> Vec<Span<'static>> {
    let mut line = vec![span(theme, Token::Title, title)];
    let mut room = room.saturating_sub(title.width());
    for (token, word) in words.into_iter().filter(|(_, word)| !word.is_empty()) {
        let Some(left) = room.checked_sub(word.width() + 3) else { break };
        room = left;
        line.push(span(theme, Token::Dim, " · "));
        line.push(span(theme, token, word));
    }
    line
}

/// Writes a remark into the lower line of a box, at its right.
pub(crate) fn remark(text: Span<'static>, area: Rect, buf: &mut Buffer) {
    let inside = Rect { width: area.width.saturating_sub(2), ..area };
    let text = Span::styled(format!(" {} ", text.content), text.style);
    put_right(inside, area.height.saturating_sub(1), vec![text], buf);
}

/// Puts spans down so that they end at the right edge of row `y`; returns the column where they begin.
pub(crate) fn put_right(area: Rect, y: u16, spans: Vec<Span<'static>>, buf: &mut Buffer) -> u16 {
    let width = u16::try_from(spans.iter().map(Span::width).sum::<usize>()).unwrap_or(u16::MAX);
    let x = area.width.saturating_sub(width);
    put_at(area, x, y, spans, buf);
    x
}

/// Puts entries down from left to right and from row to row of `area`, inside `bounds`; what has no room stays away.
pub(crate) fn flow(entries: impl IntoIterator<Item = Vec<Span<'static>>>, area: Rect, bounds: Rect, buf: &mut Buffer) {
    let area = area.intersection(bounds);
    let (mut x, mut y) = (0_u16, 0);
    for entry in entries {
        let width = u16::try_from(entry.iter().map(Span::width).sum::<usize>()).unwrap_or(u16::MAX);
        if x > 0 && x.saturating_add(width) > area.width {
            (x, y) = (0, y + 1);
        }
        if y >= area.height || width > area.width {
            return;
        }
        x = put_at(area, x, y, entry, buf) + 2;
    }
}

/// As much of `text` as `width` cells hold; one that is cut ends in `…`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for symbol in text.chars() {
        let mut longer = short.clone();
        longer.push(symbol);
        if longer.width() + 1 > width {
            break;
        }
        short = longer;
    }
    if width > 0 {
        short.push('…');
    }
    short
}

/// As much of the end of `text` as `width` cells hold: of a path, where it leads.
pub(crate) fn cut_front(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let backwards: String = text.chars().rev().collect();
    cut(&backwards, width).chars().rev().collect()
}

/// Cuts `text` into lines of at most `width` cells, at spaces where there are some.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if width == 0 {
        return lines;
    }
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_inclusive(' ') {
            if line.width() + word.trim_end().width() > width && !line.is_empty() {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
            }
            line.push_str(word);
            while line.trim_end().width() > width {
                let mut head = String::new();
                for symbol in line.chars() {
                    let mut longer = head.clone();
                    longer.push(symbol);
                    if longer.width() > width {
                        break;
                    }
                    head = longer;
                }
                if head.is_empty() {
                    line.clear(); // a character wider than the line
                    break;
                }
                line = line.split_off(head.len());
                lines.push(head);
            }
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_at_spaces_and_long_words_anywhere() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("a\nb", 4), ["a", "b"]);
        assert_eq!(wrap("漢字", 1), [""]);
        assert!(wrap("a", 0).is_empty());
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("abcde", 4), "abc…");
        assert_eq!(cut("漢字", 3), "漢…");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut_front("blocks.3.fc", 5), "…3.fc");
        assert_eq!(cut_front("abcd", 4), "abcd");
    }

    #[test]
    fn a_box_leaves_its_inside() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 8, 3));
        let inner = frame(Frame::Box, vec![Span::raw("ab")], Style::new(), buf.area, &mut buf);
        assert_eq!(inner, Rect::new(1, 1, 6, 1));
        assert_eq!(buf, Buffer::with_lines(["╭─ ab ─╮", "│      │", "╰──────╯"]));
    }
}
