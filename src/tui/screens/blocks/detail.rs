//! The selected block, hole or segment; without a selection, an overview of what can be selected.

use std::borrow::Cow;
use std::cmp::Reverse;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::story::BlockStory;
use crate::allocator::PoolKind;
use crate::drawing::figures;
use crate::drawing::legend::{account_marks, legend_of};
use crate::drawing::map::{Survey, stream_name};
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::Token;
use crate::model::{BlockView, Hole, SegmentPart, SegmentView, View, naming};
use crate::source::SourceKind;
use crate::tui::action::Action;
use crate::tui::copied::{self, Clipping};
use crate::tui::stage::Stage;
use crate::tui::states::{BlocksAction, Lookup, ScreenAction, SelectedPart};
use crate::units::{Address, Bytes, MIB, StreamId};

/// The width of the labels in cells.
const LABEL: u16 = 9;
/// How many holders of a hole are listed one by one.
const HOLDERS: usize = 3;
/// Keys that select, for when the footer has no room for them.
const JUMPS: [(Action, &str); 6] = [
    (own(BlocksAction::LargestHole), "hole"),
    (own(BlocksAction::LargestBlock), "largest"),
    (own(BlocksAction::Next), "next"),
    (own(BlocksAction::NextSegment), "segment"),
    (own(BlocksAction::OfOp), "op's"),
    (Action::Filter(Lookup::Blocks), "filter"),
];

const fn own(action: BlocksAction) -> Action {
    Action::Own(ScreenAction::Blocks(action))
}

/// A line of the pane.
struct Fact {
    label: Cow<'static, str>,
    /// True if the label is a key to press.
    key: bool,
    mark: Option<Span<'static>>,
    text: String,
    token: Token,
}

impl Fact {
    fn new(label: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        Self { label: label.into(), key: false, mark: None, text: text.into(), token: Token::Text }
    }

    fn strong(label: &'static str, text: impl Into<String>) -> Self {
        Self { token: Token::Strong, ..Self::new(label, text) }
    }

    fn key(label: impl Into<Cow<'static, str>>, text: &str) -> Self {
        Self { key: true, ..Self::new(label, text) }
    }

    /// A line about some keys; `None` if none of them is bound.
    fn keys(stage: &Stage<'_>, actions: &[Action], text: &str) -> Option<Self> {
        let keys: Vec<&str> = actions.iter().map(|action| stage.keys.key_of(*action)).collect();
        let keys: Vec<&str> = keys.into_iter().filter(|key| !key.is_empty()).collect();
        (!keys.is_empty()).then(|| Self::key(keys.join(" "), text))
    }

