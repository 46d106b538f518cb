//! The block map of the Lab: all segments in address order, with live bytes by category, or by age while something
//! leaks. Rounding, pending and free bytes are distinguished.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::drawing::figures;
use crate::drawing::legend::{account_marks, legend_of, short_label};
use crate::drawing::map::{self, Coloring, KeyEntry, Sheet, Survey, Tone};
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{BlockView, Category, SegmentView, View};
use crate::tui::action::Action;
use crate::tui::hold::Hold;
use crate::tui::stage::{FrameLayout, Stage};
use crate::units::Bytes;

/// Draws the pane, and notes in the layout where the map is and what is visible of it.
pub(crate) fn render(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer, layout: &mut FrameLayout) {
    let (theme, view) = (stage.theme, stage.shown);
    let margin = if kind == Frame::Box { 4 } else { 2 };
    let inside = area.height.saturating_sub(if kind == Frame::Box { 2 } else { 1 });
    let wide = area.width.saturating_sub(margin);
    let most = inside.saturating_sub(1) / 3;
    let width = usize::from(wide);
    let ages = super::leaks(stage).then(|| stage.states.lab.ages(view, &stage.picture.history));
    let all = entries(stage, ages.as_deref());
    let lines =
        |entries: &[KeyEntry], figures| map::lines_of_most(entries.to_vec(), figures, stage.unit(), theme, width);
    let fits = |lines: &Vec<Vec<Span<'_>>>| lines.len() <= usize::from(most);
    // All figures come before words for what is hardly visible, and all words before some figures, of which those of
    // most bytes matter most. If not all words fit, those of most bytes are written.
    let whole = Some(lines(&all, usize::MAX)).filter(fits);
    let whole =
        whole.or_else(|| Some(lines(&map::seen_entries(&all, view.ledger.reserved()), usize::MAX)).filter(fits));
    let whole = whole.or_else(|| [5, 3, 0].into_iter().map(|figures| lines(&all, figures)).find(fits));
    let legend = whole.unwrap_or_else(|| lines(&by_bytes(all), 0));
    let legend_rows = u16::try_from(legend.len()).unwrap_or(0).min(most);
    let seen = usize::from(inside - legend_rows);
    let width = map::cells(Rect { width: wide, ..area }).width;
    let plan = stage.states.lab.overview(&view.segments, (usize::from(width), seen));
    let room = usize::from(area.width.saturating_sub(5));
    let hidden = plan.rows.saturating_sub(seen);
    // Without a row for the legend, the title explains the marks that charts don't have.
    let word = if ages.is_some() { "blocks by age" } else { "blocks" };
    let hidden = hidden_words(stage, kind, hidden);
    let taken = word.len() + scale_words(plan.scale).chars().count() + SEPARATOR + hidden.chars().count();
    let marked = match &ages {
        _ if legend_rows > 0 => Vec::new(),
        Some(ages) => aged(ages, room.saturating_sub(word.len()), theme),
        None => marked(view, (room.saturating_sub(taken), room.saturating_sub(word.len())), theme),
    };
    let taken = cells(&marked) + hidden.chars().count();
    // A lesson mentions reserved bytes where there is no room for the ledger.
    let of_lesson = if stage.hold != Hold::Nothing && hidden.is_empty() && kind == Frame::Rule {
        format!("reserved {}", figures::bytes(view.ledger.reserved()))
    } else {
        String::new()
    };
    let mut title = title(word, view, (plan.scale, of_lesson), room.saturating_sub(taken), marked.is_empty(), theme);
    title.extend(marked);
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    if !hidden.is_empty() {
        let at = Rect { height: if kind == Frame::Box { area.height } else { 1 }, ..area };
        pane::remark(span(theme, Token::Key, hidden), at, buf);
    }
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let rows = Rect { height: inner.height.saturating_sub(legend_rows), ..inner };
    let first = stage.scroll.min(plan.rows.saturating_sub(seen));
    let (segments, plan) = (view.segments.as_slice(), &plan);
    let coloring = if ages.is_some() { Coloring::Age } else { Coloring::Category };
    let sheet = Sheet { segments, plan, coloring, touched: stage.touched(), picked: None, theme };
    let divide = |segments: &[&SegmentView], of, cells| match &ages {
        Some(ages) => ages.strip(segments, of, cells),
        None => {
            let tone = |_: &SegmentView, block: &BlockView| Some(Tone::of(block.category));
            stage.states.lab.strips.strip(segments, view.segments.len(), of, cells, tone)
        }
    };
    sheet.draw(first, divide, rows, buf);
    for (y, line) in (rows.height..inner.height).zip(legend) {
        put(inner, y, line, buf);
    }
    if view.segments.is_empty() && rows.height > 0 {
        put(rows, 0, vec![span(theme, Token::Dim, "no segments yet")], buf);
    }
    layout.overview = Some(map::cells(rows));
    layout.rows = (plan.rows, seen);
}

/// Cells between words of a title.
const SEPARATOR: usize = 3;

/// The bytes of a cell in the map, in words.
fn scale_words(scale: u64) -> String {
    if scale > 0 { format!("1 cell = {}", figures::scale(Bytes(scale))) } else { String::new() }
}

