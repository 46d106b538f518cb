//! The selected node: its place, its bytes by category, and the frames that it combines.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::Token;
use crate::model::frames;
use crate::model::{Category, Node, Shape, naming};
use crate::source::SourceKind;
use crate::tui::stage::Stage;
use crate::tui::states::StackTree;
use crate::units::Bytes;

/// The fewest rows worth a list of a branch's ends.
const LEAST: u16 = 5;
/// An end with less than one in this many of the branch's bytes is left out.
const SMALLEST: u64 = 50_000;

pub(super) fn render(stage: &Stage<'_>, looked: &StackTree, kind: Frame, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let Some(node) = looked.flame.get(looked.selected) else { return };
    let title = vec![span(theme, Token::Title, if node.frame.is_some() { "frame" } else { "branch" })];
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    let mut lines: Vec<Vec<Span<'static>>> = Vec::new();
    let width = usize::from(inner.width);
    lines.push(vec![span(theme, Token::Strong, pane::cut(&node.label, width))]);
    let share = match figures::percent(node.bytes.get(), looked.flame.total.get()) {
        _ if node.parent.is_none() => String::new(),
        share => format!(" · {share} of all"),
    };
    let blocks = figures::counted(node.blocks, "block");
    let sum = vec![
        span(theme, Token::Strong, figures::bytes(node.bytes)),
        span(theme, Token::Text, format!("{share} · {blocks}")),
    ];
    lines.push(sum);
    let path =
        node.frame.map(|frame| stage.shown.names.get(frame)).and_then(frames::FrameText::of).map(|frame| frame.file);
    let frame = node.frame.map(|frame| stage.shown.names.get(frame)).and_then(frames::FrameText::of);
    let source = frame.map_or_else(Vec::new, |frame| source(stage, &frame, if kind == Frame::Rule { 0 } else { 3 }));
    if kind == Frame::Rule {
        // If there are few rows, the categories take as few as possible; one row if there is source text to show.
        let rows = if source.is_empty() { usize::MAX } else { 1 };
        lines.extend(abreast(categories(stage, node), width).into_iter().take(rows));
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
            lines.push(vec![span(theme, Token::Dim, "all of it is allocated here:")]);
            lines.extend(node.chain.iter().map(|label| {
                let token = if *label == node.label { Token::Strong } else { Token::Text };
                vec![span(theme, token, format!("  {}", pane::cut(label, width.saturating_sub(2))))]
            }));
        }
        if node.others > 0 {
            lines.push(vec![span(theme, Token::Dim, "branches too small to show apart")]);
        }
    }
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(inner.height);
    for (y, line) in (0..inner.height).zip(lines) {
        put(inner, y, line, buf);
    }
    let rest = Rect { y: inner.y + rows, height: inner.height - rows, ..inner };
    if kind == Frame::Box && rest.height >= LEAST && !node.children.is_empty() {
        leaves(stage, looked, node, rest, buf);
    }
}