    fn label(&self, stage: &Stage<'_>) -> Span<'static> {
        span(stage.theme, if self.key { Token::Key } else { Token::Dim }, self.label.to_string())
    }

    fn marked(self, mark: Span<'static>) -> Self {
        Self { mark: Some(mark), ..self }
    }
}

/// Draws the pane: one fact below the other in a box, two side by side under a rule.
pub(super) fn render(
    stage: &Stage<'_>,
    survey: &Survey,
    picked: Option<SelectedPart>,
    kind: Frame,
    area: Rect,
    buf: &mut Buffer,
) {
    let theme = stage.theme;
    // From some width on the frame shows these keys.
    let in_title = kind == Frame::Rule && (70..100).contains(&area.width);
    let (title, facts) = told(stage, survey, picked, in_title);
    let mut line = vec![span(theme, Token::Title, title)];
    let jumps = JUMPS.map(|(action, word)| (stage.keys.key_of(action), word));
    for (key, word) in jumps.into_iter().filter(|(key, _)| in_title && !key.is_empty()) {
        line.extend([span(theme, Token::Key, format!("  {key}")), span(theme, Token::Dim, format!(" {word}"))]);
    }
    let inner = pane::frame(kind, line, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    match kind {
        Frame::Box => {
            let rows = below_each_other(facts, stage, inner, buf);
            let rest = Rect { y: inner.y + rows, height: inner.height - rows, ..inner };
            if let Some(picked) = picked {
                neighbours(stage, picked, rest, buf);
            }
        }
        Frame::Rule => abreast(facts, stage, inner, buf),
    }
}

/// Draws facts one below the other. Returns the rows used.
fn below_each_other(facts: Vec<Fact>, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> u16 {
    let theme = stage.theme;
    let mut y = 0;
    for fact in facts {
        let marked = fact.mark.as_ref().map_or(0, |mark| mark.width() as u16 + 1);
        let x = LABEL + marked;
        let lines = pane::wrap(&fact.text, usize::from(area.width.saturating_sub(x)));
        put(area, y, vec![fact.label(stage)], buf);
        if let Some(mark) = fact.mark {
            put_at(area, LABEL, y, vec![mark], buf);
        }
        let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX).max(1);
        for (row, line) in (y..area.height).zip(lines) {
            put_at(area, x, row, vec![span(theme, fact.token, line)], buf);
        }
        y = y.saturating_add(rows);
        if y >= area.height {
            return area.height;
        }
    }
    y
}

/// Lists what lies around the selection, in address order.
fn neighbours(stage: &Stage<'_>, picked: SelectedPart, area: Rect, buf: &mut Buffer) {
    let (theme, view) = (stage.theme, stage.shown);
    let Some(segment) = view.segments.get(picked.segment).filter(|_| area.height >= 5) else { return };
    let rows = usize::from(area.height - 2);
    let middle = match picked.part {
        Some(SegmentPart::Block(index)) => index,
        Some(SegmentPart::Hole(hole)) => hole.before,
        None => 0,
    };
    let part = |index: usize| {
        let block = segment.blocks.get(index).map(|_| SegmentPart::Block(index));
        segment.hole_before(index).map(SegmentPart::Hole).into_iter().chain(block)
    };
    let parts: Vec<SegmentPart> =
        (middle.saturating_sub(rows)..=segment.blocks.len().min(middle + rows)).flat_map(part).collect();
    let at = picked.part.and_then(|picked| parts.iter().position(|part| *part == picked));
    let first = at.map_or(0, |at| at.saturating_sub(rows / 2)).min(parts.len().saturating_sub(rows));
    put(area, 1, vec![span(theme, Token::Dim, "in its segment, by address")], buf);
    for (y, part) in (2..area.height).zip(&parts[first..]) {
        let (size, mark, name, token) = match part {
            SegmentPart::Hole(hole) => {
                let [stranded, releasable, ..] = account_marks(theme).map(|(mark, _)| mark);
                let mark = if hole.stranded() > Bytes::ZERO { stranded } else { releasable };
                (hole.size, mark, "free".to_owned(), Token::Dim)
            }
            SegmentPart::Block(index) => match segment.blocks.get(*index) {
                Some(block) => (block.size, legend_of(block.category, theme), named(view, block), Token::Text),
                None => continue,
            },
        };
        let selected = picked.part == Some(*part);
        let token = if selected { Token::Strong } else { token };
        let name = pane::cut(&name, usize::from(area.width).saturating_sub(16));
        let line = vec![
            span(theme, Token::Key, if selected { "▸ " } else { "  " }),
            span(theme, token, format!("{:>10} ", figures::bytes(size))),
            mark,
            span(theme, token, format!(" {name}")),
        ];
        put(area, y, line, buf);
    }
}

/// Draws facts in two columns, one line each. Blank facts only separate others, if there is room.
fn abreast(facts: Vec<Fact>, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let facts: Vec<Fact> = facts.into_iter().filter(|fact| !fact.text.is_empty()).collect();
    let columns = if area.width >= 70 { 2 } else { 1 };
    let rows = usize::from(area.height).min(facts.len().div_ceil(columns)).max(1);
    let begins = [0, second(&facts, rows, area.width)];
    for (index, fact) in facts.into_iter().enumerate() {
        let (column, row) = (index / rows, index % rows);
        if column >= columns {
            return;
        }
        let x = begins[column.min(1)];
        let end = if columns == 2 && column == 0 { begins[1].saturating_sub(1) } else { area.width };
        let cell = Rect { x: area.x + x, y: area.y + row as u16, width: end.saturating_sub(x), height: 1 };
        put(cell, 0, vec![fact.label(stage)], buf);
        let mut x = LABEL;
        let named = fact.mark.is_some();
        if let Some(mark) = fact.mark {
            x = put_at(cell, x, 0, vec![mark], buf) + 1;
        }
        let room = usize::from(cell.width.saturating_sub(x));
        let text = if named { cut_sized(&fact.text, room) } else { pane::cut(&fact.text, room) };
        put_at(cell, x, 0, vec![span(theme, fact.token, text)], buf);
    }
}

/// A size and a name in `width` cells: `6.8 MiB blocks.0.attn.qkv.weight`. The distinctive part of the name stays.
fn cut_sized(text: &str, width: usize) -> String {
    let name = text.match_indices(' ').nth(1).map(|(at, _)| at + 1);
    match name.filter(|at| text.width() > width && *at < width) {
        Some(at) => format!("{}{}", &text[..at], pane::cut_name(&text[at..], width - at)),
        None => pane::cut(text, width),
    }
}

/// The beginning of the second column: the middle, unless one column needs more and the other less.
fn second(facts: &[Fact], rows: usize, width: u16) -> u16 {
    let needed = |facts: &[Fact]| {
        let cells = |fact: &Fact| fact.mark.as_ref().map_or(0, |mark| mark.width() + 1) + fact.text.width();
        facts.iter().map(cells).max().map_or(0, |cells| u16::try_from(cells).unwrap_or(u16::MAX).saturating_add(LABEL))
    };
    let (left, right) = facts.split_at(rows.min(facts.len()));
    let (left, right) = (needed(left).saturating_add(2), needed(right));
    let half = width / 2;
    if left > half {
        left.min(width.saturating_sub(right).max(half))
    } else if right > width - half {
        width.saturating_sub(right).max(left)
    } else {
        half
    }
}

/// The facts as text, one per line.
pub(super) fn copied(stage: &Stage<'_>, survey: &Survey, picked: Option<SelectedPart>) -> Clipping {
    let (title, facts) = told(stage, survey, picked, true);
    let mut text = format!("{title} of {}", copied::whose(stage));
    for fact in facts.iter().filter(|fact| !fact.key && !fact.text.is_empty()) {
        text.push_str(&format!("\n{}: {}", fact.label, fact.text));
    }
    Clipping::new(title, &text)
}

/// The title and the facts.
fn told(stage: &Stage<'_>, survey: &Survey, picked: Option<SelectedPart>, in_title: bool) -> (&'static str, Vec<Fact>) {
    let segments = &stage.shown.segments;
    let at = picked.and_then(|picked| Some((picked, segments.get(picked.segment)?)));
    let Some((picked, segment)) = at else {
        return match stage.states.blocks.selected {
            Some(selected) => ("nothing there", gone(selected.address)),
            None => ("all segments", overview(stage, survey, in_title)),
        };
    };
    let teller = DetailWriter { stage, survey, segment, index: picked.segment, story: BlockStory::new(stage) };
    match picked.part {
        Some(SegmentPart::Block(index)) => match segment.blocks.get(index) {
            Some(block) => ("block", teller.block(index, block)),
            None => ("segment", teller.segment()),
        },
        Some(SegmentPart::Hole(hole)) => ("hole", teller.hole(&hole)),
        None => ("segment", teller.segment()),
    }
}

fn gone(address: Address) -> Vec<Fact> {
    vec![
        Fact::new("at", address.to_string()),
        Fact::new("", "No segment lies there at this moment: it was returned to the driver, or is not allocated yet."),
        Fact::key("Esc", "no selection"),
    ]
}

/// An overview, and how to select. The keys that jump may already be in the title.
fn overview(stage: &Stage<'_>, survey: &Survey, in_title: bool) -> Vec<Fact> {
    let (view, total) = (stage.shown, survey.total());
    let ledger = &view.ledger;
    let share = figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let segments = figures::counted(view.segments.len() as u64, "segment");
    // Free pages of expandable segments are stranded, but not holes.
    let hole = match view.largest_hole {
        Bytes::ZERO => String::new(),
        hole => format!(", largest hole {}", figures::bytes(hole)),
    };
    let mut facts = vec![
        Fact::new("reserved", format!("{} in {segments}", figures::bytes(ledger.reserved()))),
        Fact::new("in use", format!("{} by {}", figures::bytes(total.held), figures::counted(total.blocks, "block"))),
        Fact::new("stranded", format!("{} ({share}){hole}", figures::bytes(ledger.stranded))),
        Fact::new("", ""),
    ];
    use BlocksAction::{
        Coloring, LargestBlock, LargestHole, Next, NextSegment, OfOp, Order, Previous, PreviousSegment, ZoomAll,
        ZoomIn, ZoomOut,
    };
    let keys = |actions: &[Action], text| Fact::keys(stage, actions, text);
    let jumps = [
        keys(&[own(LargestHole)], "largest hole and who holds it"),
        keys(&[own(LargestBlock)], "largest block"),
        keys(&[own(Next), own(Previous)], "next and previous block"),
        keys(&[own(NextSegment), own(PreviousSegment)], "next and previous segment"),
        keys(&[own(OfOp)], "blocks of this op"),
        keys(&[Action::Filter(Lookup::Blocks)], "filter by name, op, category"),
    ];
    facts.extend(jumps.into_iter().flatten().filter(|_| !in_title));
    let looks = [
        keys(&[own(Coloring)], "what colours mean"),
        keys(&[own(Order)], "order of segments"),
        keys(&[own(ZoomIn), own(ZoomOut), own(ZoomAll)], "zoom in, out, all"),
        // In few rows each column has as many rows as the figures beside it.
        (!in_title).then(|| Fact::key("click", "selects a block")),
    ];
    facts.extend(looks.into_iter().flatten());
    facts
}

/// Writes the facts about a part of a segment.
struct DetailWriter<'a> {
    stage: &'a Stage<'a>,
    survey: &'a Survey,
    segment: &'a SegmentView,
    index: usize,
    story: BlockStory<'a>,
}

impl DetailWriter<'_> {
    fn view(&self) -> &View {
        self.stage.shown
    }

