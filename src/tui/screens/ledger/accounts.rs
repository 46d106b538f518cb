//! The five accounts in figures, as the charts fill them.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::model::{Ledger, View};
use crate::tui::chart::Ink;
use crate::tui::figures::{self, Unit};
use crate::tui::pane::{self, Frame, put, put_right, span};
use crate::tui::stage::Stage;
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// Rows that the pane wants, with its frame: what the words mean is told where there is more.
pub(super) const WANTED_ROWS: u16 = 14;
/// With that too.
pub(super) const MOST_ROWS: u16 = WANTED_ROWS + 6;

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
    let head = format!("{:>9} {:>6} {:>9}", unit.name(), "of it", if peak.is_some() { "at peak" } else { "" });
    put_right(inner, 0, vec![span(theme, Token::Dim, head)], buf);
    let reserved = ledger.reserved();
    let figures = |bytes: Bytes, at_peak: Option<Bytes>| {
        let at_peak = at_peak.map_or_else(String::new, |bytes| unit.figure(bytes));
        let share = figures::percent(bytes.get(), reserved.get());
        vec![
            span(theme, Token::Strong, format!("{:>9}", unit.figure(bytes))),
            span(theme, Token::Dim, format!(" {share:>6} {at_peak:>9}")),
        ]
    };
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
        row(vec![mark, span(theme, Token::Text, format!(" {}", account.name))], figures(account.bytes, at_peak));
    }
    let name = |text: &str| vec![span(theme, Token::Text, text.to_owned())];
    row(name("reserved"), figures(reserved, peak.map(|peak| peak.reserved())));
    row(name("allocated"), figures(ledger.allocated(), peak.map(|peak| peak.allocated())));
    let limit = view.limit.map_or_else(|| "none".to_owned(), figures::bytes);
    let alarm = if ledger.fragmentation() >= 0.25 { Token::Warn } else { Token::Strong };
    let fragmentation = figures::percent(ledger.stranded.get(), reserved.get());
    for (word, token, figure) in [
        ("limit of reserved", Token::Strong, limit),
        ("fragmentation: stranded of reserved", alarm, fragmentation),
        ("largest hole", Token::Strong, figures::bytes(view.largest_hole)),
        ("largest free block", Token::Strong, figures::bytes(ledger.largest_free)),
    ] {
        row(vec![span(theme, Token::Dim, word)], vec![span(theme, token, figure)]);
    }
    if area.height >= MOST_ROWS {
        row(Vec::new(), Vec::new());
        for meaning in MEANINGS.iter().rev() {
            row(vec![span(theme, Token::Dim, *meaning)], Vec::new());
        }
    }
}

/// Draws the accounts in a line or two.
pub(super) fn render_lines(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let ledger = &stage.shown.ledger;
    let unit = Unit::for_largest(ledger.reserved());
    let entry = |account: Account| {
        vec![
            mark(account.ink, theme),
            span(theme, Token::Dim, format!("{} ", account.name)),
            span(theme, Token::Text, format!("{:<6}", unit.figure(account.bytes))),
        ]
    };
    let share = figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let hole = figures::bytes(stage.shown.largest_hole);
    let words = [("stranded of reserved", share), ("largest hole", hole)];
    let word = |(word, figure): (&str, String)| {
        vec![span(theme, Token::Dim, format!("{word} ")), span(theme, Token::Text, format!("{figure:<4}"))]
    };
    let when = if stage.fullest { "fullest" } else { moment(stage) };
    let head = [vec![span(theme, Token::Title, format!("{when}, {}", unit.name()))]];
    let area = Rect { x: area.x + 1.min(area.width), width: area.width.saturating_sub(1), ..area };
    pane::flow(
        head.into_iter().chain(accounts(ledger, theme).into_iter().map(entry)).chain(words.into_iter().map(word)),
        area,
        area,
        buf,
    );
}
