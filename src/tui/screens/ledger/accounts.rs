//! The five accounts in figures, as the charts fill them.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::model::{Ledger, View};
use crate::tui::beside;
use crate::tui::chart::Ink;
use crate::tui::figures::{self, Unit};
use crate::tui::pane::{self, Frame, put, put_right, span};
use crate::tui::stage::Stage;
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// Rows that the pane wants, with its frame: what the words mean is told where there is more.
pub(super) fn wanted_rows(stage: &Stage<'_>) -> u16 {
    14 + if stage.picture.ghost.is_some() { 2 } else { 0 }
}

/// With that too.
pub(super) fn most_rows(stage: &Stage<'_>) -> u16 {
    wanted_rows(stage) + 6
}

/// Rows of the same in lines.
pub(super) fn line_rows(stage: &Stage<'_>) -> u16 {
    if stage.picture.ghost.is_some() { 4 } else { 2 }
}

/// Cells from which on shares have room beside a ghost.
const WITH_SHARES: u16 = 50;

/// Where some of the reserved bytes stand.
pub(super) struct Account {
    pub name: &'static str,
    pub ink: Ink,
    pub bytes: Bytes,
}

/// The accounts, as they lie upon each other in the chart from the floor up.
pub(super) fn accounts(ledger: &Ledger, theme: &Theme) -> [Account; 5] {
    // Colours differ enough to tell them apart; without them density does.
    let account = |name, token, density, bytes| {
        let fill = if theme.is_colorless() { density } else { "█" };
        Account { name, ink: Ink { token, fill }, bytes }
    };
    [
        account("live", Token::Allocated, "█", ledger.live),
        account("rounding", Token::Rounding, "▓", ledger.rounding),
        account("pending", Token::Pending, "▒", ledger.pending),
        account("stranded", Token::Stranded, "░", ledger.stranded),
        Account { name: "releasable", ink: RELEASABLE, bytes: ledger.releasable },
    ]
}

/// Nothing holds it: empty, but reserved.
pub(super) const RELEASABLE: Ink = Ink { token: Token::FreeMark, fill: "·" };

/// What each of them is, in the same order.
const MEANINGS: [&str; 5] = [
    "live: asked for and not yet freed",
    "rounding: the rest of live blocks",
    "pending: freed, another stream may read",
    "stranded: free between blocks in use",
    "releasable: empty_cache returns it",
];

/// The mark of an ink in legends.
pub(super) fn mark(ink: Ink, theme: &Theme) -> Span<'static> {
    let symbol = if ink.fill == "█" && !theme.is_colorless() { "■" } else { ink.fill };
    Span::styled(symbol, Style::new().fg(theme.color(ink.token)))
}