    fn block(&self, index: usize, block: &BlockView) -> Vec<Fact> {
        let (view, theme) = (self.view(), self.stage.theme);
        let address = self.segment.address.offset(block.offset);
        let op = view.names.get(block.op);
        let name = view.names.get(block.name);
        let place = [op, name].into_iter().map(naming::place).find(|place| !place.is_empty());
        let asked = match block.rounding() {
            Bytes::ZERO => "all of it".to_owned(),
            rounding => format!("{}, {} are rounding", exact(block.requested), exact(rounding)),
        };
        let mut facts = vec![
            Fact::strong("name", named(view, block)).marked(legend_of(block.category, theme)),
            Fact::strong("size", exact(block.size)),
            Fact::strong("dies", self.story.dies(block, address)),
            self.pins(index),
            Fact::new("born", self.story.born(block)),
            Fact::new("made by", self.maker(op, name)),
        ];
        facts.extend(place.map(|place| Fact::new("in", place)));
        facts.extend([
            Fact::new("for", block.category.label()),
            Fact::new("asked", asked),
            Fact::new("", ""),
            Fact::new("at", self.at(block.offset)),
            Fact::new("left", self.beside(self.segment.hole_before(index), index.checked_sub(1), "the segment begins")),
            Fact::new("right", self.beside(self.segment.hole_before(index + 1), Some(index + 1), "the segment ends")),
        ]);
        facts.extend(self.around());
        facts
    }

