//! The frame of a pane, and the few ways in which panes write text.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::theme::{Theme, Token};
use vramlab_model::Level;

/// How a pane is separated from its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line around it.
    Box,
    /// A line above it, where rows and columns are scarce.
    Rule,
}

/// `text` in the style of `token`.
pub fn span(theme: &Theme, token: Token, text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), theme.style(token))
}

/// The part of `area` inside a frame.
pub fn inside(kind: Frame, area: Rect) -> Rect {
    match kind {
        _ if area.is_empty() => area,
        Frame::Rule => Rect { y: area.y + 1, height: area.height - 1, ..area },
        Frame::Box if area.height < 2 || area.width < 2 => Rect { height: 0, ..area },
        Frame::Box => Rect { x: area.x + 1, y: area.y + 1, width: area.width - 2, height: area.height - 2 },
    }
}

/// Draws the frame of a pane with its title, and returns the area inside.
pub fn frame(kind: Frame, title: Vec<Span<'static>>, border: Style, area: Rect, buf: &mut Buffer) -> Rect {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return area;
    }
    // The accent may be bold, but a frame and a title's plain text are not.
    let border = border.remove_modifier(Modifier::BOLD);
    let (left, right, top) = (area.left(), area.right() - 1, area.top());
    for x in left..=right {
        buf[(x, top)].set_symbol("─").set_style(border);
    }
    if kind == Frame::Box && area.height >= 2 && area.width >= 2 {
        let bottom = area.bottom() - 1;
        for x in left..=right {
            buf[(x, bottom)].set_symbol("─").set_style(border);
        }
        for y in top..=bottom {
            buf[(left, y)].set_symbol("│").set_style(border);
            buf[(right, y)].set_symbol("│").set_style(border);
        }
        for (x, y, corner) in [(left, top, "╭"), (right, top, "╮"), (left, bottom, "╰"), (right, bottom, "╯")] {
            buf[(x, y)].set_symbol(corner);
        }
    }
    let start = if kind == Frame::Box { left.saturating_add(2) } else { left.saturating_add(1) };
    let room = right.saturating_sub(start);
    let mut line = Line::from(shortened(title, usize::from(room.saturating_sub(2))));
    line.spans.insert(0, Span::raw(" "));
    line.spans.push(Span::raw(" "));
    let end = buf.set_line(start, top, &line, room).0;
    // Text in a line that is faint without colours is not faint itself.
    for x in start..end {
        buf[(x, top)].modifier.remove(Modifier::DIM);
    }
    inside(kind, area)
}

/// Makes an area inconspicuous: one faint colour on the ground, and no bold text.
pub fn mute(theme: &Theme, area: Rect, buf: &mut Buffer) {
    let weight = if theme.is_colorless() { Modifier::DIM } else { Modifier::empty() };
    let style = Style::reset().patch(theme.style(Token::Surface)).fg(theme.color(Token::Border)).add_modifier(weight);
    for position in area.intersection(buf.area).positions() {
        buf[position].set_style(style);
    }
}

/// The token for text of this level.
pub const fn level_token(level: Level) -> Token {
    match level {
        Level::Info => Token::Text,
        Level::Switch => Token::Accent,
        Level::Warning => Token::Warn,
        Level::Danger => Token::Danger,
    }
}

/// Writes spans from the left edge of row `y` (counted inside `area`), and returns the column behind them.
pub fn put(area: Rect, y: u16, spans: Vec<Span<'static>>, buf: &mut Buffer) -> u16 {
    put_at(area, 0, y, spans, buf)
}

/// Writes spans from column `x` of row `y`, both counted inside `area`, and returns the column behind them.
pub fn put_at(area: Rect, x: u16, y: u16, spans: Vec<Span<'static>>, buf: &mut Buffer) -> u16 {
    let area = area.intersection(buf.area);
    if y >= area.height || x >= area.width {
        return x;
    }
    let room = area.width - x;
    let (from, y) = (area.x + x, area.y + y);
    let end = buf.set_line(from, y, &Line::from(shortened(spans, usize::from(room))), room).0;
    // Blanks that align figures are not text: a theme that underlines figures does not underline the blanks.
    for x in from..end {
        if let Some(cell) = buf.cell_mut((x, y)).filter(|cell| cell.symbol() == " ") {
            cell.modifier.remove(Modifier::UNDERLINED);
        }
    }
    end - area.x
}