fn cells(spans: &[Span<'_>]) -> usize {
    spans.iter().map(Span::width).sum()
}

/// The key that shows rows for which the map has no room: below a box if there is room for words, otherwise at the end
/// of the title.
fn hidden_words(stage: &Stage<'_>, kind: Frame, rows: usize) -> String {
    let key = stage.keys.key_of(Action::ScrollPage(1));
    match kind {
        _ if rows == 0 || key.is_empty() => String::new(),
        Frame::Box => format!("{key}: {} more", figures::counted(rows as u64, "row")),
        Frame::Rule => format!("{key} +{rows}"),
    }
}

/// The free bytes in the map with their patterns: stranded bytes, with their share if there is room, and others if they
/// are at least 1/50 of reserved. Figures are short if `room` requires it; if there is no room at all, at most `most`
/// cells are used.
fn marked(view: &View, (room, most): (usize, usize), theme: &Theme) -> Vec<Span<'static>> {
    let ledger = &view.ledger;
    let [stranded, releasable, _, pending] = account_marks(theme);
    let all = [(stranded, ledger.stranded), (pending, ledger.pending), (releasable, ledger.releasable)];
    let entries = |with_share: bool, figure: fn(Bytes) -> String| {
        let seen = all.iter().enumerate().filter(|(place, (_, bytes))| {
            *bytes > if *place == 2 { Bytes(ledger.reserved().get() / 50) } else { Bytes::ZERO }
        });
        let entry = |(place, ((mark, label), bytes)): (usize, &((Span<'static>, &'static str), Bytes))| {
            let share = figures::percent(bytes.get(), ledger.reserved().get());
            let share = if place == 0 && with_share { format!(" ({share})") } else { String::new() };
            let token = if place == 0 { alarm(view) } else { Token::Text };
            [Span::raw("  "), mark.clone(), span(theme, token, format!(" {label} {}{share}", figure(*bytes)))]
        };
        seen.map(entry).collect::<Vec<_>>()
    };
    let shortest = entries(false, figures::short_bytes);
    let forms = [&entries(true, figures::bytes), &entries(false, figures::bytes), &shortest];
    let whole = forms.into_iter().map(|form| form.concat()).find(|spans| cells(spans) <= room);
    // None is cut.
    let first = |room: usize| {
        shortest.iter().fold(Vec::new(), |spans: Vec<Span<'static>>, entry| {
            let fits = cells(&spans) + cells(entry) <= room;
            if fits { [spans, entry.to_vec()].concat() } else { spans }
        })
    };
    whole.unwrap_or_else(|| Some(first(room)).filter(|spans| !spans.is_empty()).unwrap_or_else(|| first(most)))
}

/// The ages that hold any bytes, with their colours. If not all fit, those of most bytes.
fn aged(ages: &Survey, room: usize, theme: &Theme) -> Vec<Span<'static>> {
    let mut by_bytes = ages.legend();
    by_bytes.retain(|(.., bytes)| *bytes > Bytes::ZERO);
    by_bytes.sort_by_key(|(.., bytes)| std::cmp::Reverse(*bytes));
    let mut left = room;
    by_bytes.retain(|(_, word, _)| {
        // Two blanks, a mark, and a blank.
        let cells = word.chars().count() + 4;
        let fits = cells <= left;
        left -= if fits { cells } else { 0 };
        fits
    });
    by_bytes.sort_by_key(|(tone, ..)| tone.0);
    let marked = |(tone, word, _)| {
        [Span::raw("  "), Coloring::Age.mark(tone, theme), span(theme, Token::Text, format!(" {word}"))]
    };
    by_bytes.into_iter().flat_map(marked).collect()
}

fn alarm(view: &View) -> Token {
    if view.ledger.fragmentation() >= 0.25 { Token::Warn } else { Token::Text }
}

/// The title with as much as fits: the number of segments, the bytes lost in holes if wanted, and the largest hole.
fn title(
    word: &'static str,
    view: &View,
    (scale, more): (u64, String),
    room: usize,
    with_stranded: bool,
    theme: &Theme,
) -> Vec<Span<'static>> {
    let ledger = &view.ledger;
    let share = figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let segments = figures::counted(view.segments.len() as u64, "segment");
    let blocks: usize = view.segments.iter().map(|segment| segment.blocks.len()).sum();
    // The most important first.
    let words = [
        (Token::Dim, more),
        (Token::Dim, scale_words(scale)),
        (
            alarm(view),
            if with_stranded {
                format!("stranded {} ({share})", figures::bytes(ledger.stranded))
            } else {
                String::new()
            },
        ),
        (Token::Text, segments),
        (Token::Text, format!("largest hole {}", figures::bytes(view.largest_hole))),
        (Token::Text, figures::counted(blocks as u64, "block")),
    ];
    pane::title(word, words, room, theme)
}

/// The key to the colours, with bytes. Empty entries are left out.
fn entries(stage: &Stage<'_>, ages: Option<&Survey>) -> Vec<KeyEntry> {
    let (theme, view) = (stage.theme, stage.shown);
    if let Some(ages) = ages {
        let held = ages.legend().into_iter().filter(|(.., bytes)| *bytes > Bytes::ZERO);
        let held = held.map(|(tone, word, bytes)| KeyEntry::new(Coloring::Age.mark(tone, theme), word, bytes));
        return held.chain(map::account_entries(&view.ledger, stage.touched(), theme)).collect();
    }
    let categories = Category::ALL.into_iter().zip(view.by_category).filter(|(_, bytes)| *bytes > Bytes::ZERO);
    let categories =
        categories.map(|(category, bytes)| KeyEntry::new(legend_of(category, theme), short_label(category), bytes));
    categories.chain(map::account_entries(&view.ledger, stage.touched(), theme)).collect()
}

/// Sorts entries for the case that lines are cut: blocks of the current op first, then by bytes.
fn by_bytes(mut all: Vec<KeyEntry>) -> Vec<KeyEntry> {
    all.sort_by_key(|entry| (!entry.touched, std::cmp::Reverse(entry.bytes)));
    all
}