    /// Who allocated a block: the op, or the function in somebody else's program.
    fn maker(&self, op: &str, name: &str) -> String {
        let known = if op.is_empty() && name.ends_with(')') { name } else { op };
        match (known, &self.stage.picture.kind) {
            ("", SourceKind::Snapshot(_)) => "not recorded".to_owned(),
            ("", _) => "between ops".to_owned(),
            (known, _) => naming::thing(known).to_owned(),
        }
    }

    /// The free bytes that can't be released because of a block.
    fn pins(&self, index: usize) -> Fact {
        let pages = if self.segment.page.is_some() { " on its pages" } else { "" };
        match self.segment.pinned_by(index) {
            Some(pinned) if pinned.free > Bytes::ZERO => {
                let with = match pinned.others {
                    0 => "alone".to_owned(),
                    others => format!("with {}", figures::counted(others as u64, "other")),
                };
                let text = format!("{} free{pages}, {with}", figures::bytes(pinned.free));
                if pinned.others == 0 {
                    Fact { token: Token::Warn, ..Fact::new("pins", text) }
                } else {
                    Fact::new("pins", text)
                }
            }
            _ if self.segment.page.is_some() => Fact::new("pins", "nothing: its pages are full"),
            _ => Fact::new("pins", "nothing: its segment is full"),
        }
    }

