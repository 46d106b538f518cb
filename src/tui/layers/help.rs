//! The help: every command of the key table, and what the words of the screen mean.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

use crate::model::Category;
use crate::tui::action::{Action, Group};
use crate::tui::keys::Keymap;
use crate::tui::legend::{account_marks, legend_of, short_label};
use crate::tui::pane::{self, Frame, span};
use crate::tui::stage::Stage;
use crate::tui::theme::{Theme, Token};
use crate::tui::words;

/// What the words of the screen mean.
const WORDS: [(&str, &str); 18] = [
    ("allocated", "bytes of blocks that somebody holds: torch.cuda.memory_allocated"),
    ("reserved", "bytes held from the driver: torch.cuda.memory_reserved"),
    ("stranded", "free, but inside a segment that a live block holds: fragmentation"),
    ("releasable", "in wholly free segments: empty_cache returns it"),
    ("rounding", "the rest of a live block beyond what was asked for"),
    ("pending", "freed, but another stream may still read it"),
    ("segment", "one cudaMalloc; blocks are cut from it"),
    ("hole", "a free piece of a segment that some block holds; the largest one bounds what fits without more memory"),
    ("fragmentation", "stranded over reserved"),
    ("floor", "lowest allocated within a step: what stays"),
    ("taken, kept", "bytes of the blocks that an op took; of these, those alive when it ended"),
    ("pins", "a block pins the free bytes of its segment: they can't go back to the driver while it lives"),
    ("moment", "in a chart, the fullest of the few memory events that a column stands for"),
    ("effect", "medians of the steps before and after a flip"),
    (
        "context",
        "GPU memory of this process beside the allocator's: what the driver says the process has, less what the allocator holds; where the driver lists no such process, what came into use when the context was made",
    ),
    ("others", "the rest of the GPU memory that the driver says is in use"),
    ("busy", "share of the time in which some kernel ran; tensor, DRAM and occupancy say how much of the GPU it used"),
    (
        "copies",
        "bytes between host and device over the time of their copies; from pinned memory they run beside the computation",
    ),
];

/// Widest the help gets.
const WIDTH: u16 = 104;

/// Draws the help over `area` from line `first` on; returns its lines in all, and how many are seen.
pub(super) fn render(stage: &Stage<'_>, first: usize, area: Rect, buf: &mut Buffer) -> (usize, usize) {
    let (theme, keys) = (stage.theme, stage.keys);
    let width = area.width.min(WIDTH);
    let lines = lines(theme, keys, usize::from(width.saturating_sub(4)));
    let height = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX).min(area.height);
    let outer = area.centered(ratatui::layout::Constraint::Length(width), ratatui::layout::Constraint::Length(height));
    Clear.render(outer, buf);
    buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
    let title =
        vec![span(theme, Token::Title, "help"), span(theme, Token::Dim, words::how_to_read(keys, Action::ToggleHelp))];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Accent), outer, buf);
    let body = Rect { height: inner.height.saturating_sub(1), ..inner };
    let seen = usize::from(body.height);
    let first = first.min(lines.len().saturating_sub(seen));
    for (y, line) in (body.top()..body.bottom()).zip(lines.iter().skip(first)) {
        buf.set_line(body.x + 1.min(body.width), y, line, body.width.saturating_sub(2));
    }
    colours(theme, inner, buf);
    (lines.len(), seen)
}

fn lines(theme: &Theme, keys: &Keymap, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let entry = |key: &str, token: Token, text: &str, lines: &mut Vec<Line<'static>>| {
        for (index, part) in pane::wrap(text, width.saturating_sub(13)).into_iter().enumerate() {
            let key = if index == 0 { key } else { "" };
            lines.push(Line::from(vec![span(theme, token, format!("{key:<13}")), span(theme, Token::Text, part)]));
        }
    };
    for group in Group::ALL {
        lines.push(Line::from(span(theme, Token::Title, group.title())));
        for binding in keys.bindings().iter().filter(|binding| binding.group == group) {
            let label = if binding.label.is_empty() { "–" } else { &binding.label };
            entry(&format!("  {label}"), Token::Key, &binding.help, &mut lines);
        }
    }
    lines.push(Line::from(span(theme, Token::Title, "words")));
    for (word, meaning) in WORDS {
        entry(&format!("  {word}"), Token::Accent, meaning, &mut lines);
    }
    lines
}

/// The legend of the block map, on the last line.
fn colours(theme: &Theme, inner: Rect, buf: &mut Buffer) {
    let Some(y) = inner.height.checked_sub(1) else { return };
    let line = |label: fn(Category) -> &'static str| -> Vec<Span<'static>> {
        let entry = |category| [legend_of(category, theme), span(theme, Token::Dim, format!(" {} ", label(category)))];
        Category::ALL.into_iter().flat_map(entry).collect()
    };
    let long = line(Category::label);
    let fits = long.iter().map(Span::width).sum::<usize>() < usize::from(inner.width);
    let line = if fits { long } else { line(short_label) };
    let end = pane::put_at(inner, 1, y, line, buf);
    let marks = account_marks(theme).into_iter();
    let marks: Vec<Span<'static>> =
        marks.flat_map(|(mark, label)| [mark, span(theme, Token::Dim, format!(" {label} "))]).collect();
    if marks.iter().map(Span::width).sum::<usize>() <= usize::from(inner.width.saturating_sub(end)) {
        pane::put_at(inner, end, y, marks, buf);
    }
}
