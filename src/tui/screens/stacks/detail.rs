//! What is selected: where it is, what its bytes are for, and the frames that go the same way.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::model::frames;
use crate::model::{Category, Node};
use crate::source::Kind;
use crate::tui::figures;
use crate::tui::legend;
use crate::tui::pane::{self, Frame, put, put_cut, span};
use crate::tui::stage::Stage;
use crate::tui::states::Looked;
use crate::tui::theme::Token;
use crate::units::Bytes;

pub(super) fn render(stage: &Stage<'_>, looked: &Looked, kind: Frame, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let Some(node) = looked.flame.get(looked.selected) else { return };
    let title = vec![span(theme, Token::Title, if node.frame.is_some() { "frame" } else { "branch" })];
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    let mut lines: Vec<Vec<Span<'static>>> = Vec::new();
    let width = usize::from(inner.width);
    lines.push(vec![span(theme, Token::Strong, pane::cut(&node.label, width))]);
    let share = figures::percent(node.bytes.get(), looked.flame.total.get());
    let blocks = figures::counted(node.blocks, "block");
    let sum = vec![
        span(theme, Token::Strong, figures::bytes(node.bytes)),
        span(theme, Token::Text, format!(" · {share} of all · {blocks}")),
    ];
    lines.push(sum);
    let path = node.frame.map(|frame| stage.shown.names.get(frame)).and_then(frames::Frame::of).map(|frame| frame.file);
    let frame = node.frame.map(|frame| stage.shown.names.get(frame)).and_then(frames::Frame::of);
    let source = frame.map_or_else(Vec::new, |frame| source(stage, &frame, if kind == Frame::Rule { 0 } else { 3 }));
    if kind == Frame::Rule {
        // Where rows are scarce what it is for takes one.
        lines.push(categories(stage, node).into_iter().flatten().collect());
        let path = path.filter(|_| source.is_empty());
        lines.extend(path.map(|path| vec![span(theme, Token::Dim, pane::cut_front(path, width))]));
        lines.extend(source);
    } else {
        lines.extend(path.map(|path| vec![span(theme, Token::Dim, pane::cut_front(path, width))]));
        lines.push(Vec::new());
        lines.extend(categories(stage, node));
        if let Some(guessed) = legend::guessed(stage.view()) {
            lines.push(vec![span(theme, Token::Warn, guessed)]);
        }
        if !source.is_empty() {
            lines.push(Vec::new());
            lines.extend(source);
        }
        if !node.chain.is_empty() {
            lines.push(Vec::new());
            lines.push(vec![span(theme, Token::Dim, "all of it comes this way:")]);
            lines.extend(node.chain.iter().map(|label| {
                let token = if *label == node.label { Token::Strong } else { Token::Text };
                vec![span(theme, token, format!("  {}", pane::cut(label, width.saturating_sub(2))))]
            }));
        }
        if node.others > 0 {
            lines.push(vec![span(theme, Token::Dim, "branches too small to be told apart")]);
        }
    }
    for (y, line) in (0..inner.height).zip(lines) {
        if line.len() > 3 {
            put_cut(inner, y, line, buf);
        } else {
            put(inner, y, line, buf);
        }
    }
}

/// The line of a frame and so many around it, where its file is at hand; a remark where that changed since.
fn source(stage: &Stage<'_>, frame: &frames::Frame<'_>, around: u32) -> Vec<Vec<Span<'static>>> {
    let theme = stage.theme;
    let listing = stage.picture.listing.as_ref().filter(|listing| *listing.path == *frame.file);
    let (Some(listing), Some(at)) = (listing, frame.line) else { return Vec::new() };
    let mut lines = Vec::new();
    for number in at.saturating_sub(around)..=at.saturating_add(around) {
        if let Some(text) = listing.line(number) {
            let (mark, token) = if number == at { ("▸", Token::Strong) } else { (" ", Token::Dim) };
            let text = if around == 0 { text.trim_start() } else { text };
            lines.push(vec![
                span(theme, Token::Dim, format!("{mark}{number:>4} ")),
                span(theme, token, text.to_owned()),
                span(theme, token, ""),
                span(theme, token, ""),
            ]);
        }
    }
    // Only a snapshot's times are those of the calendar.
    let recorded = matches!(stage.picture.kind, Kind::Snapshot(_)).then_some(stage.picture.extent.time);
    if !lines.is_empty() && listing.changed.zip(recorded).is_some_and(|(changed, recorded)| changed > recorded) {
        lines.push(vec![span(theme, Token::Warn, "the file changed after the snapshot")]);
    }
    lines
}

/// What its bytes are for, the most first.
fn categories(stage: &Stage<'_>, node: &Node) -> Vec<Vec<Span<'static>>> {
    let theme = stage.theme;
    let mut parts: Vec<(Category, Bytes)> = Category::ALL.into_iter().zip(node.by_category).collect();
    parts.retain(|(_, bytes)| *bytes > Bytes::ZERO);
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let line = |(category, bytes): (Category, Bytes)| {
        vec![
            legend::legend_of(category, theme),
            span(theme, Token::Text, format!(" {} ", category.label())),
            span(theme, Token::Strong, format!("{}  ", figures::bytes(bytes))),
        ]
    };
    parts.into_iter().map(line).collect()
}