    fn hole(&self, hole: &Hole) -> Vec<Fact> {
        let mut facts = vec![Fact::strong("size", exact(hole.size))];
        if hole.releasable > Bytes::ZERO {
            let what = if hole.stranded() == Bytes::ZERO { "all of it" } else { "whole pages" };
            facts.push(Fact::new("", format!("{what}, {}, {}", figures::bytes(hole.releasable), self.goes_back())));
        }
        let holders = self.segment.holders_of(hole);
        facts.extend(self.holders(&holders));
        facts.extend([
            Fact::new("serves", serves(self.segment, hole.size)),
            Fact::new("", ""),
            Fact::new("at", self.at(hole.offset)),
            Fact::new("left", self.beside(None, hole.before.checked_sub(1), "the segment begins")),
            Fact::new("right", self.beside(None, Some(hole.before), "the segment ends")),
        ]);
        facts.extend(self.around());
        facts
    }

    /// The blocks that keep a hole from being released, the largest first, each with its end.
    fn holders(&self, holders: &[usize]) -> Vec<Fact> {
        let mut blocks: Vec<&BlockView> = holders.iter().filter_map(|index| self.segment.blocks.get(*index)).collect();
        let count = blocks.len();
        let key = |block: &&BlockView| (Reverse(block.size), block.offset);
        // Of a million blocks only the first few are sorted.
        if count > HOLDERS {
            blocks.select_nth_unstable_by_key(HOLDERS, key);
            blocks.truncate(HOLDERS);
        }
        blocks.sort_unstable_by_key(key);
        let pages = if self.segment.page.is_some() { " on its pages" } else { "" };
        let head = match count {
            0 => return vec![Fact::new("held by", "no block")],
            1 => format!("1 block alone{pages}:"),
            count if count > HOLDERS => format!("{count} blocks{pages}, the largest:"),
            count => format!("{count} blocks{pages}:"),
        };
        let alone = count == 1;
        let mut facts =
            vec![Fact { token: if alone { Token::Warn } else { Token::Text }, ..Fact::new("held by", head) }];
        for block in blocks {
            let address = self.segment.address.offset(block.offset);
            let name = format!("{} {}", figures::bytes(block.size), named(self.view(), block));
            facts.push(Fact::strong("", name).marked(legend_of(block.category, self.stage.theme)));
            facts.push(Fact::new(if alone { "dies" } else { "  dies" }, self.story.dies(block, address)));
        }
        facts
    }

    fn segment(&self) -> Vec<Fact> {
        let mut facts = self.around();
        let largest = self.segment.blocks.iter().rev().max_by_key(|block| block.size);
        let hole = self.segment.holes().max_by_key(|hole| hole.stranded()).filter(|hole| hole.stranded() > Bytes::ZERO);
        facts.push(Fact::new("at", self.segment.address.to_string()));
        if let Some(hole) = hole {
            facts.push(Fact::new(
                "hole",
                format!("largest {} at +{}", figures::bytes(hole.size), figures::bytes(hole.offset)),
            ));
        }
        if let Some(largest) = largest {
            let text = format!("largest {} {}", figures::bytes(largest.size), named(self.view(), largest));
            facts.push(Fact::new("block", text).marked(legend_of(largest.category, self.stage.theme)));
        }
        if let [only] = self.segment.blocks.as_slice() {
            let address = self.segment.address.offset(only.offset);
            facts.push(Fact { token: Token::Warn, ..Fact::new("held by", "this block alone") });
            facts.push(Fact::strong("dies", self.story.dies(only, address)));
        }
        facts
    }