/// Shortens spans to `width` cells, ending in `…` if text is left out. Trailing blanks don't count as text.
pub fn shortened(spans: Vec<Span<'static>>, width: usize) -> Vec<Span<'static>> {
    let cells: usize = spans.iter().map(Span::width).sum();
    let mut blanks = 0;
    for span in spans.iter().rev() {
        let text = span.content.trim_end_matches(' ').width();
        blanks += span.width() - text;
        if text > 0 {
            break;
        }
    }
    if cells - blanks <= width {
        return spans;
    }
    let (mut short, mut room) = (Vec::new(), width);
    for span in spans {
        if span.width() < room {
            room -= span.width();
            short.push(span);
        } else {
            short.push(Span::styled(cut_off(&span.content, room), span.style));
            break;
        }
    }
    short
}

/// A title followed by as many words as fit into `room` cells, the most important first.
pub fn title(
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

/// A title followed by its panel's keys, each with a word, as many as fit into `room` cells: ` ─ v by ─ u sort`. Words
/// without a key are left out.
pub fn with_keys<'a>(
    mut title: Vec<Span<'static>>,
    keys: impl IntoIterator<Item = (String, &'a str)>,
    room: usize,
    theme: &Theme,
) -> Vec<Span<'static>> {
    let mut room = room.saturating_sub(title.iter().map(Span::width).sum());
    for (key, word) in keys.into_iter().filter(|(key, _)| !key.is_empty()) {
        let Some(left) = room.checked_sub(key.width() + word.width() + 4) else { break };
        room = left;
        title.push(span(theme, Token::Border, " ─ "));
        title.push(span(theme, Token::Key, key));
        title.push(span(theme, Token::Dim, format!(" {word}")));
    }
    title
}

/// Writes a remark at the right of a box's lower line.
pub fn remark(text: Span<'static>, area: Rect, buf: &mut Buffer) {
    let inside = Rect { width: area.width.saturating_sub(2), ..area };
    let text = Span::styled(format!(" {} ", text.content), text.style);
    put_right(inside, area.height.saturating_sub(1), vec![text], buf);
}

/// Writes spans so that they end at the right edge of row `y`, and returns the column where they begin.
pub fn put_right(area: Rect, y: u16, spans: Vec<Span<'static>>, buf: &mut Buffer) -> u16 {
    let width = u16::try_from(spans.iter().map(Span::width).sum::<usize>()).unwrap_or(u16::MAX);
    let x = area.width.saturating_sub(width);
    put_at(area, x, y, spans, buf);
    x
}

/// Writes entries from left to right and row by row into `area`, within `bounds`. Entries without room are left out.
pub fn flow(entries: impl IntoIterator<Item = Vec<Span<'static>>>, area: Rect, bounds: Rect, buf: &mut Buffer) {
    let area = area.intersection(bounds);
    let mut next = (0, 0);
    for entry in entries {
        let Some((x, y)) = place(&entry, &mut next, area) else { return };
        put_at(area, x, y, entry, buf);
    }
}

/// True if [`flow`] has room for all entries in `area`.
pub fn flows(entries: &[Vec<Span<'static>>], area: Rect) -> bool {
    let mut next = (0, 0);
    entries.iter().all(|entry| place(entry, &mut next, area).is_some())
}

/// Finds the position of an entry from `next` on, and moves `next` behind it; `None` if there is no room.
fn place(entry: &[Span<'static>], next: &mut (u16, u16), area: Rect) -> Option<(u16, u16)> {
    let width = u16::try_from(entry.iter().map(Span::width).sum::<usize>()).unwrap_or(u16::MAX);
    let (x, y) = *next;
    let (x, y) = if x > 0 && x.saturating_add(width) > area.width { (0, y + 1) } else { (x, y) };
    *next = (x.saturating_add(width).saturating_add(2), y);
    (y < area.height && width <= area.width).then_some((x, y))
}

/// Shortens `text` to `width` cells, ending in `…` if it is cut.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width { text.to_owned() } else { cut_off(text, width) }
}

/// Shortens a sentence to `width` cells: after a clause if that uses more than half of the cells, otherwise like [`cut`].
pub fn cut_sentence(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let parts = text.match_indices([',', ';', ':']).filter(|(at, _)| text[at + 1..].starts_with(' '));
    let ends = parts.map(|(at, _)| &text[..at]).take_while(|part| part.width() <= width);
    ends.last().filter(|part| 2 * part.width() > width).map_or_else(|| cut_off(text, width), str::to_owned)
}

/// The beginning of `text` followed by `…`, in `width` cells.
fn cut_off(text: &str, width: usize) -> String {
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

/// Shortens `text` from the front to `width` cells, which keeps the end of a path.
pub fn cut_front(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let backwards: String = text.chars().rev().collect();
    cut(&backwards, width).chars().rev().collect()
}

/// Shortens a name to `width` cells. Of `function (file:line)` it keeps the function and the end of the path.
pub fn cut_name(text: &str, width: usize) -> String {
    if let Some(frame) = cut_frame(text, width) {
        return frame;
    }
    let place = text.split_once(" (").and_then(|(function, path)| Some((function, path.strip_suffix(')')?)));
    let Some((function, path)) = place.filter(|_| text.width() > width) else {
        return if text.width() <= width || !text.contains('.') {
            cut(text, width)
        } else if text.contains('/') {
            cut_front(text, width)
        } else {
            cut_module(text, width)
        };
    };
    match width.checked_sub(function.width() + 3).filter(|left| *left >= 6) {
        Some(left) => format!("{function} ({})", cut_front(path, left)),
        None => cut(function, width),
    }
}

/// Shortens `file.py:12 function` to `width` cells. It keeps the line if it can, because the line tells calls of one
/// file apart. `None` for any other text, and for text that fits.
fn cut_frame(text: &str, width: usize) -> Option<String> {
    /// The fewest cells of a file and of a function.
    const LEAST: usize = 4;
    let (place, function) = text.split_once(' ').filter(|_| text.width() > width)?;
    let (file, line) = place.rsplit_once(':').filter(|(_, line)| line.parse::<u32>().is_ok())?;
    let line = format!(":{line}");
    let room = width.saturating_sub(line.width());
    let Some(both) = room.checked_sub(1).filter(|both| *both >= 2 * LEAST) else {
        return Some(if room >= LEAST { cut(file, room) + &line } else { cut(text, width) });
    };
    // Cells that the function does not need go to the file, and the other way round.
    let half = both / 2;
    let files = both.saturating_sub(function.width().min(both - half)).min(file.width());
    Some(format!("{}{line} {}", cut(file, files), cut(function, both - files)))
}

/// Shortens a dotted name to `width` cells. First it drops the part before the layer's number, which is the same for
/// all layers, then the middle: the layer at the beginning and the end of the name tell names apart.
fn cut_module(text: &str, width: usize) -> String {
    let numbered = |part: &str| part.starts_with(|symbol: char| symbol.is_ascii_digit() || symbol == '*');
    let parts: Vec<&str> = text.split('.').collect();
    let from = parts.iter().position(|part| numbered(part)).unwrap_or(0);
    // Only one sign is needed: a name that begins with a number has already lost the part before it.
    let text = parts[from..].join(".");
    if from > 0 && text.width() < width {
        return format!("…{text}");
    }
    if text.width() <= width {
        return text;
    }
    let head = width / 2;
    let end = cut_front(&text, width.saturating_sub(head) + 1);
    format!("{}{}", cut(&text, head), end.trim_start_matches('…'))
}

/// How many bytes of a word that is longer than a line go into the line: up to the last separator in it, unless that
/// leaves most of the line empty.
fn word_end(head: &str, width: usize) -> usize {
    let behind = |signs: &[char]| {
        let end = head.rfind(signs).map(|at| at + 1)?;
        (head[..end].width() * 3 >= width).then_some(end)
    };
    [&[',', ';', '/'][..], &['='], &[':'], &['_', '-', '.']].into_iter().find_map(behind).unwrap_or(head.len())
}

/// Units, which stay with the figure before them.
const UNITS: [&str; 9] = ["%", "B", "KiB", "MiB", "GiB", "TiB", "ms", "s", "µs"];

/// The words of a paragraph, each with the blanks behind it. A figure and its unit count as one word if they fit in a
/// line of `width` cells.
fn words(paragraph: &str, width: usize) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    let mut begin = 0;
    for word in paragraph.split_inclusive(' ') {
        let at = begin;
        begin += word.len();
        let unit = word.trim_matches(|symbol: char| symbol.is_ascii_punctuation() && symbol != '%' || symbol == ' ');
        match words.last_mut() {
            Some(last)
                if UNITS.contains(&unit)
                    && last.trim_end().ends_with(|end: char| end.is_ascii_digit())
                    && last.width() + word.trim_end().width() <= width =>
            {
                // The two words are adjacent.
                *last = &paragraph[at - last.len()..begin];
            }
            _ => words.push(word),
        }
    }
    words
}

/// Wraps `text` into lines of at most `width` cells: at spaces, but not between a figure and its unit. A word that is
/// longer than a line is broken at its separators.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if width == 0 {
        return lines;
    }
    for paragraph in text.lines() {
        let (mut line, mut cells) = (String::new(), 0);
        for word in words(paragraph, width) {
            if cells + word.trim_end().width() > width && !line.is_empty() {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
                cells = 0;
            }
            line.push_str(word);
            cells += word.width();
            if cells > width {
                break_word(&mut line, width, &mut lines);
                cells = line.width();
            }
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// Breaks a word that is longer than a line. The rest that stays in `word`, with the blanks behind it, fits one line.
fn break_word(word: &mut String, width: usize, lines: &mut Vec<String>) {
    while word.trim_end().width() > width {
        let mut head = String::new();
        for symbol in word.chars() {
            let mut longer = head.clone();
            longer.push(symbol);
            if longer.width() > width {
                break;
            }
            head = longer;
        }
        if head.is_empty() {
            word.clear(); // a character wider than the line
            break;
        }
        head.truncate(word_end(&head, width));
        *word = word.split_off(head.len());
        lines.push(head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_with_a_part_of_it_where_that_says_enough() {
        let text = "3.14 GiB are stranded, in 28 segments; the largest hole is 2.89 GiB";
        for (width, wanted) in [
            (100, text),
            (60, "3.14 GiB are stranded, in 28 segments"),
            (38, "3.14 GiB are stranded, in 28 segments"),
            (36, "3.14 GiB are stranded"),
            (10, "3.14 GiB …"),
        ] {
            assert_eq!(cut_sentence(text, width), wanted, "{width}");
        }
    }

    #[test]
    fn text_wraps_at_spaces_and_long_words_anywhere() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("a\nb", 4), ["a", "b"]);
        let setting = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
        assert_eq!(wrap(setting, 38), ["set", "PYTORCH_CUDA_ALLOC_CONF=", "expandable_segments:True"]);
        assert_eq!(
            wrap(setting, 45),
            ["set", "PYTORCH_CUDA_ALLOC_CONF=", "expandable_segments:True"],
            "not in a setting"
        );
        assert_eq!(wrap("expandable_segments", 14), ["expandable_", "segments"]);
        let settings = "expandable_segments:True,large_segment_size_mb:128";
        assert_eq!(
            wrap(settings, 47),
            ["expandable_segments:True,", "large_segment_size_mb:128"],
            "not before a value"
        );
        assert_eq!(wrap("a/bcdefghijk", 8), ["a/bcdefg", "hijk"], "not for so short a line");
        assert_eq!(
            wrap("it fell (-56 %), to 96.0 MiB.", 14),
            ["it fell", "(-56 %), to", "96.0 MiB."],
            "figures have units"
        );
        assert_eq!(wrap("12 MiB", 5), ["12", "MiB"]);
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
        assert_eq!(cut_name("forward (/a/b/main.py:116)", 21), "forward (…ain.py:116)");
        assert_eq!(cut_name("forward (/a/b/main.py:116)", 12), "forward");
        assert_eq!(cut_name("forward (a.py:1)", 40), "forward (a.py:1)");
        assert_eq!(cut_name("blocks.3.fc.weight", 12), "…3.fc.weight");
        assert_eq!(cut_name("blocks.11.gelu output", 15), "…11.gelu output");
        let states = ["h.7.mlp.c_fc.weight.exp_avg_sq", "h.11.attn.c_proj.weight.exp_avg_sq", "wte.weight.exp_avg_sq"];
        assert_eq!(states.map(|name| cut_name(name, 15)), ["7.mlp.…p_avg_sq", "11.att…p_avg_sq", "wte.we…p_avg_sq"]);
        assert_eq!(cut_name("/a/b/main.py", 8), "…main.py");
        let frames =
            ["modeling_llama.py:484 forward", "modeling_llama.py:93 _update_causal_mask", "a.py:7 forward_features"];
        assert_eq!(
            frames.map(|name| cut_name(name, 20)),
            ["modelin…:484 forward", "modelin…:93 _update…", "a.py:7 forward_feat…"]
        );
        assert_eq!(frames.map(|name| cut_name(name, 10)), ["model…:484", "modeli…:93", "a.py:7"]);
        assert_eq!((cut_name(frames[0], 7).as_str(), cut_name(frames[0], 40).as_str()), ("modeli…", frames[0]));
        assert_eq!(cut_name("log_softmaxBackward", 8), "log_sof…");
    }

    #[test]
    fn what_a_line_has_no_room_for_is_cut_with_a_sign_and_blanks_are_no_text() {
        let text = |spans: &[&str], width| {
            let spans = shortened(spans.iter().map(|text| Span::raw((*text).to_owned())).collect(), width);
            spans.iter().map(|span| span.content.to_string()).collect::<String>()
        };
        assert_eq!(text(&["ab", "cd"], 4), "abcd");
        assert_eq!(text(&["ab", "cde"], 4), "abc…");
        assert_eq!(text(&["ab", "cd", "e"], 4), "abc…");
        assert_eq!(text(&["abcd", "e"], 4), "abc…");
        assert_eq!(text(&["abc", "d  ", "  "], 4), "abcd    ", "set_line leaves blanks out");
        assert_eq!(text(&["abcd"], 0), "");
    }

    #[test]
    fn keys_stand_behind_a_title_and_are_left_out_first() {
        let (theme, _) = crate::theme::ThemeCatalog::default().load("dark", crate::theme::ColorTier::True).unwrap();
        let shown = |room| {
            let keys = [("v".to_owned(), "by"), (String::new(), "none"), ("u".to_owned(), "sort")];
            let line = with_keys(vec![Span::raw("ops · 3")], keys, room, &theme);
            line.iter().map(|span| span.content.to_string()).collect::<String>()
        };
        assert_eq!(shown(40), "ops · 3 ─ v by ─ u sort");
        assert_eq!((shown(15), shown(10)), ("ops · 3 ─ v by".to_owned(), "ops · 3".to_owned()));
    }

    #[test]
    fn a_box_leaves_its_inside() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 8, 3));
        let inner = frame(Frame::Box, vec![Span::raw("ab")], Style::new(), buf.area, &mut buf);
        assert_eq!(inner, Rect::new(1, 1, 6, 1));
        assert_eq!(buf, Buffer::with_lines(["╭─ ab ─╮", "│      │", "╰──────╯"]));
    }
}