/// Lists the ends of a branch by name, the largest first. A name may be in many places of the tree and is listed once.
/// The names of a module path are given from the branch on.
fn leaves(stage: &Stage<'_>, looked: &StackTree, of: &Node, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let least = of.bytes.get() / SMALLEST;
    let mut ends: Vec<Leaf> = Vec::new();
    let paths = !looked.flame.stacks && matches!(stage.states.stacks.shape, Shape::Tree | Shape::Module);
    let mut open: Vec<(&Node, String)> = vec![(of, String::new())];
    while let Some((node, path)) = open.pop() {
        let parts = node.children.iter().filter_map(|child| looked.flame.get(*child));
        for part in parts.filter(|part| part.bytes.get() >= least && part.others == 0) {
            let name = match paths {
                true if path.is_empty() => part.label.to_string(),
                // A tensor of the layer itself is not one of its modules.
                true if part.key.starts_with(' ') => format!("{path} {}", part.label),
                true if part.chain.is_empty() => format!("{path}.{}", part.label),
                true => format!("{path}.{}", part.chain.join(".")),
                false => part.label.to_string(),
            };
            let leaf = Leaf::own(part, naming::starred(&name), looked);
            if let Some(known) = ends.iter_mut().find(|known| known.label == leaf.label) {
                known.bytes += leaf.bytes;
                known.blocks += leaf.blocks;
            } else if leaf.bytes > Bytes::ZERO {
                ends.push(leaf);
            }
            if !part.children.is_empty() {
                open.push((part, name));
            }
        }
    }
    ends.sort_by_key(|leaf| std::cmp::Reverse(leaf.bytes));
    let Some(unit) = ends.first().map(|leaf| ByteUnit::for_largest(leaf.bytes)) else { return };
    ends.truncate(usize::from(area.height - 2));
    let heading = if looked.flame.stacks { "allocated at" } else { "made of" };
    put(area, 1, vec![span(theme, Token::Dim, format!("{heading} · {}", unit.name()))], buf);
    let count = |leaf: &Leaf| if leaf.blocks > 1 { format!(" {}×", leaf.blocks) } else { String::new() };
    // Figures are as wide as the widest of them; the rest is for names.
    let widest = |of: &dyn Fn(&Leaf) -> String| ends.iter().map(|leaf| of(leaf).chars().count()).max().unwrap_or(0);
    let (bytes, counts) = (widest(&|leaf| unit.or_smaller(leaf.bytes)) + 1, widest(&count));
    for (y, leaf) in (2..area.height).zip(&ends) {
        let figures = vec![
            span(theme, Token::Dim, format!("{:>counts$}", count(leaf))),
            span(theme, Token::Strong, format!("{:>bytes$}", unit.or_smaller(leaf.bytes))),
            span(theme, Token::Dim, format!("{:>5}", figures::percent(leaf.bytes.get(), of.bytes.get()))),
        ];
        let left = put_right(area, y, figures, buf);
        // A name that occurs once may use the column of counts, and what is left of the column of bytes.
        let (count, figure) = (count(leaf).chars().count(), unit.or_smaller(leaf.bytes).chars().count());
        let free = counts - count + if count == 0 { bytes - 1 - figure } else { 0 };
        let name = pane::cut_name(&leaf.label, usize::from(left.saturating_sub(3)) + free);
        put(area, y, vec![legend::legend_of(leaf.category, theme), span(theme, Token::Text, format!(" {name}"))], buf);
    }
}

/// An end of the tree, or several with one name.
struct Leaf {
    label: String,
    category: Category,
    bytes: Bytes,
    blocks: u64,
}

impl Leaf {
    /// The bytes of a node itself, without its children.
    fn own(node: &Node, label: String, looked: &StackTree) -> Self {
        let parts = || node.children.iter().filter_map(|child| looked.flame.get(*child));
        let own =
            |of: &dyn Fn(&Node) -> Bytes| of(node).saturating_sub(Bytes(parts().map(|part| of(part).get()).sum()));
        let category = |category: Category| own(&|node| node.by_category[category as usize]);
        Self {
            label,
            category: Category::ALL.into_iter().max_by_key(|of| category(*of)).unwrap_or(node.category()),
            bytes: own(&|node| node.bytes),
            blocks: node.blocks.saturating_sub(parts().map(|part| part.blocks).sum()),
        }
    }
}

/// The source line of a frame and `around` lines around it, if its file is available, with a remark if the file has changed since.
fn source(stage: &Stage<'_>, frame: &frames::FrameText<'_>, around: u32) -> Vec<Vec<Span<'static>>> {
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
    // Only a snapshot has calendar times.
    let recorded = matches!(stage.picture.kind, SourceKind::Snapshot(_)).then_some(stage.picture.extent.time);
    if !lines.is_empty() && listing.changed.zip(recorded).is_some_and(|(changed, recorded)| changed > recorded) {
        lines.push(vec![span(theme, Token::Warn, "the file changed after the snapshot")]);
    }
    lines
}

/// Entries side by side, in as many lines as they need.
fn abreast(entries: Vec<Vec<Span<'static>>>, width: usize) -> Vec<Vec<Span<'static>>> {
    let cells = |line: &[Span<'static>]| line.iter().map(Span::width).sum::<usize>();
    let mut lines: Vec<Vec<Span<'static>>> = Vec::new();
    for entry in entries {
        match lines.last_mut().filter(|line| cells(line) + cells(&entry) <= width + 2) {
            Some(line) => line.extend(entry),
            None => lines.push(entry),
        }
    }
    lines
}

/// The categories of its bytes, the largest first.
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