    /// The segment: which one, and how full.
    fn around(&self) -> Vec<Fact> {
        let segment = self.segment;
        let Some(sum) = self.survey.sum(self.index) else { return Vec::new() };
        let pool = if segment.pool == PoolKind::Small { "small" } else { "large" };
        let pages = match segment.page {
            Some(page) => format!(", expandable, pages of {}", figures::short_bytes(page)),
            None => String::new(),
        };
        let what = format!("{} of the {pool} pool{pages}, stream {}", figures::bytes(segment.size), segment.stream.0);
        let used = format!("{} in {}", figures::bytes(sum.held), figures::counted(sum.blocks, "block"));
        let back = match (sum.releasable, sum.free()) {
            (_, Bytes::ZERO) => "nothing".to_owned(),
            (Bytes::ZERO, free) => format!("{}, all of it stranded", figures::bytes(free)),
            (releasable, free) if releasable == free => {
                format!("{}, all of it {}", figures::bytes(free), self.goes_back())
            }
            (releasable, free) => {
                format!("{}, {} {}", figures::bytes(free), figures::bytes(releasable), self.goes_back())
            }
        };
        vec![Fact::new("segment", what), Fact::new("in use", used), Fact::new("free", back)]
    }

    /// What emptying the cache would release, and the key for that if there is one.
    fn goes_back(&self) -> String {
        let key = self.stage.keys.key_of(Action::EmptyCache);
        let has_key = self.stage.picture.is_live() && !key.is_empty();
        if has_key { format!("releasable: {key}") } else { "releasable".to_owned() }
    }

    fn at(&self, offset: Bytes) -> String {
        format!("{}, {} in", self.segment.address.offset(offset), figures::bytes(offset))
    }

    /// What lies on one side: a hole, otherwise a block by its index, otherwise an end of the segment.
    fn beside(&self, hole: Option<Hole>, block: Option<usize>, end: &str) -> String {
        match (hole, block.and_then(|index| self.segment.blocks.get(index))) {
            (Some(hole), _) => format!("hole {}", figures::bytes(hole.size)),
            (None, Some(block)) => format!("{} {}", figures::bytes(block.size), named(self.view(), block)),
            (None, None) => end.to_owned(),
        }
    }
}

/// Which requests fit in this many free bytes of a segment.
fn serves(segment: &SegmentView, size: Bytes) -> String {
    let (least, most) = match segment.pool {
        PoolKind::Small => ("", size.min(Bytes(MIB))),
        PoolKind::Large if size <= Bytes(MIB) => {
            return "nothing: requests up to 1 MiB go to the small pool".to_owned();
        }
        PoolKind::Large => ("over 1 MiB, ", size),
    };
    let stream = match segment.stream {
        StreamId::DEFAULT => String::new(),
        stream => format!(", of stream {}", stream_name(stream)),
    };
    format!("requests {least}up to {} after rounding{stream}", figures::bytes(most))
}

/// A block's name, or what replaces it.
pub(super) fn named(view: &View, block: &BlockView) -> String {
    match (view.names.get(block.name), view.names.get(block.op)) {
        ("", "") => format!("unnamed ({})", block.category.label()),
        ("", op) => op.to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// A size with its exact bytes, because the allocator rounds bytes.
fn exact(size: Bytes) -> String {
    let text = figures::bytes(size);
    if text.ends_with(" B") { text } else { format!("{text} ({})", grouped(size.get())) }
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.width() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_serves_the_requests_of_its_pool() {
        let segment = |pool, stream| SegmentView {
            address: Address(0),
            size: Bytes::mib(20),
            pool,
            stream: StreamId(stream),
            expandable: false,
            page: None,
            blocks: std::sync::Arc::default(),
        };
        for (pool, stream, size, told) in [
            (PoolKind::Large, 0, Bytes::mib(6), "requests over 1 MiB, up to 6.0 MiB after rounding"),
            (PoolKind::Large, 7, Bytes(MIB + 512), "requests over 1 MiB, up to 1.0 MiB after rounding, of stream s7"),
            (PoolKind::Large, 0, Bytes::mib(1), "nothing: requests up to 1 MiB go to the small pool"),
            (PoolKind::Small, 0, Bytes(1536), "requests up to 1.5 KiB after rounding"),
            (PoolKind::Small, 0, Bytes::mib(2), "requests up to 1.0 MiB after rounding"),
        ] {
            assert_eq!(serves(&segment(pool, stream), size), told);
        }
    }

    #[test]
    fn sizes_are_told_to_the_byte() {
        assert_eq!(exact(Bytes(512)), "512 B");
        assert_eq!(exact(Bytes(6_291_456)), "6.0 MiB (6,291,456)");
        assert_eq!(exact(Bytes(1024)), "1.0 KiB (1,024)");
        assert_eq!(exact(Bytes(123_456)), "120.6 KiB (123,456)");
    }
}