/// Of which moment the figures are.
fn moment(stage: &Stage<'_>) -> &'static str {
    match (stage.fullest, stage.picture.is_now(), stage.picture.is_live()) {
        (true, ..) => "at the fullest moment seen",
        (_, true, true) => "now",
        (_, true, false) => "at the end",
        (_, false, _) => "at the cursor",
    }
}

/// Where what is studied is fullest.
fn fullest(stage: &Stage<'_>) -> Option<Ledger> {
    let study = stage.picture.study.as_deref()?;
    study.peak.map(|peak| peak.ledger)
}

/// Draws the pane.
pub(super) fn render(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let view: &View = stage.shown;
    let ledger = &view.ledger;
    let peak = fullest(stage);
    let largest = ledger.reserved().max(peak.map_or(Bytes::ZERO, |peak| peak.reserved()));
    let unit = Unit::for_largest(largest);
    let title = vec![span(theme, Token::Title, "accounts"), span(theme, Token::Dim, format!(" · {}", moment(stage)))];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let ghost = stage.picture.ghost.as_deref();
    let with_shares = ghost.is_none() || inner.width >= WITH_SHARES;
    // The run's figure, its share, the ghost's figure, the run's at its peak: as far as there is room for columns.
    let columns = |own: Span<'static>, share: &str, other: &str, at_peak: &str| {
        let mut columns = vec![own];
        if with_shares {
            columns.push(span(theme, Token::Dim, format!(" {share:>6}")));
        }
        if ghost.is_some() {
            columns.push(span(theme, Token::Text, format!(" {other:>9}")));
        }
        columns.push(span(theme, Token::Dim, format!(" {at_peak:>9}")));
        columns
    };
    let head = span(theme, Token::Dim, format!("{:>9}", unit.name()));
    put_right(inner, 0, columns(head, "of it", "ghost", if peak.is_some() { "at peak" } else { "" }), buf);
    let reserved = ledger.reserved();
    let figures = |bytes: Bytes, other: Option<Bytes>, at_peak: Option<Bytes>| {
        let figure = |bytes: Option<Bytes>| bytes.map_or_else(String::new, |bytes| unit.figure(bytes));
        let own = span(theme, Token::Strong, format!("{:>9}", unit.figure(bytes)));
        columns(own, &figures::percent(bytes.get(), reserved.get()), &figure(other), &figure(at_peak))
    };
    let other = stage.ghost.map(|ghost| &ghost.ledger);
    let others = other.map(|other| accounts(other, theme));
    let mut y = 1;
    let mut row = |name: Vec<Span<'static>>, figures: Vec<Span<'static>>| {
        put(inner, y, name, buf);
        put_right(inner, y, figures, buf);
        y += 1;
    };
    let then = peak.as_ref().map(|peak| accounts(peak, theme));
    // As they lie upon each other in the chart.
    for (index, account) in accounts(ledger, theme).into_iter().enumerate().rev() {
        let mark = mark(account.ink, theme);
        let at_peak = then.as_ref().map(|then| then[index].bytes);
        let other = others.as_ref().map(|others| others[index].bytes);
        let name = vec![mark, span(theme, Token::Text, format!(" {}", account.name))];
        row(name, figures(account.bytes, other, at_peak));
    }
    let name = |text: &str| vec![span(theme, Token::Text, text.to_owned())];
    row(name("reserved"), figures(reserved, other.map(Ledger::reserved), peak.map(|peak| peak.reserved())));
    row(
        name("allocated"),
        figures(ledger.allocated(), other.map(Ledger::allocated), peak.map(|peak| peak.allocated())),
    );
    let alarm = if ledger.fragmentation() >= 0.25 { Token::Warn } else { Token::Strong };
    let size: fn(Bytes) -> String = if ghost.is_some() { figures::short_bytes } else { figures::bytes };
    let lost = |ledger: &Ledger| figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let hole = stage.ghost.map(|ghost| size(ghost.largest_hole));
    let free = other.map(|other| size(other.largest_free));
    let limit = view.limit.map_or_else(|| "none".to_owned(), size);
    for (long, short, token, figure, theirs) in [
        ("limit of reserved", "limit", Token::Strong, limit, None),
        ("fragmentation: stranded of reserved", "fragmentation", alarm, lost(ledger), other.map(lost)),
        ("largest hole", "largest hole", Token::Strong, size(view.largest_hole), hole),
        ("largest free block", "largest free", Token::Strong, size(ledger.largest_free), free),
    ] {
        let (word, figures) = if ghost.is_some() {
            let own = span(theme, token, format!("{figure:>9}"));
            (short, columns(own, "", &theirs.unwrap_or_default(), ""))
        } else {
            (long, vec![span(theme, token, figure)])
        };
        row(vec![span(theme, Token::Dim, word)], figures);
    }
    if let Some(ghost) = ghost {
        let said = beside::waits(ghost).unwrap_or_else(|| beside::certainty(ghost).to_owned());
        let name = pane::cut(&ghost.conditions.to_string(), usize::from(inner.width).saturating_sub(8));
        row(
            vec![
                span(theme, Token::Ghost, beside::MARK),
                span(theme, Token::Dim, " ghost "),
                span(theme, Token::Text, name),
            ],
            Vec::new(),
        );
        row(vec![span(theme, Token::Dim, format!("  {said}"))], Vec::new());
    }
    if area.height >= most_rows(stage) {
        row(Vec::new(), Vec::new());
        for meaning in MEANINGS.iter().rev() {
            row(vec![span(theme, Token::Dim, *meaning)], Vec::new());
        }
    }
}

/// Draws the accounts in a line or two, and those of a ghost in as many.
pub(super) fn render_lines(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let when = if stage.fullest { "fullest" } else { moment(stage) };
    let area = Rect { x: area.x + 1.min(area.width), width: area.width.saturating_sub(1), ..area };
    let own = Rect { height: area.height.min(2), ..area };
    let unit = Unit::for_largest(stage.shown.ledger.reserved());
    let head = vec![span(theme, Token::Title, format!("{when}, {}", unit.name()))];
    pane::flow(lines(head, &stage.shown.ledger, stage.shown.largest_hole, unit, theme), own, own, buf);
    let Some(ghost) = stage.picture.ghost.as_deref() else { return };
    let other = Rect { y: own.y + own.height, height: area.height - own.height, ..area };
    let word = if beside::is_estimate(ghost) { " estimate" } else { " ghost" };
    let head = vec![span(theme, Token::Ghost, beside::MARK), span(theme, Token::Title, word)];
    let said = |text: String| vec![span(theme, Token::Dim, text)];
    let told = match stage.ghost {
        Some(occupancy) => {
            let mut told = lines(head, &occupancy.ledger, occupancy.largest_hole, unit, theme);
            told.push(said(beside::certainty(ghost).to_owned()));
            told
        }
        None => vec![head, said(beside::waits(ghost).unwrap_or_default())],
    };
    pane::flow(told, other, other, buf);
}

/// The accounts of a ledger, what is stranded of it, and its largest hole.
fn lines(head: Vec<Span<'static>>, ledger: &Ledger, hole: Bytes, unit: Unit, theme: &Theme) -> Vec<Vec<Span<'static>>> {
    let entry = |account: Account| {
        vec![
            mark(account.ink, theme),
            span(theme, Token::Dim, format!("{} ", account.name)),
            span(theme, Token::Text, format!("{:<6}", unit.figure(account.bytes))),
        ]
    };
    let share = figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let words = [("stranded of reserved", share), ("largest hole", figures::bytes(hole))];
    let word = |(word, figure): (&str, String)| {
        vec![span(theme, Token::Dim, format!("{word} ")), span(theme, Token::Text, format!("{figure:<4}"))]
    };
    [head].into_iter().chain(accounts(ledger, theme).map(entry)).chain(words.map(word)).collect()
}
